"""Diagonals: diagonal, diag, diag_embed, trace, block_diag, and the write of a diagonal.

Source of semantics: https://pytorch.org/docs/stable/generated/torch.diagonal.html.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.combining import atleast_2d
from experimental_experiment.torch_interpreter.aten.conversion import scalar
from experimental_experiment.torch_interpreter.aten.creation import filled
from experimental_experiment.torch_interpreter.aten.shaping import expanded, reshaped
from experimental_experiment.torch_interpreter.aten.spatial import padded_along
from experimental_experiment.torch_interpreter.aten.striding import put_at, writes_by_position
from experimental_experiment.torch_interpreter.aten.transposing import moving
from experimental_experiment.torch_interpreter.dtypes import torch_dtype
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import (
    has_size,
    is_static,
    larger,
    plus,
    sizes_of,
    smaller,
    times,
    total,
)

aten = torch.ops.aten

INT64 = ir.DataType.INT64


@translates(aten.block_diag.default)
def block_diag(op, tensors):
    """Matrices along the diagonal, zeros around them; a vector is a row."""
    blocks = [atleast_2d(op, tensor) for tensor in promote(op, *tensors)]
    widths = [op.size(block, 1) for block in blocks]
    rows = []
    for position, block in enumerate(blocks):
        left, right = total(op, widths[:position]), total(op, widths[position + 1 :])
        rows.append(padded_along(op, block, [1], [left], [right]))
    return op.Concat(*rows, axis=0)


@translates(aten.diag.default)
def diag(op, self, diagonal):
    """The diagonal of a matrix; the matrix of a diagonal."""
    return diag_embed(op, self, diagonal, 0, 1) if rank(self) == 1 else diagonal_(op, self, diagonal, 0, 1)


@translates(aten.diag_embed.default)
def diag_embed(op, self, offset, dim1, dim2):
    """Matrices with the last axis of *self* as a diagonal, zeros elsewhere."""
    size = plus(op, op.size(self, -1), abs(offset))
    line = self
    if offset:
        zeros = filled(op, [*sizes_of(op, self)[:-1], abs(offset)], 0, torch_dtype(self.dtype))
        line = op.Concat(self, zeros, axis=-1)
    line = op.Unsqueeze(line, [-1 if offset >= 0 else -2])
    axes = rank(self) + 1
    line = op.Transpose(line, perm=moving(axes, [-2, -1], [dim1, dim2]))
    row, column = (
        op.Unsqueeze(op.Range(0, size, 1), list(range(1, axes - dim % axes))) for dim in (dim1, dim2)
    )
    return op.Where(op.Equal(op.Add(row, offset), column), line, op.constant(0, self.dtype))


@translates(aten.diagflat.default)
def diagflat(op, self, offset):
    """The matrix whose diagonal is the flat tensor."""
    return diag_embed(op, reshaped(op, self, [-1]), offset, 0, 1)


@writes_by_position(aten.diagonal.default)
@translates(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal_(op, self, offset, dim1, dim2):
    """The diagonal of two axes, as the last axis: every (width + 1)-th element of the two axes in one."""
    last = moving(rank(self), [dim1, dim2], [-2, -1])
    matrix = op.Transpose(self, perm=last)
    height, width = op.size(matrix, -2), op.size(matrix, -1)
    if not offset and not is_static(height) and has_size(matrix, -2, width):
        return op.Einsum(matrix, equation="...ii->...i")
    rows, columns = (height, plus(op, width, -offset)) if offset >= 0 else (plus(op, height, offset), width)
    count = larger(op, smaller(op, rows, columns), 0)
    start = offset if offset >= 0 else times(op, -offset, width)
    positions = op.Add(op.Mul(op.Range(0, count, 1), plus(op, width, 1)), start)
    flat = reshaped(op, matrix, [*sizes_of(op, matrix)[:-2], times(op, height, width)])
    return op.Gather(flat, positions, axis=rank(self) - 2)


@writes_by_position(aten.linalg_diagonal.default)
@translates(aten.linalg_diagonal.default)
def linalg_diagonal(op, A, offset, dim1, dim2):
    """The diagonal of two axes, as the last axis."""
    return diagonal_(op, A, offset, dim1, dim2)


@translates(aten.diagonal_scatter.default)
def diagonal_scatter(op, self, src, offset, dim1, dim2):
    """*self* with another diagonal."""
    new = op.Cast(src, to=self.dtype)
    return put_at(op, self, new, lambda positions: diagonal_(op, positions, offset, dim1, dim2))


@translates(aten.trace.default)
def trace(op, self):
    """The sum of the diagonal of a matrix; integers sum in int64."""
    line = diagonal_(op, self, 0, 0, 1)
    return op.ReduceSum(line if line.dtype.is_floating_point() else op.Cast(line, to=INT64), keepdims=0)


@translates(aten.diagonal_backward.default)
def diagonal_backward(op, grad_output, input_sizes, offset, dim1, dim2):
    """Zeros, and the gradient on a diagonal."""
    zeros = filled(op, input_sizes, 0, torch_dtype(grad_output.dtype))
    return diagonal_scatter(op, zeros, grad_output, offset, dim1, dim2)


@translates(aten.fill_diagonal_.default)
def fill_diagonal_(op, self, fill_value, wrap):
    """One value where all positions are equal; in a tall matrix, *wrap* starts again after a row."""
    flat = reshaped(op, self, [-1])
    count = op.size(self, 0)
    for axis in range(1, rank(self)):
        count = smaller(op, count, op.size(self, axis))
    step = 1
    for axis in range(rank(self) - 1, 0, -1):
        step = plus(op, times(op, step, op.size(self, axis)), 1)
    end = times(op, count, step)
    if wrap and rank(self) == 2:
        end = op.size(flat, 0)
    places = op.Unsqueeze(op.Range(0, end, step), [1])
    values = expanded(op, scalar(op, fill_value, self.dtype), [op.size(places, 0)])
    return reshaped(op, op.ScatterND(flat, places, values), sizes_of(op, self))
