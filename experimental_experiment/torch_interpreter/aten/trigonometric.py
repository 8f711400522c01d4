"""Trigonometric and hyperbolic functions, their inverses, and angles.

Source of semantics: https://pytorch.org/docs/stable/torch.html#pointwise-ops. onnxruntime computes most of them in float32 only:
in float64 they are composed from Sin, Cos, Exp, Log and Sqrt, an inverse being corrected by one step of rotation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.exponential import expm1, float_function, log1p
from experimental_experiment.torch_interpreter.aten.floating_point import sign_of, signbit
from experimental_experiment.torch_interpreter.promotion import cast, float_dtype, wide
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
DOUBLE, FLOAT = ir.DataType.DOUBLE, ir.DataType.FLOAT


def in_float64(op_type: str, write: Callable) -> Callable:
    """The operator, except in float64 where onnxruntime lacks it and *write* composes it."""

    def choose(op, x):
        return write(op, x) if x.dtype == DOUBLE else op.emit(op_type, (x,))

    choose.__name__ = op_type.lower()
    choose.__doc__ = f"ONNX {op_type}; in float64, {write.__doc__}"
    return choose


# ---- float64 forms


def tan(op, x):
    """``sin(x) / cos(x)``."""
    return op.Div(op.Sin(x), op.Cos(x))


def sinh(op, x):
    """``(expm1(x) - expm1(-x)) / 2``."""
    return op.Mul(op.Sub(expm1(op, x), expm1(op, op.Neg(x))), 0.5)


def cosh(op, x):
    """``(exp(x) + exp(-x)) / 2``."""
    return op.Mul(op.Add(op.Exp(x), op.Exp(op.Neg(x))), 0.5)


def rotated(op, op_type: str, x: ir.Value, sine: ir.Value, cosine: ir.Value) -> ir.Value:
    """The angle of (cosine, sine): float32's, plus the small angle that is left after rotating back by it."""
    angle = op.Cast(op.emit(op_type, (op.Cast(x, to=FLOAT),)), to=DOUBLE)
    s, c = op.Sin(angle), op.Cos(angle)
    left = op.Div(
        op.Sub(op.Mul(sine, c), op.Mul(cosine, s)),
        op.Add(op.Mul(cosine, c), op.Mul(sine, s)),
    )
    return op.Add(angle, left)


def other_leg(op, x: ir.Value) -> ir.Value:
    """``sqrt(1 - x * x)``, accurate near 1."""
    return op.Sqrt(op.Mul(op.Sub(1.0, x), op.Add(x, 1.0)))


def asin(op, x):
    """the angle of (sqrt(1 - x * x), x)."""
    return rotated(op, "Asin", x, x, other_leg(op, x))


def acos(op, x):
    """the angle of (x, sqrt(1 - x * x))."""
    return rotated(op, "Acos", x, other_leg(op, x), x)


def atan(op, x):
    """the angle of (1, x), or of (1 / |x|, sign(x)) for a large x."""
    size = op.Max(op.Abs(x), 1.0)
    large = op.Greater(size, 1.0)
    return rotated(op, "Atan", x, op.Where(large, op.Sign(x), x), op.Reciprocal(size))


def asinh(op, x):
    """``log(|x| + sqrt(x * x + 1))`` with the sign of x."""
    size = op.Abs(x)
    near = op.Min(size, 1e8)
    square = op.Mul(near, near)
    excess = op.Add(near, op.Div(square, op.Add(op.Sqrt(op.Add(square, 1.0)), 1.0)))
    return op.Mul(op.Sign(x), for_large(op, size, log1p(op, excess)))


def acosh(op, x):
    """``log(x + sqrt(x * x - 1))``."""
    excess = op.Sub(op.Min(x, 1e8), 1.0)
    root = op.Mul(op.Sqrt(excess), op.Sqrt(op.Add(excess, 2.0)))
    return for_large(op, x, log1p(op, op.Add(excess, root)))


def for_large(op, x: ir.Value, near: ir.Value) -> ir.Value:
    """asinh and acosh are ``log(2 x)`` where x * x would overflow, *near* elsewhere."""
    return op.Where(op.Greater(x, 1e8), op.Add(op.Log(x), math.log(2)), near)


def atanh(op, x):
    """``log((1 + |x|) / (1 - |x|)) / 2`` with the sign of x."""
    size = op.Abs(x)
    return op.Mul(op.Sign(x), op.Mul(log1p(op, op.Div(op.Mul(size, 2.0), op.Sub(1.0, size))), 0.5))


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


float_function(in_float64("Acos", acos), aten.acos.default, aten.arccos.default)
float_function(in_float64("Acosh", acosh), aten.acosh.default, aten.arccosh.default)
float_function(in_float64("Asin", asin), aten.asin.default, aten.arcsin.default)
float_function(in_float64("Asinh", asinh), aten.asinh.default, aten.arcsinh.default)
float_function(in_float64("Atan", atan), aten.atan.default, aten.arctan.default)
float_function(in_float64("Atanh", atanh), aten.atanh.default, aten.arctanh.default)
float_function("Cos", aten.cos.default)
float_function(in_float64("Cosh", cosh), aten.cosh.default)
float_function(deg2rad, aten.deg2rad.default)
float_function(rad2deg, aten.rad2deg.default)
float_function("Sin", aten.sin.default)
float_function(sinc, aten.sinc.default)
float_function(in_float64("Sinh", sinh), aten.sinh.default)
float_function(in_float64("Tan", tan), aten.tan.default)
float_function("Tanh", aten.tanh.default)


# ---- functions of two numbers


@translates(aten.atan2.default, aten.arctan2.default)
def atan2(op, self, other):
    """The angle of (other, self) from the arctangent of at most 1, exact for zeros of either sign and infinities."""
    dtype = float_dtype(self, other)
    self, other = (cast(op, cast(op, x, dtype), wide(dtype)) for x in (self, other))
    y, x = op.Abs(self), op.Abs(other)
    one, zero = op.constant(1, y.dtype), op.constant(0, y.dtype)
    equal = op.Where(op.Equal(y, 0.0), zero, one)
    ratio = op.Where(op.Equal(x, y), equal, op.Div(op.Min(x, y), op.Max(x, y)))
    angle = in_float64("Atan", atan)(op, ratio)
    angle = op.Where(op.Greater(y, x), op.Sub(math.pi / 2, angle), angle)
    angle = op.Where(signbit(op, other), op.Sub(math.pi, angle), angle)
    return cast(op, op.Mul(angle, sign_of(op, self)), dtype)


@translates(aten.hypot.default)
def hypot(op, self, other):
    """``sqrt(self ** 2 + other ** 2)`` without overflow; an infinity wins over NaN."""
    dtype = float_dtype(self, other)
    x, y = (op.Abs(cast(op, cast(op, leg, dtype), wide(dtype))) for leg in (self, other))
    longest, shortest = op.Max(x, y), op.Min(x, y)
    ratio = op.Div(shortest, longest)
    length = op.Mul(longest, op.Sqrt(op.Add(op.Mul(ratio, ratio), 1.0)))
    length = op.Where(op.Equal(longest, 0.0), longest, length)
    infinite = op.Or(op.IsInf(x), op.IsInf(y))
    return cast(op, op.Where(infinite, op.constant(math.inf, x.dtype), length), dtype)
