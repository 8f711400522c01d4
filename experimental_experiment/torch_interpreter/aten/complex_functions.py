"""Complex numbers through functions of one element: tangents, inverses of trigonometric functions, logarithms; through conditions.

Most are computed in float64. The inverses are Kahan's, whose branch cuts follow the sign of zero as the C library's do; numbers with
an infinite part give NaN, not the limits that the C library knows.
Source of semantics: W. Kahan, "Branch cuts for complex elementary functions", and c10/util/complex_math.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.aten.complex import (
    Parts,
    abs_,
    columns,
    comparable,
    div,
    elementary,
    eq,
    exponential,
    given,
    hyperbolic_tangent,
    isfinite,
    isnan,
    join_columns,
    logarithm,
    logical_not,
    parts_of,
    quotient,
    root,
    sine,
)
from experimental_experiment.torch_interpreter.aten.complex_structure import complex_translation, real_call
from experimental_experiment.torch_interpreter.aten.exponential import expm1, log1p
from experimental_experiment.torch_interpreter.aten.floating_point import sign_of
from experimental_experiment.torch_interpreter.aten.trigonometric import atan2, hypot
from experimental_experiment.torch_interpreter.composite import decomposed
from experimental_experiment.torch_interpreter.dtypes import is_complex
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates_complex

aten = torch.ops.aten
DOUBLE = ir.DataType.DOUBLE

for _target in (
    aten.addcdiv.default,
    aten.addcmul.default,
    aten._chunk_cat.default,
    aten.cumulative_trapezoid.dx,
    aten.cumulative_trapezoid.x,
    aten.dist.default,
    aten.float_power.Scalar,
    aten.float_power.Tensor_Scalar,
    aten.float_power.Tensor_Tensor,
    aten.frobenius_norm.dim,
    aten.gradient.array,
    aten.gradient.scalararray,
    aten.gradient.scalarint,
    aten.gradient.scalarrayarray,
    aten.gradient.scalarrayint,
    aten.gradient.tensorarray,
    aten.gradient.tensorarrayint,
    aten.linalg_cond.default,
    aten.linalg_cond.p_str,
    aten.linalg_matrix_norm.default,
    aten.linalg_matrix_norm.str_ord,
    aten.linalg_matrix_rank.atol_rtol_float,
    aten.linalg_matrix_rank.atol_rtol_tensor,
    aten.linalg_matrix_rank.default,
    aten.linalg_matrix_rank.tol_tensor,
    aten.linalg_norm.default,
    aten.linalg_norm.ord_str,
    aten.linalg_tensorinv.default,
    aten.linalg_tensorsolve.default,
    aten.linalg_vander.default,
    aten.lerp.Scalar,
    aten.lerp.Tensor,
    aten.log_softmax.int,
    aten.logaddexp.default,
    aten.logsumexp.default,
    aten.norm.Scalar,
    aten.norm.ScalarOpt_dim,
    aten.nuclear_norm.default,
    aten.pairwise_distance.default,
    aten.renorm.default,
    aten.rms_norm.default,
    aten.softmax.int,
    aten.special_exp2.default,
    aten.special_expit.default,
    aten.special_expm1.default,
    aten.special_log1p.default,
    aten.special_logsumexp.default,
    aten.special_sinc.default,
    aten.trapezoid.dx,
    aten.trapezoid.x,
    aten.trapz.dx,
    aten.trapz.x,
    aten.triplet_margin_loss.default,
    aten.vander.default,
):
    translates_complex(_target)(decomposed(_target))


# ---- functions


def precise(function: Callable, *targets: torch._ops.OpOverload) -> None:
    """Register a function of the parts of a complex tensor, computed in float64."""

    def translation(op, self):
        result = function(op, tuple(op.Cast(part, to=DOUBLE) for part in columns(op, self)))
        return join_columns(op, *(op.Cast(part, to=self.dtype) for part in result))

    translation.__name__ = function.__name__
    translation.__doc__ = function.__doc__
    translates_complex(*targets)(translation)


def turned(op, function: Callable, z: Parts) -> Parts:
    """``-i f(i z)``: a hyperbolic function from a trigonometric one, and the reverse."""
    real, imag = function(op, (op.Neg(z[1]), z[0]))
    return imag, op.Neg(real)


def roots(op, z: Parts) -> tuple[Parts, Parts]:
    """``sqrt(1 - z)`` and ``sqrt(1 + z)``."""
    return root(op, (op.Sub(1.0, z[0]), op.Neg(z[1]))), root(op, (op.Add(z[0], 1.0), z[1]))


def arc_sine(op, z: Parts) -> Parts:
    """``atan2(x, Re(sqrt(1 - z) sqrt(1 + z))) + i asinh(Im(conj(sqrt(1 - z)) sqrt(1 + z)))``."""
    (a, b), (c, d) = roots(op, z)
    across = op.Sub(op.Mul(a, c), op.Mul(b, d))
    return atan2(op, z[0], across), op.Asinh(op.Sub(op.Mul(a, d), op.Mul(b, c)))


def arc_cosine(op, z: Parts) -> Parts:
    """``2 atan2(Re sqrt(1 - z), Re sqrt(1 + z)) + i asinh(Im(conj(sqrt(1 + z)) sqrt(1 - z)))``."""
    (a, b), (c, d) = roots(op, z)
    return op.Mul(atan2(op, a, c), 2.0), op.Asinh(op.Sub(op.Mul(c, b), op.Mul(d, a)))


def hyperbolic_arc_cosine(op, z: Parts) -> Parts:
    """``asinh(Re(conj(sqrt(z - 1)) sqrt(z + 1))) + 2 i atan2(Im sqrt(z - 1), Re sqrt(z + 1))``."""
    a, b = root(op, (op.Sub(z[0], 1.0), z[1]))
    c, d = root(op, (op.Add(z[0], 1.0), z[1]))
    return op.Asinh(op.Add(op.Mul(a, c), op.Mul(b, d))), op.Mul(atan2(op, b, c), 2.0)


def hyperbolic_arc_tangent(op, z: Parts) -> Parts:
    """``log((1 + z) / (1 - z)) / 2``, odd in its real part."""
    y, size = z[1], op.Abs(z[0])
    beside, square = op.Sub(1.0, size), op.Mul(y, y)
    length = log1p(op, op.Div(op.Mul(size, 4.0), op.Add(op.Mul(beside, beside), square)))
    across = op.Sub(op.Mul(beside, op.Add(size, 1.0)), square)
    return op.Mul(op.Mul(length, 0.25), sign_of(op, z[0])), op.Mul(atan2(op, op.Mul(y, 2.0), across), 0.5)


def hyperbolic_arc_sine(op, z: Parts) -> Parts:
    """``-i asin(i z)``."""
    return turned(op, arc_sine, z)


def arc_tangent(op, z: Parts) -> Parts:
    """``-i atanh(i z)``."""
    return turned(op, hyperbolic_arc_tangent, z)


def tangent(op, z: Parts) -> Parts:
    """``-i tanh(i z)``."""
    return turned(op, hyperbolic_tangent, z)


def logarithm_of_one_more(op, z: Parts) -> Parts:
    """``log(1 + z)``; outside of a disk around -1 its length is taken from ``|1 + z|^2 - 1``."""
    one_more = op.Add(z[0], 1.0), z[1]
    excess = op.Add(op.Mul(z[0], op.Add(z[0], 2.0)), op.Mul(z[1], z[1]))
    length, angle = logarithm(op, one_more)
    return op.Where(op.Less(excess, -0.5), length, op.Mul(log1p(op, excess), 0.5)), angle


def exponential_less_one(op, z: Parts) -> Parts:
    """``e^z - 1``."""
    x, y = z
    sine = op.Sin(op.Mul(y, 0.5))
    real = op.Sub(op.Mul(expm1(op, x), op.Cos(y)), op.Mul(op.Mul(sine, sine), 2.0))
    return real, op.Mul(op.Exp(x), op.Sin(y))


def exponential_in_base_two(op, z: Parts) -> Parts:
    """``e^(z log 2)``."""
    return exponential(op, (op.Mul(z[0], math.log(2)), op.Mul(z[1], math.log(2))))


def inverse_root(op, z: Parts) -> Parts:
    """``1 / sqrt(z)``."""
    one, nothing = op.constant(1, DOUBLE), op.constant(0, DOUBLE)
    return quotient(op, (one, nothing), root(op, z))


def cardinal_sine(op, z: Parts) -> Parts:
    """``sin(pi z) / (pi z)``, 1 for 0."""
    angle = op.Mul(z[0], math.pi), op.Mul(z[1], math.pi)
    nothing = op.And(*(op.Equal(part, 0) for part in z))
    ratio = zip(quotient(op, sine(op, angle), angle), (1, 0))
    return tuple(op.Where(nothing, op.CastLike(limit, part), part) for part, limit in ratio)


def logarithm_in_base(base: int) -> Callable:
    """The logarithm in a base: the natural one, scaled."""

    def log(op, z):
        """``log(z) / log(base)``."""
        return tuple(op.Mul(part, 1 / math.log(base)) for part in logarithm(op, z))

    return log


precise(arc_cosine, aten.acos.default, aten.arccos.default)
precise(hyperbolic_arc_cosine, aten.acosh.default, aten.arccosh.default)
precise(arc_sine, aten.asin.default, aten.arcsin.default)
precise(hyperbolic_arc_sine, aten.asinh.default, aten.arcsinh.default)
precise(arc_tangent, aten.atan.default, aten.arctan.default)
precise(hyperbolic_arc_tangent, aten.atanh.default, aten.arctanh.default)
precise(exponential_in_base_two, aten.exp2.default)
precise(exponential_less_one, aten.expm1.default)
precise(logarithm_of_one_more, aten.log1p.default)
precise(logarithm_in_base(2), aten.log2.default)
precise(logarithm_in_base(10), aten.log10.default)
precise(inverse_root, aten.rsqrt.default)
elementary(aten.sinc.default, cardinal_sine)
precise(tangent, aten.tan.default)


@translates_complex(aten.true_divide.Tensor, aten.true_divide.Scalar)
def true_divide(op, self, other):
    """`div`."""
    return div(op, self, other)


@translates_complex(aten.l1_loss.default)
def l1_loss(op, self, target, reduction):
    """The lengths of the differences: their mean, their sum, or all of them."""
    if is_complex(given(op, "self")) and is_complex(given(op, "target")):
        lengths = abs_(op, op.Sub(*promote(op, self, target)))
    else:
        both = zip(parts_of(op, "self", self), parts_of(op, "target", target))
        lengths = hypot(op, *(op.Sub(a, b) for a, b in both))
    return (lengths, op.ReduceMean(lengths, keepdims=0), op.ReduceSum(lengths, keepdims=0))[reduction]


@translates_complex(aten.dropout.default)
def dropout(op, input, p, train):
    """The tensor, or zeros for a probability of 1: eager has no others in training."""
    return op.Mul(input, 0.0) if train and p else input


# ---- conditions


def of_truth(target: torch._ops.OpOverload) -> None:
    """Register a translation that only asks which elements of its first argument are not zero."""
    name = target._schema.arguments[0].name

    def translation(op, **arguments):
        nonzero = op.Not(logical_not(op, arguments[name]))
        return real_call(op, target, arguments | {name: nonzero})

    complex_translation(target, translation, f"{target} of the elements that are not zero.")


for _target in (
    aten.all.default,
    aten.all.dim,
    aten.all.dims,
    aten.any.default,
    aten.any.dim,
    aten.any.dims,
    aten.argwhere.default,
    aten.count_nonzero.default,
    aten.count_nonzero.dim_IntList,
    aten.nonzero.default,
    aten.nonzero_numpy.default,
    aten.nonzero_static.default,
    aten.where.default,
):
    of_truth(_target)


def connects(target: torch._ops.OpOverload) -> None:
    """Register a logical operator of what is not zero."""

    def translation(op, self, other):
        truths = []
        for name, value in (("self", self), ("other", other)):
            real, imag = comparable(op, name, value)
            truths.append(op.Not(op.And(op.Equal(real, 0), op.Equal(op.constant(imag, real.dtype), 0))))
        return registry.TRANSLATIONS[target].function(op, *truths)

    translation.__name__ = target._schema.name.split("::")[1]
    translation.__doc__ = f"{target} of the elements that are not zero."
    translates_complex(target)(translation)


connects(aten.logical_and.default)
connects(aten.logical_or.default)
connects(aten.logical_xor.default)


@translates_complex(aten.isclose.default)
def isclose(op, self, other, rtol, atol, equal_nan):
    """``|self - other| <= atol + rtol * |other|``; equal infinities are close, NaN only when asked."""
    close = eq(op, self, other)
    if equal_nan:
        close = op.Or(close, op.And(isnan(op, self), isnan(op, other)))
    difference = op.Sub(self, other)
    allowed = op.Add(op.Mul(abs_(op, other), rtol), atol)
    near = op.And(isfinite(op, difference), op.LessOrEqual(abs_(op, difference), allowed))
    return op.Or(close, near)
