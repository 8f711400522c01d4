"""Folding: im2col, col2im, pixel shuffles, channel shuffle.

Source of semantics: torch.nn.Unfold, torch.nn.Fold, torch.nn.PixelShuffle and ONNX Col2Im, DepthToSpace.
"""

from __future__ import annotations

import numpy as np
import torch

from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.aten.spatial import batched, columns, padded, per_axis
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import is_static, quotient, times, volume

aten = torch.ops.aten


@translates(aten.im2col.default)
def im2col(op, self, kernel_size, dilation, padding, stride):
    """Every window as a column: (N, C * kernel, windows)."""
    kernel, dilation, padding, stride = pairs(kernel_size, dilation, padding, stride)

    def run(x):
        taken, counts = columns(op, padded(op, x, padding, padding), kernel, stride, dilation)
        row = times(op, op.size(x, 1), kernel[0] * kernel[1])
        return reshaped(op, taken, [op.size(x, 0), row, volume(op, counts)])

    return batched(op, self, 2, run)


@translates(aten.col2im.default)
def col2im(op, self, output_size, kernel_size, dilation, padding, stride):
    """The sum of columns at their windows: (N, C, *output_size*)."""
    kernel, dilation, padding, stride = pairs(kernel_size, dilation, padding, stride)

    def run(x):
        return op.Col2Im(
            x, op.shape(output_size), kernel, dilations=dilation, pads=padding * 2, strides=stride
        )

    return batched(op, self, 1, run)


def pairs(*arguments: list[int]) -> list[list[int]]:
    """Each argument as one number an axis, for two axes."""
    return [per_axis(argument, 2) for argument in arguments]


@translates(aten.pixel_shuffle.default)
def pixel_shuffle(op, self, upscale_factor):
    """Channels to blocks of pixels: (*, C * r * r, H, W) to (*, C, H * r, W * r)."""
    if rank(self) == 4 and self.dtype.is_floating_point():
        return op.DepthToSpace(self, blocksize=upscale_factor, mode="CRD")
    r = upscale_factor
    *outer, channels, height, width = [op.size(self, axis) for axis in range(rank(self))]
    inner = quotient(op, channels, r * r)
    return rearranged(
        op,
        self,
        [*outer, inner, r, r, height, width],
        [0, 3, 1, 4, 2],
        [*outer, inner, times(op, height, r), times(op, width, r)],
    )


@translates(aten.pixel_unshuffle.default)
def pixel_unshuffle(op, self, downscale_factor):
    """Blocks of pixels to channels: (*, C, H * r, W * r) to (*, C * r * r, H, W)."""
    r = downscale_factor
    *outer, channels, height, width = [op.size(self, axis) for axis in range(rank(self))]
    if (
        rank(self) == 4
        and self.dtype.is_floating_point()
        and is_static(channels)
        and not is_static(height, width)
    ):
        blocks = op.SpaceToDepth(self, blocksize=r)  # block by block, all channels of each
        return op.Gather(blocks, np.arange(channels * r * r).reshape(r * r, channels).T.reshape(-1), axis=1)
    height, width = quotient(op, height, r), quotient(op, width, r)
    return rearranged(
        op,
        self,
        [*outer, channels, height, r, width, r],
        [0, 2, 4, 1, 3],
        [*outer, times(op, channels, r * r), height, width],
    )


@translates(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def channel_shuffle(op, self, groups):
    """The channels of all groups in turn: (N, g * c, *) read as (N, c, g, *)."""
    batch, channels, *behind = [op.size(self, axis) for axis in range(rank(self))]
    if is_static(channels):
        return op.Gather(self, np.arange(channels).reshape(groups, -1).T.reshape(-1), axis=1)
    split = reshaped(op, self, [batch, groups, quotient(op, channels, groups), *behind])
    turned = op.Transpose(split, perm=[0, 2, 1, *range(3, rank(self) + 1)])
    return reshaped(op, turned, [batch, channels, *behind])


def rearranged(op, x, split, order, merged):
    """*x* in the shape *split*, its last axes in another order, in the shape *merged*."""
    outer = len(split) - len(order)
    perm = [*range(outer), *(outer + axis for axis in order)]
    turned = op.Transpose(reshaped(op, x, split), perm=perm)
    return reshaped(op, turned, merged)
