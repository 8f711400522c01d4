"""Gradients of convolutions, pooling, resizing, padding and normalization, as aot_autograd writes them.

Source of semantics: torch's derivatives. What a forward operator read at a position, the backward one adds there: with a scatter for
pooling, with a matrix an axis for resizing and padding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.adaptive_pooling import adaptive_bounds
from experimental_experiment.torch_interpreter.aten.convolution import any_conv, conv_transpose
from experimental_experiment.torch_interpreter.aten.pooling import Geometry, bounds, divisors
from experimental_experiment.torch_interpreter.aten.resize import (
    antialiased_matrix,
    cubic_taps,
    hat,
    lanczos,
    linear_taps,
    triangle,
)
from experimental_experiment.torch_interpreter.aten.resize_nearest import nearest_indices
from experimental_experiment.torch_interpreter.aten.spatial import columns, padded, per_axis
from experimental_experiment.torch_interpreter.aten.unpooling import scattered
from experimental_experiment.torch_interpreter.composite import composite
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import (
    Size,
    counted,
    is_static,
    minus,
    plus,
    quotient,
    times,
    volume,
)
from experimental_experiment.torch_interpreter.torch_versions import installed

aten = torch.ops.aten

composite(
    aten.native_batch_norm_backward.default,
    aten.native_group_norm_backward.default,
    aten.native_layer_norm_backward.default,
)


# ---- convolution


@translates(aten.convolution_backward.default)
def convolution_backward(
    op, grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
    groups, output_mask,
):  # fmt: skip
    """The gradients of a convolution: of its input, its weight and its bias, those that the mask asks for."""
    axes = rank(weight) - 2
    stride, padding, dilation, output_padding = (
        per_axis(numbers, axes) for numbers in (stride, padding, dilation, output_padding)
    )
    small, large = (input, grad_output) if transposed else (grad_output, input)
    of_input = of_weight = of_bias = None
    if output_mask[0] and transposed:
        whole = any_conv(op, grad_output, weight, None, stride, padding, padding, dilation, groups)
        beyond = [axis + 2 for axis in range(axes) if output_padding[axis] >= stride[axis]]
        of_input = cropped(op, whole, input, beyond)
    elif output_mask[0]:
        zeros = [0] * axes
        whole = conv_transpose(op, grad_output, weight, None, stride, zeros, zeros, groups, dilation)
        ends = [
            end_of_gradient(op, grad_output, input, weight, axis, stride, padding, dilation)
            for axis in range(axes)
        ]
        of_input = padded(op, whole, [-before for before in padding], ends)
    if output_mask[1]:
        of_weight = gradient_of_weight(op, small, large, weight, stride, padding, dilation, groups)
    if output_mask[2]:
        of_bias = op.ReduceSum(grad_output, [0, *range(2, rank(grad_output))], keepdims=0)
    return of_input, of_weight, of_bias


def cropped(op, x: ir.Value, like: ir.Value, axes: list[int]) -> ir.Value:
    """The first elements of *x* along *axes*, as many as *like* has: a window lies wholly in a wide output padding."""
    if not axes:
        return x
    return op.Slice(x, [0] * len(axes), op.shape([op.size(like, axis) for axis in axes]), axes)


def end_of_gradient(op, grad_output, input, weight, axis, stride, padding, dilation) -> Size:
    """Zeros, or elements to crop when below 0, after the last element that a window of the convolution reads."""
    steps = times(op, minus(op, op.size(grad_output, axis + 2), 1), stride[axis])
    reach = times(op, minus(op, op.size(weight, axis + 2), 1), dilation[axis])
    read = plus(op, plus(op, steps, reach), 1)
    return minus(op, plus(op, op.size(input, axis + 2), padding[axis]), read)


def gradient_of_weight(op, small, large, weight, stride, padding, dilation, groups):
    """For each element of the kernel, the sum over all windows of *small* times what the element met in *large*."""
    kernel = [op.size(weight, axis + 2) for axis in range(rank(weight) - 2)]
    if is_static(*kernel) and math.prod(kernel) <= UNROLLED:
        if groups == 1:
            return element_by_element(op, small, large, weight, kernel, stride, padding, dilation)
        if op.size(large, 1) == groups:
            return channel_by_channel(op, small, large, weight, kernel, stride, padding, dilation)
    taken, counts = columns(op, padded(op, large, padding, padding), kernel, stride, dilation)
    # a stride may leave elements at the end of the large side that no window reads
    extent = [op.size(small, axis + 2) for axis in range(len(kernel))]
    batch, rows = op.size(small, 0), quotient(op, op.size(small, 1), groups)
    inner = times(op, quotient(op, op.size(large, 1), groups), volume(op, kernel))
    for axis, size in enumerate(extent):
        if size is not counts[axis]:
            taken = op.Slice(taken, [0], op.shape([size]), [2 + len(kernel) + axis])
    left = op.Reshape(small, op.shape([batch, groups, rows, volume(op, extent)]), allowzero=1)
    right = op.Reshape(taken, op.shape([batch, groups, inner, volume(op, extent)]), allowzero=1)
    product = op.MatMul(left, op.Transpose(right, perm=[0, 1, 3, 2]))
    return op.Reshape(op.ReduceSum(product, [0], keepdims=0), op.shape_of(weight))


UNROLLED = 49
"""Elements of a kernel, 7 times 7: up to it, a product for each is four times as fast as gathering all windows."""


def element_by_element(op, small, large, weight, kernel, stride, padding, dilation):
    """`gradient_of_weight` of one group: a matrix product for each element of the kernel, channels last."""
    axes = [*range(2, 2 + len(kernel))]
    counts = [op.size(small, axis) for axis in axes]
    channels = op.size(large, 1)
    last = op.Transpose(padded(op, large, padding, padding), perm=[0, *axes, 1])
    first = op.Transpose(small, perm=[1, 0, *axes])
    left = op.Reshape(
        first, op.shape([op.size(small, 1), times(op, op.size(small, 0), volume(op, counts))]), allowzero=1
    )
    met = met_elements(op, last, [axis - 1 for axis in axes], kernel, counts, stride, dilation)
    products = [op.MatMul(left, op.Reshape(taken, op.shape([-1, channels]))) for taken in met]
    if len(products) == 1:
        return op.Reshape(products[0], op.shape_of(weight))
    stacked = op.Concat(*(op.Unsqueeze(product, [2]) for product in products), axis=2)
    return op.Reshape(stacked, op.shape_of(weight))


def channel_by_channel(op, small, large, weight, kernel, stride, padding, dilation):
    """`gradient_of_weight` of groups that have one channel of *large* each: a sum of products for each element of the kernel.

    Measured with onnxruntime 1.31: 0.08 to 0.45 of the time of gathering all windows and a matrix product of one row a group.
    """
    axes = [*range(2, 2 + len(kernel))]
    counts = [op.size(small, axis) for axis in axes]
    groups, rows = op.size(large, 1), quotient(op, op.size(small, 1), op.size(large, 1))
    met = met_elements(op, padded(op, large, padding, padding), axes, kernel, counts, stride, dilation)
    if rows != 1:  # several filters of each channel
        small = op.Reshape(small, op.shape([op.size(small, 0), groups, rows, *counts]), allowzero=1)
        met = (op.Unsqueeze(taken, [2]) for taken in met)
    summed = [0, *(axis + rank(small) - rank(large) for axis in axes)]
    sums = [op.ReduceSum(op.Mul(small, taken), summed, keepdims=0) for taken in met]
    return op.Reshape(op.Concat(*(op.Unsqueeze(total, [-1]) for total in sums), axis=-1), op.shape_of(weight))


def met_elements(op, large, axes, kernel, counts, stride, dilation) -> Iterator[ir.Value]:
    """For each element of a kernel what it meets in *large*, when its windows move *counts* times along *axes*."""
    for place in itertools.product(*map(range, kernel)):
        starts = [offset * step for offset, step in zip(place, dilation)]
        ends = [
            plus(op, times(op, minus(op, count, 1), step), start + 1)
            for count, step, start in zip(counts, stride, starts)
        ]
        yield op.Slice(large, op.shape(starts), op.shape(ends), axes, list(stride))


# ---- embedding


@translates(aten.embedding_dense_backward.default)
def embedding_dense_backward(op, grad_output, indices, num_weights, padding_idx, scale_grad_by_freq):
    """The gradient of every looked up row added to the row, over its number of uses if *scale_grad_by_freq*."""
    width = op.size(grad_output, -1)
    rows = op.Reshape(op.Cast(indices, to=ir.DataType.INT64), [-1, 1])
    grad = op.Reshape(grad_output, op.shape([-1, width]))
    wide = op.Cast(grad, to=ir.DataType.FLOAT) if grad.dtype == ir.DataType.FLOAT16 else grad
    if isinstance(padding_idx, ir.Value) or padding_idx >= 0:
        wide = op.Where(op.Equal(rows, padding_idx), op.constant(0, wide.dtype), wide)
    zero = op.constant(0, wide.dtype)
    total = op.ScatterND(op.Expand(zero, op.shape([num_weights, width])), rows, wide, reduction="add")
    if scale_grad_by_freq:
        ones = op.Expand(op.constant(1, wide.dtype), op.Shape(rows))
        uses = op.ScatterND(op.Expand(zero, op.shape([num_weights, 1])), rows, ones, reduction="add")
        total = op.Div(total, op.Max(uses, 1.0))
    return op.Cast(total, to=grad_output.dtype)


# ---- pooling


@translates(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_with_indices_backward(
    op, grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
):  # fmt: skip
    """Each gradient goes to the element that was the largest; the geometry is in the indices."""
    return added_at(op, grad_output, self, indices, 2)


@translates(aten.max_pool3d_with_indices_backward.default)
def max_pool3d_with_indices_backward(
    op, grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices
):  # fmt: skip
    """Each gradient goes to the element that was the largest; the geometry is in the indices."""
    return added_at(op, grad_output, self, indices, 3)


@translates(aten.adaptive_max_pool2d_backward.default)
def adaptive_max_pool2d_backward(op, grad_output, self, indices):
    """Each gradient goes to the element that was the largest."""
    return added_at(op, grad_output, self, indices, 2)


@translates(aten.adaptive_max_pool3d_backward.default)
def adaptive_max_pool3d_backward(op, grad_output, self, indices):
    """Each gradient goes to the element that was the largest."""
    return added_at(op, grad_output, self, indices, 3)


@translates(aten.fractional_max_pool2d_backward.default)
def fractional_max_pool2d_backward(op, grad_output, self, kernel_size, output_size, indices):
    """Each gradient goes to the element that was the largest."""
    return added_at(op, grad_output, self, indices, 2)


@translates(aten.fractional_max_pool3d_backward.default)
def fractional_max_pool3d_backward(op, grad_output, self, kernel_size, output_size, indices):
    """Each gradient goes to the element that was the largest."""
    return added_at(op, grad_output, self, indices, 3)


def added_at(op, grad_output, self, indices, axes):
    """Each gradient added at the flat position that the forward operator gave."""
    sizes = [op.size(self, axis - axes) for axis in range(axes)]
    return scattered(op, grad_output, indices, sizes, "add")


@translates(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(
    op, grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
):  # fmt: skip
    """Each gradient shared by the elements of its window."""
    found = Geometry(op, self, 2, kernel_size, stride, padding, 1, ceil_mode)
    return shared(op, grad_output, found, count_include_pad, divisor_override)


@translates(aten.avg_pool3d_backward.default)
def avg_pool3d_backward(
    op, grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
):  # fmt: skip
    """Each gradient shared by the elements of its window."""
    found = Geometry(op, self, 3, kernel_size, stride, padding, 1, ceil_mode)
    return shared(op, grad_output, found, count_include_pad, divisor_override)


def shared(op, grad_output, found: Geometry, count_include_pad, divisor_override):
    """The gradient over the divisor of its window, added at every element of the window."""
    divisor = divisors(op, found, count_include_pad) if divisor_override is None else divisor_override
    grad = op.Div(grad_output, op.Cast(op.constant(divisor), to=grad_output.dtype))

    def matrix(axis, dtype):
        start, stop = bounds(op, found, axis)
        return membership(op, start, stop, found.sizes[axis], dtype)

    return carried_back(op, grad, len(found.kernel), matrix)


@translates(aten._adaptive_avg_pool2d_backward.default)
def _adaptive_avg_pool2d_backward(op, grad_output, self):
    """Each gradient shared by the elements of its window."""
    return shared_adaptively(op, grad_output, self, 2)


@translates(aten._adaptive_avg_pool3d_backward.default)
def _adaptive_avg_pool3d_backward(op, grad_output, self):
    """Each gradient shared by the elements of its window."""
    return shared_adaptively(op, grad_output, self, 3)


def shared_adaptively(op, grad_output, self, axes):
    """The gradient over the size of its window, added at every element of the window."""

    def matrix(axis, dtype):
        size, out = op.size(self, axis - axes), op.size(grad_output, axis - axes)
        start, stop = adaptive_bounds(op, size, out)
        part = op.Div(op.constant(1, dtype), op.Cast(op.Sub(stop, start), to=dtype))
        return op.Mul(membership(op, start, stop, size, dtype), op.Unsqueeze(part, [1]))

    return carried_back(op, grad_output, axes, matrix)


def membership(op, start, stop, size: Size, dtype):
    """One row an output: 1 from *start* to *stop*, 0 elsewhere."""
    place = counted(op, size)
    start, stop = op.Unsqueeze(start, [1]), op.Unsqueeze(stop, [1])
    inside = op.And(op.GreaterOrEqual(place, start), op.Less(place, stop))
    return op.Cast(inside, to=dtype)


def is_identity(matrix: ir.Value) -> bool:
    """Whether a matrix is a constant and has ones on its diagonal, zeros elsewhere, as many rows as columns."""
    if matrix.const_value is None:
        return False
    array = matrix.const_value.numpy()
    return np.array_equal(array, np.eye(len(array)))


def carried_back(op, grad, axes: int, matrix: Callable):
    """The gradient of the last *axes* axes through a matrix for each: row ``i`` says what output ``i`` read."""
    dtype = ir.DataType.DOUBLE if grad.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    wide, count = op.Cast(grad, to=dtype), rank(grad)
    for axis in range(axes):
        read = matrix(axis, dtype)
        if is_identity(read):  # the axis that a pool of sequences adds
            continue
        place = count - axes + axis
        order = [other for other in range(count) if other != place] + [place]
        back = [order.index(other) for other in range(count)]
        product = op.MatMul(op.Transpose(wide, perm=order), read)
        wide = op.Transpose(product, perm=back)
    return op.Cast(wide, to=grad.dtype)


# ---- resizing


def from_taps(op, taps, size: Size, dtype):
    """One row an output, with the weights of its taps, pairs of an index and a weight, at their elements."""
    place, total = counted(op, size), None
    for index, weight in taps:
        here = op.Cast(op.Equal(op.Unsqueeze(index, [1]), place), to=dtype)
        term = here if weight is None else op.Mul(here, op.Unsqueeze(weight, [1]))
        total = term if total is None else op.Add(total, term)
    return total


def nearest_back(op, grad_output, output_size, input_size, scales, shift: float):
    """The gradient of every output added to the element that it read."""

    def matrix(axis, dtype):
        size = input_size[axis + 2]
        # positions are computed in float32, whatever the forward operator does
        place = [size], [output_size[axis]], [scales[axis]]
        (index,) = nearest_indices(op, ir.DataType.FLOAT, *place, shift, fits=shift == 0)
        return from_taps(op, [(index, None)], size, dtype)

    return carried_back(op, grad_output, len(output_size), matrix)


def taps_back(op, grad_output, output_size, input_size, align_corners, scales, taps: Callable):
    """The gradient of every output shared by the elements that it read."""

    def matrix(axis, dtype):
        size = input_size[axis + 2]
        found = taps(op, dtype, size, output_size[axis], scales[axis], align_corners)
        return from_taps(op, found, size, dtype)

    return carried_back(op, grad_output, len(output_size), matrix)


@translates(aten.upsample_nearest1d_backward.default)
def upsample_nearest1d_backward(op, grad_output, output_size, input_size, scales):
    """The gradient of nearest, one axis."""
    return nearest_back(op, grad_output, output_size, input_size, [scales], 0.0)


@translates(aten.upsample_nearest2d_backward.default)
def upsample_nearest2d_backward(op, grad_output, output_size, input_size, scales_h, scales_w):
    """The gradient of nearest, two axes."""
    return nearest_back(op, grad_output, output_size, input_size, [scales_h, scales_w], 0.0)


@translates(aten.upsample_nearest3d_backward.default)
def upsample_nearest3d_backward(op, grad_output, output_size, input_size, scales_d, scales_h, scales_w):
    """The gradient of nearest, three axes."""
    return nearest_back(op, grad_output, output_size, input_size, [scales_d, scales_h, scales_w], 0.0)


@translates(aten._upsample_nearest_exact1d_backward.default)
def _upsample_nearest_exact1d_backward(op, grad_output, output_size, input_size, scales):
    """The gradient of nearest-exact, one axis."""
    return nearest_back(op, grad_output, output_size, input_size, [scales], 0.5)


@translates(aten._upsample_nearest_exact2d_backward.default)
def _upsample_nearest_exact2d_backward(op, grad_output, output_size, input_size, scales_h, scales_w):
    """The gradient of nearest-exact, two axes."""
    return nearest_back(op, grad_output, output_size, input_size, [scales_h, scales_w], 0.5)


@translates(aten._upsample_nearest_exact3d_backward.default)
def _upsample_nearest_exact3d_backward(
    op, grad_output, output_size, input_size, scales_d, scales_h, scales_w
):  # fmt: skip
    """The gradient of nearest-exact, three axes."""
    return nearest_back(op, grad_output, output_size, input_size, [scales_d, scales_h, scales_w], 0.5)


@translates(aten.upsample_linear1d_backward.default)
def upsample_linear1d_backward(op, grad_output, output_size, input_size, align_corners, scales):
    """The gradient of linear."""
    return taps_back(op, grad_output, output_size, input_size, align_corners, [scales], linear_taps)


@translates(aten.upsample_bilinear2d_backward.default)
def upsample_bilinear2d_backward(
    op, grad_output, output_size, input_size, align_corners, scales_h, scales_w
):  # fmt: skip
    """The gradient of bilinear."""
    scales = [scales_h, scales_w]
    return taps_back(op, grad_output, output_size, input_size, align_corners, scales, linear_taps)


@translates(aten.upsample_trilinear3d_backward.default)
def upsample_trilinear3d_backward(
    op, grad_output, output_size, input_size, align_corners, scales_d, scales_h, scales_w
):  # fmt: skip
    """The gradient of trilinear."""
    scales = [scales_d, scales_h, scales_w]
    return taps_back(op, grad_output, output_size, input_size, align_corners, scales, linear_taps)


@translates(aten.upsample_bicubic2d_backward.default)
def upsample_bicubic2d_backward(
    op, grad_output, output_size, input_size, align_corners, scales_h, scales_w
):  # fmt: skip
    """The gradient of bicubic."""
    scales = [scales_h, scales_w]
    return taps_back(op, grad_output, output_size, input_size, align_corners, scales, cubic_taps)


def antialiased_back(op, grad_output, output_size, input_size, align_corners, scales, kernel, reach: float):
    """The gradient of every output shared by the elements that it weighed."""

    def matrix(axis, dtype):
        sizes = input_size[axis + 2], output_size[axis], scales[axis]
        return antialiased_matrix(op, dtype, *sizes, align_corners, kernel, reach)

    return carried_back(op, grad_output, len(output_size), matrix)


@translates(aten._upsample_bilinear2d_aa_backward.default)
def _upsample_bilinear2d_aa_backward(
    op, grad_output, output_size, input_size, align_corners, scales_h, scales_w
):  # fmt: skip
    """The gradient of triangles as wide as the reduction."""
    scales = [scales_h, scales_w]
    return antialiased_back(op, grad_output, output_size, input_size, align_corners, scales, triangle, 1.0)


@translates(aten._upsample_bicubic2d_aa_backward.default)
def _upsample_bicubic2d_aa_backward(
    op, grad_output, output_size, input_size, align_corners, scales_h, scales_w
):  # fmt: skip
    """The gradient of cubics as wide as the reduction."""
    scales = [scales_h, scales_w]
    return antialiased_back(op, grad_output, output_size, input_size, align_corners, scales, hat, 2.0)


@translates(*installed("_upsample_lanczos2d_aa_backward.default"))
def _upsample_lanczos2d_aa_backward(
    op, grad_output, output_size, input_size, align_corners, scales_h, scales_w
):  # fmt: skip
    """The gradient of windowed sines as wide as the reduction."""
    scales = [scales_h, scales_w]
    return antialiased_back(op, grad_output, output_size, input_size, align_corners, scales, lanczos, 3.0)


# ---- padding


@translates(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
def reflection_pad_backward(op, grad_output, self, padding):
    """The gradient of every output added to the element that it mirrors."""

    def read(place, last):
        place = op.Abs(place)
        return op.Sub(last, op.Abs(op.Sub(last, place)))

    return padding_back(op, grad_output, self, padding, read)


@translates(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(op, grad_output, self, padding):
    """The gradient of every output added to the element that it repeats."""
    return padding_back(op, grad_output, self, padding, lambda place, last: op.Min(op.Max(place, 0), last))


def padding_back(op, grad_output, self, padding, read: Callable):
    """The gradient of every output added to the element that *read* gives for its place and the last one."""
    axes = len(padding) // 2

    def matrix(axis, dtype):
        size, out = op.size(self, axis - axes), op.size(grad_output, axis - axes)
        place = op.Sub(counted(op, out), padding[2 * (axes - 1 - axis)])
        return from_taps(op, [(read(place, op.constant(minus(op, size, 1))), None)], size, dtype)

    return carried_back(op, grad_output, axes, matrix)
