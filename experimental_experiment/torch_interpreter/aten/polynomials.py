"""Orthogonal polynomials of a degree that is a tensor: Chebyshev, Hermite, Laguerre, Legendre.

A Loop over the largest degree in which each element stops at its own, in the dtype of the result as torch computes it.
Source of semantics: https://pytorch.org/docs/stable/special.html and the recurrences of ATen/native/Math.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.promotion import cast, promote_to_float, wide
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten

HERMITE_LIMITS = {ir.DataType.FLOAT: 128, ir.DataType.DOUBLE: 512}
"""The degrees above which torch gives NaN."""


def polynomial(
    packet: torch._ops.OpOverloadPacket, first: Callable, following: Callable, limited: bool = False
) -> None:
    """Register the overloads of a polynomial.

    ``first(op, x)`` is the one of degree 1, ``following(op, k, x, current, previous)`` the one of degree k + 1; above the
    limits of `HERMITE_LIMITS` a *limited* polynomial is NaN.
    """

    @translates(packet.default, packet.n_scalar, packet.x_scalar)
    def translation(op, x, n):
        """The polynomial of degree n, 0 for a negative degree."""
        x, n = promote_to_float(op, x, n)
        dtype, inner = x.dtype, wide(x.dtype)
        x, n = cast(op, x, inner), cast(op, n, ir.DataType.INT64)
        x, n = op.Expand(x, op.shape_of(n)), op.Expand(n, op.shape_of(x))
        one = op.Expand(op.constant(1, inner), op.shape_of(x))

        def step(op, k, go, current, previous):
            k = op.Add(k, 1)
            more = op.Less(k, n)
            new = following(op, op.Cast(k, to=inner), x, current, previous)
            return [go, op.Where(more, new, current), op.Where(more, current, previous)]

        body = op.subgraph(step, [op.constant(0), op.constant(True), one, one])
        degree = op.ReduceMax(op.Concat(op.Reshape(n, [-1]), [1], axis=0), keepdims=0)
        value, _ = op.Loop(op.Sub(degree, 1), True, first(op, x), one, body=body, outputs=2)
        if limited:
            value = op.Where(op.Greater(n, HERMITE_LIMITS[inner]), op.constant(math.nan, inner), value)
        value = op.Where(op.Equal(n, 0), one, op.Where(op.Less(n, 0), op.constant(0, inner), value))
        return cast(op, value, dtype)

    translation.__name__ = packet.__name__


def doubled(op, x):
    """2 x."""
    return op.Add(x, x)


def plus(number: float) -> Callable:
    """The polynomial ``2 x + number``."""
    return lambda op, x: op.Add(doubled(op, x), number)


def chebyshev(op, k, x, current, previous):
    """``2 x P_k - P_(k - 1)``."""
    return op.Sub(op.Mul(doubled(op, x), current), previous)


def hermite(op, k, x, current, previous):
    """``2 x P_k - 2 k P_(k - 1)``."""
    return op.Sub(op.Mul(doubled(op, x), current), op.Mul(doubled(op, k), previous))


def hermite_e(op, k, x, current, previous):
    """``x P_k - k P_(k - 1)``."""
    return op.Sub(op.Mul(x, current), op.Mul(k, previous))


def laguerre(op, k, x, current, previous):
    """``((2 k + 1 - x) P_k - k P_(k - 1)) / (k + 1)``."""
    factor = op.Add(doubled(op, k), op.Sub(op.CastLike(1, x), x))
    return op.Div(op.Sub(op.Mul(factor, current), op.Mul(k, previous)), op.Add(k, 1.0))


def legendre(op, k, x, current, previous):
    """``((2 k + 1) x P_k - k P_(k - 1)) / (k + 1)``."""
    factor = op.Mul(op.Add(doubled(op, k), 1.0), x)
    return op.Div(op.Sub(op.Mul(factor, current), op.Mul(k, previous)), op.Add(k, 1.0))


def itself(op, x):
    """x."""
    return x


def shifted(function: Callable) -> Callable:
    """A function of x, at ``2 x - 1``: x is the last of its arguments, or the third."""

    def at_shifted(op, *arguments):
        place = 0 if len(arguments) == 1 else 1
        x = op.Sub(doubled(op, arguments[place]), 1.0)
        return function(op, *arguments[:place], x, *arguments[place + 1 :])

    return at_shifted


polynomial(aten.special_chebyshev_polynomial_t, itself, chebyshev)
polynomial(aten.special_chebyshev_polynomial_u, doubled, chebyshev)
polynomial(aten.special_chebyshev_polynomial_v, plus(-1.0), chebyshev)
polynomial(aten.special_chebyshev_polynomial_w, plus(1.0), chebyshev)
polynomial(aten.special_hermite_polynomial_h, doubled, hermite, limited=True)
polynomial(aten.special_hermite_polynomial_he, itself, hermite_e, limited=True)
polynomial(aten.special_laguerre_polynomial_l, lambda op, x: op.Sub(op.CastLike(1, x), x), laguerre)
polynomial(aten.special_legendre_polynomial_p, itself, legendre)
polynomial(aten.special_shifted_chebyshev_polynomial_t, shifted(itself), shifted(chebyshev))
polynomial(aten.special_shifted_chebyshev_polynomial_u, shifted(doubled), shifted(chebyshev))
polynomial(aten.special_shifted_chebyshev_polynomial_v, shifted(plus(-1.0)), shifted(chebyshev))
polynomial(aten.special_shifted_chebyshev_polynomial_w, shifted(plus(1.0)), shifted(chebyshev))
