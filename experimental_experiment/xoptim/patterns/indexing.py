"""Elements picked by pairs of positions, as masks of transformers read a mask of tokens; slices picked whole, or from the first on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.xoptim.pattern import (
    P,
    all_readers,
    attribute_of,
    const,
    constant_of,
    ints_of,
    number_of,
    var,
)
from experimental_experiment.xoptim.patterns.masks import is_not_negative, starts_at_zero
from experimental_experiment.xoptim.patterns.positions import MOST_ELEMENTS, REACH, has_one_element, uniform
from experimental_experiment.xoptim.patterns.reshaping import RESHAPES
from experimental_experiment.xoptim.rules import again, no, once_more, rule
from experimental_experiment.xoptim.shapes import is_same, same_sizes
from experimental_experiment.xoptim.spans import axis_of, told_axes

x, rows, columns, index = var("x"), var("rows"), var("columns"), var("index")

INT64 = ir.DataType.INT64


@rule(
    P.GatherND(x, P.Concat(rows, columns, name="pairs", shared=True), name="node"),
    set="default",
    looks_further=True,
)
def gather_of_grid(op, x, rows, columns, pairs, node):
    """Some rows of a matrix along one axis and some columns along a later one: a Gather of each, none where all are taken in order.

    Where more axes follow, when most of the columns are taken. Measured with onnxruntime 1.31, 16 elements follow: 0.4 to 0.5 of the time for two
    Gathers, 0.67 to 0.8 for one.
    """
    shape, result = pairs.outputs[0].shape, node.outputs[0].shape
    if shape is None or result is None or x.shape is None or len(x.shape) < 2:
        return no("it has no columns, or the rank is unknown")
    if attribute_of(pairs, "axis") not in (-1, len(shape) - 1) or attribute_of(node, "batch_dims", 0):
        return no("the pairs do not stand along the last axis")
    across = spread(op, columns)
    if across is None:
        return no("the columns do not vary along one axis")
    vector, place = across
    width = len(shape) - 1
    column = place + width + 1  # the pairs have one axis more
    found = row_axis(op, x, rows, column, width)
    if found is None or not found[0] < column < width:
        return no("the rows do not vary along an earlier axis")
    row, chosen = found
    expected = [1] * width
    expected[row], expected[column] = (x if chosen is None else chosen).shape[0], vector.shape[0]
    if not same_sizes(result, [*expected, *x.shape[2:]]):
        return no("pairs are repeated")
    is_all = is_same(x.shape[1], vector.shape[0]) and is_counted(vector)
    if len(x.shape) > 2 and chosen is not None and not is_all and not takes_most(vector, x.shape[1]):
        return no("a few columns of whole rows may be picked")
    picked = x if chosen is None else op.Gather(x, chosen, axis=0)
    picked = picked if is_all else op.Gather(picked, vector, axis=1)
    added = [axis for axis in range(width) if axis not in (row, column)]
    return op.Unsqueeze(picked, added) if added else picked


@rule(
    P.GatherElements(
        x, P.one_of("Expand", "Tile")(index, var("repeats"), name="repeated", shared=True), name="node"
    ),
    set="default",
    since=13,
    looks_further=True,
)
def gather_of_whole_slices(op, x, index, repeated, node):
    """Positions repeated along all later axes pick slices: a GatherND of the samples before them, a Gather where these share the positions.

    Measured with onnxruntime 1.31: 49 of 196 rows of 768 in two samples in 0.18 of the time, 300 of 1000 boxes of 4 in four 0.39, 500 of 2000
    rows of 64 without samples 0.20.
    """
    sizes = repeated.outputs[0].shape
    if x.shape is None or sizes is None or index.shape is None or len(sizes) != len(x.shape):
        return no("the rank is unknown")
    axis = attribute_of(node, "axis", 0) % len(sizes)
    given = [1] * (len(sizes) - len(index.shape)) + list(index.shape)
    others = [place for place in range(len(sizes)) if place != axis]
    if not is_same(given[axis], sizes[axis]) or not all(
        is_same(x.shape[place], sizes[place]) for place in others
    ):
        return no("a part of another axis is read, or positions are repeated")
    if any(size != 1 for size in given[axis + 1 :]):
        return no("the positions differ along a later axis")
    if all(size == 1 for size in given[:axis]):
        return op.Gather(x, op.Reshape(index, [-1]), axis=axis)
    if axis == len(sizes) - 1 or not all(map(is_same, given[:axis], sizes)):
        return no("no later axis, or samples that share positions")
    added, joined = range(len(sizes) - len(index.shape)), range(axis + 2, len(sizes))
    positions = op.Unsqueeze(index, list(added)) if added else index
    positions = op.Squeeze(positions, list(joined)) if joined else positions
    return op.GatherND(x, op.Cast(positions, to=INT64), batch_dims=axis)


@rule(
    P.GatherND(x, P.Concat(name="places", shared=True), name="node"),
    set="default",
    since=13,
    looks_further=True,
)
def gather_of_each_sample(op, x, places, node):
    """Positions whose first number is that of the sample: a GatherND of each sample needs it no more.

    Measured with onnxruntime 1.31: 0.7 to 0.9 of the time for 4 to 300 of 10 to 1000 rows of 8 to 768, 2 nodes for 3 to 10.
    """
    shape = places.outputs[0].shape
    if shape is None or x.shape is None or attribute_of(places, "axis") not in (-1, len(shape) - 1):
        return no("the positions do not stand along the last axis, or the rank is unknown")
    first, *others = places.inputs
    if len(shape) < 2:
        return no("there is one position")
    if not others or attribute_of(node, "batch_dims", 0) or (len(x.shape) == 2 and len(shape) > 2):
        return no("there is one axis of positions, or they read a mask")
    if not is_same(shape[0], x.shape[0]) or not counts_samples(op, first, shape):
        return no("the first numbers are not those of the samples")
    return op.GatherND(x, op.Concat(*others, axis=-1) if len(others) > 1 else others[0], batch_dims=1)


def takes_most(vector: ir.Value, size: int | ir.SymbolicDim) -> bool:
    """Whether a vector is known to have half as many positions as an axis of this *size* has, or more."""
    count = vector.shape[0]
    return isinstance(count, int) and isinstance(size, int) and 2 * count >= size


def counts_samples(op, value: ir.Value, shape: ir.Shape) -> bool:
    """Whether a part of positions of this *shape* has one number for each, that of the first axis."""
    if value.shape is None or len(value.shape) != len(shape) or value.shape[-1] != 1:
        return False
    tensor = constant_of(value)
    if tensor is not None:
        count = value.shape[0]
        numbers = np.arange(count).reshape(-1, *[1] * (len(shape) - 1))
        return tensor.size <= MOST_ELEMENTS and np.array_equal(
            tensor.numpy(), np.broadcast_to(numbers, value.shape)
        )
    along = spread(op, value)
    return (
        along is not None
        and along[1] == -len(shape)
        and is_same(along[0].shape[0], shape[0])
        and is_counted(along[0])
    )


def row_axis(op, x: ir.Value, rows: ir.Value, column: int, width: int) -> tuple[int, ir.Value | None] | None:
    """The axis of the pairs along which *rows* vary and their vector, None for all rows of *x* in order; None when they do not."""
    if x.shape[0] == 1 and uniform(rows) == 0:
        return (column - 1, None) if column else None
    along = spread(op, rows)
    if along is None:
        return None
    vector, place = along
    is_all = is_same(vector.shape[0], x.shape[0]) and is_counted(vector)
    return place + width + 1, None if is_all else vector


def is_counted(vector: ir.Value) -> bool:
    """Whether the elements of a vector are 0, 1, 2…"""
    tensor = constant_of(vector)
    if tensor is not None:
        return tensor.size <= MOST_ELEMENTS and np.array_equal(tensor.numpy(), np.arange(tensor.size))
    return producer_of(vector, "Range") is not None and starts_at_zero(vector)


def spread(op, value: ir.Value, reach: int = REACH) -> tuple[ir.Value, int] | None:
    """The vector whose elements stand along one axis of a value, repeated along the others, and that axis from the end; else None."""
    if value.shape is None or not len(value.shape):
        return None
    if len(value.shape) == 1:
        return value, -1
    tensor = constant_of(value)
    if tensor is not None:
        long = [axis for axis, size in enumerate(value.shape) if size != 1]
        if len(long) == 1:
            return op.Reshape(value, [-1]), long[0] - len(value.shape)
        return repeated_vector(op, tensor.numpy(), long) if tensor.size <= MOST_ELEMENTS else None
    node = producer_of(value, "Expand", "Unsqueeze")
    if node is None or not reach:
        return None
    inner = spread(op, node.inputs[0], reach - 1)
    if inner is None or node.op_type == "Expand":
        return inner
    added, width = told_axes(node), len(value.shape)
    if added is None:
        return None
    kept = [axis for axis in range(width) if axis not in {item % width for item in added}]
    return inner[0], kept[inner[1]] - width


def repeated_vector(op, array: np.ndarray, axes: list[int]) -> tuple[ir.Value, int] | None:
    """The vector that stands along one of some *axes* of an array, repeated along the others, and that axis from the end; else None."""
    for axis in axes:
        vector = array[tuple(slice(None) if place == axis else slice(1) for place in range(array.ndim))]
        if np.array_equal(np.broadcast_to(vector, array.shape), array):
            return op.constant(vector.reshape(-1)), axis - array.ndim
    return None


@rule(
    P.Gather(P.Unsqueeze(x, const("axes"), name="shown", shared=True), index, name="node"),
    set="default",
    looks_further=True,
)
def gather_of_added_axis(op, x, axes, index, shown, node):
    """A Gather of what an Unsqueeze shows picks from the value itself; the axis is added to what is picked, where a Reshape takes it up.

    Measured with onnxruntime 1.31: eight experts as Mixtral had them, of width 64, 154 nodes for 163, 0.96 of the time for a token, 0.98 for 64.
    """
    axis, added, shape = axis_of(node), ints_of(axes), shown.outputs[0].shape
    if axis is None or added is None or shape is None or index.shape is None:
        return no("the axes or the rank are unknown")
    added = {place % len(shape) for place in added}
    if axis in added:
        return no("the axis that was added is read")
    if not all_readers(node.outputs[0], takes_axes_up):
        return no("what is picked needs the axis")
    before = sum(place < axis for place in added)
    places = [place + (len(index.shape) - 1) * (place > axis) for place in sorted(added)]
    return op.Unsqueeze(again(op, node, [x, index], axis=axis - before), places)


def takes_axes_up(user: ir.Node, position: int) -> bool:
    """Whether a reader changes the shape alone."""
    return position == 0 and is_of(user, *RESHAPES)


@rule(
    P.Gather(x, P.Range(0, var("count"), 1, shared=True), name="node"),
    set="default",
    looks_further=True,
)
def gather_of_first(op, x, count, node):
    """The first elements along an axis, as many as a size says, are a Slice.

    onnxruntime makes the same of it, with bounds that its provider for CUDA copies from the CPU to the GPU and back.
    Measured with onnxruntime 1.31 on an H200: a token after 512 in two copies instead of six, 0.85 to 0.92 of the time.
    """
    axis = axis_of(node)
    if axis is None or op.opset < 13 or not is_not_negative(count):
        return no("the axis is unknown, or the number may be negative")
    return op.Slice(x, [0], as_vector(op, count), [axis])


@rule(
    P.Gather(x, P.Range(var("start"), var("stop"), var("step"), shared=True), name="node"),
    set="default",
    looks_further=True,
)
def gather_from_the_end(op, x, start, stop, step, node):
    """Positions of a Range below 0 are cast to the other dtype of integers: onnxruntime slices at those of a Range, and takes nothing.

    A row of the runtime table does so where the Range is right before the Gather; here are those that other rules bring there.
    """
    delta = number_of(step)
    if op.context.runtime != "onnxruntime" or not delta:
        return no("the runtime gathers, or the step is unknown")
    if not is_below_zero(start if delta > 0 else stop):
        return no("the positions are not known to be below 0")
    positions = node.inputs[1]
    to = ir.DataType.INT32 if positions.dtype is INT64 else INT64
    return once_more(op, node, [x, op.Cast(positions, to=to)])[0]


def is_below_zero(value: ir.Value) -> bool:
    """Whether a number is less than 0, or the opposite of a size."""
    number, node = number_of(value), producer_of(value, "Neg")
    return number < 0 if number is not None else node is not None and is_not_negative(node.inputs[0])


def as_vector(op, size: ir.Value) -> ir.Value:
    """A number as a vector of one element: as that from which it was made, where there is one."""
    node = producer_of(size)
    if node is not None and node.op_type == "Squeeze" and has_one_element(node.inputs[0]):
        return node.inputs[0]
    if node is not None and node.op_type in ("Add", "Mul") and any(number_of(item) for item in node.inputs):
        return op.emit(node.op_type, [as_vector(op, item) for item in node.inputs], {})
    return op.Unsqueeze(size, [0])
