"""Trigonometric and hyperbolic functions, their inverses, and angles.

Source of semantics: https://pytorch.org/docs/stable/torch.html#pointwise-ops.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.exponential import float_function
from experimental_experiment.torch_interpreter.aten.floating_point import sign_of, signbit
from experimental_experiment.torch_interpreter.promotion import cast, float_dtype, wide
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


# ---- functions of one number


def deg2rad(op, x):
    """Degrees to radians."""
    return op.Mul(x, math.pi / 180)


def rad2deg(op, x):
    """Radians to degrees."""
    return op.Mul(x, 180 / math.pi)


def sinc(op, x):
    """``sin(pi x) / (pi x)``, 1 for 0."""
    angle = op.Mul(x, math.pi)
    return op.Where(op.Equal(x, 0.0), op.constant(1, x.dtype), op.Div(op.Sin(angle), angle))


float_function("Acos", aten.acos.default, aten.arccos.default)
float_function("Acosh", aten.acosh.default, aten.arccosh.default)
float_function("Asin", aten.asin.default, aten.arcsin.default)
float_function("Asinh", aten.asinh.default, aten.arcsinh.default)
float_function("Atan", aten.atan.default, aten.arctan.default)
float_function("Atanh", aten.atanh.default, aten.arctanh.default)
float_function("Cos", aten.cos.default)
float_function("Cosh", aten.cosh.default)
float_function(deg2rad, aten.deg2rad.default)
float_function(rad2deg, aten.rad2deg.default)
float_function("Sin", aten.sin.default)
float_function(sinc, aten.sinc.default)
float_function("Sinh", aten.sinh.default)
float_function("Tan", aten.tan.default)
float_function("Tanh", aten.tanh.default)


# ---- functions of two numbers


@translates(aten.atan2.default, aten.arctan2.default)
def atan2(op, self, other):
    """The angle of (other, self), exact for zeros of either sign and infinities."""
    dtype = float_dtype(self, other)
    self, other = (cast(op, cast(op, x, dtype), wide(dtype)) for x in (self, other))
    y, x = op.Abs(self), op.Abs(other)
    # two zeros and two infinities have no quotient
    angle = op.Atan(op.Where(op.Equal(x, y), op.Sign(y), op.Div(y, x)))
    angle = op.Where(signbit(op, other), op.Sub(math.pi, angle), angle)
    return cast(op, op.Mul(angle, sign_of(op, self)), dtype)


@translates(aten.hypot.default)
def hypot(op, self, other):
    """``sqrt(self ** 2 + other ** 2)`` without overflow."""
    dtype = float_dtype(self, other)
    x, y = (cast(op, cast(op, leg, dtype), squared(dtype)) for leg in (self, other))
    if dtype != squared(dtype):
        length = op.Sqrt(op.Add(op.Mul(x, x), op.Mul(y, y)))
    else:
        longest, shortest = op.Max(op.Abs(x), op.Abs(y)), op.Min(op.Abs(x), op.Abs(y))
        ratio = op.Div(shortest, op.Max(longest, math.ulp(0.0)))
        length = op.Mul(longest, op.Sqrt(op.Add(op.Mul(ratio, ratio), 1.0)))
    if dtype == squared(dtype) or op.context.special_values:  # beside NaN too
        infinite = op.Or(op.IsInf(x), op.IsInf(y))
        length = op.Where(infinite, op.constant(math.inf, x.dtype), length)
    return cast(op, length, dtype)


def squared(dtype: ir.DataType) -> ir.DataType:
    """The dtype that holds the squares of another one, as far as there is one."""
    return ir.DataType.FLOAT if dtype == ir.DataType.FLOAT16 else ir.DataType.DOUBLE
