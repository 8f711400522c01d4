"""Pooling: averages of float64, of much padding, maxima of NaN and of infinities, of what is padded before."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.spatial import padded, padded_along, window_positions
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.runtime.table import repairs
from experimental_experiment.torch_interpreter.sizes import plus, smaller

DOUBLE, INT64 = ir.DataType.DOUBLE, ir.DataType.INT64


@repairs(
    "AveragePool",
    when="float64",
    because="there is no kernel, and float32 loses half of the digits",
    nodes="2 an axis, and 2; more for dynamic sizes",
)
def sums_of_windows(
    op, x, *, kernel_shape, strides, pads=None, dilations=None, ceil_mode=0, count_include_pad=0
):
    """The sums over the windows of one axis after the other, divided by the number of elements."""
    if x.dtype != DOUBLE:
        return None
    axes = len(kernel_shape)
    pads = pads or [0] * (2 * axes)
    windows = zip(kernel_shape, strides, pads[:axes], pads[axes:], dilations or [1] * axes)
    divisor = op.constant(1)
    for axis, (kernel, stride, begin, end, dilation) in enumerate(windows, start=2):
        size = op.size(x, axis)
        more = after_the_end(kernel, stride, end, dilation) if ceil_mode else 0
        if ceil_mode and dilation == 1:
            kernel = smaller(op, kernel, plus(op, size, begin + end))
        counted = elements(op, size, begin, end, more, count_include_pad)
        x = padded_along(op, x, [axis], [begin], [end + more])
        index, _ = window_positions(op, op.size(x, axis), kernel, stride, dilation)
        x = op.ReduceSum(op.Gather(x, index, axis=axis), [axis], keepdims=0)
        count = op.ReduceSum(op.Gather(counted, index), [0], keepdims=0)
        divisor = op.Mul(op.Unsqueeze(divisor, [-1]), count)
    return op.Div(x, op.Cast(divisor, to=DOUBLE))


def after_the_end(kernel: int, stride: int, end: int, dilation: int) -> int:
    """How much follows an axis, padded by *end*, for the windows of ceil_mode: the last one begins before that padding."""
    return min(stride - 1, (kernel - 1) * dilation - end)


def elements(op, size, begin: int, end: int, more: int, count_include_pad: int) -> ir.Value:
    """1 for each element of a padded axis that counts in a mean, 0 for the others: what ceil_mode adds after the padding never does."""
    if count_include_pad:
        return padded_along(
            op, op.Expand(op.constant(1), op.shape([plus(op, size, begin + end)])), [0], [0], [more]
        )
    return padded_along(op, op.Expand(op.constant(1), op.shape([size])), [0], [begin], [end + more])


@repairs(
    "AveragePool",
    when="of what a Pad surrounds with as many zeros as a window has elements, or more",
    because="the pool takes over what is padded, and is refused",
    nodes=1,
)
def of_much_padding(op, x, *, kernel_shape, pads=None, **attributes):
    """A Sum of the padded tensor alone, which is not looked at."""
    if not is_padded_with_zeros(x) or not is_wide(x, kernel_shape, pads):
        return None
    return op.AveragePool(op.Sum(x), kernel_shape=kernel_shape, pads=pads, **attributes)


def is_wide(x: ir.Value, kernel_shape: list[int], pads: list[int] | None) -> bool:
    """Whether the Pad before *x* adds, with what the pool pads, as many elements along an axis as a window has."""
    cast = producer_of(x, "Cast")
    node = producer_of(x if cast is None else cast.inputs[0], "Pad")
    sides = None if node is None else node.inputs[1].const_value
    if sides is None or sides.size != 2 * len(kernel_shape) + 4:
        return False
    begin, end = sides.numpy().reshape(2, -1)[:, 2:].tolist()
    own = pads or [0] * (2 * len(kernel_shape))
    return any(a + b >= size for a, b, size in zip([*begin, *end], own, kernel_shape * 2))


@repairs(
    "GlobalAveragePool",
    when="float64",
    because="there is no kernel, and float32 loses half of the digits",
    nodes=0,
)
def mean_of_axes(op, x):
    """The mean over the axes after the second one."""
    return op.ReduceMean(x, list(range(2, rank(x))), keepdims=1) if x.dtype == DOUBLE else None


@repairs(
    "MaxPool",
    when="of what a Pad surrounds with 0",
    because="the pool takes over what is padded, with -inf in the place of 0, or is refused where that is wider than a window",
    nodes="0; 1 where the pool pads as well",
)
def of_padded(op, x, *, outputs, kernel_shape, strides, pads=None, dilations=None, ceil_mode=0):
    """``auto_pad="VALID"``, which takes no pads; those of the pool are a Pad with the lowest number."""
    if outputs == 2 or not is_padded_with_zeros(x):
        return None
    x = with_own_padding(op, x, kernel_shape, strides, pads, dilations, ceil_mode)
    return op.MaxPool(x, auto_pad="VALID", kernel_shape=kernel_shape, strides=strides, dilations=dilations)


def with_own_padding(op, x, kernel_shape, strides, pads, dilations, ceil_mode) -> ir.Value:
    """*x* with the lowest number where a MaxPool pads by itself."""
    axes = len(kernel_shape)
    begin, end = (pads[:axes], pads[axes:]) if pads else ([0] * axes, [0] * axes)
    if ceil_mode:
        windows = zip(kernel_shape, strides, end, dilations or [1] * axes)
        end = [window[2] + after_the_end(*window) for window in windows]
    return padded(op, x, begin, end, dtypes.lowest(x.dtype)) if any([*begin, *end]) else x


def is_padded_with_zeros(x: ir.Value) -> bool:
    """Whether a value is the result of a Pad with a constant that may be 0, cast or not."""
    cast = producer_of(x, "Cast")
    node = producer_of(x if cast is None else cast.inputs[0], "Pad")
    if node is None or node.attributes.get_string("mode", "constant") != "constant":
        return False
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return value is None or value.const_value is None or not value.const_value.numpy().any()


@repairs(
    "MaxPool",
    when="windows of floats that hold NaN or only -inf",
    because="NaN is passed over unless it comes first, -inf is the lowest number in float32 but for two axes within the image with strides up to 2; "
    "torch takes the last NaN",
    nodes="12, and 3 for the positions",
    special_values=True,
)
def last_nan(op, x, *, outputs, **attributes):
    """The maximum in float64, which keeps -inf; NaN at the largest position of one."""
    if x.dtype not in dtypes.FLOATS:
        return None
    values, where = op.MaxPool(op.Cast(x, to=DOUBLE), outputs=2, **attributes)
    position = op.Reshape(op.Range(1, op.Add(op.Size(x), 1), 1), op.shape_of(x))
    marks = op.Where(op.IsNaN(x), op.Cast(position, to=DOUBLE), op.constant(0.0, DOUBLE))
    last = op.MaxPool(marks, **attributes)
    is_nan = op.Greater(last, op.constant(0.0, DOUBLE))
    values = op.Where(is_nan, op.constant(float("nan"), x.dtype), op.Cast(values, to=x.dtype))
    if outputs != 2:
        return values
    return values, op.Where(is_nan, op.Sub(op.Cast(last, to=INT64), 1), where)
