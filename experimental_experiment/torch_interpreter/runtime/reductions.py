"""Reductions: empty tensors, NaN, integers that wrap, integers beyond 2 ** 53."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.dtypes import HALVES
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.ordering import with_ordered_nan
from experimental_experiment.torch_interpreter.producers import attributes_of, producer_of
from experimental_experiment.torch_interpreter.runtime.table import repairs

BOOL, FLOAT, INT64 = ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.INT64
INT32 = ir.DataType.INT32
NARROW = (BOOL, ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.INT16, INT32)

ONES = 4096
"""How many ones a model holds at most for a sum as a product."""

SUMMED_NODES = "1 along a last axis of up to 4096 elements, 0 where it stays; otherwise 6"

REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)


@repairs(
    *REDUCTIONS,
    when="an axis is negative",
    because="a tensor without elements is returned as it is",
    nodes=0,
)
def with_axes_from_the_start(op, x, axes=None, *, operator, **attributes):
    """Axes are counted from the first one."""
    if axes is None or axes.const_value is None or x.shape is None:
        return None
    given = axes.const_value.numpy().tolist()
    if all(axis >= 0 for axis in given):
        return None
    return op.emit(operator, (x, [axis % rank(x) for axis in given]), attributes)


@repairs(
    "ArgMax",
    "ArgMin",
    when="the axis is negative",
    because="a tensor without elements is returned as it is",
    nodes=0,
)
def with_an_axis_from_the_start(op, x, *, operator, axis=0, **attributes):
    """The axis is counted from the first one."""
    if axis >= 0 or x.shape is None:
        return None
    return op.emit(operator, (x,), {"axis": axis % rank(x), **attributes})


@repairs(
    "ReduceMean",
    when="over no element, in a static shape",
    because="the mean is 0, not NaN",
    nodes=2,
)
def mean_of_nothing(op, x, axes=None, **attributes):
    """The sum divided by 0."""
    if 0 not in reduced_sizes(x, axes):
        return None
    total = op.ReduceSum(x, axes, **attributes)
    return op.Div(total, op.CastLike(0.0, total))


@repairs(
    "ReduceMean",
    when="over a number of elements that is not known",
    because="the mean of no element is 0, not NaN",
    nodes=3,
    special_values=True,
)
def sum_over_count(op, x, axes=None, **attributes):
    """The sum divided by the number of elements, in float32 for halves, whose sum may overflow."""
    if x.shape is None or all(isinstance(size, int) for size in reduced_sizes(x, axes)):
        return None
    wide = op.Cast(x, to=FLOAT) if x.dtype in HALVES else x
    total = op.ReduceSum(wide, axes, **attributes)
    sizes = op.shape([op.size(x, axis) for axis in reduced_axes(x, axes)])
    return op.Cast(op.Div(total, op.CastLike(op.ReduceProd(sizes, keepdims=0), total)), to=x.dtype)


@repairs(
    "ReduceMax",
    "ReduceMin",
    when="booleans, over a number of elements that may be 0",
    because="there is no extremum of no boolean",
    nodes=2,
)
def extremum_of_bytes(op, x, axes=None, *, operator, **attributes):
    """The extremum of bytes, which are 0 and 1."""
    if x.dtype != BOOL or all(isinstance(size, int) and size > 0 for size in reduced_sizes(x, axes)):
        return None
    return op.Cast(op.emit(operator, (op.Cast(x, to=ir.DataType.UINT8), axes), attributes), to=BOOL)


def reduced_axes(x: ir.Value, axes: ir.Value | None) -> list[int]:
    """The axes of a reduction, all without any; none of them is known when they are not constant."""
    if axes is None:
        return list(range(rank(x)))
    return axes.const_value.numpy().tolist() if axes.const_value is not None else []


def reduced_sizes(x: ir.Value, axes: ir.Value | None) -> list[int | ir.SymbolicDim]:
    """The sizes of the axes of a reduction; one that is not known for axes that are not."""
    if x.shape is None:
        return [ir.SymbolicDim(None)]
    return [x.shape[axis] for axis in reduced_axes(x, axes)]


@repairs(
    "ReduceMax",
    "ReduceMin",
    when="floats that hold NaN, but for masks of 0 and minus infinity",
    because="NaN is passed over",
    nodes=3,
    special_values=True,
)
def nan_wins(op, x, axes=None, *, operator, **attributes):
    """The sum of absolute values where that is NaN: it is only when an element is."""
    if x.dtype not in dtypes.FLOATS or is_open_or_closed(x):
        return None
    result = op.emit(operator, (x, axes), attributes)
    nan = op.emit("ReduceL1", (x, axes), attributes)
    return op.Where(op.IsNaN(nan), nan, result)


LOWEST = "CUDA's provider takes the lowest float32, or float64, for the largest of minus infinities"


@repairs(
    "Equal",
    when="the largest of zeros and minus infinities, as those of a mask, beside minus infinity",
    because=LOWEST,
    nodes=0,
)
def less_than_zero(op, x, y):
    """Whether the largest is less than 0."""
    node = compared_with_infinity(x, y)
    return op.Less(x, 0.0) if node is not None and is_open_or_closed(node.inputs[0]) else None


@repairs(
    "Equal",
    when="the largest of other floats beside minus infinity, in a model on a GPU",
    because=LOWEST,
    nodes=0,
)
def by_the_sum_of_exponentials(op, x, y):
    """The logarithm of the sum of exponentials, which is minus infinity where all elements are."""
    node = compared_with_infinity(x, y)
    if node is None or not is_on_gpu(op):
        return None
    attributes = attributes_of(node)
    axes = node.inputs[1] if len(node.inputs) > 1 else attributes.pop("axes", None)  # before ai.onnx 18
    return op.Equal(op.ReduceLogSumExp(node.inputs[0], axes, **attributes), y)


def compared_with_infinity(x: ir.Value, y: ir.Value) -> ir.Node | None:
    """The ReduceMax of floats that is compared, None when it is another node or when *y* is not minus infinity."""
    node = producer_of(x, "ReduceMax")
    if node is None or x.dtype not in dtypes.FLOATS or y.const_value is None:
        return None
    return node if y.const_value.size == 1 and y.const_value.numpy().item() == -math.inf else None


def is_open_or_closed(mask: ir.Value) -> bool:
    """Whether elements are known to be 0 or minus infinity, as those of a boolean mask that is added to scores."""
    if mask.const_value is not None and not mask.is_graph_input():
        array = mask.const_value.numpy()
        return bool(((array == 0) | (array == -math.inf)).all())
    node = producer_of(mask, "Where")
    if node is None:
        return False
    return all(chosen.const_value is not None and is_open_or_closed(chosen) for chosen in node.inputs[1:])


def is_on_gpu(op) -> bool:
    """Whether the results of the node of the program that is translated are on a GPU."""
    node = op.context.node
    fakes = () if node is None else pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(fake, torch.Tensor) and fake.device.type == "cuda" for fake in fakes)


@repairs(
    "ArgMax",
    "ArgMin",
    when="floats that hold NaN",
    because="NaN is passed over",
    nodes=4,
    special_values=True,
)
def nan_comes_first(op, x, *, operator, **attributes):
    """The position in numbers of which NaN is the extreme one."""
    if x.dtype not in dtypes.FLOATS:
        return None
    return op.emit(
        operator, (with_ordered_nan(op, x, math.inf if operator == "ArgMax" else -math.inf),), attributes
    )


@repairs(
    "TopK",
    when="floats that hold NaN",
    because="NaN breaks the order of the others; torch's NaN is the largest",
    nodes=5,
    special_values=True,
)
def nan_is_the_largest(op, x, k, *, outputs, axis=-1, **attributes):
    """The order of numbers of which NaN is the largest; the elements are gathered."""
    if x.dtype not in dtypes.FLOATS:
        return None
    key = with_ordered_nan(op, x, math.inf)
    _, indices = op.TopK(key, k, axis=axis, outputs=2, **attributes)
    return op.GatherElements(x, indices, axis=axis), indices


@repairs(
    "ReduceSum",
    when="integers of 32 bits or fewer, but for booleans as numbers",
    because="sums beyond int32 are its ends, they do not wrap",
    nodes="2 for int32, otherwise 0: int8, int16 and uint8 are added in a wider dtype anyway",
)
def in_int64(op, x, axes=None, **attributes):
    """The sum in int64, cast back."""
    if not may_wrap(x):
        return None
    return op.Cast(op.ReduceSum(op.Cast(x, to=INT64), axes, **attributes), to=x.dtype)


@repairs(
    "ReduceProd",
    when="integers of 32 bits or fewer, but for booleans as numbers",
    because="products beyond int32 are its ends, they do not wrap",
    nodes="a Scan for each axis",
)
def in_int32(op, x, axes=None, *, keepdims=1, **attributes):
    """A Scan that multiplies in int32, cast back."""
    if not may_wrap(x) or (axes is not None and axes.const_value is None):
        return None
    return op.Cast(multiplied(op, op.Cast(x, to=INT32), axes, keepdims), to=x.dtype)


@repairs(
    "ReduceSum",
    when="int64 that may exceed 2 ** 53",
    because="int64 is added as float64",
    nodes=SUMMED_NODES,
    special_values=True,
)
def modulo_2_to_64(op, x, axes=None, **attributes):
    """A product with ones along a last axis of up to 4096 elements, otherwise the sums of the high and of the low 32 bits."""
    return None if x.dtype != INT64 or is_narrow(x) else summed(op, x, axes, **attributes)


def summed(op, x: ir.Value, axes: ir.Value | None, *, keepdims: int = 1, **attributes) -> ir.Value:
    """The sum of int64, modulo 2 ** 64 as additions and MatMul of int64 are."""
    reduced = [] if x.shape is None else [axis % rank(x) for axis in reduced_axes(x, axes)]
    last = x.shape[-1] if reduced and reduced == [rank(x) - 1] else None
    if isinstance(last, int) and 0 < last <= ONES:
        total = op.MatMul(x, [[1]] * last)
        return total if keepdims else op.Squeeze(total, reduced)
    high = op.Div(x, 2**32)
    low = op.Sub(x, op.Mul(high, 2**32))
    high, low = (op.ReduceSum(half, axes, keepdims=keepdims, **attributes) for half in (high, low))
    return op.Add(op.Mul(high, 2**32), low)


@repairs(
    "ReduceProd",
    when="int64 that may exceed 2 ** 53",
    because="int64 is multiplied as float64",
    nodes="a Scan for each axis",
    special_values=True,
)
def factor_by_factor(op, x, axes=None, *, keepdims=1, **attributes):
    """A Scan that multiplies."""
    if x.dtype != INT64 or (axes is not None and axes.const_value is None) or are_sizes(x):
        return None
    return multiplied(op, x, axes, keepdims)


def multiplied(op, x: ir.Value, axes: ir.Value | None, keepdims: int) -> ir.Value:
    """The product along axes, one factor after the other."""
    found = range(rank(x)) if axes is None else [axis % rank(x) for axis in axes.const_value.numpy().tolist()]
    for axis in sorted(found, reverse=True):
        kept = [op.size(x, other) for other in range(rank(x)) if other != axis]
        one = op.Expand(op.constant(1, x.dtype), op.shape(kept))
        body = op.subgraph(lambda inner, state, factor: [inner.Mul(state, factor)], [one, one])
        x = op.Scan(one, x, body=body, num_scan_inputs=1, scan_input_axes=[axis])
        x.type, x.shape = one.type, one.shape  # ONNX infers none of a body's
    return op.Unsqueeze(x, sorted(found)) if keepdims else x


def may_wrap(x: ir.Value) -> bool:
    """Whether elements are integers narrower than int64 whose sum, or product, may leave int32."""
    return x.dtype in NARROW and x.dtype != BOOL and not is_of_booleans(x)


def is_of_booleans(value: ir.Value) -> bool:
    """Whether elements are booleans as numbers, of which there are fewer ones than elements."""
    cast = producer_of(value, "Cast")
    return cast is not None and cast.inputs[0].dtype == BOOL


def is_narrow(value: ir.Value) -> bool:
    """Whether int64 elements are those of a smaller integer or boolean tensor."""
    cast = producer_of(value, "Cast")
    return cast is not None and cast.inputs[0].dtype in NARROW


def are_sizes(value: ir.Value) -> bool:
    """Whether int64 elements are sizes of tensors, whose product is the number of elements of one."""
    node = producer_of(value)
    if node is None:
        return value.const_value is not None
    if node.op_type in ("Gather", "Slice"):  # some sizes of a Shape, before opset 15
        node = producer_of(node.inputs[0]) or node
    return node.op_type == "Shape" or (node.op_type == "Concat" and all(map(are_sizes, node.inputs)))
