"""Pooling with positions: max_unpool, fractional_max_pool, and the scatter over flat positions that gradients share.

Source of semantics: torch.nn.MaxUnpool2d and torch.nn.FractionalMaxPool2d; positions are flat in a channel.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.pooling import largest_of
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.aten.spatial import batched
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Size, counted, minus, volume

aten = torch.ops.aten


@translates(aten.max_unpool2d.default)
def max_unpool2d(op, self, indices, output_size):
    """Zeros, and the elements at their positions."""
    return scattered(op, self, indices, list(output_size), "none")


@translates(aten.max_unpool3d.default)
def max_unpool3d(op, self, indices, output_size, stride, padding):
    """Zeros, and the elements at their positions; the geometry is in the positions."""
    return scattered(op, self, indices, list(output_size), "none")


def scattered(op, x, indices, sizes: list[Size], reduction: str):
    """Zeros of the spatial *sizes* that receive *x* at flat positions; several at one position are added with ``add``."""
    outer = [op.size(x, axis) for axis in range(rank(x) - len(sizes))]
    zeros = op.Expand(op.constant(0, x.dtype), op.shape([*outer, volume(op, sizes)]))
    flat = op.shape([*outer, volume(op, [op.size(x, axis) for axis in range(len(outer), rank(x))])])
    indices, x = op.Reshape(indices, flat, allowzero=1), op.Reshape(x, flat, allowzero=1)
    result = op.ScatterElements(zeros, indices, x, axis=-1, reduction=reduction)
    return reshaped(op, result, [*outer, *sizes])


@translates(aten.fractional_max_pool2d.default)
def fractional_max_pool2d(op, self, kernel_size, output_size, random_samples):
    """The largest element of windows whose places follow random samples (N, C, 2), width first, and where it is."""
    return fractional(op, self, kernel_size, output_size, random_samples, [1, 0])


@translates(aten.fractional_max_pool3d.default)
def fractional_max_pool3d(op, self, kernel_size, output_size, random_samples):
    """The largest element of windows whose places follow random samples (N, C, 3), and where it is."""
    return fractional(op, self, kernel_size, output_size, random_samples, [0, 1, 2])


def fractional(op, self, kernel_size, output_size, random_samples, order: list[int]):
    """The windows of every channel gathered at their flat positions; *order* is the column of samples of each axis."""
    axes = len(output_size)

    def run(x):
        sizes = [op.size(x, axis + 2) for axis in range(axes)]
        outer = [op.size(x, 0), op.size(x, 1)]
        used = op.Slice(random_samples, [0], op.shape(outer[:1]), [0])  # a single input takes the first ones
        columns = op.Split(used, axis=2, num_outputs=axes, outputs=axes)
        position = None
        for axis, (size, out, kernel) in enumerate(zip(sizes, output_size, kernel_size)):
            start = op.Unsqueeze(starts(op, columns[order[axis]], size, out, kernel), [2])
            places = op.Add(start, op.Unsqueeze(counted(op, kernel), [1]))
            # (N, C, kernel, out) between the same pairs of the other axes
            others = [2 + 2 * other + side for other in range(axes) if other != axis for side in (0, 1)]
            places = op.Unsqueeze(places, others)
            position = places if position is None else op.Add(op.Mul(position, size), places)
        order_of_axes = [0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2)]
        count = volume(op, [*kernel_size, *output_size])
        where = reshaped(op, op.Transpose(position, perm=order_of_axes), [*outer, count])
        flat = reshaped(op, x, [*outer, volume(op, sizes)])
        shape = op.shape([*outer, volume(op, kernel_size), *output_size])
        values = op.Reshape(op.GatherElements(flat, where, axis=2), shape)
        chosen = largest_of(op, values, 2)
        indices = op.GatherElements(op.Reshape(where, shape), chosen, axis=2)
        return op.Squeeze(op.GatherElements(values, chosen, axis=2), [2]), op.Squeeze(indices, [2])

    return batched(op, self, axes, run)


def starts(op, sample, size: Size, out: int, kernel: int):
    """Where the windows of one axis start, for samples (N, C, 1): (N, C, out); the last one ends with the axis."""
    room = minus(op, size, kernel)
    last = op.Expand(op.constant(room), op.Shape(sample))
    if out == 1:
        return last
    alpha = op.Div(op.CastLike(op.constant(room), sample), float(out - 1))
    number = op.CastLike(counted(op, out - 1), sample)
    place = op.Cast(op.Mul(op.Add(number, sample), alpha), to=ir.DataType.INT64)
    first = op.Cast(op.Mul(sample, alpha), to=ir.DataType.INT64)
    return op.Concat(op.Sub(place, first), last, axis=2)
