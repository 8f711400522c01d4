"""Pooling over sliding windows: maximum (with indices), average.

Source of semantics: torch.nn.MaxPool2d, torch.nn.AvgPool2d and ONNX AveragePool-22. Windows of ``ceil_mode`` that start behind the
input are none, as in torch: ONNX says so since opset 22, onnxruntime and onnx compute it in every version. ONNX pools no integers
but bytes: they are reduced over gathered windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.aten.spatial import (
    batched,
    columns,
    padded,
    per_axis,
    window_positions,
)
from experimental_experiment.torch_interpreter.promotion import wide
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import (
    Size,
    counted,
    is_static,
    larger,
    minus,
    plus,
    quotient,
    smaller,
    times,
    volume,
)
from experimental_experiment.torch_interpreter.unread import reads_result, zeros_for_gradient

aten = torch.ops.aten

IN_MAX_POOL = frozenset(
    {
        ir.DataType.FLOAT,
        ir.DataType.DOUBLE,
        ir.DataType.FLOAT16,
        ir.DataType.BFLOAT16,
        ir.DataType.INT8,
        ir.DataType.UINT8,
    }
)
"""Dtypes that ONNX MaxPool computes."""


class Geometry:
    """The windows of one pooling: kernel, stride, padding and dilation per axis, zeros to add at the end for ceil_mode.

    A window of ceil_mode larger than the padded input holds no more than that: ``window`` is the smaller size, ``kernel`` as well
    where it is static.
    """

    def __init__(self, op, x, axes, kernel_size, stride, padding, dilation, ceil_mode):
        self.ceil_mode = ceil_mode
        self.kernel = per_axis(kernel_size, axes)
        self.stride = per_axis(stride, axes, self.kernel)
        self.begin = per_axis(padding, axes)
        self.dilation = per_axis(dilation, axes)
        self.sizes = [op.size(x, axis - axes) for axis in range(axes)]
        self.window: list[Size] = list(self.kernel)
        if ceil_mode and self.dilation == [1] * axes:
            whole = [plus(op, size, 2 * p) for size, p in zip(self.sizes, self.begin)]
            self.window = [smaller(op, k, size) for k, size in zip(self.kernel, whole)]
            self.kernel = [w if is_static(w) else k for w, k in zip(self.window, self.kernel)]
        self.reach = [plus(op, times(op, minus(op, w, 1), d), 1) for w, d in zip(self.window, self.dilation)]
        self.last = [self.last_of(op, axis, ceil_mode) for axis in range(axes)]
        self.end: list[Size] = [
            self.end_of(op, axis) if ceil_mode else self.begin[axis] for axis in range(axes)
        ]

    def last_of(self, op, axis: int, ceil_mode: bool) -> Size:
        """The number of the last window of an axis: with ceil_mode, it starts inside the input or in the padding before."""
        size, s, p, k, d = (
            self.sizes[axis],
            self.stride[axis],
            self.begin[axis],
            self.kernel[axis],
            self.dilation[axis],
        )
        covered = minus(op, plus(op, size, 2 * p), (k - 1) * d + 1)
        if not ceil_mode:
            return quotient(op, covered, s)
        inside = quotient(op, plus(op, size, p - 1), s)
        return smaller(op, quotient(op, plus(op, covered, s - 1), s), inside)

    def end_of(self, op, axis: int) -> Size:
        """Zeros after an axis so that its last window is whole."""
        needed = plus(op, times(op, self.last[axis], self.stride[axis]), self.reach[axis])
        return larger(op, minus(op, needed, plus(op, self.sizes[axis], self.begin[axis])), self.begin[axis])

    def counts(self, op) -> list[Size]:
        """The number of windows of each axis."""
        return [plus(op, last, 1) for last in self.last]

    def attributes(self, counts_padding: bool = False) -> dict[str, Any] | None:
        """The attributes of ONNX, None when they cannot say the windows. *counts_padding*: what pads the input counts in a mean."""
        windows = dict(kernel_shape=self.kernel, strides=self.stride)
        if self.end == self.begin:
            return dict(windows, pads=self.begin * 2)
        if is_static(*self.end) and not counts_padding:
            if all(amount < kernel for amount, kernel in zip([*self.begin, *self.end], self.kernel * 2)):
                return dict(windows, pads=[*self.begin, *self.end])
        if is_static(*self.sizes) and any(self.leaves_a_rest(axis) for axis in range(len(self.sizes))):
            return None
        return dict(windows, pads=self.begin * 2, ceil_mode=1)

    def leaves_a_rest(self, axis: int) -> bool:
        """Whether ceil_mode adds no window for the end of an axis of static size: it is padding alone, for which ONNX before opset 22 counts one."""
        covered = self.last[axis] * self.stride[axis] + self.reach[axis]
        return covered < self.sizes[axis] + 2 * self.begin[axis]


def reduced(op, reduce: Callable, x, found: Geometry):
    """*reduce*, ReduceMax or ReduceSum, over every window of the padded *x*: one axis after the other, so that few elements are copied."""
    for axis, (window, stride, dilation) in enumerate(
        zip(found.window, found.stride, found.dilation), start=2
    ):
        index, _ = window_positions(op, op.size(x, axis), window, stride, dilation)
        x = reduce(op.Gather(x, index, axis=axis), [axis], keepdims=0)
    return x


# ---- maximum


def largest(op, x, found: Geometry):
    """The largest element of every window of (N, C, *spatial*)."""
    if x.dtype not in IN_MAX_POOL:
        return reduced(op, op.ReduceMax, padded_with_lowest(op, x, found), found)
    attributes = found.attributes()
    if attributes is None:
        x, attributes = (
            padded_with_lowest(op, x, found),
            dict(kernel_shape=found.kernel, strides=found.stride),
        )
    return op.MaxPool(x, dilations=found.dilation, **attributes)


def largest_with_indices(op, x, found: Geometry):
    """The largest element of every window of (N, C, *spatial*), the first one of equals, and its flat position."""
    attributes = found.attributes() if x.dtype in IN_MAX_POOL else None
    if attributes is not None:
        values, flat = op.MaxPool(x, outputs=2, dilations=found.dilation, **attributes)
        return values, op.Mod(flat, op.shape([volume(op, found.sizes)]))
    taken, counts = columns(op, padded_with_lowest(op, x, found), found.window, found.stride, found.dilation)
    positions = padded(op, numbered(op, found.sizes), found.begin, found.end)
    where, _ = columns(op, positions, found.window, found.stride, found.dilation)
    return first_largest(op, taken, where, [op.size(x, 0), op.size(x, 1)], volume(op, found.window), counts)


def largest_of_windows(op, x, axes: int, found: Geometry):
    """`largest` for *x* with or without a batch."""
    return batched(op, x, axes, lambda x: largest(op, x, found))


def with_indices(op, x, axes: int, found: Geometry):
    """The results of `largest_with_indices` for *x* with or without a batch; positions that nothing reads are zeros.

    onnxruntime treats a pool with one result otherwise, see the rows of MaxPool: it is written as one from the beginning.
    """
    if reads_result(op, 1):
        return batched(op, x, axes, lambda x: largest_with_indices(op, x, found))
    return largest_of_windows(op, x, axes, found), *zeros_for_gradient(op)


def max_pool(write: Callable, axes: int) -> Callable:
    """The translation that writes a maximum over *axes* spatial axes."""

    def translation(op, self, kernel_size, stride, padding, dilation, ceil_mode):
        return write(
            op, self, axes, Geometry(op, self, axes, kernel_size, stride, padding, dilation, ceil_mode)
        )

    translation.__doc__ = write.__doc__
    return translation


translates(aten.max_pool1d.default)(max_pool(largest_of_windows, 1))
translates(aten.max_pool2d.default)(max_pool(largest_of_windows, 2))
translates(aten.max_pool3d.default)(max_pool(largest_of_windows, 3))
translates(aten.max_pool1d_with_indices.default)(max_pool(with_indices, 1))
translates(aten.max_pool2d_with_indices.default)(max_pool(with_indices, 2))
translates(aten.max_pool3d_with_indices.default)(max_pool(with_indices, 3))


def first_largest(op, taken, positions, outer: list[Size], elements: Size, counts: list[Size]):
    """The maximum of *taken* (*outer*, *kernel*, *counts*) over the kernel axes, and what *positions* holds beside it."""
    flat = reshaped(op, taken, [*outer, elements, *counts])
    table = reshaped(op, positions, [1, 1, elements, *counts])
    chosen = largest_of(op, flat, 2)
    values = op.GatherElements(flat, chosen, axis=2)
    where = op.GatherElements(op.Expand(table, op.Shape(flat)), chosen, axis=2)
    return op.Squeeze(values, [2]), op.Squeeze(where, [2])


def largest_of(op, x, axis: int):
    """Where the maximum along an axis is, the axis being kept: the last NaN (a special value), or the first one of the largest numbers."""
    index = op.ArgMax(x, axis=axis, keepdims=1)
    if not x.dtype.is_floating_point() or not op.context.special_values:
        return index
    is_nan = op.Cast(op.IsNaN(x), to=ir.DataType.UINT8)
    last_nan = op.ArgMax(is_nan, axis=axis, keepdims=1, select_last_index=1)
    found = op.Cast(op.GatherElements(is_nan, last_nan, axis=axis), to=ir.DataType.BOOL)
    return op.Where(found, last_nan, index)


def numbered(op, sizes: list[Size]):
    """The flat position of every element of a channel: (1, 1, *sizes*)."""
    return reshaped(op, counted(op, volume(op, sizes)), [1, 1, *sizes])


def padded_with_lowest(op, x, found: Geometry):
    """*x* with the smallest number around it."""
    return padded(op, x, found.begin, found.end, dtypes.lowest(x.dtype))


# ---- average


@translates(aten.avg_pool1d.default)
def avg_pool1d(op, self, kernel_size, stride, padding, ceil_mode, count_include_pad):
    """The mean of every window."""
    return avg_pool(op, self, 1, kernel_size, stride, padding, ceil_mode, count_include_pad)


@translates(aten.avg_pool2d.default)
def avg_pool2d(op, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """The mean of every window, or its sum divided by *divisor_override*."""
    return avg_pool(op, self, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@translates(aten.avg_pool3d.default)
def avg_pool3d(op, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """The mean of every window, or its sum divided by *divisor_override*."""
    return avg_pool(op, self, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool(
    op, self, axes, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None
):  # fmt: skip
    """The mean of every window over *axes* spatial axes."""
    found = Geometry(op, self, axes, kernel_size, stride, padding, 1, ceil_mode)
    return batched(op, self, axes, lambda x: mean(op, x, found, count_include_pad, divisor_override))


def mean(op, x, found: Geometry, count_include_pad, divisor_override):
    """The mean of every window of (N, C, *spatial*)."""
    if x.dtype not in dtypes.FLOATS:
        total = reduced(op, op.ReduceSum, padded(op, x, found.begin, found.end), found)
        return op.Div(total, op.CastLike(divisor_of(op, found, count_include_pad, divisor_override), total))
    counts_padding = any(found.begin) and (count_include_pad or divisor_override is not None)
    attributes = found.attributes(counts_padding)
    if attributes is None:
        surrounded = padded(op, x, found.begin, found.end)
        average = op.AveragePool(surrounded, kernel_shape=found.kernel, strides=found.stride)
        count = op.constant(math.prod(found.kernel))
    else:
        average = op.AveragePool(x, count_include_pad=int(counts_padding), **attributes)
        if divisor_override is None:
            return average
        count = divisors(op, found, True)
    divisor = divisor_of(op, found, count_include_pad, divisor_override)
    factor = op.Div(*(op.Cast(number, to=wide(x.dtype)) for number in (count, divisor)))
    return op.Mul(average, op.CastLike(factor, average))


def divisor_of(op, found: Geometry, count_include_pad, divisor_override):
    """What divides the sum of every window."""
    return (
        divisors(op, found, count_include_pad) if divisor_override is None else op.constant(divisor_override)
    )


def divisors(op, found: Geometry, count_include_pad):
    """Number of elements of every window, without those that only ceil_mode added: (out1, out2, ...), a number for all alike."""
    if count_include_pad and not found.ceil_mode:
        return op.constant(math.prod(found.kernel))
    product = None
    axes = len(found.kernel)
    for axis, size in enumerate(found.sizes):
        start, stop = bounds(op, found, axis)
        if not count_include_pad:
            start, stop = op.Max(start, 0), op.Min(stop, size)
        count = op.Unsqueeze(op.Sub(stop, start), list(range(1, axes - axis)))
        product = count if product is None else op.Mul(product, count)
    return product


def bounds(op, found: Geometry, axis: int):
    """Where the windows start and stop along an axis, counted from its first element: the padding before is below 0."""
    size, k, s, p = found.sizes[axis], found.window[axis], found.stride[axis], found.begin[axis]
    start = op.Sub(counted(op, found.counts(op)[axis], s), p)
    return start, op.Min(op.Add(start, k), plus(op, size, p))
