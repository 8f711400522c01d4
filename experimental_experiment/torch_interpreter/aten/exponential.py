"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions.

Source of semantics: https://pytorch.org/docs/stable/torch.html#pointwise-ops. Integers give float32. Where onnxruntime computes
float32 only, a float64 form is composed from operators that it has in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.promotion import promote_to_float
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
DOUBLE = ir.DataType.DOUBLE


def float_function(target: torch._ops.OpOverload, write: Callable | str) -> None:
    """Register a function of one float: an ONNX operator, or what *write* writes for ``(op, x)``."""

    def translation(op, self):
        (x,) = promote_to_float(op, self)
        return op.emit(write, (x,)) if isinstance(write, str) else write(op, x)

    translation.__name__ = write if isinstance(write, str) else write.__name__
    translation.__doc__ = f"ONNX {write}." if isinstance(write, str) else write.__doc__
    translates(target)(translation)


def in_float64(op_type: str, write: Callable) -> Callable:
    """The operator, except in float64 where onnxruntime lacks it and *write* composes it."""

    def choose(op, x):
        return write(op, x) if x.dtype == DOUBLE else op.emit(op_type, (x,))

    choose.__name__ = op_type.lower()
    choose.__doc__ = f"ONNX {op_type}; in float64, {write.__doc__}"
    return choose


# ---- exponentials and logarithms


def rsqrt(op, x):
    """``1 / sqrt(x)``."""
    return op.Reciprocal(op.Sqrt(x))


def exp2(op, x):
    """``2 ** x``."""
    return op.Pow(op.constant(2, x.dtype), x)


def expm1(op, x):
    """``exp(x) - 1``; near 0, where that loses digits, ``2 t / (1 - t)`` with ``t = tanh(x / 2)``."""
    t = op.Tanh(op.Mul(x, 0.5))
    near = op.Div(op.Mul(t, 2.0), op.Sub(1.0, t))
    return op.Where(op.Less(op.Abs(x), 0.5), near, op.Sub(op.Exp(x), 1.0))


def log1p(op, x):
    """``log(u)`` with ``u = 1 + x``, corrected by ``x / (u - 1)`` for the digits that u has lost (Kahan)."""
    u = op.Add(x, 1.0)
    kept = op.Sub(u, 1.0)
    log = op.Log(u)
    corrected = op.Where(op.Equal(kept, 0.0), x, op.Div(op.Mul(log, x), kept))
    return op.Where(op.Equal(kept, x), log, corrected)


def log_in_base(base: float) -> Callable:
    """The logarithm in a base: the natural one, scaled."""

    def log(op, x):
        """``log(x) / log(base)``."""
        return op.Mul(op.Log(x), 1 / math.log(base))

    return log


def erfc(op, x):
    """``1 - erf(x)``."""
    return op.Sub(1.0, op.Erf(x))


float_function(aten.erf.default, "Erf")
float_function(aten.erfc.default, erfc)
float_function(aten.exp.default, "Exp")
float_function(aten.exp2.default, exp2)
float_function(aten.expm1.default, expm1)
float_function(aten.log.default, "Log")
float_function(aten.log10.default, log_in_base(10))
float_function(aten.log1p.default, log1p)
float_function(aten.log2.default, log_in_base(2))
float_function(aten.rsqrt.default, rsqrt)
float_function(aten.sqrt.default, "Sqrt")


# ---- trigonometric and hyperbolic functions


def tan(op, x):
    """``sin(x) / cos(x)``."""
    return op.Div(op.Sin(x), op.Cos(x))


float_function(aten.cos.default, "Cos")
float_function(aten.sin.default, "Sin")
float_function(aten.tan.default, in_float64("Tan", tan))
float_function(aten.tanh.default, "Tanh")
