"""Slices, splits, gathers: parts of values; see `parts` for those of what is joined."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.xoptim.pattern import (
    P,
    attribute_of,
    const,
    constant_of,
    ints_of,
    number_of,
    optional,
    var,
)
from experimental_experiment.xoptim.patterns.positions import REACH
from experimental_experiment.xoptim.rules import again, no, rule
from experimental_experiment.xoptim.shapes import are_different, same_sizes
from experimental_experiment.xoptim.spans import (
    ENDLESS,
    PLACES,
    axis_of,
    composed,
    elements,
    shape_span,
    slice_of,
    sliced,
    spans_of,
    takes_all,
    takes_along,
)

x, positions = var("x"), var("positions")

SHORT = 16
"""A row of fewer elements is short."""

MANY_ELEMENTS = 512
"""A tensor with fewer elements is read no faster."""

ALONG_RANGE = frozenset(("Add", "Cast", "Clip", "Div", "Floor", "Max", "Min", "Mod", "Mul", "Sub"))
"""Operators that compute one position from one."""


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


# ---- Split, Pad, Tile


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
        place = number_of(position)
        if sizes is not None or place is None:
            return no("onnxruntime heeds keepdims here, or the position is unknown")
        return op.Gather(x, op.constant(place, ir.DataType.INT64), axis=axis)
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


READ_OTHERWISE = no("onnxruntime would still ask for the shape of the floats, which it then makes")
"""Why sizes of what is dequantized stay as they are written, see `is_shape_of_dequantized`."""


def is_shape_of_dequantized(op, x: ir.Value) -> bool:
    """Whether a value is the shape of what a DequantizeLinear gives, for onnxruntime.

    Measured with onnxruntime 1.31: it makes a Reshape to Gathers of a Shape, with an Unsqueeze each, one that asks for no shape, and the
    product before it a QLinearMatMul. With a Slice, attention of width 256 takes 2.6 times as long.
    """
    shape = producer_of(x, "Shape")
    return (
        op.context.runtime == "onnxruntime"
        and shape is not None
        and producer_of(shape.inputs[0], "DequantizeLinear") is not None
    )


@rule(
    P.Unsqueeze(P.Gather(x, const("index"), name="gather"), const("axes")), set="default", looks_further=True
)
def unsqueezed_gather(op, x, index, axes, gather):
    """A Gather of one element whose axis is added again: a Gather of a vector of one index."""
    axis, added = axis_of(gather), ints_of(axes)
    if axis is None or x.shape is None or len(index.shape) != 0 or len(added or ()) != 1:
        return no("it is not one element, or the rank is unknown")
    if added[0] % len(x.shape) != axis:
        return no("another axis is added")
    if is_shape_of_dequantized(op, x):
        return READ_OTHERWISE
    return again(op, gather, [x, op.constant([constant_of(index).numpy().item()], index.dtype)])


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


def are_inside(indices: Iterable[int], size: int) -> bool:
    """Whether indices are those of elements: a branch that is not taken may hold others."""
    return all(-size <= index < size for index in indices)


@rule(P.Gather(x, const("indices"), name="node"), set="default", looks_further=True)
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
    if is_shape_of_dequantized(op, x):
        return READ_OTHERWISE
    return sliced(op, x, {axis: (first, first + len(picked), 1)})


@rule(P.Gather(x, positions, name="node"), set="default", looks_further=True)
def gather_as_rows(op, x, positions, node):
    """Many elements along the last axis are gathered as rows of the transposed tensor: a runtime copies rows, not single elements.

    Measured with onnxruntime 1.31: 64 x 20 x 20 to a width of 40 in 0.16 of the time, every second column of images in 0.19, 100 of 768
    columns in 0.63; 8 192 x 3 x 64, whose last axis comes first, in 0.28. Images of an unknown width to the nearest elements of a constant one: 0.09
    to 0.4 of the time of the resizing, 1.3 where a width of 400 becomes 32, 1.8 where 4 000 becomes 224.
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
    """Whether positions are computed from a Range, or from a vector of constants, and are none: onnxruntime slices at those of a Range."""
    for step in range(REACH):
        node = producer_of(value, "Range", *ALONG_RANGE)
        if node is None:
            return (
                step > 0
                and constant_of(value) is not None
                and len(value.shape) == 1
                and value.shape[0] >= SHORT
            )
        if node.op_type == "Range":
            return step > 0
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
