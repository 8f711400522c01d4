"""Scattering with a reduction: halves, booleans, NaN, several threads. Gathering at the positions of a Range."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.scattering import are_whole, vector_along
from experimental_experiment.torch_interpreter.aten.transposing import inverse
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.promotion import raised, rounded
from experimental_experiment.torch_interpreter.runtime.table import repairs
from experimental_experiment.torch_interpreter.sizes import rank, static

BFLOAT16, BOOL = ir.DataType.BFLOAT16, ir.DataType.BOOL
FLOAT16, INT32, INT64 = ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.INT64

EXTREMA = ("max", "min")

MANY, SLICE = 256, 4
"""Elements, and elements of a slice, that are written one by one as fast."""

RESHAPING = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""What leaves all elements as they are, and in their order."""

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
    node = producer_of(indices, "Range")
    if node is None or counts_from_the_first(*map(number, node.inputs)):
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
    inputs = raised(op, x), indices, raised(op, updates)
    return rounded(op, op.emit(operator, inputs, {"reduction": reduction, **attributes}), x.dtype)


@repairs(
    "ScatterElements",
    when="whole slices of 4 elements or more, 256 elements or more, at the positions of a vector; along another axis than the first one half as many as it has",
    because="elements are written one by one: it takes 2 to 40 times as long",
    nodes="0; 2 along another axis",
)
def whole_slices(op, x, indices, updates, *, axis=0, reduction=None):
    """ScatterND of slices, between transpositions that bring the axis to the front.

    onnxruntime 1.31.1, one thread, microseconds without the row and with it. Along the first axis: 100 sums of 400 x 4 elements 19 and 9, of
    400 x 16 40 and 10, 1000 of 5000 x 64 1650 and 84. Along the second one: 8 x 64 x 128 added to as many 188 and 43, 20 x 60 x 8 to
    20 x 9 x 8 26 and 19, 64 x 16 to 64 x 128 7.5 and 8.1; 8 x 64 x 128 copied 300 and 100, 4 x 32 x 32 60 and 50.
    """
    if rank(x) < 2 or not are_whole(x, indices, axis := axis % rank(x)) or not are_many(x, indices, axis):
        return None
    vector = vector_along(op, indices, axis)
    if vector is None:
        return None
    positions = vector if rank(vector) == 2 and not axis else op.Reshape(vector, [-1, 1])
    if not axis:
        return op.ScatterND(x, positions, updates, reduction=reduction)
    front = [axis, *(other for other in range(rank(x)) if other != axis)]
    moved = [op.Transpose(value, perm=front) for value in (x, updates)]
    rows = op.ScatterND(moved[0], positions, moved[1], reduction=reduction)
    return op.Transpose(rows, perm=inverse(front))


def are_many(x: ir.Value, indices: ir.Value, axis: int) -> bool:
    """Whether slices are worth to be written whole: those of the first axis when they are wide, of another one when they are most of it."""
    size, count = x.shape[axis], indices.shape[axis]
    elements = math.prod(known for known in indices.shape if isinstance(known, int))
    if axis:
        return isinstance(size, int) and isinstance(count, int) and 2 * count >= size and elements >= MANY
    width = math.prod(known if isinstance(known, int) else SLICE for known in indices.shape[1:])
    return width >= SLICE and (elements >= MANY or not indices.shape.is_static())


@repairs(
    "ScatterND",
    when="elements that are added, multiplied or compared, at positions that may be equal: more than 200 000, or a number that is not known",
    because="several threads do that at a time, and some of what goes to equal positions is lost",
    nodes="0, otherwise a Loop in an If",
)
def in_parts(op, x, indices, updates, *, reduction=None):
    """One part after the other, each left to one thread, or all at once where they are few; ScatterElements for single elements.

    onnxruntime 1.31.1, one thread, 1000 x 128 sums to 100 rows in 22 microseconds plain and 24 in the If; 100 000 x 64 to 10 000 in 2.9
    milliseconds plain, 9.8 in the Loop, 130 by ScatterElements, which takes 0.8 of the time for a column: 100 000 x 1 in 350 microseconds.
    """
    if reduction in (None, "none") or are_distinct(indices):
        return None
    if rank(x) == 1 and rank(indices) == 2:  # it takes elements as fast
        return op.ScatterElements(x, op.Squeeze(indices, [1]), updates, reduction=reduction)
    if rank(x) == 2 and x.shape[1] == 1 and rank(indices) == 2 and indices.shape[1] == 1:
        return op.ScatterElements(x, indices, updates, reduction=reduction)
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
    width = x.shape[depth:]
    if all(isinstance(size, int) for size in width):
        part = op.constant([max(1, ONE_THREAD // max(1, math.prod(width)))])
    else:
        part = op.Max(op.Div(op.Mul(rows, ONE_THREAD), op.Size(updates)), [1])

    def step(inner, iteration, go, result):
        start = inner.Mul(iteration, part)
        bounds = start, inner.Add(start, part), [0]
        places, values = (inner.Slice(value, *bounds) for value in (indices, updates))
        return [go, inner.ScatterND(result, places, values, reduction=reduction)]

    body = op.subgraph(step, [op.constant(0), op.constant(True), x])
    count = op.Squeeze(op.Div(op.Add(rows, op.Sub(part, 1)), part))
    result = op.Loop(count, True, x, body=body)
    result.type, result.shape = x.type, x.shape
    return result


def are_distinct(indices: ir.Value) -> bool:
    """Whether it is known of positions that none stands there twice."""
    if indices.const_value is None or (indices.shape is not None and 0 in indices.shape):
        return indices.const_value is not None or are_found_once(indices)
    places = indices.const_value.numpy().reshape(-1, indices.shape[-1])
    return bool((places >= 0).all()) and len(np.unique(places, axis=0)) == len(places)


def are_found_once(indices: ir.Value) -> bool:
    """Whether positions (N, 1) are those of a vector where it is not 0, those of its largest elements, or a Range; or (N, rank) of a tensor."""
    node = producer_of(indices, "Transpose")
    if node is not None and producer_of(node.inputs[0], "NonZero") is not None:
        return rank(indices) == 2
    if rank(indices) != 2 or indices.shape[1] != 1:
        return False
    value = indices
    while (node := producer_of(value, *RESHAPING)) is not None:
        value = node.inputs[0]
    picked = producer_of(value, "Gather")
    if picked is not None and rank(value) == 1 and rank(picked.inputs[1]) == 0:  # a row of NonZero
        value = picked.inputs[0]
    node = producer_of(value, "NonZero", "Range", "TopK")
    if node is None or node.op_type == "Range":
        return node is not None and counts_from_the_first(*map(number, node.inputs))
    return rank(node.inputs[0]) == 1 and value is node.outputs[-1]
