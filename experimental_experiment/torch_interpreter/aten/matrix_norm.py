"""Norms and condition numbers of matrices.

Source of semantics: https://pytorch.org/docs/stable/linalg.html.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.reduction import reduce
from experimental_experiment.torch_interpreter.aten.singular_values import singular_values
from experimental_experiment.torch_interpreter.aten.solving import linalg_inv
from experimental_experiment.torch_interpreter.aten.vector_norm import vector_norm
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


def matrix_norm(op, x: ir.Value, order, dim, keepdim: bool) -> ir.Value:
    """A norm of the matrices in two axes: of their elements, of sums of rows or columns, of singular values."""
    rows, columns = (axis % rank(x) for axis in dim)
    if order == "fro" or 0 in (x.shape[rows], x.shape[columns]):
        return vector_norm(op, x, 2, [rows, columns], keepdim, None)
    both = sorted([rows, columns])
    if order == "nuc" or abs(order) == 2:
        others = [axis for axis in range(rank(x)) if axis not in both]
        values = singular_values(op, op.Transpose(x, perm=[*others, rows, columns]))
        reduced = {"nuc": "ReduceSum", 2: "ReduceMax", -2: "ReduceMin"}[order]
        result = op.emit(reduced, (values, [rank(values) - 1]), {"keepdims": 0})
        if order == 2 and not are_known(x.shape[rows], x.shape[columns]):
            result = op.Max(result, 0)  # the largest of no singular value is -inf
        result = op.Cast(result, to=x.dtype)
        return op.Unsqueeze(result, both) if keepdim else result
    summed, other = (rows, columns) if abs(order) == 1 else (columns, rows)
    sums = vector_norm(op, x, 1, [summed], keepdim, None)
    other -= not keepdim and summed < other
    return reduce(op, "ReduceMax" if order > 0 else "ReduceMin", sums, [other], keepdim)


@translates(aten.linalg_cond.default, aten.linalg_cond.p_str)
def linalg_cond(op, self, p):
    """The norm of a matrix times that of its inverse; for the orders 2 and -2 a quotient of singular values."""
    if p in (None, 2, -2):
        largest, smallest = (
            matrix_norm(op, op.Cast(self, to=ir.DataType.DOUBLE), k, [-2, -1], False) for k in (2, -2)
        )
        quotient = op.Div(smallest, largest) if p == -2 else op.Div(largest, smallest)
        if p == -2 and not are_known(*self.shape[-2:]):
            # the smallest of no singular value is infinite
            quotient = op.Where(op.IsInf(smallest), op.constant(0, quotient.dtype), quotient)
        return op.Cast(quotient, to=self.dtype)
    norms = [matrix_norm(op, x, p, [-2, -1], False) for x in (self, linalg_inv(op, self))]
    return op.Mul(*norms)


@translates(aten.nuclear_norm.dim)
def nuclear_norm_dim(op, self, dim, keepdim):
    """The sum of the singular values of the matrices in two axes."""
    return matrix_norm(op, self, "nuc", dim, keepdim)


@translates(aten.nuclear_norm.default)
def nuclear_norm(op, self, keepdim):
    """The sum of the singular values."""
    return matrix_norm(op, self, "nuc", [-2, -1], keepdim)


@translates(aten.linalg_matrix_norm.default, aten.linalg_matrix_norm.str_ord)
def linalg_matrix_norm(op, self, ord, dim, keepdim, dtype):
    """A norm of matrices, computed in *dtype*."""
    x = self if dtype is None else op.Cast(self, to=dtypes.onnx_dtype(dtype))
    return matrix_norm(op, x, ord, dim, keepdim)


@translates(aten.linalg_norm.default, aten.linalg_norm.ord_str)
def linalg_norm(op, self, ord, dim, keepdim, dtype):
    """A norm of vectors along one axis (of all elements without *ord*), of matrices along two."""
    dim = [dim] if isinstance(dim, int) else dim
    x = self if dtype is None else op.Cast(self, to=dtypes.onnx_dtype(dtype))
    axes = list(range(rank(x))) if dim is None else dim
    if ord is not None and len(axes) == 2:
        return matrix_norm(op, x, ord, axes, keepdim)
    return vector_norm(op, x, 2 if ord is None else ord, dim, keepdim, None)


def are_known(*sizes: int | ir.SymbolicDim) -> bool:
    """Whether the sizes of a type are numbers."""
    return all(isinstance(size, int) for size in sizes)
