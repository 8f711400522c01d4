"""Gelu before its operator, and in float64; softmax along an axis before others."""

from __future__ import annotations

import math

import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.runtime.table import before, repairs
from experimental_experiment.torch_interpreter.sizes import rank, sizes_of

FEW = 16
"""Elements after an axis, below which nothing is gained when they are one axis."""


@repairs(
    "LogSoftmax",
    "Softmax",
    when="two axes or more, of known sizes, follow that of the sum",
    because="it takes 2 to 5 times as long: the last axis changes places with it in slow steps",
    nodes=2,
)
def along_the_last_but_one(op, x, *, operator, axis=-1):
    """The axes that follow are one, between Reshapes.

    onnxruntime 1.31.1: 1 x 19 x 256 x 256 along the second axis 16.4 and 3.7 milliseconds, 2 x 21 x 64 x 64 1.5 and 0.46, 4 x 10 x 8 x 8
    66 and 49 microseconds.
    """
    axis %= rank(x)
    after = x.shape[axis + 1 :]
    if len(after) < 2 or not all(isinstance(size, int) for size in after) or math.prod(after) < FEW:
        return None
    sizes = sizes_of(op, x)
    rows = op.emit(operator, (reshaped(op, x, [*sizes[: axis + 1], math.prod(after)]),), {"axis": axis})
    return reshaped(op, rows, sizes)


@repairs("Gelu", when="float64", because="there is no kernel", nodes=70)
def half_of_it_times_one_and_more(op, x, *, approximate="none"):
    """``x / 2 * (1 + erf(x / sqrt(2)))``, or its approximation with a tanh."""
    return composed_gelu(op, x, approximate) if x.dtype == ir.DataType.DOUBLE else None


@before(20, "Gelu", because="there is no such operator", nodes=4)
def half_of_it_times_one_and_erf(op, x, *, approximate="none"):
    """``x / 2 * (1 + erf(x / sqrt(2)))``, or its approximation with a tanh; halves in float32."""
    wide = op.Cast(x, to=ir.DataType.FLOAT) if x.dtype != ir.DataType.DOUBLE else x
    return op.Cast(composed_gelu(op, wide, approximate), to=x.dtype)


def composed_gelu(op, x: ir.Value, approximate: str) -> ir.Value:
    """gelu without its operator."""
    if approximate == "tanh":
        cube = op.Mul(op.Mul(op.Mul(x, x), x), 0.044715)
        inner = op.Tanh(op.Mul(op.Add(x, cube), math.sqrt(2 / math.pi)))
    else:
        inner = op.Erf(op.Mul(x, math.sqrt(0.5)))
    return op.Mul(op.Mul(x, 0.5), op.Add(inner, 1.0))
