"""Writes of a few positions of an axis. The file comes last: writes that follow one another are joined before."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.xoptim.pattern import P, ints_of
from experimental_experiment.xoptim.rules import no, rule
from experimental_experiment.xoptim.shapes import is_same
from experimental_experiment.xoptim.spans import ENDLESS, axis_of, span_along

NARROW = 16
"""Rows of fewer elements are as fast in parts."""

MOST_POSITIONS = 2**12
"""The most positions that are stored."""

SOME = 16
"""As many rows are written of an unknown number: a scatter copies all of them first, a Concat those that stay."""

LOOKING = ("Concat", "Gather", "Slice", "Split")
"""What reads parts of a value: another rule may have it read what was written."""


@rule(P.Concat(name="node", reads=["Slice"]), set="default", since=11, looks_further=True)
def write_of_positions(op, node):
    """What stands before and behind some positions of a value, with other elements between, is a scatter: of rows, or of a column of long rows.

    Measured with onnxruntime 1.31: a row of 4 x 6 to 64 x 3 x 64 x 64 0.53 to 0.8 of the time, a column of 16 x 16 to 1 000 x 64 0.58 to 0.89.
    """
    axis, shape = axis_of(node), node.outputs[0].shape
    if axis and (shape is None or len(shape) > 3 or axis != len(shape) - 1):
        return no("they are no rows, and no column")
    found = None if axis is None else positions_of(node, axis)
    if found is None:
        return no("it is no write of some positions")
    x, positions, written = found
    if is_of(producer_of(x), "Shape"):
        return no("they are sizes, which inference and other rules follow through a Concat alone")
    if any(is_of(user, operator) for user, _ in node.outputs[0].uses() for operator in LOOKING):
        return no("another rule may read what was written")
    if axis == 0:
        added = producer_of(written, "Unsqueeze")
        if added is not None and ints_of(added.inputs[1]) in ([0], [-len(x.shape)]):
            return op.ScatterND(x, op.constant([*positions]), added.inputs[0])
        return op.ScatterND(x, op.constant([[position] for position in positions]), written)
    sizes = list(written.shape)
    if len(positions) > 1:
        return no("they are several columns")
    if not isinstance(x.shape[-1], int) or x.shape[-1] < NARROW:
        return no("the rows are short, or may be")
    if all(isinstance(size, int) for size in sizes) and math.prod(sizes) <= MOST_POSITIONS:
        places = op.constant(np.full(sizes, positions[0]))
    else:
        places = op.Expand(op.constant([*positions]), op.Shape(written))
    return op.ScatterElements(x, places, written, axis=axis)


def positions_of(node: ir.Node, axis: int) -> tuple[ir.Value, range, ir.Value] | None:
    """What a Concat changes some positions of, the positions, and what it writes there; None when it does something else."""
    places = [place for place, value in enumerate(node.inputs) if producer_of(value, "Slice") is None]
    if len(places) != 1 or len(node.inputs) > 3 or (len(node.inputs) == 3 and places != [1]):
        return None
    written = node.inputs[places[0]]
    slices = [value.producer() for value in node.inputs if value is not written]
    x = slices[0].inputs[0]
    if any(item.inputs[0] is not x for item in slices) or x.shape is None or written.shape is None:
        return None
    spans = [span_along(item, axis) for item in slices]
    size, count = x.shape[axis], written.shape[axis]
    last = size if isinstance(size, int) else ENDLESS
    result = node.outputs[0].shape
    if not isinstance(size, int) and (result is None or not is_same(result[axis], size)):
        return None  # of fewer elements than it writes behind it is longer
    if None in spans or not isinstance(count, int) or not 0 < count <= MOST_POSITIONS:
        return None
    if count > 1 and (2 * count > size if isinstance(size, int) else count > SOME):
        return None
    start = spans[0][1] if places[0] else 0
    before = spans[0] if places[0] else (0, 0)
    behind = spans[-1] if places[0] < len(node.inputs) - 1 else (last, last)
    if before[0] != 0 or behind[0] != start + count or behind[1] < last:
        return None
    return x, range(start, start + count), written
