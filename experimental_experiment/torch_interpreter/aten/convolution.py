"""Convolutions and transposed convolutions of one, two and three dimensions.

Source of semantics: torch.nn.functional.conv2d, conv_transpose2d, ONNX Conv and ConvTranspose. These are of floats in a known number of
groups: convolutions of integers, or of a group for each image of any batch, are sums of products over sliding windows.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.aten.spatial import (
    batched,
    columns,
    padded,
    padded_along,
    per_axis,
)
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import is_static, minus, plus, quotient, times, volume

aten = torch.ops.aten


@translates(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
def conv(op, input, weight, bias, stride, padding, dilation, groups):
    """A convolution with the same padding on both sides of an axis."""
    axes = rank(weight) - 2
    # one for each axis may be symbolic: padding="same" is decomposed into half of the kernel
    if len(padding) < axes:
        padding = per_axis(padding, axes)
    return any_conv(op, input, weight, bias, stride, padding, padding, dilation, groups)


@translates(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding)
def conv_padding(op, input, weight, bias, stride, padding, dilation, groups):
    """A convolution with padding ``same`` (the odd one at the end) or ``valid``."""
    axes = rank(weight) - 2
    begin, end = [0] * axes, [0] * axes
    if padding == "same":
        for axis, step in enumerate(per_axis(dilation, axes)):
            total = times(op, minus(op, op.size(weight, axis + 2), 1), step)
            begin[axis] = quotient(op, total, 2)
            end[axis] = minus(op, total, begin[axis])
    return any_conv(op, input, weight, bias, stride, begin, end, dilation, groups)


@translates(aten._convolution_mode.default)
def _convolution_mode(op, input, weight, bias, stride, padding, dilation, groups):
    """What ``conv2d.padding`` calls."""
    return conv_padding(op, input, weight, bias, stride, padding, dilation, groups)


@translates(
    aten.convolution.default,
)
def convolution(op, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Any convolution, transposed or not."""
    if transposed:
        return conv_transpose(op, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(op, input, weight, bias, stride, padding, dilation, groups)


@translates(aten._convolution.default)
def _convolution(
    op, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups,
    benchmark, deterministic, cudnn_enabled, allow_tf32,
):  # fmt: skip
    """Any convolution; the last flags choose a kernel and change no value."""
    return convolution(op, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@translates(aten._convolution.deprecated)
def _convolution_deprecated(
    op, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups,
    benchmark, deterministic, cudnn_enabled,
):  # fmt: skip
    """Any convolution, in its older signature."""
    return convolution(op, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@translates(aten.conv_tbc.default)
def conv_tbc(op, self, weight, bias, pad):
    """A 1-D convolution of (time, batch, channels)."""
    turned = op.Transpose(self, perm=[1, 2, 0])
    result = conv(op, turned, op.Transpose(weight, perm=[2, 1, 0]), bias, [1], [pad], [1], 1)
    return op.Transpose(result, perm=[2, 0, 1])


@translates(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def conv_transpose(op, input, weight, bias, stride, padding, output_padding, groups, dilation):
    """The gradient of a convolution with respect to its input."""
    axes = rank(weight) - 2
    stride, padding, output_padding, dilation = (
        per_axis(numbers, axes) for numbers in (stride, padding, output_padding, dilation)
    )
    if not input.dtype.is_floating_point() or not is_static(groups):
        return spread_conv_transpose(
            op, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    attributes = dict(strides=stride, output_padding=output_padding, group=groups, dilations=dilation)
    return batched(
        op, input, axes, lambda x: op.ConvTranspose(x, weight, bias, pads=padding * 2, **attributes)
    )


def any_conv(op, input, weight, bias, stride, begin, end, dilation, groups):
    """A convolution with *begin* and *end* zeros around each axis."""
    axes = rank(weight) - 2
    stride, dilation = per_axis(stride, axes), per_axis(dilation, axes)
    if not input.dtype.is_floating_point() or not is_static(groups):
        return exact_conv(op, input, weight, bias, stride, begin, end, dilation, groups)
    attributes = dict(strides=stride, dilations=dilation, group=groups)
    if is_static(*begin, *end) and all(amount >= 0 for amount in [*begin, *end]):
        return batched(op, input, axes, lambda x: op.Conv(x, weight, bias, pads=[*begin, *end], **attributes))
    return batched(op, input, axes, lambda x: op.Conv(padded(op, x, begin, end), weight, bias, **attributes))


def exact_conv(op, input, weight, bias, stride, begin, end, dilation, groups):
    """A convolution as a matrix product over windows, in any dtype that MatMul computes."""
    axes = rank(weight) - 2
    kernel = [op.size(weight, axis + 2) for axis in range(axes)]

    def run(x):
        taken, counts = columns(op, padded(op, x, begin, end), kernel, stride, dilation)
        batch, channels = op.size(x, 0), op.size(weight, 0)
        rows = reshaped(op, weight, [groups, quotient(op, channels, groups), weight_row(op, weight)])
        flat = op.shape([batch, groups, weight_row(op, weight), volume(op, counts)])
        product = op.MatMul(rows, op.Reshape(taken, flat, allowzero=1))
        result = reshaped(op, product, [batch, channels, *counts])
        return with_bias(op, result, bias, axes)

    return batched(op, input, axes, run)


def spread_conv_transpose(op, input, weight, bias, stride, padding, output_padding, groups, dilation):
    """Zeros between the elements, then a convolution with the flipped weight."""
    axes = rank(weight) - 2
    begin, end = [], []
    for axis in range(axes):
        reach = times(op, minus(op, op.size(weight, axis + 2), 1), dilation[axis])
        begin.append(minus(op, reach, padding[axis]))
        end.append(plus(op, minus(op, reach, padding[axis]), output_padding[axis]))
    flipped = op.Slice(weight, [-1] * axes, [-(2**63) + 1] * axes, list(range(2, axes + 2)), [-1] * axes)
    swapped = swap_groups(op, flipped, groups)

    def run(x):
        for axis, step in enumerate(stride, start=2):
            x = with_gaps(op, x, axis, step)
        return any_conv(op, x, swapped, bias, [1] * axes, begin, end, dilation, groups)

    return batched(op, input, axes, run)


def with_gaps(op, x, axis, step):
    """*step* - 1 zeros between the entries of one axis."""
    if step == 1:
        return x
    size = op.size(x, axis)
    apart = padded_along(op, op.Unsqueeze(x, [axis + 1]), [axis + 1], [0], [step - 1])
    sizes = [op.size(x, position) for position in range(rank(x))]
    sizes[axis] = times(op, size, step)
    flat = reshaped(op, apart, sizes)
    return op.Slice(flat, [0], op.shape([minus(op, sizes[axis], step - 1)]), [axis])


def swap_groups(op, weight, groups):
    """(in, out / groups, ...) as (out, in / groups, ...)."""
    sizes = [op.size(weight, axis) for axis in range(rank(weight))]
    inner = quotient(op, sizes[0], groups)
    split = reshaped(op, weight, [groups, inner, *sizes[1:]])
    turned = op.Transpose(split, perm=[0, 2, 1, *range(3, rank(weight) + 1)])
    return reshaped(op, turned, [times(op, sizes[1], groups), inner, *sizes[2:]])


def weight_row(op, weight):
    """Number of products that one output of a convolution adds."""
    return volume(op, [op.size(weight, axis) for axis in range(1, rank(weight))])


def with_bias(op, result, bias, axes):
    """*result* plus one number a channel."""
    return result if bias is None else op.Add(result, op.Unsqueeze(bias, list(range(1, axes + 1))))
