"""Striding: as_strided, unfold, and the write through any view that picks elements of its base.

Source of semantics: https://pytorch.org/docs/stable/generated/torch.as_strided.html and torch.Tensor.unfold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import torch
from torch._prims_common import is_contiguous_or_false

from experimental_experiment.torch_interpreter.aten.creation import filled
from experimental_experiment.torch_interpreter.aten.scattering import index_add
from experimental_experiment.torch_interpreter.aten.shaping import expanded, reshaped
from experimental_experiment.torch_interpreter.aten.transposing import moving
from experimental_experiment.torch_interpreter.dtypes import torch_dtype
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.memory import places_of
from experimental_experiment.torch_interpreter.registry import parameters, takes, translates, writes_through
from experimental_experiment.torch_interpreter.sizes import Size, minus, same_sizes, sizes_of

aten = torch.ops.aten

OUTSIDE = "as_strided reads elements of the memory that the tensor does not have"


def writes_by_position(*targets) -> Callable:
    """Register, beside a translation that only picks elements, the put derived from it.

    The translation applied to the positions of the elements of the base says which ones are written.
    """

    def register(get: Callable) -> Callable:
        def put(op, base, new, **arguments):
            return put_at(op, base, new, lambda positions: get(op, positions, **arguments))

        put.__name__ = f"put_{get.__name__}"
        writes_through(*targets)(takes(put, ["base", "new", *parameters(get)[1:]]))
        return get

    return register


@writes_by_position(aten.as_strided.default)
@translates(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(op, self, size, stride, storage_offset):
    """The elements at the given places of the memory, which the fake tensor describes."""
    viewed = op.context.node.args[0].meta["val"]
    first = viewed.storage_offset()
    offset = first if storage_offset is None else storage_offset
    given = [*viewed.shape, *viewed.stride(), first, *size, *stride, offset]
    is_known = all(isinstance(number, int) for number in given)
    if is_contiguous_or_false(viewed) and isinstance(first, int) and first == 0:
        if is_known and places_of(size, stride, offset).max(initial=-1) >= viewed.numel():
            raise Untranslatable(OUTSIDE)
        return op.Gather(reshaped(op, self, [-1]), places(op, size, stride, offset), axis=0)
    if not is_known:
        raise Untranslatable("as_strided of a tensor of symbolic sizes that is not contiguous")
    held = places_of(viewed.shape, viewed.stride(), first)
    wanted = places_of(size, stride, offset)
    where = {place: position for position, place in enumerate(held.tolist())}
    if not where.keys() >= set(wanted.tolist()):
        raise Untranslatable(OUTSIDE)
    found = np.array([where[place] for place in wanted.tolist()], dtype=np.int64).reshape(size)
    return op.Gather(reshaped(op, self, [-1]), found, axis=0)


@translates(aten.as_strided_scatter.default)
def as_strided_scatter(op, self, src, size, stride, storage_offset):
    """*self* in which the elements at the given places are those of *src*."""
    if all(isinstance(number, int) for number in [*size, *stride]):
        where = places_of(size, stride, 0)
        if np.unique(where).size < where.size:
            raise Untranslatable("as_strided_scatter writes an element of the memory twice")
    new = op.Cast(src, to=self.dtype)
    return put_at(op, self, new, lambda positions: as_strided(op, positions, size, stride, storage_offset))


@writes_by_position(aten.resize.default)
@translates(aten.resize.default)
def resize(op, self, size):
    """The first elements of the memory in another shape; what a growing tensor gains is not initialized."""
    return resized(op, self, size)


@writes_by_position(aten.resize_as.default)
@translates(aten.resize_as.default)
def resize_as(op, self, the_template):
    """resize_ to the sizes of another tensor."""
    return resized(op, self, sizes_of(op, the_template))


@writes_by_position(aten.unfold.default)
@translates(aten.unfold.default, aten.unfold_copy.default)
def unfold(op, self, dimension, size, step):
    """Windows of an axis, in a new last axis."""
    if rank(self) == 0:
        return reshaped(op, self, [1]) if size == 1 else op.Slice(reshaped(op, self, [1]), [0], [0], [0])
    axis = dimension % rank(self)
    length = op.size(self, axis)
    starts = op.Unsqueeze(op.Range(0, minus(op, length, size - 1), step), [1])
    windows = op.Gather(self, op.Add(starts, op.Range(0, size, 1)), axis=axis)
    order = [*range(rank(self) + 1)]
    order.append(order.pop(axis + 1))
    return op.Transpose(windows, perm=order)


@translates(aten.unfold_backward.default)
def unfold_backward(op, grad_in, input_sizes, dim, size, step):
    """Zeros, to which every window adds its gradient, which is broadcast to the other sizes."""
    if not input_sizes:
        return op.Squeeze(grad_in, [0])
    zeros = filled(op, input_sizes, 0, torch_dtype(grad_in.dtype))
    order = op.Reshape(unfold(op, op.Range(0, op.size(zeros, dim), 1), 0, size, step), [-1])
    axis = dim % rank(zeros)
    whole = [*input_sizes[:axis], -1, *input_sizes[axis + 1 :], -1]
    windows = op.Transpose(expanded(op, grad_in, whole), perm=moving(rank(grad_in), -1, axis + 1))
    lines = op.Reshape(
        windows,
        op.shape([*sizes_of(op, zeros)[:axis], -1, *sizes_of(op, zeros)[axis + 1 :]]),
    )
    return index_add(op, zeros, dim, order, lines, 1)


# ---- helpers that other families share


def put_at(op, base: ir.Value, new: ir.Value, pick: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """*base* in which the elements that *pick* takes are those of *new*: *pick* tells their positions, too."""
    flat = reshaped(op, base, [-1])
    positions = reshaped(op, op.Range(0, op.size(flat, 0), 1), sizes_of(op, base))
    where = op.Reshape(pick(positions), [-1, 1])
    return reshaped(op, op.ScatterND(flat, where, reshaped(op, new, [-1])), sizes_of(op, base))


def resized(op, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """The first elements in memory of a tensor that fills its memory, whatever its strides, in another shape."""
    if len(sizes) == rank(x) and all(same_sizes(op, x, sizes)):
        return x
    viewed = op.context.node.args[0].meta["val"]
    if not all(isinstance(number, int) for number in [*viewed.shape, *viewed.stride(), *sizes]):
        raise Untranslatable("resize_ with symbolic sizes")
    if math.prod(sizes) > viewed.numel():
        raise Untranslatable("resize_ to more elements, which are not initialized")
    flat = reshaped(op, x, [-1])
    if viewed.is_contiguous():
        return op.Reshape(op.Slice(flat, [0], [math.prod(sizes)], [0]), sizes, allowzero=1)
    held = places_of(viewed.shape, viewed.stride(), 0)
    order = np.argsort(held)
    if not np.array_equal(held[order], np.arange(held.size)):
        raise Untranslatable("resize_ of a tensor whose memory has gaps or shows an element twice")
    return op.Gather(flat, order[: math.prod(sizes)].reshape(sizes), axis=0)


def places(op, size: list[int | ir.Value], stride: list[int | ir.Value], offset: int | ir.Value) -> ir.Value:
    """The positions in memory of the elements of a tensor with these sizes and strides."""
    total = op.constant(offset)
    for axis, (count, step) in enumerate(zip(size, stride)):
        along = op.Mul(op.Range(0, count, 1), step)
        total = op.Add(total, op.Unsqueeze(along, list(range(1, len(size) - axis))))
    return total
