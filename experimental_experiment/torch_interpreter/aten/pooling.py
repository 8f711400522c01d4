"""Pooling over sliding windows: maximum (with indices), average.

Source of semantics: torch.nn.MaxPool2d and torch.nn.AvgPool2d. The last window of ``ceil_mode`` is made by padding the end of an
axis: onnxruntime's own ceil_mode keeps windows that torch drops. Dtypes without a kernel are reduced over gathered windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.spatial import (
    Size,
    batched,
    columns,
    counted,
    is_static,
    larger,
    minus,
    padded,
    per_axis,
    plus,
    quotient,
    smaller,
    times,
    volume,
    windows,
)
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates

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

IN_AVERAGE_POOL = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
"""Dtypes that onnxruntime's AveragePool computes."""


class Geometry:
    """The windows of one pooling: kernel, stride, padding and dilation per axis, zeros to add at the end for ceil_mode."""

    def __init__(self, op, x, axes, kernel_size, stride, padding, dilation, ceil_mode):
        self.kernel = per_axis(kernel_size, axes)
        self.stride = per_axis(stride, axes, self.kernel)
        self.begin = per_axis(padding, axes)
        self.dilation = per_axis(dilation, axes)
        self.sizes = [op.size(x, axis - axes) for axis in range(axes)]
        self.reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation)]
        self.end: list[Size] = list(self.begin)
        if ceil_mode:
            self.end = [self.end_of(op, axis) for axis in range(axes)]

    def end_of(self, op, axis: int) -> Size:
        """Zeros after an axis so that a window that starts inside the input, or in the padding before, is whole."""
        size, s, p, reach = self.sizes[axis], self.stride[axis], self.begin[axis], self.reach[axis]
        covered = minus(op, plus(op, size, 2 * p), reach)
        last = quotient(op, plus(op, covered, s - 1), s)
        inside = quotient(op, minus(op, plus(op, size, p), 1), s)
        needed = plus(op, times(op, smaller(op, last, inside), s), reach)
        return larger(op, minus(op, needed, plus(op, size, p)), p)

    @property
    def fits_attributes(self) -> bool:
        """Whether ONNX's attribute pads can hold the padding: static, and smaller than the kernel."""
        amounts = list(zip([*self.begin, *self.end], self.kernel * 2))
        return is_static(*self.end) and all(amount < kernel for amount, kernel in amounts)

    def pads(self) -> list[int]:
        """The attribute pads of ONNX."""
        return [*self.begin, *self.end]


# ---- maximum


def largest(op, x, found: Geometry):
    """The largest element of every window of (N, C, *spatial*).

    onnxruntime's MaxPool passes over NaN, and in float32 gives -3.4e38 for a window of -inf. An exact form takes 1.4 to 15
    times as long, and would stand between the convolutions that onnxruntime computes in one layout.
    """
    if x.dtype not in IN_MAX_POOL:
        taken, _ = windows(op, padded_with_lowest(op, x, found), found.kernel, found.stride, found.dilation)
        return op.ReduceMax(taken, list(range(2, rank(taken), 2)), keepdims=0)
    attributes = dict(kernel_shape=found.kernel, strides=found.stride, dilations=found.dilation)
    if found.fits_attributes:
        return op.MaxPool(x, pads=found.pads(), **attributes)
    return op.MaxPool(padded_with_lowest(op, x, found), **attributes)


def largest_with_indices(op, x, found: Geometry):
    """The largest element of every window of (N, C, *spatial*), the first one of equals, and its flat position."""
    if x.dtype in IN_MAX_POOL and found.fits_attributes:
        attributes = dict(kernel_shape=found.kernel, strides=found.stride, dilations=found.dilation)
        values, flat = op.MaxPool(x, pads=found.pads(), outputs=2, **attributes)
        return values, op.Mod(flat, volume(op, found.sizes))
    taken, counts = columns(op, padded_with_lowest(op, x, found), found.kernel, found.stride, found.dilation)
    positions = padded(op, numbered(op, found.sizes), found.begin, found.end)
    where, _ = columns(op, positions, found.kernel, found.stride, found.dilation)
    return first_largest(op, taken, where, [op.size(x, 0), op.size(x, 1)], volume(op, found.kernel), counts)


def max_pool(write: Callable, axes: int) -> Callable:
    """The translation that writes a maximum over *axes* spatial axes."""

    def translation(op, self, kernel_size, stride, padding, dilation, ceil_mode):
        found = Geometry(op, self, axes, kernel_size, stride, padding, dilation, ceil_mode)
        return batched(op, self, axes, lambda x: write(op, x, found))

    translation.__doc__ = write.__doc__
    return translation


translates(aten.max_pool1d.default)(max_pool(largest, 1))
translates(aten.max_pool2d.default)(max_pool(largest, 2))
translates(aten.max_pool3d.default)(max_pool(largest, 3))
translates(aten.max_pool1d_with_indices.default)(max_pool(largest_with_indices, 1))
translates(aten.max_pool2d_with_indices.default)(max_pool(largest_with_indices, 2))
translates(aten.max_pool3d_with_indices.default)(max_pool(largest_with_indices, 3))


def first_largest(op, taken, positions, outer: list[Size], elements: Size, counts: list[Size]):
    """The maximum of *taken* (*outer*, *kernel*, *counts*) over the kernel axes, and what *positions* holds beside it."""
    flat = op.Reshape(taken, op.shape([*outer, elements, *counts]), allowzero=1)
    table = op.Reshape(positions, op.shape([1, 1, elements, *counts]), allowzero=1)
    chosen = largest_of(op, flat, 2)
    values = op.GatherElements(flat, chosen, axis=2)
    where = op.GatherElements(op.Expand(table, op.Shape(flat)), chosen, axis=2)
    return op.Squeeze(values, [2]), op.Squeeze(where, [2])


def largest_of(op, x, axis: int):
    """Where the maximum along an axis is, the axis being kept: the last NaN, or the first one of the largest numbers."""
    index = op.ArgMax(x, axis=axis, keepdims=1)
    if not x.dtype.is_floating_point():
        return index
    is_nan = op.Cast(op.IsNaN(x), to=ir.DataType.UINT8)
    last_nan = op.ArgMax(is_nan, axis=axis, keepdims=1, select_last_index=1)
    found = op.Cast(op.GatherElements(is_nan, last_nan, axis=axis), to=ir.DataType.BOOL)
    return op.Where(found, last_nan, index)


def numbered(op, sizes: list[Size]):
    """The flat position of every element of a channel: (1, 1, *sizes*)."""
    return op.Reshape(counted(op, volume(op, sizes)), op.shape([1, 1, *sizes]), allowzero=1)


def lowest(dtype: ir.DataType) -> float:
    """The smallest number of a dtype."""
    return -math.inf if dtype.is_floating_point() else int(np.iinfo(dtype.numpy()).min)


def padded_with_lowest(op, x, found: Geometry):
    """*x* with the smallest number around it."""
    return padded(op, x, found.begin, found.end, lowest(x.dtype))


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
    attributes = dict(kernel_shape=found.kernel, strides=found.stride)
    in_kernel = x.dtype in IN_AVERAGE_POOL
    if in_kernel and divisor_override is None and found.fits_attributes:
        if not count_include_pad or found.end == found.begin:
            included = int(count_include_pad)
            return op.AveragePool(x, pads=found.pads(), count_include_pad=included, **attributes)
    surrounded = padded(op, x, found.begin, found.end)
    divisor = divisors(op, found, count_include_pad) if divisor_override is None else divisor_override
    divisor = op.constant(divisor)
    if in_kernel:
        average = op.AveragePool(surrounded, **attributes)
        factor = op.Div(float(math.prod(found.kernel)), op.Cast(divisor, to=ir.DataType.FLOAT))
        return op.Mul(average, op.CastLike(factor, average))
    taken, _ = windows(op, surrounded, found.kernel, found.stride, [1] * len(found.kernel))
    total = op.ReduceSum(taken, list(range(2, rank(taken), 2)), keepdims=0)
    return op.Div(total, op.CastLike(divisor, total))


def divisors(op, found: Geometry, count_include_pad):
    """Number of elements of every window, without those that only ceil_mode added: (out1, out2, ...)."""
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
    size, k, s, p = found.sizes[axis], found.kernel[axis], found.stride[axis], found.begin[axis]
    total = plus(op, plus(op, size, p), found.end[axis])
    start = op.Sub(counted(op, plus(op, quotient(op, minus(op, total, k), s), 1), s), p)
    return start, op.Min(op.Add(start, k), plus(op, size, p))
