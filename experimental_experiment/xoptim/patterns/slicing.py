"""Slices, joins, splits, gathers: parts of values, and values made of parts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from experimental_experiment.torch_interpreter.emitter import INT64_MAX, INT64_MIN
from experimental_experiment.torch_interpreter.inference import are_backwards_to_the_end
from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.xoptim.pattern import (
    P,
    attribute_of,
    const,
    constant_of,
    ints_of,
    number_of,
    only_reader,
    optional,
    var,
)
from experimental_experiment.xoptim.patterns.masks import REACH
from experimental_experiment.xoptim.rules import again, no, rule
from experimental_experiment.xoptim.shapes import are_different, same_sizes

x, positions = var("x"), var("positions")

SHORT = 16
"""A row of fewer elements is short."""

MANY_ELEMENTS = 512
"""A tensor with fewer elements is read no faster."""

ALONG_RANGE = frozenset(("Add", "Cast", "Clip", "Div", "Floor", "Max", "Min", "Mod", "Mul", "Sub"))
"""Operators that compute one position from one."""

ENDLESS = 1 << 31
"""An end of this size or more is behind every axis."""

MOST_ROWS = 4
"""What is before and what is behind the rows that are written, and some that are read."""

Span = tuple[int, int, int]
"""Start, end and step of a slice along one axis."""


def spans_of(node: ir.Node) -> dict[int, Span] | None:
    """What a Slice takes along which axis, None when that is not constant, the rank not known, or runtimes take other elements."""
    shape = node.inputs[0].shape
    values = node.inputs[1:]
    given = [ints_of(value) for value in values]
    if shape is None or not given or any(a is None and b is not None for a, b in zip(given, values)):
        return None
    starts, ends, axes, steps = given + [None] * (4 - len(given))
    axes = range(len(starts)) if axes is None else [axis % len(shape) for axis in axes]
    if steps is not None and are_backwards_to_the_end(ends, steps):
        return None
    return dict(zip(axes, zip(starts, ends, steps or [1] * len(starts), strict=True), strict=True))


def sliced(op, x: ir.Value, spans: dict[int, Span]) -> ir.Value:
    """The Slice of *x* that takes *spans*."""
    axes = sorted(spans)
    starts, ends, steps = (list(column) for column in zip(*(spans[axis] for axis in axes)))
    return op.Slice(x, starts, ends, axes, None if set(steps) == {1} else steps)


# ---- Slice


@rule(P.Slice(x, var("starts"), var("ends"), optional("axes"), optional("steps"), name="node"), set="default")
def slice_nothing(op, x, steps, node):
    """A Slice that takes all."""
    if steps is not None and set(ints_of(steps) or [0]) != {1}:
        return None
    taken = node.outputs[0].shape
    if are_different(x.shape, taken):
        return None
    if same_sizes(x.shape, taken):
        return x
    spans = spans_of(node)
    if spans is None:
        return None
    return x if all(takes_all(span, x.shape[axis]) for axis, span in spans.items()) else None


def takes_all(span: Span, size: int | ir.SymbolicDim) -> bool:
    """Whether a slice of step 1 takes all of an axis."""
    start, end, _ = span
    if isinstance(size, int):
        return slice(start, end).indices(size) == (0, size, 1)
    return start == 0 and end >= ENDLESS


PLACES = const("starts"), const("ends"), optional("axes"), optional("steps")


def slice_of(value, name: str):
    """A Slice of constant positions."""
    return P.Slice(value, *PLACES, name=name)


@rule(
    slice_of(P.Slice(x, const("s"), const("e"), optional("a"), optional("t"), name="inner"), "outer"),
    set="default",
)
def slice_slice(op, x, inner, outer):
    """Two Slices are one: along several axes, or along one when the second counts from where the first starts."""
    spans, second = spans_of(inner), spans_of(outer)
    if spans is None or second is None:
        return no("axes or steps are unknown")
    for axis, span in second.items():
        if axis in spans:
            span = composed(spans[axis], span, x.shape[axis])
            if span is None:
                return no("it counts from the end of an axis without a known size")
        spans[axis] = span
    return sliced(op, x, spans)


def elements(axis: range, span: Span) -> range:
    """What a slice takes of an axis: backwards from before the first element it is that one, where Python takes nothing."""
    start, end, step = span
    return axis[max(start, -len(axis)) if step < 0 else start : end : step]


def composed(first: Span, second: Span, size: int | ir.SymbolicDim) -> Span | None:
    """The slice that takes *second* of what *first* takes of an axis, None when that depends on its size."""
    if isinstance(size, int):
        taken = elements(elements(range(size), first), second)
        if len(taken) == 0:
            return 0, 0, 1
    elif min(*first, *second) < 0:
        return None
    else:
        taken = elements(range(*first), second)
    end = INT64_MIN if taken.stop < 0 else INT64_MAX if taken.stop >= ENDLESS else taken.stop
    return min(taken.start, INT64_MAX), end, taken.step


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
        if inside is not None:
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


def axis_of(node: ir.Node) -> int | None:
    """The axis of a node counted from the first one, None when the rank is unknown."""
    axis, shape = attribute_of(node, "axis", 0), node.inputs[0].shape
    return axis if axis >= 0 else None if shape is None else axis + len(shape)


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


def joined_at_once(op, concat: ir.Node, axis: int) -> dict[ir.Value, ir.Value] | None:
    """The value of a Concat joined from all its parts, which `concat_concat` leaves to the rules that take it apart; None when it is."""
    parts = parts_of(concat.inputs, axis)
    return None if len(parts) == len(concat.inputs) else {concat.outputs[0]: again(op, concat, parts)}


def part_around(
    values: Sequence[ir.Value], axis: int, start: int, end: int
) -> tuple[ir.Value, int, int] | None:
    """The one of the joined *values* that a slice takes elements of, and which; None when it takes those of several, or this is unknown."""
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


# ---- Concat


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
    """Whether all that is read of a joined value are rows of this axis, to be joined to others along it: a buffer that one row after the
    other is written to. `slice_of_concat` takes them.
    """
    uses = () if value.is_graph_output() else value.uses()
    joined = False
    for user, place in uses if len(uses) <= MOST_ROWS else ():
        if user.domain or place or user.op_type not in ("Slice", "Gather"):
            return False
        if user.op_type == "Gather":
            takes = axis_of(user) == axis and len(ints_of(user.inputs[1]) or ()) == 1
        else:
            takes = takes_along(spans_of(user), axis)
            joined |= is_joined_on(user.outputs[0], axis)
        if not takes:
            return False
    return joined


def takes_along(spans: dict[int, Span] | None, axis: int) -> bool:
    """Whether a Slice takes elements that follow one another along one axis."""
    return spans is not None and list(spans) == [axis] and spans[axis][2] == 1


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


def span_along(node: ir.Node, axis: int) -> tuple[int, int] | None:
    """Start and end of a Slice of neighbours along this axis alone, counted from the first one; None otherwise."""
    spans = spans_of(node)
    if spans is None or list(spans) != [axis] or spans[axis][2] != 1:
        return None
    start, end, _ = spans[axis]
    size = node.inputs[0].shape[axis]
    if isinstance(size, int):
        start, end, _ = slice(start, end).indices(size)
    return (start, end) if 0 <= start <= end else None


def shape_span(node: ir.Node) -> tuple[int, int] | None:
    """The first axis that a Shape tells and the one after the last, None when the rank is unknown."""
    shape = node.inputs[0].shape
    if shape is None:
        return None
    start, end, _ = slice(attribute_of(node, "start"), attribute_of(node, "end")).indices(len(shape))
    return start, max(start, end)


# ---- Split, Pad, Tile


@rule(P.Split(P.Concat(name="concat", shared=True), optional("sizes"), name="node"), set="default")
def split_of_concat(op, concat, node):
    """A Split into the values that were joined."""
    axis = axis_of(concat)
    if axis is None or axis_of(node) != axis or len(concat.inputs) != len(node.outputs):
        return no("another axis, or other parts")
    if not all(same_sizes(a.shape, b.shape) for a, b in zip(concat.inputs, node.outputs)):
        return no("other parts, or unknown sizes")
    return list(concat.inputs)


@rule(P.Split(x, optional("sizes"), name="node"), set="default")
def split_nothing(op, x, node):
    """A Split into one part."""
    return x if len(node.outputs) == 1 else None


@rule(
    P.SequenceAt(
        P.SplitToSequence(x, optional("sizes"), name="split", shared=True), const("position"), name="node"
    ),
    set="default",
)
def split_without_sequence(op, x, sizes, position, split, node):
    """A sequence of pieces that are read one by one is a Split, without their axis Gathers: torch.onnx.export writes ``chunk`` and ``unbind`` so."""
    axis, has_axis = attribute_of(split, "axis", 0), attribute_of(split, "keepdims", 1)
    (sequence,) = split.outputs
    readers = [user for user, _ in sequence.uses()]
    if sequence.is_graph_output() or not all(is_of(reader, "SequenceAt") for reader in readers):
        return no("the sequence is read otherwise")
    if not has_axis:
        return op.Gather(x, position, axis=axis) if sizes is None else no("onnxruntime heeds keepdims here")
    pieces = pieces_of(split)
    if not pieces or any(other.graph is not node.graph for other in (split, *readers)):
        return no("the sizes are not known, or the sequence is read in a body")
    places = [number_of(reader.inputs[1]) for reader in readers]
    if any(place is None or not -len(pieces) <= place < len(pieces) for place in places):
        return no("a position is unknown, or that of no piece")
    parts = op.Split(x, pieces, axis=axis, outputs=len(pieces))
    op.move_after(split)
    return {reader.outputs[0]: parts[place] for reader, place in zip(readers, places)}


def pieces_of(split: ir.Node) -> list[int] | None:
    """The sizes of the pieces of a SplitToSequence along its axis, None when they are not known."""
    given = split.inputs[1] if len(split.inputs) > 1 else None
    sizes = [1] if given is None else ints_of(given)
    if sizes is None or (given is not None and len(given.shape)):
        return sizes
    shape = split.inputs[0].shape
    whole = None if shape is None else shape[attribute_of(split, "axis", 0)]
    if not isinstance(whole, int) or sizes[0] < 1:
        return None
    return [min(sizes[0], whole - start) for start in range(0, whole, sizes[0])]


@rule(P.Pad(x, const("pads"), optional("value"), optional("axes")), set="default")
def pad_nothing(op, x, pads):
    """A Pad that adds nothing."""
    return None if any(ints_of(pads) or [1]) else x


@rule(P.Tile(x, const("repeats")), set="default")
def tile_once(op, x, repeats):
    """A Tile that repeats nothing."""
    return x if set(ints_of(repeats) or [0]) == {1} else None


# ---- Gather


@rule(P.Gather(x, const("indices"), name="node"), set="default")
def gather_nothing(op, x, indices, node):
    """A Gather of all elements of an axis in order."""
    picked, axis = ints_of(indices), axis_of(node)
    if not picked or axis is None or x.shape is None or len(indices.shape) != 1:
        return None
    return x if x.shape[axis] == len(picked) and picked == list(range(len(picked))) else None


@rule(P.Unsqueeze(P.Gather(x, const("index"), name="gather"), const("axes")), set="default")
def unsqueezed_gather(op, x, index, axes, gather):
    """A Gather of one element whose axis is added again: a Gather of a vector of one index."""
    axis, added = axis_of(gather), ints_of(axes)
    if axis is None or x.shape is None or len(index.shape) != 0 or len(added or ()) != 1:
        return no("it is not one element, or the rank is unknown")
    if added[0] % len(x.shape) != axis:
        return no("another axis is added")
    return again(op, gather, [x, op.constant([constant_of(index).numpy().item()], index.dtype)])


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


@rule(
    P.Gather(P.Slice(x, *PLACES, name="sliced", shared=True), const("indices"), name="gather"), set="default"
)
def gather_of_slice(op, x, sliced, indices, gather):
    """A Gather of one element of a Slice along the same axis: of what was sliced."""
    axis, spans, picked = axis_of(gather), spans_of(sliced), ints_of(indices)
    if axis is None or spans is None or not takes_along(spans, axis) or len(picked or ()) != 1:
        return no("another axis, several elements, or unknown")
    (start, end, _), (index,) = spans[axis], picked
    if min(start, index) < 0 or not (end >= ENDLESS or start + index < end):
        return no("it counts from the end, or the index is outside")
    return op.Gather(x, [start + index] if len(indices.shape) else start + index, axis=axis)


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


def are_inside(indices: Iterable[int], size: int) -> bool:
    """Whether indices are those of elements: a branch that is not taken may hold others."""
    return all(-size <= index < size for index in indices)


@rule(P.Gather(x, const("indices"), name="node"), set="default")
def gather_of_neighbours(op, x, indices, node):
    """A Gather of elements that follow one another is a Slice, which needs no vector of indices.

    Measured with onnxruntime 1.31: along the last axis 0.26 of the time, along another one the same.
    """
    picked, axis = ints_of(indices), axis_of(node)
    if not picked or axis is None or x.shape is None or len(indices.shape) != 1 or op.opset < 10:
        return None
    size = x.shape[axis]
    if not isinstance(size, int) or not are_inside(picked, size):
        return no("an index may be outside")
    first = picked[0] % size
    if [index % size for index in picked] != list(range(first, first + len(picked))):
        return no("they do not follow one another")
    return sliced(op, x, {axis: (first, first + len(picked), 1)})


@rule(P.Gather(x, positions, name="node"), set="default", looks_further=True)
def gather_as_rows(op, x, positions, node):
    """Many elements along the last axis are gathered as rows of the transposed tensor: a runtime copies rows, not single elements.

    Measured with onnxruntime 1.31: 64 x 20 x 20 to a width of 40 in 0.16 of the time, every second column of images in 0.19, 100 of 768
    columns in 0.63; 8 192 x 3 x 64, whose last axis comes first, in 0.28.
    """
    if x.shape is None or len(x.shape) < 2 or positions.shape is None or len(positions.shape) != 1:
        return no("it is no matrix, or there is more than one axis of positions")
    last = len(x.shape) - 1
    if attribute_of(node, "axis", 0) not in (-1, last):
        return no("it is not the last axis")
    if constant_of(x) is not None or not are_many(x.shape, positions):
        return no("they are few")
    axis = (
        last - 1 if least(x.shape[last - 1], SHORT) >= SHORT else 0
    )  # with few rows beside it, before all of them
    others = (
        [other for other in range(last) if other < axis],
        [other for other in range(last) if other >= axis],
    )
    order, back = [*others[0], last, *others[1]], [*others[0], *range(axis + 1, last + 1), axis]
    return op.Transpose(op.Gather(op.Transpose(x, perm=order), positions, axis=axis), perm=back)


def are_many(sizes: ir.Shape, positions: ir.Value) -> bool:
    """Whether as much as a quarter of the elements of a tensor are picked along its last axis, of more than three rows."""
    *before, rows, size = sizes
    # one axis of unknown size may be a batch of one
    if math.prod(map(least, before)) * least(rows, 4 if before else 1) < 4:
        return False
    if all(isinstance(size, int) for size in sizes) and math.prod(sizes) < MANY_ELEMENTS:
        return False
    count = positions.shape[0]
    if isinstance(count, int) and isinstance(size, int):
        return count > 1 and 4 * count >= size
    return is_computed_from_range(positions)


def least(size: int | ir.SymbolicDim, unknown: int = 1) -> int:
    """How large a size is at least: ``4096*batch`` is 4096."""
    if isinstance(size, int):
        return size
    factor = re.match(r"(\d+)\*", size.value or "")
    return int(factor[1]) if factor else unknown


def is_computed_from_range(value: ir.Value) -> bool:
    """Whether positions are computed from a Range, and are none: onnxruntime slices at those of a Range."""
    for step in range(REACH):
        node = producer_of(value, "Range", *ALONG_RANGE)
        if node is None or node.op_type == "Range":
            return node is not None and step > 0
        value = node.inputs[0]
    return False


@rule(P.Gather(P.Transpose(x, name="transpose", shared=True), const("index"), name="gather"), set="default")
def gather_of_transposed(op, x, index, transpose, gather):
    """One element along an axis that was moved, when the other axes stand as before: the element along the axis where it was."""
    axes, axis = attribute_of(transpose, "perm"), axis_of(gather)
    if axes is None or axis is None or len(index.shape) != 0:
        return no("several elements, or the rank is unknown")
    kept = [other for other in axes if other != axes[axis]]
    return again(op, gather, [x, index], axis=axes[axis]) if kept == sorted(kept) else no("other axes moved")


@rule(
    P.Gather(P.Reshape(x, var("shape"), name="reshape", shared=True), const("index"), name="gather"),
    set="default",
)
def gather_of_parted_axis(op, x, index, reshape, gather):
    """One of the equal pieces of the last axis: a Slice, the axis needs no Reshape."""
    parted, axis, number = reshape.outputs[0].shape, axis_of(gather), number_of(index)
    if x.shape is None or parted is None or axis != len(x.shape) - 1 or len(index.shape) != 0:
        return no("another axis, or several elements")
    if op.opset < 10 or not same_sizes(parted[:axis], x.shape[:axis]):
        return no("other axes change")
    if len(parted) != len(x.shape) + 1 or not all(isinstance(size, int) for size in parted[axis:]):
        return no("the sizes of the pieces are unknown")
    count, size = parted[axis:]
    if not are_inside([number], count):
        return no("an index is outside")
    start = number % count * size
    return sliced(op, x, {axis: (start, start + size, 1)})


# ---- Shape


@rule(P.Shape(x, name="node"), set="default")
def shape_of_known_sizes(op, x, node):
    """Sizes that are static."""
    span = shape_span(node)
    return None if span is None else known_sizes(op, x, range(*span))


@rule(P.Size(x), set="default")
def size_of_known_sizes(op, x):
    """A number of elements that is static."""
    if x.shape is None or not x.shape.is_static():
        return None
    return op.constant(math.prod(x.shape))


@rule(P.Gather(P.Shape(x, name="shape", shared=True), const("indices")), set="default")
def gather_of_shape(op, x, shape, indices):
    """Sizes that are static, or those of neighbours, which Shape gives alone."""
    span, picked = shape_span(shape), ints_of(indices)
    if span is None or not picked:
        return no("the rank or the axes are unknown")
    told = range(*span)
    if not are_inside(picked, len(told)):
        return no("an index is outside")
    axes = [told[index] for index in picked]
    if len(indices.shape) == 0 and isinstance(x.shape[axes[0]], int):
        return op.constant(x.shape[axes[0]])
    known = known_sizes(op, x, axes)
    if known is not None and len(indices.shape) == 1:
        return known
    return no("it is one size") if len(indices.shape) == 0 else shape_of_neighbours(op, x, axes)


@rule(slice_of(P.Shape(x, name="shape", shared=True), "node"), set="default")
def slice_of_shape(op, x, shape, node):
    """Sizes that are static, or those of neighbours, which Shape gives alone."""
    span, spans = shape_span(shape), spans_of(node)
    if span is None or spans is None:
        return no("the rank or the axes are unknown")
    if list(spans) != [0]:
        return no("nothing is sliced")
    axes = list(elements(range(*span), spans[0]))
    known = known_sizes(op, x, axes)
    if known is not None or not axes:
        return known
    return shape_of_neighbours(op, x, axes)


def shape_of_neighbours(op, x: ir.Value, axes: list[int]) -> ir.Value:
    """The sizes of axes that follow one another, which Shape gives alone from opset 15 on."""
    if axes != list(range(axes[0], axes[-1] + 1)) or op.opset < 15:
        return no("they are not neighbours")
    return op.Shape(x, start=axes[0], end=axes[-1] + 1)


def known_sizes(op, x: ir.Value, axes: Iterable[int]) -> ir.Value | None:
    """The sizes of these axes as a constant, None when one of them is not static."""
    sizes = [x.shape[axis] for axis in axes]
    return op.constant(sizes, ir.DataType.INT64) if all(isinstance(size, int) for size in sizes) else None
