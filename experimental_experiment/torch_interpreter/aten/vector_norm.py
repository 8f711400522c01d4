"""Vector norms: linalg_vector_norm, norm, frobenius_norm, renorm.

Source of semantics: torch.linalg.vector_norm.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.reduction import reduce
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import raised, rounded, wide
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Number, is_static

aten = torch.ops.aten


@translates(aten.frobenius_norm.dim)
def frobenius_norm(op, self, dim, keepdim):
    """The 2-norm along axes."""
    return vector_norm(op, self, 2, dim, keepdim, None)


@translates(aten.linalg_vector_norm.default)
def linalg_vector_norm(op, self, ord, dim, keepdim, dtype):
    """The norm of order *ord* along axes."""
    return vector_norm(op, self, ord, dim, keepdim, dtype)


@translates(aten.norm.Scalar)
def norm(op, self, p):
    """The norm of all elements."""
    return vector_norm(op, self, p, None, False, None)


@translates(aten.norm.ScalarOpt_dim)
def norm_dim(op, self, p, dim, keepdim):
    """The norm along axes."""
    return vector_norm(op, self, p, dim, keepdim, None)


@translates(aten.norm.ScalarOpt_dim_dtype)
def norm_dim_dtype(op, self, p, dim, keepdim, dtype):
    """The norm along axes, computed in *dtype*."""
    return vector_norm(op, self, p, dim, keepdim, dtype)


@translates(aten.norm.ScalarOpt_dtype)
def norm_dtype(op, self, p, dtype):
    """The norm of all elements, computed in *dtype*."""
    return vector_norm(op, self, p, None, False, dtype)


@translates(aten.renorm.default)
def renorm(op, self, p, dim, maxnorm):
    """The slices along an axis, those whose norm exceeds *maxnorm* scaled down to it."""
    wider = raised(op, self)
    others = [axis for axis in range(rank(self)) if axis != dim % rank(self)]
    norm = vector_norm(op, wider, p, others, True, None)
    largest = op.constant(maxnorm, norm.dtype)
    factor = op.Div(largest, op.Add(norm, 1e-7))
    factor = op.Where(op.Greater(norm, largest), factor, op.CastLike(1.0, norm))
    return rounded(op, op.Mul(wider, factor), self.dtype)


def vector_norm(op, self, order, dim, keepdim, dtype: torch.dtype | None) -> ir.Value:
    """``sum(|self| ** order) ** (1 / order)``; extrema for infinite orders, the number of nonzeros for 0."""
    self = self if dtype is None else op.Cast(self, to=dtypes.onnx_dtype(dtype))
    order = 2 if order is None else order
    if not is_static(order):
        return norm_of_symbolic_order(op, self, order, dim, keepdim)
    if order in (1, 2):
        return reduce(op, f"ReduceL{int(order)}", self, dim, keepdim)
    if math.isinf(order):
        return reduce(op, "ReduceMax" if order > 0 else "ReduceMin", op.Abs(self), dim, keepdim)
    if order == 0:
        nonzero = op.Cast(op.Cast(self, to=ir.DataType.BOOL), to=wide(self.dtype))
        return op.CastLike(reduce(op, "ReduceSum", nonzero, dim, keepdim), self)
    total = reduce(op, "ReduceSum", op.Pow(op.Abs(raised(op, self)), float(order)), dim, keepdim)
    return rounded(op, op.Pow(total, 1.0 / order), self.dtype)


def norm_of_symbolic_order(op, self, order: Number, dim, keepdim) -> ir.Value:
    """`vector_norm` where sizes tell the order: the formula, and the number of nonzeros where it is 0; torch asks whether it is infinite."""
    x = op.Abs(raised(op, self))
    power = op.Cast(order, to=x.dtype)
    total = reduce(op, "ReduceSum", op.Pow(x, power), dim, keepdim)
    norm = rounded(op, op.Pow(total, op.Reciprocal(power)), self.dtype)
    return op.Where(op.Equal(power, 0.0), vector_norm(op, self, 0, dim, keepdim, None), norm)
