"""Special functions: gamma, zeta, error functions and the quantiles of the normal distribution.

Every function is computed in float64, whatever the dtype, by series of which the rounding is below 1e-13.
Source of semantics: https://pytorch.org/docs/stable/special.html; coefficients of Cephes (ndtri, zeta), of Stirling's
series, and Chebyshev coefficients of ``(1 + 2 x) erfcx(x)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.exponential import float_function, log1p
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import cast, float_dtype, promote_to_float
from experimental_experiment.torch_interpreter.registry import takes, translates

aten = torch.ops.aten
DOUBLE = ir.DataType.DOUBLE


def numbers(text: str) -> list[float]:
    """The numbers of a table."""
    return [float(word) for word in text.split()]


ERFCX = numbers(
    """
    -2.187384739191552e-18 -2.2370195722088327e-18 5.068159826936063e-17 7.418251390253142e-17
    -1.2507948692362086e-15 -1.864562707869366e-15 3.3478119612402134e-14 3.252548154415231e-14
    -9.654696748591325e-13 1.94558685366353e-13 2.8687950109156365e-11 -6.318088340904854e-11
    -7.754400208833148e-10 4.521959811218142e-09 1.0764999465670827e-08 -2.1886401049234397e-07
    7.740383066198491e-07 4.13902798607301e-06 -6.916973302501207e-05 0.0004907758365258086
    -0.002413163540417608 0.009074997670705265 -0.026658668435305753 0.05920993999819189
    -0.08424913336651792 -0.004590054580646478 2.3551578691348034
    """
)
NDTRI_CENTER_P = numbers(
    """
    -59.96335010141079 98.00107541859997 -56.67628574690703 13.931260938727968 -1.2391658386738125
    """
)
NDTRI_CENTER_Q = numbers(
    """
    1.0 1.9544885833814176 4.676279128988815 86.36024213908905 -225.46268785411937 200.26021238006066
    -82.03722561683334 15.90562251262117 -1.1833162112133
    """
)
NDTRI_NEAR_P = numbers(
    """
    4.0554489230596245 31.525109459989388 57.16281922464213 44.08050738932008 14.684956192885803
    2.1866330685079025 -0.1402560791713545 -0.03504246268278482 -0.0008574567851546854
    """
)
NDTRI_NEAR_Q = numbers(
    """
    1.0 15.779988325646675 45.39076351288792 41.3172038254672 15.04253856929075 2.504649462083094
    -0.14218292285478779 -0.03808064076915783 -0.0009332594808954574
    """
)
NDTRI_FAR_P = numbers(
    """
    3.2377489177694603 6.915228890689842 3.9388102529247444 1.3330346081580755 0.20148538954917908
    0.012371663481782003 0.00030158155350823543 2.6580697468673755e-06 6.239745391849833e-09
    """
)
NDTRI_FAR_Q = numbers(
    """
    1.0 6.02427039364742 3.6798356385616087 1.3770209948908132 0.21623699359449663 0.013420400608854318
    0.00032801446468212774 2.8924786474538068e-06 6.790194080099813e-09
    """
)
STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156]
"""Of ``1 / x, 1 / x^3, ...`` in the logarithm of the gamma function."""

DIGAMMA = [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12]
"""Of ``1 / x^2, 1 / x^4, ...`` in minus its derivative."""

TRIGAMMA = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6]
"""Of ``1 / x^3, 1 / x^5, ...`` in its second derivative."""

ZETA = numbers(
    """
    12.0 -720.0 30240.0 -1209600.0 47900160.0 -1.8924375803183791606e9 7.47242496e10 -2.950130727918164224e12
    1.1646782814350067249e14 -4.5979787224074726105e15 1.8152105401943546773e17 -7.1661652561756670113e18
    """
)
"""``(2 k)! / B_2k`` of the Euler-Maclaurin sum."""

# ---- how functions are computed


def special(*targets: torch._ops.OpOverload) -> Callable:
    """Register a function of one float64 value for a tensor of any dtype; integers give float32."""

    def register(function: Callable) -> Callable:
        for target in targets:
            translates(target)(of_one_tensor(target, function))
        return function

    return register


def of_one_tensor(target: torch._ops.OpOverload, function: Callable) -> Callable:
    """The translation of *target*, whose only argument ATen calls ``self``, ``x`` or ``input``."""

    def translation(op, **arguments):
        (x,) = arguments.values()
        return cast(op, function(op, op.Cast(x, to=DOUBLE)), float_dtype(x))

    translation.__name__, translation.__doc__ = function.__name__, function.__doc__
    return takes(translation, target)


def horner(op, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """A polynomial, the highest power first."""
    total = op.constant(coefficients[0], DOUBLE)
    for coefficient in coefficients[1:]:
        total = op.Add(op.Mul(total, x), coefficient)
    return total


def chebyshev(op, t: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """A Chebyshev series of t in [-1, 1], the highest term first, half of the last: Clenshaw's recurrence as a Loop."""
    table, twice = op.constant(np.array(coefficients)), op.Mul(t, 2.0)
    nothing = op.Mul(t, 0.0)

    def step(inner, iteration, go, current, previous):
        following = inner.Sub(inner.Add(inner.Mul(twice, current), inner.Gather(table, iteration)), previous)
        return [go, following, current]

    body = op.subgraph(step, [op.constant(0), op.constant(True), nothing, nothing])
    current, previous = op.Loop(len(coefficients) - 1, True, nothing, nothing, body=body, outputs=2)
    return op.Add(op.Sub(op.Mul(t, current), previous), coefficients[-1] / 2)


def odd_inverse_powers(op, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """``c0 / x + c1 / x^3 + ...``."""
    inverse = op.Reciprocal(x)
    return op.Mul(horner(op, op.Mul(inverse, inverse), coefficients[::-1]), inverse)


# ---- the gamma function


@special(aten.lgamma.default, aten.special_gammaln.default)
def lgamma(op, x):
    """The logarithm of the absolute value of the gamma function, by reflection below 1/2."""
    reflected = op.Less(x, 0.5)
    positive = log_gamma(op, op.Where(reflected, op.Sub(1.0, x), x))
    distance = op.Sub(x, op.Round(x))
    sine = op.Abs(op.Sin(op.Mul(distance, math.pi)))
    result = op.Where(reflected, op.Sub(op.Log(op.Div(math.pi, sine)), positive), positive)
    return op.Where(op.IsInf(x), op.Abs(x), result)


def log_gamma(op, x: ir.Value) -> ir.Value:
    """`lgamma` above 1/2: Stirling's series, small numbers being shifted by 8 first."""
    small = op.Less(x, 10.0)
    factor = x
    for k in range(1, 8):
        factor = op.Mul(factor, op.Add(x, float(k)))
    shift = op.Where(small, op.Log(op.Where(small, factor, op.CastLike(1, x))), op.CastLike(0, x))
    x = op.Where(small, op.Add(x, 8.0), x)
    main = op.Sub(op.Mul(op.Sub(x, 0.5), op.Log(x)), op.Sub(x, math.log(2 * math.pi) / 2))
    return op.Sub(op.Add(main, odd_inverse_powers(op, x, STIRLING)), shift)


@special(aten.digamma.default, aten.special_digamma.default, aten.special_psi.default)
def digamma(op, x):
    """The derivative of `lgamma`, NaN at the poles below zero; -inf at 0, inf at -0."""
    negative = op.Less(x, 0.0)
    whole = op.Equal(x, op.Round(x))
    start = op.Where(negative, op.Sub(1.0, x), x)
    result = None
    for k in range(10):
        term = op.Reciprocal(op.Add(start, float(k)))
        result = term if result is None else op.Add(result, term)
    far = op.Add(start, 10.0)
    inverse = op.Reciprocal(far)
    tail = op.Mul(odd_inverse_powers(op, far, DIGAMMA), inverse)
    value = op.Sub(op.Sub(op.Log(far), op.Mul(inverse, 0.5)), op.Add(tail, result))
    angle = op.Mul(op.Sub(x, op.Round(x)), math.pi)
    value = op.Where(negative, op.Sub(value, op.Div(op.Mul(op.Cos(angle), math.pi), op.Sin(angle))), value)
    value = op.Where(op.And(negative, whole), op.CastLike(math.nan, x), value)
    return op.Where(op.Equal(x, 0.0), op.Neg(op.Reciprocal(x)), value)


def trigamma(op, x: ir.Value) -> ir.Value:
    """The derivative of `digamma`, by reflection below 1/2."""
    reflected = op.Less(x, 0.5)
    start = op.Where(reflected, op.Sub(1.0, x), x)
    far = op.Add(start, 10.0)
    inverse = op.Reciprocal(far)
    square = op.Mul(inverse, inverse)
    result = op.Add(
        op.Mul(odd_inverse_powers(op, far, TRIGAMMA), square), op.Add(inverse, op.Mul(square, 0.5))
    )
    for k in range(10):
        term = op.Reciprocal(op.Add(start, float(k)))
        result = op.Add(result, op.Mul(term, term))
    sine = op.Div(op.Sin(op.Mul(op.Sub(x, op.Round(x)), math.pi)), math.pi)
    return op.Where(reflected, op.Sub(op.Reciprocal(op.Mul(sine, sine)), result), result)


@translates(aten.polygamma.default, aten.special_polygamma.default)
def polygamma(op, n, self):
    """The n-th derivative of `digamma`: from n=2 on through the zeta function."""
    x = op.Cast(self, to=DOUBLE)
    if n < 2:
        result = (digamma, trigamma)[n](op, x)
    else:
        sum_of_powers = hurwitz_zeta(op, op.constant(n + 1.0, DOUBLE), x)
        result = op.Mul(sum_of_powers, (-1.0) ** (n + 1) * math.factorial(n))
    return cast(op, result, float_dtype(self))


@translates(aten.polygamma_.default)
def polygamma_(op, self, n):
    """`polygamma` in place, its arguments being the other way round: what it returns, then what it writes."""
    result = polygamma(op, n, self)
    return result, result


@translates(aten.mvlgamma.default, aten.special_multigammaln.default)
def mvlgamma(op, self, p):
    """The logarithm of the multivariate gamma function of dimension p."""
    shifts = np.arange(p).reshape(-1, *[1] * rank(self)) / 2
    terms = lgamma(op, op.Sub(op.Unsqueeze(op.Cast(self, to=DOUBLE), [0]), shifts))
    total = op.Add(op.ReduceSum(terms, [0], keepdims=0), p * (p - 1) / 4 * math.log(math.pi))
    return cast(op, total, float_dtype(self))


@translates(aten.special_zeta.default, aten.special_zeta.other_scalar, aten.special_zeta.self_scalar)
def special_zeta(op, self, other):
    """The Hurwitz zeta function: the sum of ``(other + k) ** -self``."""
    s, q = (cast(op, x, DOUBLE) for x in promote_to_float(op, self, other))
    return cast(op, hurwitz_zeta(op, s, q), float_dtype(self, other))


def hurwitz_zeta(op, s: ir.Value, q: ir.Value) -> ir.Value:
    """Terms until q passes 9, at least nine, then Euler and Maclaurin's formula for the others, as Cephes sums them."""
    first = op.Pow(q, op.Neg(s))
    infinity, nan = op.CastLike(math.inf, q), op.CastLike(math.nan, q)
    start = op.Where(op.Less(s, 1.0), nan, q)  # of the shape of both: there is no sum of these powers
    least = op.Where(op.Greater(q, -1e6), q, op.CastLike(-1e6, q))
    terms = op.Max(op.Ceil(op.Sub(9.0, op.ReduceMin(least, keepdims=0))), 9.0)

    def step(inner, iteration, go, total, at, term):
        more = inner.Or(inner.Less(iteration, 9), inner.LessOrEqual(at, 9.0))
        following = inner.Where(more, inner.Add(at, 1.0), at)
        power = inner.Pow(following, inner.Neg(s))
        total = inner.Where(more, inner.Add(total, power), total)
        return [go, total, following, power]

    start_term = op.Add(first, op.Mul(q, 0.0))
    body = op.subgraph(step, [op.constant(0), op.constant(True), start_term, start, start_term])
    trips = op.Add(op.Cast(terms, to=ir.DataType.INT64), 1)
    total, at, term = op.Loop(trips, True, start_term, start, start_term, body=body, outputs=3)
    # after a term that adds nothing Cephes stops: of large s, the factors are infinite and would make NaN of it
    negligible = op.Less(op.Abs(term), op.Abs(op.Mul(total, 2.0**-53)))
    total = op.Where(negligible, total, with_remainder(op, s, total, at, term))
    pole = op.And(op.LessOrEqual(q, 0.0), op.Equal(q, op.Floor(q)))
    undefined = op.And(op.LessOrEqual(q, 0.0), op.Not(op.Equal(s, op.Floor(s))))
    total = op.Where(pole, infinity, op.Where(undefined, nan, total))
    return op.Where(op.Equal(s, 1.0), infinity, op.Where(op.Less(s, 1.0), nan, total))


def with_remainder(op, s: ir.Value, total: ir.Value, at: ir.Value, term: ir.Value) -> ir.Value:
    """*total* and Euler and Maclaurin's formula for the terms after *term*, which is ``at ** -s``."""
    total = op.Add(total, op.Sub(op.Div(op.Mul(term, at), op.Sub(s, 1.0)), op.Mul(term, 0.5)))
    factor = op.CastLike(1, at)
    for k, divisor in enumerate(ZETA):
        factor = op.Mul(factor, op.Add(s, 2.0 * k))
        term = op.Div(term, at)
        total = op.Add(total, op.Div(op.Mul(factor, term), divisor))
        factor = op.Mul(factor, op.Add(s, 2.0 * k + 1.0))
        term = op.Div(term, at)
    return total


# ---- error functions and the normal distribution


@special(aten.special_erfcx.default)
def erfcx(op, x):
    """``exp(x^2) erfc(x)``."""
    positive = scaled_erfc(op, op.Abs(x))
    reflected = op.Sub(op.Mul(op.Exp(op.Mul(x, x)), 2.0), positive)
    return op.Where(op.Less(x, 0.0), reflected, positive)


def scaled_erfc(op, x: ir.Value) -> ir.Value:
    """`erfcx` of numbers that are not negative: a series of ``(x - K) / (x + K)``; infinity gives zero."""
    t = op.Sub(1.0, op.Div(7.5, op.Add(x, 3.75)))
    return op.Div(chebyshev(op, t, ERFCX), op.Add(op.Mul(x, 2.0), 1.0))


def upper_tail(op, x: ir.Value) -> ir.Value:
    """``erfc(x)`` of numbers that are not negative."""
    return op.Mul(op.Exp(op.Neg(op.Mul(x, x))), scaled_erfc(op, x))


def ndtr(op, x):
    """The normal distribution's probability of a value below x, as eager computes it: no digit is left far below 0."""
    return op.Mul(op.Add(op.Erf(op.Mul(x, math.sqrt(0.5))), 1.0), 0.5)


float_function(ndtr, aten.special_ndtr.default)


@special(aten.special_log_ndtr.default)
def log_ndtr(op, x):
    """The logarithm of `ndtr`, from the logarithm of the tail below -1."""
    low = op.Less(x, -1.0)
    t = op.Mul(x, math.sqrt(0.5))
    tail = op.Sub(op.Log(op.Mul(scaled_erfc(op, op.Abs(t)), 0.5)), op.Mul(t, t))
    half = op.Mul(upper_tail(op, op.Abs(t)), 0.5)
    inside = op.Where(op.Less(x, 0.0), op.Sub(half, 1.0), op.Neg(half))
    return op.Where(low, tail, log1p(op, inside))


@special(aten.special_ndtri.default)
def ndtri(op, p):
    """The inverse of `ndtr`; NaN outside of [0, 1]."""
    upper = op.Greater(p, 0.5)
    return quantile(op, op.Sub(p, 0.5), op.Where(upper, op.Sub(1.0, p), p))


@special(aten.erfinv.default, aten.special_erfinv.default)
def erfinv(op, y):
    """The inverse of the error function; infinite at -1 and 1, NaN beyond."""
    tail = op.Mul(op.Sub(1.0, op.Abs(y)), 0.5)
    return op.Mul(quantile(op, op.Mul(y, 0.5), tail), math.sqrt(0.5))


def quantile(op, center: ir.Value, tail: ir.Value) -> ir.Value:
    """The quantile of the normal distribution from ``p - 1/2`` and from the smaller of p and ``1 - p``, as Cephes has it."""
    square = op.Mul(center, center)
    ratio = op.Div(horner(op, square, NDTRI_CENTER_P), horner(op, square, NDTRI_CENTER_Q))
    middle = op.Mul(op.Add(center, op.Mul(center, op.Mul(square, ratio))), math.sqrt(2 * math.pi))
    x = op.Sqrt(op.Mul(op.Log(tail), -2.0))
    z = op.Reciprocal(x)
    near = op.Div(horner(op, z, NDTRI_NEAR_P), horner(op, z, NDTRI_NEAR_Q))
    far = op.Div(horner(op, z, NDTRI_FAR_P), horner(op, z, NDTRI_FAR_Q))
    outer = op.Sub(op.Sub(x, op.Div(op.Log(x), x)), op.Mul(z, op.Where(op.Less(x, 8.0), near, far)))
    outer = op.Where(op.Equal(tail, 0.0), op.CastLike(math.inf, x), outer)
    outer = op.Where(op.Less(center, 0.0), op.Neg(outer), outer)
    return op.Where(op.Greater(tail, math.exp(-2)), middle, outer)


# ---- products with logarithms


def entr(op, x):
    """``-x log(x)``; zero at zero, -inf below."""
    inside = op.Neg(op.Mul(x, op.Log(x)))
    result = op.Where(op.Equal(x, 0.0), op.CastLike(0, x), inside)
    return op.Where(op.Less(x, 0.0), op.CastLike(-math.inf, x), result)


float_function(entr, aten.special_entr.default)
