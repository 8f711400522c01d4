"""Comparison: eq to ge, logical operators, maximum, clamp, isnan and their kin.

Source of semantics: https://pytorch.org/docs/stable/torch.html#comparison-ops. NaN spreads through maximum, minimum and clamp.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.reduction import any_dim
from experimental_experiment.torch_interpreter.promotion import (
    promote,
    promote_to_float,
    result_dtype,
    rounded_operands,
)
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import is_static

aten = torch.ops.aten
BOOL = ir.DataType.BOOL


def compares(op_type: str, *targets: torch._ops.OpOverload) -> None:
    """Register a comparison that ONNX has."""

    def translation(op, self, other):
        return op.emit(op_type, rounded_operands(op, result_dtype(self, other), self, other))

    translation.__name__ = op_type.lower()
    translation.__doc__ = f"ONNX {op_type} of the promoted operands."
    translates(*targets)(translation)


compares("Equal", aten.eq.Tensor, aten.eq.Scalar)
compares("Greater", aten.gt.Tensor, aten.gt.Scalar, aten.greater.Tensor, aten.greater.Scalar)
compares(
    "GreaterOrEqual", aten.ge.Tensor, aten.ge.Scalar, aten.greater_equal.Tensor, aten.greater_equal.Scalar
)
compares("Less", aten.lt.Tensor, aten.lt.Scalar, aten.less.Tensor, aten.less.Scalar)
compares("LessOrEqual", aten.le.Tensor, aten.le.Scalar, aten.less_equal.Tensor, aten.less_equal.Scalar)


@translates(aten.ne.Tensor, aten.ne.Scalar, aten.not_equal.Tensor, aten.not_equal.Scalar)
def ne(op, self, other):
    """``self != other``, true for NaN."""
    return op.Not(op.Equal(*rounded_operands(op, result_dtype(self, other), self, other)))


# ---- logical operators


def connects(op_type: str, target: torch._ops.OpOverload) -> None:
    """Register a logical operator: anything but zero is true."""

    def translation(op, self, other):
        return op.emit(op_type, (truth(op, self), truth(op, other)))

    translation.__name__ = op_type.lower()
    translation.__doc__ = f"ONNX {op_type} of the operands as booleans."
    translates(target)(translation)


connects("And", aten.logical_and.default)
connects("Or", aten.logical_or.default)
connects("Xor", aten.logical_xor.default)


@translates(aten.logical_not.default)
def logical_not(op, self):
    """Whether the elements are zero."""
    return op.Not(truth(op, self))


def truth(op, value: ir.Value) -> ir.Value:
    """A value as booleans: NaN is true."""
    return op.Cast(value, to=BOOL)


# ---- the larger, the smaller


@translates(aten.maximum.default, aten.max.other)
def maximum(op, self, other):
    """The larger of two elements, NaN when one is."""
    return extreme(op, "Max", "Or", self, other)


@translates(aten.minimum.default, aten.min.other)
def minimum(op, self, other):
    """The smaller of two elements, NaN when one is."""
    return extreme(op, "Min", "And", self, other)


def extreme(op, op_type: str, of_booleans: str, self: Any, other: Any) -> ir.Value:
    """Max or Min of two operands, a logical operator for booleans."""
    self, other = promote(op, self, other)
    return op.emit(of_booleans if self.dtype == BOOL else op_type, (self, other))


@translates(aten.fmax.default)
def fmax(op, self, other):
    """The larger of two elements, the other one when one is NaN."""
    return without_nan(op, maximum, self, other)


@translates(aten.fmin.default)
def fmin(op, self, other):
    """The smaller of two elements, the other one when one is NaN."""
    return without_nan(op, minimum, self, other)


def without_nan(op, function, self: Any, other: Any) -> ir.Value:
    """maximum or minimum of the elements that are numbers."""
    self, other = promote(op, self, other)
    chosen = function(op, self, other)
    if not self.dtype.is_floating_point():
        return chosen
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, chosen))


@translates(aten.clamp.default, aten.clamp.Tensor, aten.clip.default, aten.clip.Tensor)
def clamp(op, self, min, max):
    """At least *min*, then at most *max*; NaN stays, and an infinity where there is no bound."""
    self, min, max = promote(op, self, min, max)
    if self.dtype != BOOL and all(bound is None or is_finite_number(bound) for bound in (min, max)):
        return op.Clip(self, min, max)
    if min is not None:
        self = maximum(op, self, min)
    return self if max is None else minimum(op, self, max)


def is_finite_number(value: ir.Value) -> bool:
    """Whether a value is a finite 0-d constant, which ONNX Clip takes."""
    if value.const_value is None or value.const_value.size != 1 or len(value.shape):
        return False
    return math.isfinite(value.const_value.numpy().item())


@translates(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(op, self, min):
    """At least *min*."""
    return clamp(op, self, min, None)


@translates(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(op, self, max):
    """At most *max*."""
    return clamp(op, self, None, max)


@translates(aten.heaviside.default)
def heaviside(op, self, values):
    """0 for negative elements and NaN, 1 for positive ones, *values* for zeros."""
    return op.Where(op.Equal(self, 0), values, op.Cast(op.Greater(self, 0), to=self.dtype))


# ---- what an element is


@translates(aten.isnan.default)
def isnan(op, self):
    """Whether the elements are NaN."""
    return op.IsNaN(self) if self.dtype.is_floating_point() else filled(op, self, False)


@translates(aten.isinf.default)
def isinf(op, self):
    """Whether the elements are infinite."""
    return infinite(op, self)


@translates(aten.isposinf.default)
def isposinf(op, self):
    """Whether the elements are plus infinity."""
    return infinite(op, self, detect_negative=0)


@translates(aten.isneginf.default)
def isneginf(op, self):
    """Whether the elements are minus infinity."""
    return infinite(op, self, detect_positive=0)


@translates(aten.isfinite.default)
def isfinite(op, self):
    """Whether the elements are neither infinite nor NaN."""
    return op.Less(op.Abs(self), math.inf) if self.dtype.is_floating_point() else filled(op, self, True)


@translates(aten.isreal.default)
def isreal(op, self):
    """Real elements are real."""
    return filled(op, self, True)


def infinite(op, self: ir.Value, **attributes: int) -> ir.Value:
    """IsInf of floats; no integer is infinite."""
    return op.IsInf(self, **attributes) if self.dtype.is_floating_point() else filled(op, self, False)


def filled(op, like: ir.Value, number: Any) -> ir.Value:
    """A number in the shape of a value."""
    return op.Expand(op.constant(number), op.shape_of(like))


@translates(aten.nan_to_num.default)
def nan_to_num(op, self, nan, posinf, neginf):
    """Numbers for NaN (0) and the infinities (the largest numbers of the dtype)."""
    if not self.dtype.is_floating_point():
        return self
    limits = torch.finfo(dtypes.torch_dtype(self.dtype))
    posinf = limits.max if posinf is None else posinf
    neginf = limits.min if neginf is None else neginf
    result = self
    if posinf == limits.max and neginf == limits.min:
        result = op.Clip(self, neginf, posinf)
    else:
        for detected, number in (("detect_negative", posinf), ("detect_positive", neginf)):
            found = op.IsInf(self, **{detected: 0})
            result = op.Where(found, op.constant(number, self.dtype), result)
    return op.Where(op.IsNaN(self), op.constant(nan or 0, self.dtype), result)


@translates(aten.isclose.default)
def isclose(op, self, other, rtol, atol, equal_nan):
    """``|self - other| <= atol + rtol * |other|``, integers as floats; equal infinities are close, NaN only when asked.

    Without tolerance what is equal is close: floats would round large integers to the same.
    """
    close = op.Equal(self, other)
    is_float = self.dtype.is_floating_point()
    if equal_nan and is_float:
        close = op.Or(close, op.And(op.IsNaN(self), op.IsNaN(other)))
    if is_static(rtol, atol) and rtol == atol == 0:
        return close
    if not is_float:
        self, other = promote_to_float(op, self, other)
    gap = op.Abs(op.Sub(self, other))
    finite = torch.finfo(dtypes.torch_dtype(gap.dtype)).max
    allowed = op.Min(op.Add(op.Abs(op.Mul(other, rtol)), atol), finite)
    return op.Or(close, op.LessOrEqual(gap, allowed))


@translates(aten.isin.Tensor_Tensor)
def isin_tensor(op, elements, test_elements, invert):
    """Whether the elements are among the tested ones."""
    return is_among(op, elements, test_elements, invert)


@translates(aten.isin.Tensor_Scalar)
def isin_scalar(op, elements, test_element, invert):
    """Whether the elements are equal to a number."""
    return is_among(op, elements, test_element, invert)


@translates(aten.isin.Scalar_Tensor)
def isin_of_scalar(op, element, test_elements, invert):
    """Whether a number is among the tested elements."""
    return is_among(op, element, test_elements, invert)


def is_among(op, elements: Any, test_elements: Any, invert: bool) -> ir.Value:
    """Whether any of the tested elements is equal to each element: none of an empty list."""
    elements, test_elements = promote(op, elements, test_elements)
    equal = op.Equal(op.Unsqueeze(elements, [-1]), op.Reshape(test_elements, [-1]))
    found = any_dim(op, equal, [-1], False)
    return op.Not(found) if invert else found
