"""Combining: cat, stack and their relatives; repeat, tile; meshgrid.

Source of semantics: https://pytorch.org/docs/stable/torch.html#indexing-slicing-joining-mutating-ops.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.shaping import Axis, expanded, merged, reshaped, sizes_of
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten

INT64 = ir.DataType.INT64


@translates(aten.cat.default, aten.concat.default, aten.concatenate.default)
def cat(op, tensors, dim):
    """Join along an axis, in the promoted dtype; a tensor of shape (0,) joins anything, as torch once allowed."""
    tensors = promote(op, *tensors)
    width = max(rank(tensor) for tensor in tensors)
    joined = [tensor for tensor in tensors if rank(tensor) == width]
    return op.Concat(*joined, axis=dim % width)


@translates(aten.stack.default)
def stack(op, tensors, dim):
    """Join along a new axis."""
    tensors = promote(op, *tensors)
    axis = dim % (rank(tensors[0]) + 1)
    return op.Concat(*[op.Unsqueeze(tensor, [axis]) for tensor in tensors], axis=axis)


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
    sizes = [Axis(vectors[axis], 0) for axis in order]
    grids = []
    for position, vector in enumerate(vectors):
        place = order.index(position)
        column = op.Unsqueeze(vector, [axis for axis in range(len(tensors)) if axis != place])
        grids.append(expanded(op, column, sizes))
    return grids


@translates(aten.repeat.default)
def repeat(op, self, repeats):
    """Copies along every axis; more repeats than axes add axes in front."""
    return repeated(op, self, repeats)


@translates(aten.tile.default)
def tile(op, self, dims):
    """Copies along the last axes."""
    return repeated(op, self, [1] * (rank(self) - len(dims)) + dims)


@translates(aten.repeat_interleave.self_int)
def repeat_interleave(op, self, repeats, dim):
    """Every element *repeats* times in a row, along an axis or in flat order."""
    self, dim = along(op, self, dim)
    copies = op.Unsqueeze(self, [dim + 1])
    sizes = sizes_of(self)
    wide = op.Expand(copies, op.shape([1] * (dim + 1) + [repeats] + [1] * (rank(self) - dim - 1)))
    return reshaped(op, wide, [*sizes[:dim], merged(op, wide, dim, dim + 2), *sizes[dim + 1 :]])


@translates(aten.repeat_interleave.Tensor)
def repeat_interleave_positions(op, repeats, output_size):
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


@translates(aten.repeat_interleave.self_Tensor)
def repeat_interleave_tensor(op, self, repeats, dim, output_size):
    """Every element as often as its own entry of *repeats* says."""
    self, dim = along(op, self, dim)
    repeats = expanded(op, reshaped(op, repeats, [-1]), [Axis(self, dim)])
    return op.Gather(self, repeat_interleave_positions(op, repeats, output_size), axis=dim)


# ---- helpers


def along(op, x: ir.Value, dim: int | None) -> tuple[ir.Value, int]:
    """A tensor and an axis of it; the flat tensor without *dim*."""
    if dim is None or rank(x) == 0:
        return reshaped(op, x, [-1]), 0
    return x, dim % rank(x)


def repeated(op, x: ir.Value, repeats: list[int | ir.Value]) -> ir.Value:
    """*x* copied along its last axes, new ones in front."""
    x = op.Unsqueeze(x, list(range(len(repeats) - rank(x))))
    if all(isinstance(count, int) and count == 1 for count in repeats):
        return x
    return op.Tile(x, op.shape(repeats))
