"""Rounding: floor, ceil, round, trunc, frac.

Source of semantics: https://pytorch.org/docs/stable/torch.html#pointwise-ops; ONNX Round and torch round half to even.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.promotion import rounded_once
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


def rounds(target: torch._ops.OpOverload, op_type: str) -> None:
    """Register a rounding that ONNX has: integers are round already."""

    def translation(op, self):
        return op.emit(op_type, (self,)) if self.dtype.is_floating_point() else self

    translation.__name__ = op_type.lower()
    translation.__doc__ = f"ONNX {op_type} of floats, the identity of integers."
    translates(target)(translation)


rounds(aten.ceil.default, "Ceil")
rounds(aten.floor.default, "Floor")
rounds(aten.round.default, "Round")


@translates(aten.trunc.default, aten.fix.default)
def trunc(op, self):
    """Towards zero: the floor of the magnitude, with the sign."""
    if not self.dtype.is_floating_point():
        return self
    return op.Mul(op.Sign(self), op.Floor(op.Abs(self)))


@translates(aten.frac.default)
def frac(op, self):
    """What truncation takes away; NaN for an infinity, as in torch. Mod takes three times as long in onnxruntime."""
    return op.Sub(self, trunc(op, self))


@translates(aten.round.decimals)
def round_decimals(op, self, decimals):
    """Round a multiple of a power of ten, as torch does: ties are those of the scaled number."""
    if not self.dtype.is_floating_point():
        return self
    return round_scaled(op, self, decimals) if decimals else op.Round(self)


@rounded_once
def round_scaled(op, x, decimals):
    """*x* times a power of ten, rounded, divided by it."""
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return op.Div(op.Round(op.Mul(x, scale)), scale)
    return op.Mul(op.Round(op.Div(x, scale)), scale)
