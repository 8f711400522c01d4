"""Values that Expand repeats, as queries and tokens that all samples have alike: products and norms of them are computed before, or broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
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
from experimental_experiment.xoptim.patterns.folding import WEIGHT_DTYPES
from experimental_experiment.xoptim.patterns.transposing import swaps_last_two
from experimental_experiment.xoptim.rules import Declined, again, no, rule
from experimental_experiment.xoptim.shapes import broadcast, has_shape_of, listed, same_sizes
from experimental_experiment.xoptim.spans import axis_of, elements, slice_of, spans_of

x, y, shape = var("x"), var("y"), var("shape")

REPEATED = P.Expand(x, shape, name="expand", shared=True)
KNOWN = P.Expand(const("x"), shape, name="expand", shared=True)

ON_ARRAYS = {"Add": np.add, "Div": np.divide, "Mul": np.multiply, "Sub": np.subtract}
"""What operators of two numbers make of arrays."""


# ---- constants that are repeated


@rule(P.MatMul(KNOWN, const("weight"), name="node"), set="default", looks_further=True)
def product_of_repeated(op, x, weight, shape, node):
    """The product of a constant that is repeated and a weight is a constant.

    Measured with onnxruntime 1.31, with the rules below: a Linear of zeros 0.11 to 0.80 of the time, the first layer of DETR's decoder 0.73, queries
    of BLIP-2 0.64 to 0.88.
    """
    if len(weight.shape) != 2 or 0 in weight.shape:
        return no("the weight is no matrix, or an empty one")
    size, width = weight.shape
    known = constant_of(x).numpy()
    rows = np.broadcast_to(known, np.broadcast_shapes(known.shape, (size,)))
    if rows.size // size * width > known.size + constant_of(weight).size:
        return no("the product is larger than both")
    result = computed(op, node, [x, weight], lambda _, matrix: rows @ matrix)
    if isinstance(result, Declined):
        return result
    return op.Expand(result, shape if width == size else with_last(op, shape, width))


def computed(op, node: ir.Node, inputs: list[ir.Value], compute: Callable) -> ir.Value | Declined:
    """The constant that *compute* makes of the arrays of constants instead of *node*: a number where all of one are equal.

    The first constant is the one that is repeated.
    """
    if node.outputs[0].dtype not in WEIGHT_DTYPES or any(
        value.dtype not in WEIGHT_DTYPES for value in inputs
    ):
        return no("the constants are neither float32 nor float64")
    with np.errstate(all="ignore"):  # what is not finite is so at run time too
        array = compute(*(constant_of(value).numpy() for value in inputs))
    array = np.asarray(array, node.outputs[0].dtype.numpy())
    if constant_of(inputs[0]).size == 1 and array.size and (array == array.flat[0]).all():
        array = array.flat[0].reshape([1] * array.ndim)  # a shape may have fewer axes
    return op.weight(f"{node.outputs[0].name}_once", ir.Tensor(array))


def with_last(op, shape: ir.Value, size: int) -> ir.Value:
    """A vector of sizes with another last one."""
    node, known = producer_of(shape, "Concat"), ints_of(shape)
    if known is not None:
        return op.constant([*known[:-1], size])
    if node is not None:
        *pieces, last = node.inputs
        numbers = ints_of(last)
        if numbers:
            return op.Concat(*pieces, [*numbers[:-1], size], axis=0)
    return op.Concat(op.Slice(shape, [0], [-1]), [size], axis=0)


OTHER = const("other")


@rule(
    P.one_of(*ON_ARRAYS)(KNOWN, OTHER, name="node") | P.one_of(*ON_ARRAYS)(OTHER, KNOWN, name="node"),
    set="default",
)
def constants_beside_repeated(op, x, other, shape, expand, node):
    """A constant that is repeated and one that is the same for all repetitions are one constant."""
    expanded = expand.outputs[0]
    if not has_shape_of(expanded, node):
        return no("the other constant is repeated, too")
    both = broadcast([x.shape, other.shape])
    if both is None or math.prod(both) > math.prod(x.shape) + math.prod(other.shape):
        return no("the constants repeat each other")
    function, order = ON_ARRAYS[node.op_type], 1 if node.inputs[0] is expanded else -1
    result = computed(op, node, [x, other], lambda *arrays: function(*arrays[::order]))
    return result if isinstance(result, Declined) else op.Expand(result, shape)


@rule(P.LayerNormalization(KNOWN, const("scale"), optional("bias"), name="node"), set="default")
def norm_of_repeated(op, x, scale, bias, shape, expand, node):
    """A constant whose rows are repeated whole is normalized once."""
    result = node.outputs[0].shape
    if result is None or len(node.outputs) > 1 or (bias is not None and constant_of(bias) is None):
        return no("the rank or a constant is unknown, or other results are read")
    axis = attribute_of(node, "axis", -1)
    axis -= len(result) if axis >= 0 else 0
    if len(x.shape) < -axis or not same_sizes(x.shape[axis:], expand.outputs[0].shape[axis:]):
        return no("rows are repeated in part")
    epsilon, along = attribute_of(node, "epsilon", 1e-5), tuple(range(axis, 0))

    def normalized(rows: np.ndarray, factor: np.ndarray, term: np.ndarray | float = 0.0) -> np.ndarray:
        centered = rows - rows.mean(along, np.float64, keepdims=True)
        variance = (centered * centered).mean(along, keepdims=True)
        return centered / np.sqrt(variance + epsilon) * factor + term

    inputs = [x, scale] if bias is None else [x, scale, bias]
    result = computed(op, node, inputs, normalized)
    return result if isinstance(result, Declined) else op.Expand(result, shape)


@rule(P.Add(KNOWN, y, name="node") | P.Sub(y, KNOWN, name="node"), set="default", special_values=False)
def zeros_added(op, x, y, node):
    """Zeros in the shape of what they are added to, as the first queries of DETR's decoder."""
    is_whole = number_of(x) == 0 and has_shape_of(y, node)
    return y if is_whole else no("no zeros, or more than the other operand")


@rule(P.Sum(name="node", reads=["Expand"]), set="default", special_values=False, looks_further=True)
def zeros_summed(op, node):
    """The same among several operands."""
    left = [value for value in node.inputs if not is_repeated_zero(value)]
    if len(left) == len(node.inputs) or not left:
        return no("no zeros, or nothing else")
    if not same_sizes(broadcast([value.shape for value in left]), node.outputs[0].shape):
        return no("the sum may be smaller without them")
    return left[0] if len(left) == 1 else op.Add(*left) if len(left) == 2 else again(op, node, left)


def is_repeated_zero(value: ir.Value) -> bool:
    """Whether a value is an Expand of the number 0."""
    node = producer_of(value, "Expand")
    return node is not None and number_of(node.inputs[0]) == 0


# ---- parts of what is repeated


@rule(slice_of(REPEATED, "node"), set="default", looks_further=True)
def slice_of_repeated(op, expand, node):
    """A Slice along an axis that Expand made of one element is a shorter Expand, the value before it where one element is taken.

    As Categorical.log_prob reads the index that it has broadcast to all classes. Measured with onnxruntime 1.31: 0.81 to 0.96 of the time for
    1 and 64 rows of 4 to 1000 classes, 5 nodes for 7; two of 4 and of 64 rows 0.39 to 0.85.
    """
    spans, sizes = spans_of(node), expand.outputs[0].shape
    if not spans or sizes is None:
        return no("axes, steps or the rank are unknown")
    counts = {}
    for axis, span in spans.items():
        if not isinstance(sizes[axis], int):
            return no("the axis may be empty")
        counts[axis] = len(elements(range(sizes[axis]), span))
    return repeated_less(op, expand, counts)


@rule(P.Gather(REPEATED, const("indices"), name="node"), set="default", looks_further=True)
def gather_of_repeated(op, indices, expand, node):
    """The same for elements that a Gather picks.

    Measured with onnxruntime 1.31: one of 4 and of 64 in 0.36 to 0.91 of the time, three 0.33 to 0.91, beside another axis that is repeated 0.52 to 0.99.
    """
    axis, picked, sizes = axis_of(node), ints_of(indices), expand.outputs[0].shape
    if axis is None or picked is None or sizes is None or len(indices.shape) > 1:
        return no("the rank or the indices are unknown, or the axis becomes several")
    size = sizes[axis]
    if not isinstance(size, int) or not all(-size <= index < size for index in picked):
        return no("an index may be outside")
    result = repeated_less(op, expand, {axis: len(picked)})
    if isinstance(result, Declined) or len(indices.shape) == 1:
        return result
    return op.Squeeze(result, [axis])


@rule(P.Split(REPEATED, optional("parts"), name="node"), set="default", looks_further=True)
def split_of_repeated(op, expand, node):
    """The same for a Split into equal parts, which are one.

    Measured with onnxruntime 1.31: halves of 4 and of 64 with an operator each 0.62 to 0.89 of the time.
    """
    axis, expanded = axis_of(node), expand.outputs[0]
    shapes = [value.shape for value in node.outputs]
    if axis is None or None in (*shapes, expanded.shape) or not isinstance(expanded.shape[axis], int):
        return no("the rank or a size is unknown")
    count, *others = {shape[axis] for shape in shapes}
    if others or not isinstance(count, int):
        return no("the parts are not equal, or their size is unknown")
    part = repeated_less(op, expand, {axis: count})
    return part if isinstance(part, Declined) else [part] * len(node.outputs)


def repeated_less(op, expand: ir.Node, counts: dict[int, int]) -> ir.Value | Declined:
    """What an Expand makes when it repeats its value so often along some axes, each of which has one element before it and is not empty."""
    x, expanded = expand.inputs[0], expand.outputs[0]
    if x.shape is None or 0 in counts.values():
        return no("the rank is unknown, or nothing is taken")
    width = len(expanded.shape)
    added = list(range(width - len(x.shape)))
    before, after = [1] * len(added) + list(x.shape), list(expanded.shape)
    if any(before[axis] != 1 for axis in counts):
        return no("elements differ along the axis")
    for axis, count in counts.items():
        after[axis] = count
    if same_sizes(before, after):
        return op.Unsqueeze(x, added) if added else x
    sizes = listed(expand.inputs[1])
    if sizes is None or len(expanded.uses()) > 1 or expanded.is_graph_output():
        return no("the sizes are computed, or all that is repeated is read, too")
    first = min(counts) - width  # a shape may have fewer axes than what it repeats
    sizes = [1] * (-first - len(sizes)) + sizes
    for axis, count in counts.items():
        sizes[axis - width] = count
    return op.Expand(x, op.shape(sizes))


# ---- products that broadcast


@rule(
    P.MatMul(y, REPEATED | P.Transpose(REPEATED, name="turned"), name="node")
    | P.MatMul(REPEATED, y, name="node"),
    set="default",
)
def product_that_repeats(op, x, y, expand, turned, node):
    """Matrices that are repeated as often as those that they are multiplied with, as memories that all samples read: the product does that.

    Measured with onnxruntime 1.31: attention to a memory 0.37 to 0.69 of the time, products with matrices 0.77 to 0.87, on the left 0.90 to 1.00.
    """
    result, expanded = node.outputs[0].shape, expand.outputs[0].shape
    if any(shape is None or len(shape) < 2 for shape in (x.shape, y.shape, expanded, result)):
        return no("they are no matrices")
    if not same_sizes(x.shape[-2:], expanded[-2:]):
        return no("rows or columns are repeated")
    if not same_sizes(broadcast([x.shape[:-2], y.shape[:-2]]), result[:-2]):
        return no("the product may have fewer matrices")
    if op.opset >= 23 and len(result) == 4:
        return no("Attention takes heads that are repeated")
    if node.inputs[1] is y:
        # onnxruntime repeats none on the left where the batch is empty
        is_there = all(isinstance(size, int) and size for size in result[:-2])
        return op.MatMul(x, y) if is_there else no("there may be none to multiply with")
    if turned is not None:
        if not swaps_last_two(turned):
            return no("more than the matrices are transposed")
        last = len(x.shape) - 2
        x = op.Transpose(x, perm=[*range(last), last + 1, last])
    return op.MatMul(y, x)
