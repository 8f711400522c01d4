"""Casts, bounds and functions of one tensor: digits, infinities, signs."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.runtime.table import repairs


@repairs(
    "Cast",
    when="to float8 E5M2",
    because="numbers that round up to infinity become NaN",
    nodes=5,
)
def overflow_to_infinity(op, x, *, to, **attributes):
    """Numbers from 61440 on are multiplied by infinity first."""
    if to != ir.DataType.FLOAT8E5M2 or x.dtype in dtypes.FLOAT8:
        return None
    x = op.Cast(x, to=ir.DataType.FLOAT)
    x = op.Where(op.GreaterOrEqual(op.Abs(x), 61440.0), op.Mul(x, float("inf")), x)
    return op.Cast(x, to=to, **attributes)


@repairs(
    "Clip",
    when="floats with one bound",
    because="the other bound is the largest finite number, which an infinity becomes",
    nodes=0,
)
def by_one_bound(op, x, low=None, high=None):
    """The larger or the smaller of both."""
    if x.dtype not in dtypes.FLOATS or (low is None) == (high is None):
        return None
    return op.Min(x, high) if low is None else op.Max(x, low)


@repairs(
    "Sign",
    when="floats that hold NaN",
    because="the sign of NaN is NaN, torch's is 0",
    nodes=2,
    special_values=True,
)
def sign_of_numbers(op, x):
    """0 for NaN."""
    return op.Where(op.IsNaN(x), op.constant(0, x.dtype), op.Sign(x)) if x.dtype in dtypes.FLOATS else None
