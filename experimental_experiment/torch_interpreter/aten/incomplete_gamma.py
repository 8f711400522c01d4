"""The regularized incomplete gamma functions P (igamma) and Q (igammac).

Computed in float64 whatever the dtype; of P and ``Q = 1 - P`` the one that does not cancel is computed: P by its power series, Q by
a continued fraction, the smaller one by Temme's expansion where a is large and x near it.
Source of semantics: https://dlmf.nist.gov/8.11 (series), 8.9 (continued fraction), 8.12 (Temme), and the edges of ATen/native/Math.h.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.exponential import log1p
from experimental_experiment.torch_interpreter.aten.special import horner, log_gamma, scaled_erfc
from experimental_experiment.torch_interpreter.promotion import cast, float_dtype, promote_to_float
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
DOUBLE = ir.DataType.DOUBLE
EPSILON = 2.0**-53
LARGE, NEAR = 200.0, 0.35
"""Temme's expansion is taken for a above LARGE and ``|x - a| < NEAR a``; elsewhere 150 terms of the others are enough."""


@translates(aten.igamma.default, aten.special_gammainc.default)
def igamma(op, self, other):
    """P: the integral of ``t^(a-1) exp(-t)`` from 0 to x over the one to infinity, a being *self* and x *other*."""
    a, x = (cast(op, value, DOUBLE) for value in promote_to_float(op, self, other))
    part, is_upper = smaller_part(op, a, x)
    inside = op.Where(is_upper, op.Sub(1.0, part), part)
    return cast(op, with_edges(op, a, x, inside, (0.0, 1.0)), float_dtype(self, other))


@translates(aten.igammac.default, aten.special_gammaincc.default)
def igammac(op, self, other):
    """Q: the integral of ``t^(a-1) exp(-t)`` from x to infinity over the one from 0, a being *self* and x *other*."""
    a, x = (cast(op, value, DOUBLE) for value in promote_to_float(op, self, other))
    part, is_upper = smaller_part(op, a, x)
    inside = op.Where(is_upper, part, op.Sub(1.0, part))
    return cast(op, with_edges(op, a, x, inside, (1.0, 0.0)), float_dtype(self, other))


def with_edges(op, a: ir.Value, x: ir.Value, inside: ir.Value, ends: tuple[float, float]) -> ir.Value:
    """Limits at 0 and infinity, *ends* being those at ``x = 0`` and at ``x = inf``; NaN below zero. ATen's order."""
    at_zero, at_infinity = (op.constant(end, DOUBLE) for end in ends)
    nan = op.constant(math.nan, DOUBLE)
    result = op.Where(op.IsInf(x), at_infinity, inside)
    result = op.Where(op.IsInf(a), op.Where(op.IsInf(x), nan, at_zero), result)
    result = op.Where(op.Equal(x, 0.0), at_zero, result)
    result = op.Where(op.Equal(a, 0.0), op.Where(op.Greater(x, 0.0), at_infinity, nan), result)
    return op.Where(op.Or(op.Less(x, 0.0), op.Less(a, 0.0)), nan, result)


def smaller_part(op, a: ir.Value, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """P or Q, and whether it is Q: never the one that cancels."""
    sigma = op.Div(op.Sub(x, a), a)
    is_near = op.And(op.Greater(a, LARGE), op.Less(op.Abs(sigma), NEAR))
    is_upper = op.And(op.Greater(x, a), op.Or(op.Greater(x, 1.1), is_near))
    zero, one = op.constant(0, DOUBLE), op.constant(1, DOUBLE)
    factor = op.Exp(op.Sub(op.Mul(a, op.Log(x)), op.Add(x, log_gamma(op, op.Add(a, 1.0)))))

    # where another formula holds, each one computes something that ends at once
    lower = power_series(op, a, op.Where(op.Or(is_upper, is_near), zero, x))
    elsewhere = op.Or(op.Not(is_upper), is_near)
    fraction = continued_fraction(op, op.Where(elsewhere, one, a), op.Where(elsewhere, op.Add(one, one), x))
    part = op.Mul(factor, op.Where(is_upper, op.Mul(fraction, a), lower))
    temme = expansion(op, op.Where(is_near, a, op.constant(LARGE, DOUBLE)), op.Where(is_near, sigma, zero))
    return op.Where(is_near, temme, part), is_upper


def until_stable(op, step: Callable, *carried: ir.Value) -> Sequence[ir.Value]:
    """``carried, moving = step(inner, k, *carried)`` as long as something is *moving*, 300 times at most."""

    def again(inner, k, go, *state):
        *state, moving = step(inner, k, *state)
        most = inner.ReduceMax(inner.Cast(inner.Reshape(moving, [-1]), to=ir.DataType.INT32), keepdims=0)
        return [inner.Cast(most, to=ir.DataType.BOOL), *state]

    body = op.subgraph(again, [op.constant(0), op.constant(True), *carried])
    return op.Loop(300, True, *carried, body=body, outputs=len(carried))


def power_series(op, a: ir.Value, x: ir.Value) -> ir.Value:
    """``1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ...``."""

    def step(op, k, term, total):
        term = op.Mul(term, op.Div(x, op.Add(a, op.Cast(op.Add(k, 1), to=DOUBLE))))
        total = op.Add(total, term)
        return term, total, op.Greater(term, op.Mul(total, EPSILON))

    start = op.Expand(op.constant(1, DOUBLE), op.Shape(op.Add(a, x)))
    return until_stable(op, step, start, start)[1]


def continued_fraction(op, a: ir.Value, x: ir.Value) -> ir.Value:
    """``1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...))`` by Lentz's recurrence."""
    gap = op.Add(op.Sub(x, a), 1.0)

    def step(op, k, above, below, total):
        k = op.Cast(op.Add(k, 1), to=DOUBLE)
        numerator, gap_k = op.Mul(k, op.Sub(a, k)), op.Add(gap, op.Mul(k, 2.0))
        below = op.Reciprocal(op.Add(op.Mul(numerator, below), gap_k))
        above = op.Add(gap_k, op.Div(numerator, above))
        change = op.Mul(above, below)
        moving = op.Greater(op.Abs(op.Sub(change, 1.0)), 2 * EPSILON)
        return above, below, op.Mul(total, change), moving

    first = op.Reciprocal(gap)
    endless = op.Expand(op.constant(1e300, DOUBLE), op.Shape(gap))
    return until_stable(op, step, endless, first, first)[2]


def expansion(op, a: ir.Value, sigma: ir.Value) -> ir.Value:
    """Temme's uniform expansion of the smaller one of P and Q, with ``x = a (1 + sigma)``: Q when sigma is positive."""
    half_square = op.Sub(sigma, log1p(op, sigma))
    side = op.Where(op.Greater(sigma, 0.0), op.constant(1, DOUBLE), op.constant(-1, DOUBLE))
    eta = op.Mul(side, op.Sqrt(op.Mul(half_square, 2.0)))
    total = op.constant(0, DOUBLE)
    for coefficients in reversed(temme_coefficients()):
        total = op.Add(op.Div(total, a), horner(op, eta, coefficients))
    square = op.Mul(a, half_square)
    rest = op.Div(op.Mul(side, total), op.Sqrt(op.Mul(a, 2 * math.pi)))
    return op.Mul(op.Exp(op.Neg(square)), op.Add(op.Mul(scaled_erfc(op, op.Sqrt(square)), 0.5), rest))


@functools.cache
def temme_coefficients(orders: int = 7, terms: int = 16) -> list[list[float]]:
    """Of eta, the highest power first, in the polynomial beside ``a^-k``: DLMF 8.12.11 to 8.12.13.

    ``alpha`` are the coefficients of mu in powers of eta, where ``eta^2 / 2 = mu - log(1 + mu)``; a row needs two powers more of the one before.
    """
    count = terms + 2 * orders
    alpha = [Fraction(0), Fraction(1)]
    for n in range(2, count + 3):
        product = sum((alpha[i] * alpha[n + 1 - i] for i in range(2, n)), Fraction(0))
        alpha.append(alpha[n - 1] / (n + 1) - product / 2)
    first = [2 * alpha[2] - 1, *((n + 2) * alpha[n + 2] for n in range(1, count))]
    rows, factor = [first], Fraction(1)
    for k in range(1, orders):
        factor *= -(2 * k + 1)
        stirling = factor * alpha[2 * k + 1]
        previous = rows[-1]
        rows.append([(n + 2) * previous[n + 2] + stirling * first[n] for n in range(count - 2 * k)])
    return [[float(value) for value in reversed(row[:terms])] for row in rows]
