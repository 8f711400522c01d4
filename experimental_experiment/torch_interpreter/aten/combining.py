"""Combining: cat, stack and their relatives; repeat, tile; meshgrid.

Source of semantics: https://pytorch.org/docs/stable/torch.html#indexing-slicing-joining-mutating-ops.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.shaping import expanded, merged, reshaped
from experimental_experiment.torch_interpreter.aten.spatial import padded_along, short_of
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates, writes_through
from experimental_experiment.torch_interpreter.sizes import is_int, is_static, sizes_of

aten = torch.ops.aten

INT64 = ir.DataType.INT64


@translates(aten.atleast_1d.Sequence)
def atleast_1d_each(op, tensors):
    """At least one axis, for each tensor."""
    return [atleast_1d(op, tensor) for tensor in tensors]


@translates(aten.atleast_2d.Sequence)
def atleast_2d_each(op, tensors):
    """At least two axes, for each tensor."""
    return [atleast_2d(op, tensor) for tensor in tensors]


@translates(aten.atleast_3d.Sequence)
def atleast_3d_each(op, tensors):
    """At least three axes, for each tensor."""
    return [atleast_3d(op, tensor) for tensor in tensors]


@translates(aten.atleast_1d.default)
def atleast_1d(op, self):
    """A 0-d tensor gets an axis."""
    return self if rank(self) else op.Unsqueeze(self, [0])


@translates(aten.atleast_2d.default)
def atleast_2d(op, self):
    """Missing axes are put in front."""
    return op.Unsqueeze(self, list(range(2 - rank(self))))


@translates(aten.atleast_3d.default)
def atleast_3d(op, self):
    """A vector gets an axis on both sides, a matrix one behind."""
    return op.Unsqueeze(self, {0: [0, 1, 2], 1: [0, 2], 2: [2]}.get(rank(self), []))


@writes_through(aten.atleast_1d.default, aten.atleast_2d.default, aten.atleast_3d.default)
def put_atleast(op, base, new):
    """The shape of the base."""
    return reshaped(op, new, sizes_of(op, base))


@translates(aten.cartesian_prod.default)
def cartesian_prod(op, tensors):
    """Every choice of one element of each vector, a row each."""
    if len(tensors) == 1:
        return tensors[0]
    grids = meshgrid_indexing(op, promote(op, *tensors), "ij")
    return stack(op, [reshaped(op, grid, [-1]) for grid in grids], 1)


@translates(aten.cat.default, aten.concat.default, aten.concatenate.default)
def cat(op, tensors, dim):
    """Join along an axis, in the promoted dtype; a tensor of shape (0,) joins anything, as torch once allowed."""
    tensors = promote(op, *tensors)
    width = max(rank(tensor) for tensor in tensors)
    joined = [tensor for tensor in tensors if rank(tensor) == width]
    return op.Concat(*joined, axis=dim % width)


@translates(aten.column_stack.default)
def column_stack(op, tensors):
    """Join along the second axis; a vector is a column."""
    return cat(op, [tensor if rank(tensor) > 1 else reshaped(op, tensor, [-1, 1]) for tensor in tensors], 1)


@translates(aten.combinations.default)
def combinations(op, self, r, with_replacement):
    """Every choice of *r* elements of a vector in order, a row each."""
    size = op.size(self, 0)
    if isinstance(size, int):
        choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
        rows = np.array(list(choose(range(size), r)), dtype=np.int64).reshape(-1, r)
        return op.Gather(self, rows, axis=0)
    if r != 1:
        raise Untranslatable(f"combinations of {r} among a symbolic number of elements")
    return op.Unsqueeze(self, [1])


@translates(aten.dstack.default)
def dstack(op, tensors):
    """Join along the third axis."""
    return cat(op, atleast_3d_each(op, tensors), 2)


@translates(aten.hstack.default)
def hstack(op, tensors):
    """Join along the second axis; vectors along their only one."""
    tensors = atleast_1d_each(op, tensors)
    return cat(op, tensors, min(1, rank(tensors[0]) - 1))


@translates(aten.stack.default)
def stack(op, tensors, dim):
    """Join along a new axis."""
    tensors = promote(op, *tensors)
    axis = dim % (rank(tensors[0]) + 1)
    return op.Concat(*[op.Unsqueeze(tensor, [axis]) for tensor in tensors], axis=axis)


@translates(aten.vstack.default, aten.row_stack.default)
def vstack(op, tensors):
    """Join along the first axis; a vector is a row."""
    return cat(op, atleast_2d_each(op, tensors), 0)


@translates(aten.meshgrid.default)
def meshgrid(op, tensors):
    """Each vector along its own axis, expanded to the grid."""
    return meshgrid_indexing(op, tensors, "ij")


@translates(aten.meshgrid.indexing)
def meshgrid_indexing(op, tensors, indexing):
    """Each vector along its own axis, expanded to the grid; "xy" exchanges the first two axes."""
    order = list(range(len(tensors)))
    if indexing == "xy" and len(tensors) > 1:
        order[:2] = [1, 0]
    vectors = [reshaped(op, tensor, [-1]) for tensor in tensors]
    sizes = [op.size(vectors[axis], 0) for axis in order]
    columns = []
    for position, vector in enumerate(vectors):
        behind = len(tensors) - order.index(position) - 1
        columns.append(op.Unsqueeze(vector, list(range(1, behind + 1))))
    if len(sizes) > 2:
        op.shape(sizes)  # one for all grids
    else:
        op.shape_of(columns[order[0]])  # [n, 1], which the other vector is expanded to
    return [expanded(op, column, sizes) for column in columns]


@translates(aten.repeat.default)
def repeat(op, self, repeats):
    """Copies along every axis; more repeats than axes add axes in front."""
    return repeated(op, self, repeats)


@translates(aten.tile.default)
def tile(op, self, dims):
    """Copies along the last axes."""
    return repeated(op, self, [1] * (rank(self) - len(dims)) + dims)


@translates(aten.repeat_interleave.self_int)
def repeat_interleave(op, self, repeats, dim, output_size):
    """Every element *repeats* times in a row, along an axis or in flat order; *output_size* says the same again."""
    self, dim = along(op, self, dim)
    single = op.Unsqueeze(self, [dim + 1])
    sizes = sizes_of(op, self)
    copies = op.Expand(single, op.shape([1] * (dim + 1) + [repeats] + [1] * (rank(self) - dim - 1)))
    if isinstance(repeats, int) and sum(not is_static(size) for size in sizes) > 1:
        factors = [repeats if axis == dim else 1 for axis in range(rank(self))]
        return op.Reshape(copies, op.Mul(op.shape_of(self), factors), allowzero=1)
    return reshaped(op, copies, [*sizes[:dim], merged(op, copies, dim, dim + 2), *sizes[dim + 1 :]])


@translates(aten.repeat_interleave.Tensor)
def repeat_interleave_positions(op, repeats, output_size):
    """Position i as often as ``repeats[i]`` says, of their dtype."""
    return op.CastLike(repeated_positions(op, repeats, output_size), repeats)


@translates(aten.repeat_interleave.self_Tensor)
def repeat_interleave_tensor(op, self, repeats, dim, output_size):
    """Every element as often as its own entry of *repeats* says."""
    self, dim = along(op, self, dim)
    repeats = expanded(op, reshaped(op, repeats, [-1]), [op.size(self, dim)])
    return op.Gather(self, repeated_positions(op, repeats, output_size), axis=dim)


@translates(aten._chunk_cat.default)
def _chunk_cat(op, tensors, dim, num_chunks):
    """Chunk i of every tensor in row i of an axis, what is behind the axis flat; zeros fill the last chunks up."""
    axis, rows = dim % rank(tensors[0]), []
    for tensor in tensors:
        missing = short_of(op, op.size(tensor, axis), num_chunks)
        filled = padded_along(op, tensor, [axis], [0], [missing])
        rows.append(reshaped(op, filled, [*sizes_of(op, tensor)[:axis], num_chunks, -1]))
    return op.Concat(*rows, axis=axis + 1)


# ---- helpers


def along(op, x: ir.Value, dim: int | None) -> tuple[ir.Value, int]:
    """A tensor and an axis of it; the flat tensor without *dim*."""
    if dim is None or rank(x) == 0:
        return reshaped(op, x, [-1]), 0
    return x, dim % rank(x)


def repeated(op, x: ir.Value, repeats: list[int | ir.Value]) -> ir.Value:
    """*x* copied along its last axes, new ones in front."""
    new = len(repeats) - rank(x)
    sizes = [1] * new + [op.size(x, axis) for axis in range(rank(x))]
    single = [is_int(size, 1) for size in sizes]
    if all(is_int(count, 1) for count in repeats):
        return op.Unsqueeze(x, list(range(new)))
    if all(is_one or is_int(count, 1) for is_one, count in zip(single, repeats)):
        return expanded(
            op, x, [count if is_one else size for is_one, size, count in zip(single, sizes, repeats)]
        )
    return op.Tile(op.Unsqueeze(x, list(range(new))), op.shape(repeats))


def repeated_positions(op, repeats, output_size):
    """Position i as often as ``repeats[i]`` says: a cumulative sum of marks where each position ends."""
    ends = op.CumSum(op.Cast(repeats, to=INT64), 0)
    total = output_size
    if total is None:
        total = op.ReduceSum(op.Cast(repeats, to=INT64), [0], keepdims=0)
    marks = op.Expand(op.constant([0]), op.shape([op.Add(op.constant(total), 1)]))
    marks = op.ScatterElements(
        marks, ends, op.Expand(op.constant([1]), op.shape_of(ends)), axis=0, reduction="add"
    )
    return op.Slice(op.CumSum(marks, 0), [0], [-1], [0])
