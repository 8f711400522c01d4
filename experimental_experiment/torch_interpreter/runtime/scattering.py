"""Scattering with a reduction: halves, booleans, NaN, several threads. Gathering at the positions of a Range."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.runtime.table import repairs
from experimental_experiment.torch_interpreter.sizes import rank, static

BFLOAT16, BOOL, FLOAT = ir.DataType.BFLOAT16, ir.DataType.BOOL, ir.DataType.FLOAT
FLOAT16, INT32, INT64 = ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.INT64

EXTREMA = ("max", "min")

ONE_THREAD = 200_000
"""onnxruntime leaves so many updated elements to one thread, measured: up to 205 000 always, 215 000 to two."""


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


@repairs(
    "ScatterND",
    when="elements that are added, multiplied or compared: more than 200 000, or a number that is not known",
    because="several threads do that at a time, and some of what goes to equal positions is lost",
    nodes="0, otherwise a Loop in an If",
)
def in_parts(op, x, indices, updates, *, reduction=None):
    """One part after the other, each left to one thread, or all at once where they are few; ScatterElements for a vector.

    onnxruntime 1.31.1, one thread, 1000 x 128 sums to 100 rows in 22 microseconds plain and 24 in the If; 100 000 x 64 to 10 000 in 2.9
    milliseconds plain, 9.8 in the Loop, 130 by ScatterElements.
    """
    if reduction in (None, "none") or are_distinct(indices):
        return None
    if rank(x) == 1 and rank(indices) == 2:  # it takes elements as fast
        return op.ScatterElements(x, op.Squeeze(indices, [1]), updates, reduction=reduction)
    is_known = updates.shape.is_static()
    if is_known and math.prod(updates.shape) <= ONE_THREAD:
        return None

    def at_once(inner):
        return [inner.ScatterND(x, indices, updates, reduction=reduction)]

    def one_by_one(inner):
        return [in_turn(inner, x, indices, updates, reduction)]

    if is_known:
        return one_by_one(op)[0]
    few, many = op.subgraph(at_once, name="few"), op.subgraph(one_by_one, name="many")
    result = op.If(op.LessOrEqual(op.Size(updates), ONE_THREAD), then_branch=few, else_branch=many)
    result.type, result.shape = x.type, x.shape
    return result


def in_turn(op, x, indices, updates, reduction: str) -> ir.Value:
    """ScatterND in a Loop that takes as many rows at a time as one thread does."""
    depth = static(op.size(indices, rank(indices) - 1))
    if rank(indices) != 2:
        indices = op.Reshape(indices, [-1, depth])
        row = [op.Shape(x, start=depth)] if depth < rank(x) else []
        updates = op.Reshape(updates, op.Concat([-1], *row, axis=0))
    rows = op.Shape(indices, end=1)
    part = op.Max(op.Div(op.Mul(rows, ONE_THREAD), op.Size(updates)), [1])

    def step(inner, iteration, go, result):
        start = inner.Mul(iteration, part)
        bounds = start, inner.Add(start, part), [0]
        places, values = (inner.Slice(value, *bounds) for value in (indices, updates))
        return [go, inner.ScatterND(result, places, values, reduction=reduction)]

    body = op.subgraph(step, [op.constant(0), op.constant(True), x])
    count = op.Squeeze(op.Div(op.Sub(op.Add(rows, part), 1), part))
    result = op.Loop(count, True, x, body=body)
    result.type, result.shape = x.type, x.shape
    return result


def are_distinct(indices: ir.Value) -> bool:
    """Whether positions are known, and none stands there twice."""
    if indices.const_value is None or (indices.shape is not None and 0 in indices.shape):
        return indices.const_value is not None
    places = indices.const_value.numpy().reshape(-1, indices.shape[-1])
    return bool((places >= 0).all()) and len(np.unique(places, axis=0)) == len(places)
