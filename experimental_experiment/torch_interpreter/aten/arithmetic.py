"""Arithmetic: add, sub, mul, div, neg, pow, the products with a scale, and their scalar overloads.

Source of semantics: https://pytorch.org/docs/stable/torch.html#pointwise-ops and torch's type promotion. Remainders and
rounded divisions are in ``division``.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import (
    cast,
    factors,
    float_dtype,
    promote_to_float,
    result_dtype,
    rounded,
    rounded_operands,
    wide,
)
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
BOOL, INT32, INT64, DOUBLE = ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.DOUBLE


@translates(aten.add.Tensor, aten.add.Scalar)
def add(op, self, other, alpha):
    """``self + alpha * other``; booleans add as a logical or."""
    dtype = result_dtype(self, other)
    if dtype == BOOL:
        self = cast(op, self, BOOL)
        return op.Or(self, cast(op, other, BOOL)) if alpha else self
    return accumulate(op, "Add", self, other, alpha)


@translates(aten.sub.Tensor, aten.sub.Scalar, aten.subtract.Tensor, aten.subtract.Scalar)
def sub(op, self, other, alpha):
    """``self - alpha * other``."""
    return accumulate(op, "Sub", self, other, alpha)


@translates(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(op, self, other, alpha):
    """``other - alpha * self``."""
    return accumulate(op, "Sub", other, self, alpha)


def accumulate(op, op_type: str, self: Any, other: Any, alpha: Any) -> ir.Value:
    """``self`` plus or minus ``alpha * other``: in the common dtype, scaled without rounding between."""
    dtype = result_dtype(self, other)
    self, other = rounded_operands(op, dtype, self, other)
    if not isinstance(alpha, ir.Value) and alpha == 1:
        return cast(op, op.emit(op_type, (self, other)), dtype)
    self, other, alpha = (cast(op, x, wide(dtype)) for x in (self, other, cast(op, alpha, dtype)))
    return cast(op, op.emit(op_type, (self, op.Mul(other, alpha))), dtype)


@translates(aten.mul.Tensor, aten.mul.Scalar, aten.multiply.Tensor, aten.multiply.Scalar)
def mul(op, self, other):
    """``self * other``; booleans multiply as a logical and."""
    dtype = result_dtype(self, other)
    op_type = "And" if dtype == BOOL else "Mul"
    return rounded(op, op.emit(op_type, factors(op, dtype, self, other)), dtype)


@translates(
    aten.div.Tensor,
    aten.div.Scalar,
    aten.divide.Tensor,
    aten.divide.Scalar,
    aten.true_divide.Tensor,
    aten.true_divide.Scalar,
)
def div(op, self, other):
    """True division: integers give floats."""
    dtype = float_dtype(self, other)
    return rounded(op, op.Div(*factors(op, dtype, self, other)), dtype)


@translates(aten.addcmul.default)
def addcmul(op, self, tensor1, tensor2, value):
    """``self + value * tensor1 * tensor2``, without overflow of the product in float16."""
    return add_scaled(op, "Mul", self, tensor1, tensor2, value)


@translates(aten.addcdiv.default)
def addcdiv(op, self, tensor1, tensor2, value):
    """``self + value * tensor1 / tensor2``, of floats only."""
    return add_scaled(op, "Div", self, tensor1, tensor2, value)


def add_scaled(op, op_type: str, self, tensor1, tensor2, value) -> ir.Value:
    """``self`` plus *value* times a product or a quotient; integers truncate it."""
    dtype = result_dtype(self, tensor1, tensor2)
    value = int(value) if isinstance(value, float) and not dtype.is_floating_point() else value
    tensors = rounded_operands(op, dtype, self, tensor1, tensor2)
    self, tensor1, tensor2, value = (cast(op, x, wide(dtype)) for x in (*tensors, value))
    return cast(op, op.Add(self, op.emit(op_type, (op.Mul(tensor1, value), tensor2))), dtype)


@translates(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(op, self, end, weight):
    """Linear interpolation, from the nearer end: exact for weights 0 and 1."""
    dtype = self.dtype
    if isinstance(weight, ir.Value):
        self, end, weight = rounded_operands(op, dtype, self, end, weight)
    self, end, weight = (cast(op, x, wide(dtype)) for x in (self, end, weight))
    is_far = op.GreaterOrEqual(op.Abs(weight), 0.5)
    if is_far.const_value is None or rank(is_far):
        start = op.Where(is_far, end, self)
        weight = op.Sub(weight, op.CastLike(is_far, weight))
    elif is_far.const_value.numpy():
        start, weight = end, op.Sub(weight, 1.0)
    else:
        start = self
    return cast(op, op.Add(start, op.Mul(op.Sub(end, self), weight)), dtype)


# ---- signs


@translates(aten.abs.default, aten.absolute.default)
def abs_(op, self):
    """The magnitude; the lowest integer is its own."""
    return op.Abs(self)


@translates(aten.neg.default, aten.negative.default)
def neg(op, self):
    """``-self``; unsigned integers wrap."""
    return op.Neg(self) if self.dtype.is_signed() else op.Sub(op.constant(0, self.dtype), self)


@translates(aten.positive.default)
def positive(op, self):
    """``+self``."""
    return self


@translates(aten.sign.default, aten.sgn.default)
def sign(op, self):
    """-1, 0 or 1; booleans stay."""
    return self if self.dtype == BOOL else op.Sign(self)


# ---- powers


@translates(aten.reciprocal.default)
def reciprocal(op, self):
    """``1 / self``."""
    return op.Reciprocal(*promote_to_float(op, self))


@translates(aten.square.default)
def square(op, self):
    """``self * self``; the square of booleans is an integer."""
    self = cast(op, self, INT64) if self.dtype == BOOL else self
    return op.Mul(self, self)


@translates(aten.pow.Tensor_Scalar, aten.pow.Scalar, aten.pow.Tensor_Tensor)
def pow_(op, self, exponent):
    """``self ** exponent``: torch takes a square root for 0.5, but of float16; integers are multiplied, they wrap."""
    dtype = result_dtype(self, exponent)
    if not dtype.is_floating_point():
        return integer_power(op, dtype, self, exponent)
    self, power = rounded_operands(op, dtype, self, exponent)
    if isinstance(exponent, ir.Value):
        return cast(op, op.Pow(self, power), dtype)
    if abs(exponent) == 0.5 and dtype != ir.DataType.FLOAT16:
        self = op.Sqrt(self)
        exponent, power = 2 * exponent, op.constant(2 * exponent, self.dtype)
    return cast(op, op.Reciprocal(self) if exponent == -1 else op.Pow(self, power), dtype)


@translates(aten.float_power.Tensor_Scalar, aten.float_power.Scalar, aten.float_power.Tensor_Tensor)
def float_power(op, self, exponent):
    """``self ** exponent`` in float64."""
    exponent = cast(op, exponent, DOUBLE) if isinstance(exponent, ir.Value) else exponent
    return pow_(op, cast(op, self, DOUBLE), exponent)


def integer_power(op, dtype: ir.DataType, self: Any, exponent: Any) -> ir.Value:
    """Powers of integers: products for a number, which wrap; INT64 for a tensor of exponents, which are INT32 where the power has fewer bits."""
    dtype = INT64 if dtype == BOOL else dtype
    base = cast(op, self, dtype)
    if isinstance(exponent, ir.Value):
        exponent = cast(op, cast(op, exponent, dtype), INT64 if dtype == INT64 else INT32)
        return op.Cast(op.Pow(cast(op, base, INT64), exponent), to=dtype)
    if exponent < 0:
        raise Untranslatable(f"integers to the negative power {exponent}")
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else op.Mul(result, base)
        exponent >>= 1
        base = op.Mul(base, base) if exponent else base
    return op.Expand(op.constant(1, dtype), op.shape_of(base)) if result is None else result
