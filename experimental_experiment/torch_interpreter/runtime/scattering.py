"""Scattering with a reduction: halves, booleans, NaN. Gathering at the positions of a Range."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.runtime.table import repairs

BFLOAT16, BOOL, FLOAT = ir.DataType.BFLOAT16, ir.DataType.BOOL, ir.DataType.FLOAT
FLOAT16, INT32, INT64 = ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.INT64

EXTREMA = ("max", "min")


@repairs(
    "Gather",
    when="the positions are a Range that may start or stop below 0",
    because="both become a Slice, which counts a negative start or end from the last element: nothing is left of a reversal",
    nodes=1,
)
def at_positions_cast(op, x, indices, **attributes):
    """The positions in the other integer dtype, which is no Range."""
    node = indices.producer()
    if node is None or node.op_type != "Range" or counts_from_the_first(*map(number, node.inputs)):
        return None
    positions = op.Cast(indices, to=INT32 if indices.dtype == INT64 else INT64)
    return op.Gather(x, positions, **attributes)


def counts_from_the_first(start: int | None, limit: int | None, delta: int | None) -> bool:
    """Whether a Range, whose numbers may be unknown, certainly starts and stops at 0 or above."""
    if delta is None:
        return False
    lowest = start if delta > 0 else limit
    return lowest is not None and lowest >= 0


def number(value: ir.Value) -> int | None:
    """The number that a constant is, None for another value."""
    return None if value.const_value is None else value.const_value.numpy().item()


@repairs(
    "ScatterElements",
    when="the extremum of floats that hold NaN",
    because="NaN is passed over when a number comes later",
    nodes=5,
    special_values=True,
)
def nan_stays(op, x, indices, updates, *, axis=0, reduction=None):
    """NaN where one of the elements is."""
    if reduction not in EXTREMA or x.dtype not in dtypes.FLOATS:
        return None
    result = op.ScatterElements(x, indices, updates, axis=axis, reduction=reduction)
    is_nan = op.ScatterElements(op.IsNaN(x), indices, op.IsNaN(updates), axis=axis, reduction="add")
    return op.Where(is_nan, op.constant(float("nan"), x.dtype), result)


@repairs(
    "ScatterElements",
    "ScatterND",
    when="an extremum of booleans",
    because="it is refused while the model runs",
    nodes=0,
)
def sum_or_product_of_booleans(op, x, indices, updates, *, operator, reduction=None, **attributes):
    """Their sum, which is a logical or, or their product."""
    if reduction not in EXTREMA or x.dtype != BOOL:
        return None
    attributes["reduction"] = "add" if reduction == "max" else "mul"
    return op.emit(operator, (x, indices, updates), attributes)


@repairs(
    "ScatterElements",
    "ScatterND",
    when="halves that are added, multiplied or, but for ScatterElements of float16, compared",
    because="it is refused while the model runs",
    nodes=3,
)
def in_float32(op, x, indices, updates, *, operator, reduction=None, **attributes):
    """The same in float32."""
    compared = operator == "ScatterElements" and x.dtype == FLOAT16 and reduction in EXTREMA
    if reduction in (None, "none") or x.dtype not in (BFLOAT16, FLOAT16) or compared:
        return None
    wide = [op.Cast(value, to=FLOAT) for value in (x, updates)]
    result = op.emit(operator, (wide[0], indices, wide[1]), {"reduction": reduction, **attributes})
    return op.Cast(result, to=x.dtype)
