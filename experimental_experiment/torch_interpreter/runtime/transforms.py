"""Fourier transforms: digits, the axis as an attribute."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.runtime.table import before, repairs


@repairs(
    "DFT",
    when="float32, a size that is no power of two or not known",
    because="half of the digits are lost",
    nodes=2,
)
def in_float64(op, x, dft_length=None, axis=None, **attributes):
    """Computed in float64."""
    known = dft_length is not None and dft_length.const_value is not None
    size = int(dft_length.const_value.numpy()) if known else 0
    if x.dtype != ir.DataType.FLOAT or (size and not size & (size - 1)):
        return None
    return op.Cast(op.DFT(op.Cast(x, to=ir.DataType.DOUBLE), dft_length, axis, **attributes), to=x.dtype)


@before(20, "DFT", because="the axis is an attribute", nodes=0)
def along_an_attribute(op, x, dft_length=None, axis=None, **attributes):
    """The axis as an attribute; ONNX infers no rank when the size is not known."""
    if axis is None or axis.const_value is None:
        return None
    result = op.emit("DFT", (x, dft_length), {"axis": int(axis.const_value.numpy()), **attributes})
    if result.shape is None:
        result.shape = ir.Shape([None] * rank(x))
    return result
