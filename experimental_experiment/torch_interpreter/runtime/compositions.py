"""Operators that older sets lack, written with those they have.

Source of semantics: the operators of ai.onnx 14 to 26. float16 and bfloat16 are computed in float32 and rounded once, as the
operators do.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.cumulative import multiply, running
from experimental_experiment.torch_interpreter.aten.exponential import exp2
from experimental_experiment.torch_interpreter.aten.floating_point import parts, signbit
from experimental_experiment.torch_interpreter.emitter import INT64_MIN
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.promotion import rounded_once
from experimental_experiment.torch_interpreter.runtime.table import before
from experimental_experiment.torch_interpreter.sizes import counted, label

INT64, UINT64 = ir.DataType.INT64, ir.DataType.UINT64


# ---- activations


@before(14, "HardSwish", because="it does not exist", nodes=1)
def times_hard_sigmoid(op, x):
    """``x * HardSigmoid(x)``."""
    return op.Mul(x, op.HardSigmoid(x, alpha=1 / 6, beta=0.5))


@before(18, "Mish", because="it does not exist", nodes=2)
@rounded_once
def times_tanh_of_softplus(op, x):
    """``x * tanh(softplus(x))``."""
    return op.Mul(x, op.Tanh(op.Softplus(x)))


# ---- bits


@before(26, "BitCast", when="float64 as int64", because="it does not exist", nodes=40)
def bits_from_the_value(op, x, *, to):
    """The bits, computed from mantissa and exponent; those of ``torch.nan`` for every NaN."""
    if x.dtype != ir.DataType.DOUBLE or to != INT64:
        return None
    mantissa, exponent, special = parts(op, x)
    stored = op.Max(exponent, -1021.0)
    digits = op.Mul(mantissa, exp2(op, op.Add(op.Sub(exponent, stored), 53.0)))
    field = op.Mul(op.Cast(op.Add(stored, 1021.0), to=INT64), 1 << 52)
    bits = op.Add(field, op.Cast(digits, to=INT64))
    of_special = op.Where(op.IsNaN(x), op.constant(0x7FF8 << 48), op.constant(0x7FF << 52))
    of_special = op.Where(op.Equal(x, 0), op.constant(0), of_special)
    bits = op.Where(special, of_special, bits)
    return op.Where(signbit(op, x), op.Add(bits, INT64_MIN), bits)


@before(18, "BitwiseNot", because="it does not exist", nodes=0)
def distance_from_all_ones(op, x):
    """``-1 - x``, or the largest number minus x without a sign."""
    return op.Sub(op.constant(-1 if x.dtype.is_signed() else x.dtype.max, x.dtype), x)


@before(18, "BitwiseAnd", because="it does not exist", nodes=20)
def bit_by_bit(op, a, b):
    """The products of the bits along a new axis, weighted and added; the sign bits apart."""
    dtype = a.dtype
    a, b = (op.Cast(x, to=INT64) for x in (a, b))
    both_negative = op.And(op.Less(a, 0), op.Less(b, 0))
    weights = [1 << k for k in range(min(63, dtype.bitwidth))]
    either = op.Mul(low_bits(op, a, weights), low_bits(op, b, weights))
    total = op.Squeeze(op.MatMul(either, [[weight] for weight in weights]), [-1])
    signed = op.Where(both_negative, op.Add(total, INT64_MIN), total)
    return op.Cast(signed, to=dtype)


def low_bits(op, x: ir.Value, weights: list[int]) -> ir.Value:
    """The bits of INT64 numbers along a new last axis, without the sign bit."""
    positive = op.Where(op.Less(x, 0), op.Add(x, INT64_MIN), x)
    return op.Mod(op.Div(op.Unsqueeze(positive, [-1]), weights), 2)


@before(18, "BitwiseOr", because="it does not exist", nodes=22)
def sum_without_common_bits(op, a, b):
    """``a + b - (a & b)``."""
    return op.Sub(op.Add(a, b), op.BitwiseAnd(a, b))


@before(18, "BitwiseXor", because="it does not exist", nodes=23)
def sum_without_carries(op, a, b):
    """``a + b - 2 * (a & b)``."""
    common = op.BitwiseAnd(a, b)
    return op.Sub(op.Sub(op.Add(a, b), common), common)


# ---- tables


@before(26, "CumProd", when="along a constant axis", because="it does not exist", nodes="a Scan")
@rounded_once
def scanned_product(op, x, axis, *, exclusive=0, reverse=0):
    """A Scan that multiplies."""
    if axis.const_value is None or exclusive or reverse:
        return None
    return running(op, [x], [1], int(axis.const_value.numpy()), multiply)[0]


@before(14, "Trilu", because="it does not exist", nodes="1, 4 to 8 for dynamic sizes")
def where_columns_are(op, x, k=None, *, upper=1):
    """The elements where the column is at least, or at most, the row plus the number of the diagonal."""
    height, width = op.size(x, -2), op.size(x, -1)
    columns = counted(op, width)
    is_square = label(height) == label(width) is not None
    rows = op.Unsqueeze(columns if is_square else counted(op, height), [1])
    diagonal = op.constant(0 if k is None else k)
    if upper:  # without an Add next to the main diagonal: a causal mask
        kept = op.Greater(columns, op.Add(rows, op.Sub(diagonal, 1)))
    else:
        kept = op.LessOrEqual(columns, op.Add(rows, diagonal))
    return op.Where(kept, repeated_number(x) or x, op.constant(np.zeros(()), x.dtype))


def repeated_number(x: ir.Value) -> ir.Value | None:
    """The only element of a matrix that an Expand made, None for another tensor."""
    node = producer_of(x, "Expand")
    is_matrix_of_one = node is not None and len(x.shape) == 2
    return node.inputs[0] if is_matrix_of_one and len(node.inputs[0].shape) == 0 else None
