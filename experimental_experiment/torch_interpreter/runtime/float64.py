"""Functions of float64 without a kernel, or with one that loses digits: composed of operators that have one.

Inverses are those of float32, corrected by one step of rotation. Source: identities of https://dlmf.nist.gov/4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.error_function import erfc
from experimental_experiment.torch_interpreter.aten.exponential import expm1, log1p
from experimental_experiment.torch_interpreter.aten.factorization import pivots_and_sign
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.runtime.table import repairs

DOUBLE, FLOAT = ir.DataType.DOUBLE, ir.DataType.FLOAT


def of_float64(operator: str, nodes: int | str, because: str = "there is no kernel") -> Callable:
    """Register what replaces an operator in float64."""

    def register(compose: Callable) -> Callable:
        def row(op, x, *others, **attributes):
            return compose(op, x, *others, **attributes) if x.dtype == DOUBLE else None

        row.__name__, row.__doc__ = compose.__name__, compose.__doc__
        repairs(operator, when="float64", because=because, nodes=nodes)(row)
        return compose

    return register


# ---- trigonometric and hyperbolic functions


@of_float64("Tan", 2)
def sine_over_cosine(op, x):
    """``sin(x) / cos(x)``."""
    return op.Div(op.Sin(x), op.Cos(x))


@of_float64("Sinh", 16)
def half_the_difference_of_exponentials(op, x):
    """``(expm1(x) - expm1(-x)) / 2``."""
    return op.Mul(op.Sub(expm1(op, x), expm1(op, op.Neg(x))), 0.5)


@of_float64("Cosh", 4)
def half_the_sum_of_exponentials(op, x):
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


@of_float64("Asin", 16)
def angle_of_a_sine(op, x):
    """The angle of ``(sqrt(1 - x * x), x)``."""
    return rotated(op, "Asin", x, x, other_leg(op, x))


@of_float64("Acos", 16)
def angle_of_a_cosine(op, x):
    """The angle of ``(x, sqrt(1 - x * x))``."""
    return rotated(op, "Acos", x, other_leg(op, x), x)


@of_float64("Atan", 18)
def angle_of_a_tangent(op, x):
    """The angle of ``(1, x)``, or of ``(1 / abs(x), sign(x))`` for a large x."""
    size = op.Max(op.Abs(x), 1.0)
    large = op.Greater(size, 1.0)
    return rotated(op, "Atan", x, op.Where(large, op.Sign(x), x), op.Reciprocal(size))


@of_float64("Asinh", 20)
def area_of_a_hyperbolic_sine(op, x):
    """``log(abs(x) + sqrt(x * x + 1))`` with the sign of x."""
    size = op.Abs(x)
    near = op.Min(size, 1e8)
    square = op.Mul(near, near)
    excess = op.Add(near, op.Div(square, op.Add(op.Sqrt(op.Add(square, 1.0)), 1.0)))
    return op.Mul(op.Sign(x), for_large(op, size, log1p(op, excess)))


@of_float64("Acosh", 17)
def area_of_a_hyperbolic_cosine(op, x):
    """``log(x + sqrt(x * x - 1))``."""
    excess = op.Sub(op.Min(x, 1e8), 1.0)
    root = op.Mul(op.Sqrt(excess), op.Sqrt(op.Add(excess, 2.0)))
    return for_large(op, x, log1p(op, op.Add(excess, root)))


def for_large(op, x: ir.Value, near: ir.Value) -> ir.Value:
    """asinh and acosh are ``log(2 x)`` where x * x would overflow, *near* elsewhere."""
    return op.Where(op.Greater(x, 1e8), op.Add(op.Log(x), math.log(2)), near)


@of_float64("Atanh", 13)
def area_of_a_hyperbolic_tangent(op, x):
    """``log((1 + abs(x)) / (1 - abs(x))) / 2`` with the sign of x."""
    size = op.Abs(x)
    return op.Mul(op.Sign(x), op.Mul(log1p(op, op.Div(op.Mul(size, 2.0), op.Sub(1.0, size))), 0.5))


# ---- activations


@of_float64("Erf", 66)
def less_its_complement(op, x):
    """``1 - erfc(x)``, by a polynomial."""
    return op.Sub(1.0, erfc(op, x))


@of_float64("Sigmoid", 3, because="digits are lost below -10, all of them below -37")
def inverse_of_a_sum(op, x):
    """``1 / (1 + exp(-x))``."""
    return op.Reciprocal(op.Add(op.Exp(op.Neg(x)), 1.0))


@of_float64("Softplus", 11)
def logarithm_of_a_sum(op, x):
    """``max(x, 0) + log1p(exp(-abs(x)))``."""
    return op.Add(op.Max(x, 0.0), log1p(op, op.Exp(op.Neg(op.Abs(x)))))


@of_float64("Mish", 13)
def times_the_tanh_of_softplus(op, x):
    """``x * tanh(softplus(x))``."""
    return op.Mul(x, op.Tanh(op.Softplus(x)))


@of_float64("LeakyRelu", 2)
def scaled_where_negative(op, x, *, alpha=0.01):
    """``x`` where positive, ``alpha * x`` elsewhere."""
    return op.Where(op.Greater(x, 0.0), x, op.Mul(x, alpha))


@of_float64("PRelu", 2)
def weighted_where_negative(op, x, slope):
    """``x`` where positive, ``slope * x`` elsewhere."""
    return op.Where(op.Greater(x, 0.0), x, op.Mul(x, slope))


def exponential_unit(op, x: ir.Value, alpha: float, gamma: float, scale: float) -> ir.Value:
    """``gamma * x`` where positive, ``gamma * alpha * (exp(scale * x) - 1)`` elsewhere."""
    negative = op.Mul(expm1(op, op.Mul(op.Min(x, 0.0), scale)), alpha * gamma)
    return op.Where(op.LessOrEqual(x, 0.0), negative, op.Mul(x, gamma))


@of_float64("Elu", 9)
def exponential_where_negative(op, x, *, alpha=1.0):
    """``x`` where positive, ``alpha * (exp(x) - 1)`` elsewhere."""
    return exponential_unit(op, x, alpha, 1.0, 1.0)


@of_float64("Celu", 11)
def scaled_exponential_where_negative(op, x, *, alpha=1.0):
    """``x`` where positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere."""
    return exponential_unit(op, x, alpha, 1.0, 1 / alpha)


@of_float64("Selu", 11)
def self_normalizing(op, x):
    """The exponential unit of these two numbers, with all their digits."""
    return exponential_unit(op, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


@of_float64("HardSigmoid", 2)
def clipped_line(op, x, *, alpha=0.2, beta=0.5):
    """``alpha * x + beta``, between 0 and 1."""
    return op.Clip(op.Add(op.Mul(x, alpha), beta), 0.0, 1.0)


@of_float64("HardSwish", 3)
def times_a_clipped_line(op, x):
    """``x * relu6(x + 3) / 6``."""
    return op.Mul(x, op.Div(op.Clip(op.Add(x, 3.0), 0.0, 6.0), 6.0))


@of_float64("LogSoftmax", 5, because="a row with NaN or infinity holds numbers")
def shifted_by_the_largest(op, x, *, axis=-1):
    """``x`` less its largest element, less the logarithm of the sum of the exponentials."""
    shifted = op.Sub(x, op.ReduceMax(x, [axis], keepdims=1))
    return op.Sub(shifted, op.Log(op.ReduceSum(op.Exp(shifted), [axis], keepdims=1)))


# ---- matrices


@of_float64("Det", "2 and a Loop over the columns")
def product_of_pivots(op, x):
    """The product of the pivots of an elimination, with the sign of their permutation."""
    return op.ReduceProd(pivots_and_sign(op, x), [rank(x) - 2], keepdims=0)


# ---- constants that float32 rounds to 0 or to 1

DROPPED = "the node is taken away, as if it changed nothing: the constant is compared in float32"


@repairs(
    "Add",
    "Sub",
    when="a float64 constant of one element that is not 0, and 0 in float32",
    because=DROPPED,
    nodes=0,
)
def of_a_tiny_constant(op, a, b, operator):
    """A Sum, which is not looked at."""
    if not rounds_to(0.0, b) and (operator == "Sub" or not rounds_to(0.0, a)):
        return None
    return op.Sum(a, b) if operator == "Add" else op.Sum(a, op.constant(-b.const_value.numpy(), DOUBLE))


@repairs(
    "Mul",
    "Div",
    when="a float64 constant of one element that is not 1, and 1 in float32",
    because=DROPPED,
    nodes=1,
)
def by_nearly_one(op, a, b, operator):
    """Two products, or a quotient of halves: powers of two change no digits."""
    if operator == "Mul" and rounds_to(1.0, a):
        a, b = b, a
    if not rounds_to(1.0, b):
        return None
    factor = 2.0 if operator == "Mul" else 0.5
    return op.emit(operator, (op.Mul(a, 0.5), op.constant(b.const_value.numpy() * factor, DOUBLE)))


def rounds_to(number: float, value: ir.Value) -> bool:
    """Whether a value is a float64 constant of one element that is this number in float32, and another one in float64."""
    if value.dtype != DOUBLE or not is_small(value, 1) or value.const_value.size != 1:
        return False
    held = value.const_value.numpy().item()
    with np.errstate(over="ignore"):
        return held != number and np.float32(held) == number
