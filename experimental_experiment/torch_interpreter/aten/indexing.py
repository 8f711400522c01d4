"""Indexing with tensors: index, index_put, index_select, gather, take.

Source of semantics: https://numpy.org/doc/stable/user/basics.indexing.html#advanced-indexing, ONNX GatherND-13 and ScatterND-18.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.conversion import scalar
from experimental_experiment.torch_interpreter.aten.masking import (
    coordinates,
    flat,
    know_count,
    rows_of_positions,
)
from experimental_experiment.torch_interpreter.aten.shaping import expanded, merged, reshaped
from experimental_experiment.torch_interpreter.aten.transposing import inverse
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Size, broadcast_sizes, label, sizes_of

aten = torch.ops.aten

INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL


@translates(aten.gather.default)
def gather(op, self, dim, index):
    """Along one axis, the element whose position *index* holds; an empty *index* may have any rank."""
    if rank(self) == 0 or rank(index) == 0:
        return reshaped(op, op.Gather(flat(op, self), flat(op, index), axis=0), sizes_of(op, index))
    if rank(self) != rank(index):
        return expanded(op, op.constant(0, self.dtype), sizes_of(op, index))
    return op.GatherElements(self, index, axis=dim % rank(self))


@translates(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(op, self, indices):
    """``self[indices]``: one index is a Gather, one mask a Compress, several a GatherND of the axes moved to the front."""
    if (masked := only_mask(indices)) is not None:
        found = compressed(op, self, indices[masked], masked)
        if masked == 0:
            know_count(op, indices[masked], found)
        return found
    self, indices = without_masks(op, self, indices)
    picked = [axis for axis, index in enumerate(indices) if index is not None]
    if len(picked) == 1:
        return op.Gather(self, indices[picked[0]], axis=picked[0])
    kept = [axis for axis in range(rank(self)) if axis not in picked]
    where, width = positions_of(op, [indices[axis] for axis in picked])
    found = op.GatherND(op.Transpose(self, perm=picked + kept), where)
    return op.Transpose(found, perm=inverse(to_front(picked, kept, width)))


@translates(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(op, self, indices, values, accumulate):
    """Move the indexed axes to the front, ScatterND there, move them back.

    One value under a mask is a Where; a vector behind the first axis is a ScatterElements, which moves nothing (a cache).
    """
    values, adding = op.Cast(values, to=self.dtype), "add" if accumulate else None
    masked = only_mask(indices)
    if masked is not None and all(size == 1 for size in values.shape):
        return under_mask(op, self, indices[masked], masked, values, accumulate)
    if masked is not None and (masked == 0 or rank(indices[masked]) > 1):
        where = rows_of_positions(op, indices[masked])
        return put_at_positions(
            op, self, range(masked, masked + rank(indices[masked])), where, values, adding
        )
    base, indices = without_masks(op, self, indices)
    picked = [axis for axis, index in enumerate(indices) if index is not None]
    if len(picked) == 1 and picked[0] > 0 and rank(indices[picked[0]]) == 1:
        return put_along(op, base, picked[0], indices[picked[0]], values, adding)
    where, _ = positions_of(op, [indices[axis] for axis in picked])
    return reshaped(op, put_at_positions(op, base, picked, where, values, adding), sizes_of(op, self))


@translates(aten._index_put_impl.default)
def index_put_impl(op, self, indices, values, accumulate, unsafe):
    """index_put; *unsafe* skips checks."""
    return index_put(op, self, indices, values, accumulate)


@translates(aten._unsafe_masked_index.default)
def unsafe_masked_index(op, self, mask, indices, fill):
    """index, and *fill* where the mask is false: the index may be anything there."""
    found = index(op, self, clamped(op, self, indices))
    return op.Where(op.Cast(mask, to=BOOL), found, scalar(op, fill, self.dtype))


@translates(aten._unsafe_masked_index_put_accumulate.default)
def unsafe_masked_index_put(op, self, mask, indices, values):
    """Add the values under the mask."""
    values = op.Where(op.Cast(mask, to=BOOL), values, op.constant(0, values.dtype))
    return index_put(op, self, clamped(op, self, indices), values, True)


@translates(aten.index_select.default)
def index_select(op, self, dim, index):
    """The slices of an axis at the positions of a vector."""
    if rank(self) == 0:
        return self
    return op.Gather(self, flat(op, index), axis=dim % rank(self))


@translates(aten.one_hot.default)
def one_hot(op, self, num_classes):
    """1 where the class is the position in a new last axis; without a number of classes, one more than the largest."""
    if isinstance(num_classes, int) and num_classes == -1:
        num_classes = op.Add(op.ReduceMax(self, keepdims=0), 1)
    return op.Cast(op.Equal(op.Unsqueeze(self, [-1]), op.Range(0, num_classes, 1)), to=INT64)


@translates(aten.take.default)
def take(op, self, index):
    """The elements at flat positions."""
    return op.Gather(flat(op, self), index, axis=0)


@translates(aten.take_along_dim.default)
def take_along_dim(op, self, indices, dim):
    """gather, *self* and *indices* broadcast along the other axes; in flat order without *dim*."""
    if dim is None:
        # three times as fast as Gather, which copies slices
        return op.GatherElements(flat(op, self), flat(op, indices), axis=0)
    dim = dim % rank(self)
    sizes = broadcast_sizes(op, self, indices)
    data = expanded(op, self, [*sizes[:dim], -1, *sizes[dim + 1 :]])
    return op.GatherElements(data, expanded(op, indices, [*sizes[:dim], -1, *sizes[dim + 1 :]]), axis=dim)


# ---- helpers


def only_mask(indices: Sequence[ir.Value | None]) -> int | None:
    """The axis of the only index when it is a mask with dimensions, None otherwise."""
    picked = [axis for axis, index in enumerate(indices) if index is not None]
    if len(picked) == 1 and indices[picked[0]].dtype == BOOL and rank(indices[picked[0]]):
        return picked[0]
    return None


def without_masks(
    op, x: ir.Value, indices: Sequence[ir.Value | None]
) -> tuple[ir.Value, list[ir.Value | None]]:
    """The same indexing with positions instead of masks: a mask gives as many as it has axes.

    A 0-d mask is an index of an axis of size 1 that is added.
    """
    flattened: list[ir.Value | None] = []
    for index in indices:
        if index is None or index.dtype != BOOL:
            flattened.append(index if index is None else op.Cast(index, to=INT64))
            continue
        if rank(index) == 0:
            x, index = op.Unsqueeze(x, [len(flattened)]), flat(op, index)
        flattened += coordinates(op, index)
    return x, flattened


def positions_of(op, indices: Sequence[ir.Value]) -> tuple[ir.Value, int]:
    """The indices broadcast together and stacked in a last axis; the number of axes they broadcast to.

    Where broadcasts while it stacks in a first axis: a size that is not known to be that of another index may be 1 at run time.
    """
    width = max(rank(index) for index in indices)
    labels = [[label(size) for size in sizes_of(op, index)] for index in indices]
    aligned = zip(*([1] * (width - len(sizes)) + sizes for sizes in labels))
    if len(indices) == 1 or all(None not in axis and len({*axis} - {1}) < 2 for axis in aligned):
        sizes = broadcast_sizes(op, *indices)
        return op.Concat(
            *(op.Unsqueeze(expanded(op, index, sizes), [-1]) for index in indices), axis=-1
        ), width
    stacked = indices[-1]
    for position in range(len(indices) - 2, -1, -1):
        is_its_place = np.arange(len(indices)) == position
        stacked = op.Where(is_its_place.reshape(-1, *[1] * width), indices[position], stacked)
    return op.Transpose(stacked, perm=[*range(1, width + 1), 0]), width


def to_front(picked: Sequence[int], kept: Sequence[int], width: int) -> list[int]:
    """The permutation from torch's result of an indexing to one that starts with the *width* axes of the indices.

    torch leaves these axes where the indices were when they are adjacent, and puts them in front otherwise.
    """
    is_adjacent = picked[-1] - picked[0] + 1 == len(picked)
    before = picked[0] if is_adjacent else 0
    return [*range(before, before + width), *range(before), *range(before + width, width + len(kept))]


def compressed(op, x: ir.Value, mask: ir.Value, axis: int) -> ir.Value:
    """The elements under a mask that covers the axes from *axis* on, which become one."""
    mask, width = op.Cast(mask, to=BOOL), rank(mask)
    if width > 1:
        sizes = sizes_of(op, x)
        x = reshaped(op, x, [*sizes[:axis], merged(op, x, axis, axis + width), *sizes[axis + width :]])
    return op.Compress(x, flat(op, mask), axis=axis)


def put_along(
    op, x: ir.Value, axis: int, index: ir.Value, values: ir.Value, reduction: str | None
) -> ir.Value:
    """Write slices at the positions of a vector along one axis."""
    sizes = sizes_of(op, x)
    sizes[axis] = op.size(index, 0)
    column = op.Unsqueeze(index, [other for other in range(rank(x)) if other != axis])
    values = expanded(op, values, sizes)
    return op.ScatterElements(x, expanded(op, column, sizes), values, axis=axis, reduction=reduction)


def put_at_positions(
    op, x: ir.Value, picked: Sequence[int], where: ir.Value, values: ir.Value, reduction: str | None
) -> ir.Value:
    """Write where the last axis of *where* holds positions in the axes *picked*, which are moved to the front for that."""
    kept = [axis for axis in range(rank(x)) if axis not in picked]
    order = to_front(picked, kept, rank(where) - 1)
    sizes = sizes_of(op, x)
    front_sizes: list[Size] = [*sizes_of(op, where)[:-1], *[sizes[axis] for axis in kept]]
    if where.shape[-1] == 1:
        op.shape_of(where)  # [.., 1]: the shape that whole rows are expanded to
    values = expanded(op, values, [front_sizes[axis] for axis in inverse(order)])
    front = op.Transpose(x, perm=[*picked, *kept])
    front = op.ScatterND(front, where, op.Transpose(values, perm=order), reduction=reduction)
    return op.Transpose(front, perm=inverse([*picked, *kept]))


def under_mask(op, x: ir.Value, mask: ir.Value, axis: int, value: ir.Value, accumulate: bool) -> ir.Value:
    """One value under a mask that covers the axes from *axis* on."""
    mask = op.Unsqueeze(op.Cast(mask, to=BOOL), list(range(rank(mask), rank(x) - axis)))
    value = op.Reshape(value, op.constant([], INT64)) if rank(value) else value
    if accumulate:
        value = op.Or(x, value) if x.dtype == BOOL else op.Add(x, value)
    return op.Where(mask, value, x)


def clamped(op, x: ir.Value, indices: Sequence[ir.Value | None]) -> list[ir.Value | None]:
    """Indices brought into the bounds of their axes, negative ones counting from the end."""
    within: list[ir.Value | None] = []
    for axis, index in enumerate(indices):
        if index is not None:
            size = op.constant(op.size(x, axis))
            index = op.Clip(op.Cast(index, to=INT64), op.Neg(size), op.Sub(size, 1))
        within.append(index)
    return within
