"""Division: rounded quotients, remainders, gcd and lcm.

Source of semantics: torch.div, torch.floor_divide, torch.remainder and torch.fmod. ONNX integer Div truncates, torch floors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.arithmetic import div
from experimental_experiment.torch_interpreter.aten.rounding import trunc
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.promotion import cast, kind, promote, result_dtype, wide
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64


@translates(
    aten.div.Tensor_mode,
    aten.div.Scalar_mode,
    aten.divide.Tensor_mode,
    aten.divide.Scalar_mode,
)
def div_mode(op, self, other, rounding_mode):
    """A quotient that is exact, truncated towards zero or floored."""
    if rounding_mode is None:
        return div(op, self, other)
    if rounding_mode == "trunc":
        return truncated_quotient(op, self, other)
    return floor_divide(op, self, other)


@translates(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(op, self, other):
    """The quotient rounded towards minus infinity; a number beside a float16 tensor keeps its digits."""
    dtype = result_dtype(self, other)
    self = cast(op, cast(op, self, dtype), wide(dtype))
    return cast(op, floored_quotient(op, self, cast(op, other, wide(dtype))), dtype)


@translates(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def remainder(op, self, other):
    """What a floored division leaves: it has the sign of *other*."""
    return rounded(op, self, other, floored_remainder)


@translates(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(op, self, other):
    """What a truncated division leaves: it has the sign of *self*."""
    return rounded(op, self, other, truncated_remainder)


def rounded(op, self: Any, other: Any, function) -> ir.Value:
    """*function* of the promoted operands, float16 in float32."""
    dtype = result_dtype(self, other)
    operands = [cast(op, cast(op, x, dtype), wide(dtype)) for x in (self, other)]
    return cast(op, function(op, *operands), dtype)


def truncated_quotient(op, self: Any, other: Any) -> ir.Value:
    """The quotient without its fraction; torch rounds a quotient of float16 before it truncates, but that by a number."""
    dtype = result_dtype(self, other)
    quotient = op.Div(cast(op, cast(op, self, dtype), wide(dtype)), cast(op, other, wide(dtype)))
    if kind(other)[1] == "tensor":
        quotient = op.Cast(quotient, to=dtype)
    return op.Cast(trunc(op, op.Cast(quotient, to=wide(dtype))), to=dtype)


def floored_quotient(op, a: ir.Value, b: ir.Value) -> ir.Value:
    """The floor of the exact quotient: ``1 // 0.1`` is 9 although ``1 / 0.1`` rounds to 10; ``a / b`` when b is 0."""
    if not a.dtype.is_signed():
        return op.Div(a, b)
    if not a.dtype.is_floating_point():
        return floored_integer_quotient(op, a, b)
    if divides_exactly(b) and not op.context.special_values:
        return op.Floor(op.Div(a, b))
    left = truncated_remainder(op, a, b)
    exact = op.Div(op.Sub(a, left), b)
    floored = op.Round(op.Sub(exact, op.Cast(has_other_sign(op, left, b), to=a.dtype)))
    return floored if all_hold(b, np.all) else op.Where(op.Equal(b, 0), op.Div(a, b), floored)


def floored_integer_quotient(op, a: ir.Value, b: ir.Value) -> ir.Value:
    """The quotient of what is left without the remainder: a multiple of b, which int64 may lack next to its ends."""
    dtype = a.dtype
    if dtype == INT64 and op.context.special_values:
        quotient = op.Div(a, b)
        crosses = op.Not(op.Equal(op.Mod(a, b), op.Sub(a, op.Mul(quotient, b))))
        return op.Sub(quotient, op.Cast(crosses, to=dtype))
    a, b = cast(op, a, INT64), cast(op, b, INT64)
    return op.Cast(op.Div(op.Sub(a, op.Mod(a, b)), b), to=dtype)


def floored_remainder(op, a: ir.Value, b: ir.Value) -> ir.Value:
    """The exact remainder of a floored division; ONNX Mod has it for integers only."""
    if not a.dtype.is_floating_point():
        return op.Mod(a, b)
    is_exact = divides_exactly(b) and all_hold(b, lambda numbers: (abs(numbers) >= 1).all())
    if is_exact and not op.context.special_values:  # Mod takes four to six times as long
        return op.Sub(a, op.Mul(op.Floor(op.Div(a, b)), b))
    left = truncated_remainder(op, a, b)
    return op.Where(has_other_sign(op, left, b), op.Add(left, b), left)


def truncated_remainder(op, a: ir.Value, b: ir.Value) -> ir.Value:
    """The exact remainder of a truncated division."""
    return op.Mod(a, b, fmod=1)


def has_other_sign(op, left: ir.Value, b: ir.Value) -> ir.Value:
    """Whether a remainder is not zero and has not the sign of the divisor."""
    if all_hold(b, lambda numbers: (numbers > 0).all()):
        return op.Less(left, 0)
    if all_hold(b, lambda numbers: (numbers < 0).all()):
        return op.Greater(left, 0)
    return op.Less(op.Mul(op.Sign(left), b), 0)


def all_hold(value: ir.Value, condition: Callable) -> bool:
    """Whether a value is a small constant of which a condition holds."""
    return is_small(value) and bool(condition(value.const_value.numpy()))


def divides_exactly(value: ir.Value) -> bool:
    """Whether a value is a constant power of two, by which a division is exact but next to the ends of the range.

    torch gives NaN for infinity, which the quotient is not.
    """
    return all_hold(
        value,
        lambda numbers: (
            (np.abs(np.frexp(numbers)[0]) == 0.5).all() and (abs(np.log2(abs(numbers))) < 24).all()
        ),
    )


# ---- common divisors and multiples


@translates(aten.gcd.default)
def gcd(op, self, other):
    """The greatest common divisor."""
    return greatest_divisor(op, *promote(op, self, other))


@translates(aten.lcm.default)
def lcm(op, self, other):
    """The least common multiple, 0 when an operand is; C++ computes small integers in 32 bits."""
    self, other = promote(op, self, other)
    dtype = self.dtype
    divisor = greatest_divisor(op, self, other)
    divisor = op.Where(op.Equal(divisor, 0), op.constant(1, dtype), divisor)
    inside = ir.DataType.INT32 if dtype.itemsize < 4 else dtype
    multiple = op.Mul(op.Cast(op.Div(self, divisor), to=inside), op.Cast(other, to=inside))
    return op.Cast(op.Abs(multiple), to=dtype)


def greatest_divisor(op, a: ir.Value, b: ir.Value) -> ir.Value:
    """Euclid's algorithm on all elements at once; an integer division by 0 would end the process."""
    shape = op.Shape(op.Add(a, b))

    def some_left(inner, a):
        return inner.Greater(inner.ReduceSum(inner.Cast(inner.Cast(a, to=BOOL), to=INT64), keepdims=0), 0)

    def step(inner, iteration, go, a, b):
        done = inner.Equal(a, 0)
        left = truncated_remainder(inner, b, inner.Where(done, inner.constant(1, a.dtype), a))
        a, b = inner.Where(done, a, left), inner.Where(done, b, a)
        return [some_left(inner, a), a, b]

    carried = [op.Expand(op.Abs(x), shape) for x in (a, b)]
    body = op.subgraph(step, [op.constant(0), op.constant(True), *carried])
    divisor = op.Loop(None, some_left(op, carried[0]), *carried, body=body, outputs=2)[1]
    divisor.type, divisor.shape = a.type, ir.Shape([None] * max(rank(a), rank(b)))
    return divisor
