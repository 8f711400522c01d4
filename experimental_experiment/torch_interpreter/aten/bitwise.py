"""Bitwise operators and shifts, of integers and booleans; the hash of a tensor.

Source of semantics: torch.bitwise_and and its kin; Python's ``&``, ``|``, ``^``, ``<<``, ``>>`` on tensors are the same,
and ``&=`` to ``>>=``, whose names have no functional twin, write what these give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.division import floored_quotient
from experimental_experiment.torch_interpreter.aten.floating_point import bits_of
from experimental_experiment.torch_interpreter.aten.reduction import axes_of, count
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.promotion import cast, promote, result_dtype
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
BOOL, INT64, UINT64 = ir.DataType.BOOL, ir.DataType.INT64, ir.DataType.UINT64
DOUBLE = ir.DataType.DOUBLE


def bitwise(op_type: str, of_booleans: str, *targets: torch._ops.OpOverload) -> None:
    """Register a bitwise operator, which on booleans is the logical one."""

    def translation(op, self, other):
        self, other = promote(op, self, other)
        return op.emit(of_booleans if self.dtype == BOOL else op_type, (self, other))

    translation.__name__ = op_type.lower()
    translation.__doc__ = f"ONNX {op_type}, or {of_booleans} of booleans."
    translates(*targets)(translation)


bitwise(
    "BitwiseAnd",
    "And",
    aten.bitwise_and.Tensor,
    aten.bitwise_and.Scalar,
    aten.bitwise_and.Scalar_Tensor,
    aten.__and__.Tensor,
    aten.__and__.Scalar,
    aten.__iand__.Tensor,
    aten.__iand__.Scalar,
)
bitwise(
    "BitwiseOr",
    "Or",
    aten.bitwise_or.Tensor,
    aten.bitwise_or.Scalar,
    aten.bitwise_or.Scalar_Tensor,
    aten.__or__.Tensor,
    aten.__or__.Scalar,
    aten.__ior__.Tensor,
    aten.__ior__.Scalar,
)
bitwise(
    "BitwiseXor",
    "Xor",
    aten.bitwise_xor.Tensor,
    aten.bitwise_xor.Scalar,
    aten.bitwise_xor.Scalar_Tensor,
    aten.__xor__.Tensor,
    aten.__xor__.Scalar,
    aten.__ixor__.Tensor,
    aten.__ixor__.Scalar,
)


@translates(aten.bitwise_not.default)
def bitwise_not(op, self):
    """Every bit flipped."""
    return op.Not(self) if self.dtype == BOOL else op.BitwiseNot(self)


@translates(
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_left_shift.Scalar_Tensor,
    aten.__lshift__.Tensor,
    aten.__lshift__.Scalar,
    aten.__ilshift__.Tensor,
    aten.__ilshift__.Scalar,
)
def left_shift(op, self, other):
    """``self << other``; 0 when the shift is negative or not less than the number of bits; a product by a number."""
    dtype = result_dtype(self, other)
    bits = dtype.bitwidth
    self = cast(op, self, dtype)
    if not isinstance(other, ir.Value):
        return op.Mul(self, op.constant(1 << other if 0 <= other < bits else 0, dtype))
    count = places(op, other, dtype)
    # C++ leaves a shift by 64 undefined: its result is not read
    shifted = shift(op, self, count, "LEFT")
    if is_known(count, lambda array: array < bits):
        return shifted
    return op.Where(op.Less(count, bits), shifted, op.constant(0, dtype))


@translates(
    aten.bitwise_right_shift.Tensor,
    aten.bitwise_right_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Scalar_Tensor,
    aten.__rshift__.Tensor,
    aten.__rshift__.Scalar,
    aten.__irshift__.Tensor,
    aten.__irshift__.Scalar,
)
def right_shift(op, self, other):
    """``self >> other``, which keeps the sign; the sign alone when the shift is negative or too large.

    Up to 32 bits are shifted in 64, where those above them are copies of the sign. A number divides 64 bits: what is left without the
    remainder by a power of two is never outside of int64.
    """
    dtype = result_dtype(self, other)
    held = self.dtype if isinstance(self, ir.Value) and self.dtype != BOOL else dtype
    self = cast(op, self, held)
    if not isinstance(other, ir.Value) and other == 0:
        return op.Cast(self, to=dtype)
    if held.itemsize < 8:
        count = at_most(op, places(op, other, dtype), 32)
        return op.Cast(shift(op, self, count, "RIGHT"), to=dtype)
    if not isinstance(other, ir.Value) and 0 <= other < 63:
        return floored_quotient(op, self, op.constant(1 << other, dtype))
    count = at_most(op, places(op, other, dtype), 63)
    if not dtype.is_signed():
        return shift(op, self, count, "RIGHT")
    # a logical shift of the flipped bits fills with zeros, which flip back to ones
    negative = op.Less(self, 0)
    shifted = shift(op, op.Where(negative, op.BitwiseNot(self), self), count, "RIGHT")
    return op.Where(negative, op.BitwiseNot(shifted), shifted)


def places(op, other: Any, dtype: ir.DataType) -> ir.Value:
    """By how many places a shift moves in *dtype*, as UINT64, in which a negative number is beyond all bits."""
    count = op.Cast(cast(op, other, dtype), to=INT64)
    if is_small(count):
        return op.constant(count.const_value.numpy().view(np.uint64), UINT64)
    return op.Cast(count, to=UINT64)


def at_most(op, count: ir.Value, limit: int) -> ir.Value:
    """The smaller one of each number of places and *limit*."""
    if is_small(count):
        return op.constant(np.minimum(count.const_value.numpy(), np.uint64(limit)), UINT64)
    return op.Min(count, limit)


def is_known(count: ir.Value, condition: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether numbers of places are constants that all fulfil a condition."""
    return is_small(count) and bool(condition(count.const_value.numpy()).all())


def shift(op, self: ir.Value, count: ir.Value, direction: str) -> ir.Value:
    """BitShift, of unsigned integers by known places as they are, of others through UINT64: ONNX shifts unsigned integers alone.

    The casts keep the low bits.
    """
    bits = self.dtype.bitwidth
    if not self.dtype.is_signed() and is_known(count, lambda array: array < bits):
        few = op.constant(count.const_value.numpy().astype(self.dtype.numpy()), self.dtype)
        return op.BitShift(self, few, direction=direction)
    wide = op.Cast(op.Cast(self, to=INT64), to=UINT64)
    return op.Cast(op.BitShift(wide, count, direction=direction), to=self.dtype)


@translates(aten.hash_tensor.default)
def hash_tensor(op, self, dim, keepdim):
    """The exclusive or, over some axes, of the bits of integers as int64 and of floats as float64."""
    is_float = self.dtype.is_floating_point()
    bits = bits_of(op, op.Cast(self, to=DOUBLE)) if is_float else op.Cast(self, to=INT64)
    axes = axes_of(self, dim)
    kept = [axis for axis in range(rank(self)) if axis not in axes]
    length = count(op, self, axes)
    shape = op.shape([*(op.size(self, axis) for axis in kept), length])
    rows = op.Reshape(op.Transpose(bits, perm=kept + axes), shape)
    result = op.Cast(folded(op, rows, length), to=UINT64)
    return op.Unsqueeze(result, axes) if keepdim else result


def folded(op, x: ir.Value, length: int) -> ir.Value:
    """The exclusive or of the elements along the last axis: the first half with the second, until one is left."""
    last = rank(x) - 1
    while length > 1:
        half = length // 2
        pair = op.BitwiseXor(op.Slice(x, [0], [half], [last]), op.Slice(x, [half], [2 * half], [last]))
        x = op.Concat(pair, op.Slice(x, [2 * half], [length], [last]), axis=last) if length % 2 else pair
        length -= half
    return op.Squeeze(x, [last])
