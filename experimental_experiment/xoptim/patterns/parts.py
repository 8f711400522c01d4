"""Values made of parts: what joins them, and what takes them apart again."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.xoptim.pattern import (
    P,
    const,
    elements_of,
    ints_of,
    only_reader,
    optional,
    var,
)
from experimental_experiment.xoptim.rules import again, no, rule
from experimental_experiment.xoptim.shapes import same_sizes
from experimental_experiment.xoptim.spans import (
    ENDLESS,
    axis_of,
    shape_span,
    slice_of,
    sliced,
    span_along,
    spans_of,
    takes_along,
    told_axes,
)

x = var("x")

MOST_ROWS = 4
"""What is before and what is behind the rows that are written, and some that are read."""


@rule(slice_of(P.Concat(name="concat", shared=True), "node"), set="default", looks_further=True)
def slice_of_concat(op, concat, node):
    """A Slice that takes some of the values that were joined: these."""
    spans, axis = spans_of(node), axis_of(concat)
    if axis is None or spans is None or not takes_along(spans, axis):
        return no("another axis, or unknown")
    values: Sequence[ir.Value] = concat.inputs
    places = [place_of(values, axis, offset) for offset in spans[axis][:2]]
    if None in places:
        values = parts_of(values, axis)
        places = [place_of(values, axis, offset) for offset in spans[axis][:2]]
    if None in places:
        inside = part_around(values, axis, *spans[axis][:2])
        if inside is not None and not is_beside_another(node, axis):
            value, start, end = inside
            return sliced(op, value, {axis: (start, end, 1)})
        reason = "it cuts some of the values, or their sizes are unknown"
    elif places[0] >= places[1]:
        reason = "it takes nothing"
    else:
        taken = values[places[0] : places[1]]
        joined = concat.outputs[0]
        if len(taken) == 1 or len(joined.uses()) == 1 or is_taken_apart(joined, axis):
            return op.Concat(*taken, axis=axis)
        reason = "others need all of it"
    return joined_at_once(op, concat, axis) or no(reason)


def place_of(values: Sequence[ir.Value], axis: int, offset: int) -> int | None:
    """How many of the joined *values* end at *offset*, which counts from the end when it is negative; None when it is inside of one."""
    if offset == 0 or offset >= ENDLESS:
        return 0 if offset == 0 else len(values)
    place, done = 0, 0
    for value in values if offset > 0 else reversed(values):
        size = None if value.shape is None else value.shape[axis]
        if not isinstance(size, int):
            return None
        place, done = place + 1, done + size
        if done >= abs(offset):
            break
    if done != abs(offset):
        return None
    return place if offset > 0 else len(values) - place


def is_beside_another(node: ir.Node, axis: int) -> bool:
    """Whether a Concat joins a Slice to another Slice of the same value: `concat_of_neighbours` may make one of both."""
    reader = only_reader(node.outputs[0], "Concat")
    if reader is None or axis_of(reader) != axis:
        return False
    places = [place for place, value in enumerate(reader.inputs) if value is node.outputs[0]]
    others = [
        reader.inputs[place + step]
        for place in places
        for step in (-1, 1)
        if 0 <= place + step < len(reader.inputs)
    ]
    slices = [producer_of(value, "Slice") for value in others]
    return any(other is not None and other.inputs[0] is node.inputs[0] for other in slices)


def joined_at_once(op, concat: ir.Node, axis: int) -> dict[ir.Value, ir.Value] | None:
    """Replace a Concat by one that joins all parts at once; None when it does so already.

    `concat_concat` leaves a Concat as it is while a rule takes it apart, which calls this where it cannot.
    """
    parts = parts_of(concat.inputs, axis) if op.graph is concat.graph else concat.inputs
    if len(parts) == len(concat.inputs):
        return None
    joined = again(op, concat, parts)
    op.move_after(concat)  # others may stand before the reader that a rule looks at
    return {concat.outputs[0]: joined}


def part_around(
    values: Sequence[ir.Value], axis: int, start: int, end: int
) -> tuple[ir.Value, int, int] | None:
    """Which of the joined *values* has all the elements of a slice, and its start and end there; None when several have some, or unknown."""
    *others, last = values
    for value in others:
        size = None if value.shape is None else value.shape[axis]
        if start < 0 or not isinstance(size, int):
            return None
        if start < size:
            return (value, start, end) if start < end <= size else None
        start -= size
        if 0 <= end < ENDLESS:
            end -= size
            if end < 0:
                return None
    return last, start, end


@rule(P.Concat(x), set="default")
def concat_one(op, x):
    """One value joined with nothing."""
    return x


@rule(P.Concat(name="node"), set="default")
def concat_empty(op, node):
    """Values joined with some that have no elements, as heads that are rotated whole are with what is left of them."""
    axis = axis_of(node)
    values = [value for value in node.inputs if axis is None or value.shape is None or value.shape[axis] != 0]
    return again(op, node, values) if 0 < len(values) < len(node.inputs) else None


@rule(P.Concat(name="node", reads=["Concat"]), set="default", looks_further=True)
def concat_concat(op, node):
    """Values joined along the axis along which they are joined again."""
    axis, joined = axis_of(node), node.outputs[0]
    if axis is None or is_joined_on(joined, axis) or is_taken_apart(joined, axis):
        return None  # the last Concat of a chain takes all of it at once: one by one, n of them would write n * n inputs
    values = parts_of(node.inputs, axis)
    return again(op, node, values) if len(values) > len(node.inputs) else None


def is_joined_on(value: ir.Value, axis: int) -> bool:
    """Whether only a Concat along this axis reads a value."""
    reader = only_reader(value, "Concat")
    return reader is not None and axis_of(reader) == axis


def is_taken_apart(value: ir.Value, axis: int) -> bool:
    """Whether all readers of a joined value take rows along this axis, and one of them has its rows joined to others along it.

    So is a buffer read to which one row after the other is written; `slice_of_concat` takes it apart.
    """
    uses = () if value.is_graph_output() else value.uses()
    joined, graph = False, value.producer().graph
    for user, place in uses if len(uses) <= MOST_ROWS else ():
        if user.graph is not graph or place or not is_of(user, "Slice", "Gather"):
            return False
        if user.op_type == "Gather":
            takes = axis_of(user) == axis and len(ints_of(user.inputs[1]) or ()) == 1
        else:
            takes = takes_along(spans_of(user), axis)
            joined |= is_joined_on(user.outputs[0], axis)
        if not takes:
            return False
    return joined


def parts_of(values: Sequence[ir.Value], axis: int) -> list[ir.Value]:
    """What the joined *values* are made of along an axis, however often they were joined: those that others read stay whole."""
    parts: list[ir.Value] = []
    waiting = [*reversed(values)]
    while waiting:
        value = waiting.pop()
        node = joined_before(value, axis)
        if node is None:
            parts.append(value)
        else:
            waiting += reversed(node.inputs)
    return parts


def joined_before(value: ir.Value, axis: int) -> ir.Node | None:
    """The Concat along this axis whose result only one node reads, None for another value."""
    node = producer_of(value, "Concat")
    is_joined = node is not None and axis_of(node) == axis and only_reader(value) is not None
    return node if is_joined else None


@rule(P.Concat(name="node", reads=["Split"]), set="default", looks_further=True)
def concat_of_split(op, node):
    """The parts of a Split joined again in order."""
    split = producer_of(node.inputs[0], "Split")
    if split is None or list(node.inputs) != list(split.outputs):
        return None
    return split.inputs[0] if axis_of(split) == axis_of(node) is not None else no("another axis")


@rule(P.Concat(name="node", reads=["Shape", "Slice"]), set="default", looks_further=True)
def concat_of_neighbours(op, node):
    """Slices of one value, or parts of one Shape, that follow one another are one."""
    axis, values = axis_of(node), list(node.inputs)
    joined = [values[0]]
    for value in values[1:]:
        both = united(op, joined[-1], value, axis, is_all=len(values) == 2)
        if both is None:
            joined.append(value)
        else:
            joined[-1] = both
    return op.Concat(*joined, axis=axis) if len(joined) < len(values) else None


@rule(P.Concat(name="node", reads=["Unsqueeze"]), set="default", looks_further=True)
def concat_of_rows(op, node):
    """All rows of a matrix in order, each a column, are its Transpose, as the positions of a mask are that were found an axis each.

    Measured with onnxruntime 1.31: a mixture of 8 experts, `t, k = torch.where(i == e)` and `w[t, k]`, of 1 to 256 tokens in 0.73 to 0.83 of the time.
    """
    rows = [row_of(value) for value in node.inputs]
    table = None if rows[0] is None else rows[0][0]
    if table is None or axis_of(node) != 1 or table.shape[0] != len(rows):
        return None
    if any(row is None or row[0] is not table or row[1] != place for place, row in enumerate(rows)):
        return no("other rows, or in another order")
    return op.Transpose(table, perm=[1, 0])


def row_of(column: ir.Value) -> tuple[ir.Value, int] | None:
    """The matrix and the row that stand as a column, None for anything else."""
    node = producer_of(column, "Unsqueeze")
    gather = (
        None if node is None or told_axes(node) not in ([1], [-1]) else producer_of(node.inputs[0], "Gather")
    )
    if gather is None or axis_of(gather) != 0:
        return None
    table, index = gather.inputs
    place = elements_of(index)
    if place is None or place[1] or table.shape is None or len(table.shape) != 2:
        return None
    count, row = table.shape[0], place[0][0]
    return (table, row % count) if isinstance(count, int) and -count <= row < count else None


def united(op, left: ir.Value, right: ir.Value, axis: int | None, is_all: bool) -> ir.Value | None:
    """The one value that *left* and *right* are side by side, None when they are not neighbours or others use them."""
    a, b = (producer_of(value, "Shape", "Slice") for value in (left, right))
    if a is None or b is None or axis is None or a.op_type != b.op_type or a.inputs[0] is not b.inputs[0]:
        return None
    if not is_all and any(len(value.uses()) > 1 or value.is_graph_output() for value in (left, right)):
        return None
    if a.op_type == "Shape":
        first, second = shape_span(a), shape_span(b)
        if first is None or second is None or first[1] != second[0]:
            return None
        return op.Shape(a.inputs[0], start=first[0], end=second[1])
    first, second = (span_along(node, axis) for node in (a, b))
    if first is None or second is None or first[1] != second[0]:
        return None
    return sliced(op, a.inputs[0], {axis: (first[0], second[1], 1)})


@rule(P.Split(P.Concat(name="concat", shared=True), optional("sizes"), name="node"), set="default")
def split_of_concat(op, concat, node):
    """A Split into the values that were joined."""
    axis = axis_of(concat)
    if axis is None or axis_of(node) != axis or len(concat.inputs) != len(node.outputs):
        return no("another axis, or other parts")
    if not all(same_sizes(a.shape, b.shape) for a, b in zip(concat.inputs, node.outputs)):
        return no("other parts, or unknown sizes")
    return list(concat.inputs)


@rule(
    P.Gather(P.Concat(name="concat", shared=True), const("indices"), name="gather"),
    set="default",
    looks_further=True,
)
def gather_of_concat(op, concat, indices, gather):
    """A Gather of one element of values that were joined: of the value that has it.

    Measured with onnxruntime 1.31: 0.49 of the time for a recursive filter of 30 steps that keeps its results in one tensor.
    """
    axis, picked = axis_of(concat), ints_of(indices)
    if axis is None or axis_of(gather) != axis or len(picked or ()) != 1:
        return no("another axis, or several elements")
    if len(indices.shape) == 0 and op.opset < 13:
        return no("Squeeze takes no axes as an input yet")
    found = None
    inner: ir.Node | None = concat
    while inner is not None:
        deeper = part_with(inner.inputs, axis, found[1] if found else picked[0])
        found, inner = deeper or found, joined_before(deeper[0], axis) if deeper else None
    if found is None:
        return joined_at_once(op, concat, axis) or no("sizes before it are unknown, or the index is outside")
    value, index = found
    if value.shape[axis] != 1:
        return op.Gather(value, [index] if len(indices.shape) else index, axis=axis)
    return value if len(indices.shape) == 1 else op.Squeeze(value, [axis])


def part_with(values: Sequence[ir.Value], axis: int, index: int) -> tuple[ir.Value, int] | None:
    """Which of the joined *values* has the element of this index, and its index there; both count from the end when *index* is negative."""
    place = index if index >= 0 else -1 - index
    for value in values if index >= 0 else reversed(values):
        size = None if value.shape is None else value.shape[axis]
        if not isinstance(size, int):
            return None
        if place < size:
            return value, place if index >= 0 else -1 - place
        place -= size
    return None
