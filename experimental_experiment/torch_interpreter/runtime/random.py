"""Random numbers of newer operator sets: made of the coins that Dropout tosses, the one operator that onnxruntime draws with there.

Source of semantics: ONNX RandomUniformLike-22, RandomNormalLike-22, Multinomial-22, Dropout-22.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from experimental_experiment.torch_interpreter.runtime.table import repairs

DOUBLE, FLOAT, INT64 = ir.DataType.DOUBLE, ir.DataType.FLOAT, ir.DataType.INT64

DIGITS = {FLOAT: 24, DOUBLE: 53}
"""Binary digits of a number below 1."""

WHEN = {"when": "ai.onnx 22 and later", "because": "there is no kernel"}


@repairs("RandomUniformLike", **WHEN, nodes="6; 1 for a range, 1 for another dtype")
def of_coins(op, x, *, dtype=None, low=0.0, high=1.0, seed=None):
    """A binary digit for each element that a Dropout of one half keeps."""
    if op.opset < 22:
        return None
    dtype = x.dtype if dtype is None else dtype
    [drawn] = below_one(op, x, dtype, 1, seed)
    return shifted(op, drawn, high - low, low, dtype)


@repairs("RandomNormalLike", **WHEN, nodes="12; 2 for a deviation and a mean, 1 for another dtype")
def of_two_uniform_numbers(op, x, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    """``sqrt(-2 log(1 - a)) cos(2 pi b)``, the transform of Box and Muller."""
    if op.opset < 22:
        return None
    dtype = x.dtype if dtype is None else dtype
    radius, angle = below_one(op, x, dtype, 2, seed)
    length = op.Sqrt(op.Mul(op.Log(op.Sub(1.0, radius)), -2.0))
    return shifted(op, op.Mul(length, op.Cos(op.Mul(angle, 2 * math.pi))), scale, mean, dtype)


@repairs("Multinomial", **WHEN, nodes=17)
def where_the_sum_passes(op, x, *, dtype=ir.DataType.INT32, sample_size=1, seed=None):
    """How many of the running sums of the probabilities a uniform number is not below."""
    if op.opset < 22:
        return None
    sums = op.CumSum(op.Softmax(x, axis=-1), 1)
    whole = op.Slice(sums, [-1], [(1 << 63) - 1], [1])
    drawn = op.RandomUniformLike(op.Expand(whole, [1, sample_size]), dtype=x.dtype, seed=seed)
    passed = op.GreaterOrEqual(op.Unsqueeze(op.Mul(drawn, whole), [2]), op.Unsqueeze(sums, [1]))
    return op.ReduceSum(op.Cast(passed, to=dtype), [-1], keepdims=0)


def below_one(op, x: ir.Value, dtype: ir.DataType, count: int, seed: float | None) -> list[ir.Value]:
    """*count* tensors in the shape of *x*, uniform from 0 to 1, 1 excluded, in FLOAT or DOUBLE."""
    dtype = DOUBLE if dtype == DOUBLE else FLOAT
    digits, sizes = DIGITS[dtype], op.Shape(x)
    ones = op.Expand(op.constant(1.0, FLOAT), op.Concat(sizes, [count * digits], axis=0))
    # its mask: without it onnxruntime takes every Dropout that is followed by a node for one outside of training
    _, kept = op.Dropout(
        ones, op.constant(0.5, FLOAT), True, seed=None if seed is None else int(seed), outputs=2
    )
    coins = op.Cast(kept, to=dtype)
    if count > 1:
        coins = op.Split(coins, [digits] * count, axis=-1, outputs=count)
    column = op.constant([[0.5 ** (digit + 1)] for digit in range(digits)], dtype)
    return [
        op.Reshape(op.MatMul(part, column), sizes, allowzero=1) for part in (coins if count > 1 else [coins])
    ]


def shifted(op, x: ir.Value, factor: float, summand: float, dtype: ir.DataType) -> ir.Value:
    """``factor * x + summand``, in *dtype*."""
    x = op.Mul(x, float(factor)) if factor != 1 else x
    return op.Cast(op.Add(x, float(summand)) if summand else x, to=dtype)
