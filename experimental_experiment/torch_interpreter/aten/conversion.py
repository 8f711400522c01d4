"""Conversion: to, type_as, clone, contiguous, detach, copy, fill: the same elements in another dtype, or others in their place.

Source of semantics: https://pytorch.org/docs/stable/generated/torch.Tensor.to.html; casts of ONNX Cast-19 agree with torch's.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.shaping import expanded
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates, writes_through
from experimental_experiment.torch_interpreter.sizes import sizes_of

aten = torch.ops.aten


@translates(
    aten.alias.default,
    aten.alias_copy.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.detach_copy.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
)
def alias(op, self):
    """The tensor itself: values do not change, a copy needs no node."""
    return self


@translates(aten.clone.default)
def clone(op, self):
    """The tensor itself: values do not change, a copy needs no node."""
    return self


@translates(aten.copy.default)
def copy(op, self, src):
    """The elements of *src*, in the dtype and with the sizes of *self*."""
    return expanded(op, converted(op, src, dtypes.torch_dtype(self.dtype)), sizes_of(op, self))


@translates(aten.fill.Scalar, aten.fill.Tensor)
def fill(op, self, value):
    """One value everywhere."""
    if isinstance(value, ir.Value) and rank(value):
        value = op.Squeeze(value)
    return expanded(op, scalar(op, value, self.dtype), sizes_of(op, self))


@translates(aten.zero.default)
def zero(op, self):
    """Zero everywhere."""
    return fill(op, self, 0)


@translates(aten.to.dtype, aten.to.device, aten.to.dtype_layout, aten.to.prim_Device)
def to(op, self, dtype, copy):
    """Another dtype; values do not change, a copy needs no node."""
    return converted(op, self, dtype)


@translates(aten._to_copy.default, aten.to_dense.default)
def to_copy(op, self, dtype):
    """Another dtype; a tensor that ONNX has is dense."""
    return converted(op, self, dtype)


@translates(aten.to.other)
def to_other(op, self, other, copy):
    """The dtype of another tensor."""
    return op.Cast(self, to=other.dtype)


@translates(aten.type_as.default)
def type_as(op, self, other):
    """The dtype of another tensor."""
    return op.Cast(self, to=other.dtype)


UNCHANGED = (
    aten.alias.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.lift_fresh.default,
    aten.positive.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
    aten.to.device,
    aten.to.dtype,
    aten.to.dtype_layout,
    aten.to_dense.default,
)
"""Views, or copies, with the elements of their base, real or complex."""


@writes_through(*UNCHANGED, aten._to_copy.default, aten.to.other, aten.to.prim_Device, aten.type_as.default)
def put_alias(op, base, new):
    """The new elements: what shares its memory has its dtype."""
    return new


@translates(aten.view.dtype, aten.view_copy.dtype)
def view_dtype(op, self, dtype):
    """The same bits read as another dtype of the same width."""
    return same_bits(op, self, dtypes.onnx_dtype(dtype))


# ---- helpers that other families share


def same_bits(op, x: ir.Value, to: ir.DataType) -> ir.Value:
    """The bits of *x* read as another dtype of the same width; integers of one width are a cast apart."""
    if to.itemsize != x.dtype.itemsize:
        raise Untranslatable(f"a view of {x.dtype.name} as {to.name}, which has another width")
    if x.dtype == to or not (x.dtype.is_floating_point() or to.is_floating_point() or to == ir.DataType.BOOL):
        return op.Cast(x, to=to)
    return op.BitCast(x, to=to)


def converted(op, x: ir.Value, dtype: torch.dtype | None) -> ir.Value:
    """*x* in a torch dtype; a real tensor becomes complex with a zero imaginary part."""
    if dtype is None:
        return x
    real = op.Cast(x, to=dtypes.onnx_dtype(dtype))
    if not dtype.is_complex:
        return real
    real = op.Unsqueeze(real, [-1])
    return op.Concat(real, op.Mul(real, 0), axis=-1)


def scalar(op, value: ir.Value | int | float | bool, dtype: ir.DataType) -> ir.Value:
    """A number, symbolic or not, or a tensor, as torch stores it in *dtype*."""
    if isinstance(value, ir.Value):
        return op.Cast(value, to=dtype)
    return op.constant(number_of(value, dtype), dtype)


def number_of(value: int | float | bool, dtype: ir.DataType) -> int | float | bool:
    """A Python number as torch stores it in *dtype*: truncated, and wrapped when it does not fit."""
    if isinstance(value, complex):
        value = value.real
    return torch.empty((), dtype=dtypes.torch_dtype(dtype)).fill_(value).item()
