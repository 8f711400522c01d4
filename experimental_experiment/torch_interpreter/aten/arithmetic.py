"""Arithmetic: add, sub, mul, div, remainder, pow and their scalar overloads.

Source of semantics: https://pytorch.org/docs/stable/torch.html#math-operations and torch's type promotion.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.promotion import (
    promote,
    promote_to_float,
)
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


@translates(aten.add.Tensor, aten.add.Scalar)
def add(op, self, other, alpha):
    """``self + alpha * other``; booleans add as a logical or."""
    self, other = promote(op, self, other)
    if self.dtype == ir.DataType.BOOL:
        return op.Or(self, other) if alpha else self
    return op.Add(self, scaled(op, other, alpha))


@translates(aten.sub.Tensor, aten.sub.Scalar)
def sub(op, self, other, alpha):
    """``self - alpha * other``."""
    self, other = promote(op, self, other)
    return op.Sub(self, scaled(op, other, alpha))


@translates(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(op, self, other, alpha):
    """``other - alpha * self``."""
    return sub(op, other, self, alpha)


@translates(aten.mul.Tensor, aten.mul.Scalar)
def mul(op, self, other):
    """``self * other``; booleans multiply as a logical and."""
    self, other = promote(op, self, other)
    return op.And(self, other) if self.dtype == ir.DataType.BOOL else op.Mul(self, other)


@translates(aten.div.Tensor, aten.div.Scalar)
def div(op, self, other):
    """True division: integers give floats."""
    return op.Div(*promote_to_float(op, self, other))


@translates(aten.neg.default)
def neg(op, self):
    """``-self``; unsigned integers wrap."""
    return op.Neg(self) if self.dtype.is_signed() else op.Sub(op.CastLike(0, self), self)


def scaled(op, value, factor):
    """``factor * value``, in the dtype of *value*."""
    return (
        value
        if not isinstance(factor, ir.Value) and factor == 1
        else op.Mul(value, op.CastLike(factor, value))
    )
