"""Scatters that reduce."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.dtypes import HALVES
from experimental_experiment.torch_interpreter.runtime.table import repairs


@repairs(
    "ScatterElements",
    when="float16 and bfloat16 with a reduction",
    because="the kernel reduces no half",
    nodes=3,
)
def reduced_in_float32(op, x, indices, updates, *, reduction="none", **attributes):
    """Computed in float32."""
    if x.dtype not in HALVES or reduction == "none":
        return None
    wide, more = (op.Cast(value, to=ir.DataType.FLOAT) for value in (x, updates))
    return op.Cast(op.ScatterElements(wide, indices, more, reduction=reduction, **attributes), to=x.dtype)
