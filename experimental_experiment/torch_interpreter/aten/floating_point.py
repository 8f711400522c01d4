"""Floats by their parts: sign bit, mantissa, exponent, the next number.

Source of semantics: torch.signbit, torch.copysign, torch.frexp, torch.ldexp, torch.nextafter. ONNX reads no bits before opset 26:
the parts are computed, exactly, from the value.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.arithmetic import mul, pow_
from experimental_experiment.torch_interpreter.aten.comparison import filled
from experimental_experiment.torch_interpreter.aten.exponential import exp2
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.promotion import (
    cast,
    promote,
    promote_to_float,
    wide,
)
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
INT64 = ir.DataType.INT64

PRECISIONS = {
    ir.DataType.FLOAT16: (11, -13, 16),
    ir.DataType.BFLOAT16: (8, -125, 128),
    ir.DataType.FLOAT: (24, -125, 128),
    ir.DataType.DOUBLE: (53, -1021, 1024),
}
"""Bits of the mantissa, smallest and largest exponent of a normal number whose mantissa is in [0.5, 1)."""


SUMS = frozenset({"ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"})
"""Operators whose zeros are never negative in torch, not even those of negative zeros: a comparison says all of their sign."""


@translates(aten.signbit.default)
def signbit(op, self):
    """Whether the sign bit is set: -0.0 counts. The sign of a NaN is not seen."""
    if self.dtype == ir.DataType.BOOL or not self.dtype.is_signed():
        return filled(op, self, False)
    if self.dtype.is_floating_point() and not is_sum(self):
        # the reciprocal of -0.0 is -inf, that of -inf is -0.0: one of both is below 0
        self = op.Min(self, op.Reciprocal(self))
    return op.Less(self, 0)


def is_sum(x: ir.Value) -> bool:
    """Whether a value comes from one of `SUMS`, in whatever dtype."""
    producer = producer_of(x)
    while producer is not None and producer.op_type == "Cast":
        producer = producer_of(producer.inputs[0])
    return producer is not None and producer.op_type in SUMS


@translates(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(op, self, other):
    """The magnitude of *self* with the sign of *other*; the sign of a NaN is not seen."""
    self, other = promote_to_float(op, self, other)
    return op.Mul(op.Abs(self), sign_of(op, other))


def sign_of(op, x: ir.Value) -> ir.Value:
    """-1 or 1, to multiply by, which gives zeros their sign."""
    return op.Where(signbit(op, x), op.constant(-1, x.dtype), op.constant(1, x.dtype))


DOUBLE = ir.DataType.DOUBLE

EXPONENTS = (-400.0, 400.0)
"""Those beyond make zeros and infinities of all floats narrower than float64, whose powers are finite there."""


@translates(aten.ldexp.Tensor)
def ldexp(op, self, other):
    """``self * 2 ** other``: the power of an integer may be infinite although the product is not, which is one in float64."""
    if other.dtype.is_floating_point() or not self.dtype.is_floating_point():
        return mul(op, self, pow_(op, 2.0, other))
    exponent = op.Cast(other, to=DOUBLE)
    if self.dtype != DOUBLE:
        exponent = op.Clip(exponent, *EXPONENTS)
    return op.Cast(
        op.Mul(op.Cast(self, to=DOUBLE), op.Pow(op.constant(2.0, DOUBLE), exponent)), to=self.dtype
    )


@translates(aten.frexp.Tensor)
def frexp(op, self):
    """A mantissa in [0.5, 1) and an exponent; zeros, infinities and NaN are their own mantissa."""
    mantissa, exponent, special = parts(op, cast(op, self, wide(self.dtype)))
    signed = op.Mul(op.Sign(self), op.Cast(mantissa, to=self.dtype))
    exponent = op.Where(special, op.constant(0, exponent.dtype), exponent)
    return op.Where(special, self, signed), op.Cast(exponent, to=ir.DataType.INT32)


def parts(op, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Mantissa and exponent of ``|x|`` as floats, and where x has none: they are those of 1 there."""
    size = op.Abs(x)
    special = op.Or(op.Equal(x, 0), op.Not(op.Less(size, math.inf)))
    size = op.Where(special, op.constant(1, x.dtype), size)
    guess = op.Add(op.Floor(op.Mul(op.Log(size), 1 / math.log(2))), 1.0)
    first = op.Floor(op.Mul(guess, 0.5))  # divide twice: 2 ** guess may be infinite
    mantissa = op.Div(op.Div(size, exp2(op, first)), exp2(op, op.Sub(guess, first)))
    # the logarithm may be one off beside a power of two
    off = op.Sub(op.CastLike(op.GreaterOrEqual(mantissa, 1.0), x), op.CastLike(op.Less(mantissa, 0.5), x))
    return op.Div(mantissa, exp2(op, off)), op.Add(guess, off), special


def bits_of(op, x: ir.Value) -> ir.Value:
    """The bits of a float64 as INT64."""
    return op.BitCast(x, to=INT64)


@translates(aten.nextafter.default)
def nextafter(op, self, other):
    """The next number towards *other*: a unit in the last place away, half of one below a power of two."""
    self, other = promote(op, self, other)
    dtype = self.dtype
    bits, smallest, largest = PRECISIONS[dtype]
    x, goal = cast(op, self, wide(dtype)), cast(op, other, wide(dtype))
    mantissa, exponent, _ = parts(op, x)
    up = op.Greater(goal, x)
    inwards = op.And(op.Equal(mantissa, 0.5), op.Not(op.Equal(up, op.Greater(x, 0.0))))
    exponent = op.Sub(exponent, op.CastLike(inwards, x))
    exponent = op.Where(op.Equal(x, 0.0), op.constant(smallest, x.dtype), op.Max(exponent, float(smallest)))
    step = exp2(op, op.Sub(exponent, float(bits)))
    moved = op.Add(x, op.Where(up, step, op.Neg(step)))
    last = math.ldexp(1 - 2.0**-bits, largest)
    moved = op.Where(op.IsInf(x), op.Mul(op.Sign(x), last), moved)
    stays = op.Or(op.Equal(x, goal), op.IsNaN(goal))
    return op.Where(stays, other, op.Cast(moved, to=dtype))
