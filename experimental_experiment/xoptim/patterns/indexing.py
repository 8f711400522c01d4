"""Elements picked by pairs of positions, as masks of transformers read a mask of tokens."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, attribute_of, constant_of, ints_of, number_of, var
from experimental_experiment.xoptim.patterns.masks import starts_at_zero
from experimental_experiment.xoptim.patterns.positions import MOST, REACH
from experimental_experiment.xoptim.rules import no, rule
from experimental_experiment.xoptim.shapes import is_same, same_sizes

x, rows, columns = var("x"), var("rows"), var("columns")


@rule(
    P.GatherND(x, P.Concat(rows, columns, name="pairs", shared=True), name="node"),
    set="default",
    looks_further=True,
)
def gather_of_grid(op, x, rows, columns, pairs, node):
    """Some rows of a matrix along one axis and some columns along a later one: a Gather of each, none where all are taken in order."""
    shape, result = pairs.outputs[0].shape, node.outputs[0].shape
    if shape is None or result is None or x.shape is None or len(x.shape) != 2:
        return no("it is no matrix, or the rank is unknown")
    if attribute_of(pairs, "axis") not in (-1, len(shape) - 1) or attribute_of(node, "batch_dims", 0):
        return no("the pairs do not stand along the last axis")
    across = spread(op, columns)
    if across is None:
        return no("the columns do not vary along one axis")
    vector, place = across
    width = len(result)
    column = place + width + 1  # the pairs have one axis more
    found = row_axis(op, x, rows, column, width)
    if found is None or not found[0] < column < width:
        return no("the rows do not vary along an earlier axis")
    row, chosen = found
    expected = [1] * width
    expected[row], expected[column] = (x if chosen is None else chosen).shape[0], vector.shape[0]
    if not same_sizes(result, expected):
        return no("pairs are repeated")
    is_all = is_same(x.shape[1], vector.shape[0]) and is_counted(vector)
    picked = x if chosen is None else op.Gather(x, chosen, axis=0)
    picked = picked if is_all else op.Gather(picked, vector, axis=1)
    added = [axis for axis in range(width) if axis not in (row, column)]
    return op.Unsqueeze(picked, added) if added else picked


def row_axis(op, x: ir.Value, rows: ir.Value, column: int, width: int) -> tuple[int, ir.Value | None] | None:
    """The axis of the pairs along which *rows* vary and their vector, None for all rows of *x* in order; None when they do not."""
    if x.shape[0] == 1 and is_zero(rows):
        return (column - 1, None) if column else None
    along = spread(op, rows)
    if along is None:
        return None
    vector, place = along
    is_all = is_same(vector.shape[0], x.shape[0]) and is_counted(vector)
    return place + width + 1, None if is_all else vector


def is_zero(value: ir.Value) -> bool:
    """Whether a value is the number 0, repeated."""
    for _ in range(REACH):
        if number_of(value) is not None:
            break
        node = value.producer()
        if node is None or node.op_type not in ("Expand", "Unsqueeze"):
            break
        value = node.inputs[0]
    return number_of(value) == 0


def is_counted(vector: ir.Value) -> bool:
    """Whether the elements of a vector are 0, 1, 2…"""
    tensor = constant_of(vector)
    if tensor is not None:
        return tensor.size <= MOST and np.array_equal(tensor.numpy(), np.arange(tensor.size))
    node = vector.producer()
    return node is not None and node.op_type == "Range" and starts_at_zero(vector)


def spread(op, value: ir.Value, reach: int = REACH) -> tuple[ir.Value, int] | None:
    """The vector whose elements stand along one axis of a value, repeated along the others, and that axis from the end; else None."""
    if value.shape is None or not len(value.shape):
        return None
    if len(value.shape) == 1:
        return value, -1
    if constant_of(value) is not None:
        long = [axis for axis, size in enumerate(value.shape) if size != 1]
        return (op.Reshape(value, [-1]), long[0] - len(value.shape)) if len(long) == 1 else None
    node = value.producer()
    if node is None or not reach or node.op_type not in ("Expand", "Unsqueeze"):
        return None
    inner = spread(op, node.inputs[0], reach - 1)
    if inner is None or node.op_type == "Expand":
        return inner
    added, width = ints_of(node.inputs[1]), len(value.shape)
    if added is None:
        return None
    kept = [axis for axis in range(width) if axis not in {item % width for item in added}]
    return inner[0], kept[inner[1]] - width
