"""Exponentials, logarithms, roots, and what is made of them: logaddexp, logit, xlogy, xlog1py.

Source of semantics: https://pytorch.org/docs/stable/torch.html#pointwise-ops. Integers give float32. Sines to hyperbolic tangents
are in ``trigonometric``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.promotion import (
    cast,
    float_dtype,
    promote_to_float,
    result_dtype,
    rounded_once,
    rounded_operands,
    wide,
)
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
DOUBLE = ir.DataType.DOUBLE


def float_function(write: Callable | str, *targets: torch._ops.OpOverload) -> None:
    """Register a function of one float: an ONNX operator, or what *write* writes for ``(op, x)``."""

    def translation(op, self):
        (x,) = promote_to_float(op, self)
        return op.emit(write, (x,)) if isinstance(write, str) else rounded_once(write)(op, x)

    translation.__name__ = write if isinstance(write, str) else write.__name__
    translation.__doc__ = f"ONNX {write}." if isinstance(write, str) else write.__doc__
    translates(*targets)(translation)


# ---- exponentials and logarithms


def rsqrt(op, x):
    """``1 / sqrt(x)``."""
    return op.Reciprocal(op.Sqrt(x))


def exp2(op, x):
    """``2 ** x``."""
    return op.Pow(op.constant(2, x.dtype), x)


def expm1(op, x):
    """``u - 1`` with ``u = exp(x)``, plus what u has lost by its rounding, ``x - log(u)``, which counts around 1 only."""
    u = op.Exp(x)
    near = op.Clip(x, -math.log(2), math.log(2))
    lost = op.Sub(near, op.Log(op.Clip(u, 0.5, 2.0)))
    return op.Add(op.Sub(u, 1.0), lost)


def log1p(op, x):
    """``log(1 + x)``, less what the sum has gained by its rounding, which counts below 1 only."""
    near = op.Min(x, 1.0)
    gained = op.Sub(op.Sub(op.Add(near, 1.0), 1.0), near)
    return op.Sub(op.Log(op.Add(x, 1.0)), gained)


def log_in_base(base: float) -> Callable:
    """The logarithm in a base: the natural one, scaled; where it is cut, that of a power of the base is whole, as in eager."""

    def scaled(op, x):
        return op.Mul(op.Log(x), 1 / math.log(base))

    def log(op, x):
        """``log(x) / log(base)``."""
        if not is_cut(op.context.node):
            return scaled(op, x)
        if x.dtype != DOUBLE:
            return op.Cast(scaled(op, op.Cast(x, to=DOUBLE)), to=x.dtype)
        found = scaled(op, x)
        whole = op.Round(found)
        return op.Where(op.Equal(op.Pow(op.constant(base, DOUBLE), whole), x), whole, found)

    return log


CUTS = frozenset("ceil eq fix floor floor_divide fmod frac ge gt le lt ne remainder sign trunc".split())
"""Operators whose results jump at whole numbers: the last bit of an operand decides between two of them, or between true and false."""

KEEPS = frozenset(
    "_to_copy abs add clamp clamp_max clamp_min clip clone contiguous div maximum minimum mul neg relu reshape rsub sub to view where".split()
)
"""Operators that hand the last bits of a number on, as offsets, bounds and movements before a cut do."""


ASKED = 24
"""How many operators behind a result are asked whether they cut it."""


def is_cut(node: torch.fx.Node) -> bool:
    """Whether the program makes whole numbers or conditions of a result, as in ``log2(x).floor()`` and ``(log2(x) + 4).long()``."""
    behind, asked = [node], 0
    while behind and asked < ASKED:
        for user in itertools.islice(behind.pop(0).users, ASKED - asked):
            asked += 1
            if not isinstance(user.target, torch._ops.OpOverload):
                continue
            name, result = user.target._opname.removesuffix("_"), user.meta.get("val")
            is_whole = isinstance(result, torch.Tensor) and not result.dtype.is_floating_point
            if name in CUTS or (name in KEEPS and is_whole):
                return True
            if name in KEEPS:
                behind.append(user)
    return False


float_function("Exp", aten.exp.default)
float_function(exp2, aten.exp2.default)
float_function(expm1, aten.expm1.default)
float_function("Log", aten.log.default)
float_function(log_in_base(10), aten.log10.default)
float_function(log1p, aten.log1p.default)
float_function(log_in_base(2), aten.log2.default)
float_function(rsqrt, aten.rsqrt.default)
float_function("Sqrt", aten.sqrt.default)


@translates(aten.logaddexp.default)
def logaddexp(op, self, other):
    """``log(exp(self) + exp(other))`` without overflow."""
    return log_of_sum(op, self, other, 1.0)


@translates(aten.logaddexp2.default)
def logaddexp2(op, self, other):
    """``log2(2 ** self + 2 ** other)`` without overflow."""
    return log_of_sum(op, self, other, math.log(2))


def log_of_sum(op, self: ir.Value, other: ir.Value, scale: float) -> ir.Value:
    """The larger one, plus ``log(1 + exp(gap))`` in a base; two equal infinities have no gap."""
    dtype = result_dtype(self, other)
    self, other = (cast(op, cast(op, x, dtype), wide(dtype)) for x in (self, other))
    low, high = op.Min(self, other), op.Max(self, other)
    gap = op.Where(op.Equal(low, high), op.constant(0, self.dtype), op.Sub(low, high))
    excess = op.Softplus(op.Mul(gap, scale))
    return cast(op, op.Add(high, op.Div(excess, scale)), dtype)


@translates(aten.logit.default)
def logit(op, self, eps):
    """``log(x / (1 - x))``, x being first clamped between *eps* and ``1 - eps``: what is below *eps* is *eps*, also if that is larger."""
    (self,) = promote_to_float(op, self)
    if eps is not None and eps > 0.5:
        self = op.Where(op.Less(self, eps), eps, op.Min(self, 1.0 - eps))
    elif eps is not None and eps >= 0:
        self = op.Min(op.Max(self, float(eps)), 1.0 - eps)
    return log_odds(op, self)


@rounded_once
def log_odds(op, x: ir.Value) -> ir.Value:
    """``log(x / (1 - x))``."""
    return op.Log(op.Div(x, op.Sub(1.0, x)))


@translates(aten.xlogy.Tensor, aten.xlogy.Scalar_Other, aten.xlogy.Scalar_Self)
def xlogy(op, self, other):
    """``self * log(other)``, 0 where *self* is 0, but NaN where *other* is."""
    return times_logarithm(op, self, other, lambda x: op.Log(x))


@translates(aten.special_xlog1py.default, aten.special_xlog1py.other_scalar, aten.special_xlog1py.self_scalar)
def xlog1py(op, self, other):
    """``self * log(1 + other)``, 0 where *self* is 0, but NaN where *other* is."""
    return times_logarithm(op, self, other, lambda x: log1p(op, x))


def times_logarithm(op, self, other, logarithm: Callable) -> ir.Value:
    """``self * logarithm(other)``, 0 where *self* is 0, but NaN where *other* is."""
    dtype = float_dtype(self, other)
    self, other = rounded_operands(op, dtype, self, other)
    nothing = op.Min(op.Abs(other), 0.0)  # 0, or NaN
    return cast(op, op.Where(op.Equal(self, 0.0), nothing, op.Mul(self, logarithm(other))), dtype)
