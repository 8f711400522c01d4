"""Powers and remainders of int64 beyond 2 ** 53."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.runtime.table import repairs

INT64 = ir.DataType.INT64


@repairs(
    "Mod",
    when="int64 with fmod",
    because="numbers beyond 2 ** 53 are rounded to float64",
    nodes=2,
    special_values=True,
)
def what_the_quotient_leaves(op, a, b, *, fmod=0):
    """``a - a / b * b``."""
    return op.Sub(a, op.Mul(op.Div(a, b), b)) if fmod and a.dtype == INT64 else None


@repairs(
    "Pow",
    when="int64",
    because="powers beyond 2 ** 53 are rounded to float64, those beyond 2 ** 63 do not wrap, 0 to a negative power is a number",
    nodes="a Loop",
    special_values=True,
)
def bit_by_bit(op, base, exponent):
    """A Loop over the bits of the exponents; a negative exponent gives 1 / base, rounded to 0."""
    if base.dtype != INT64 or exponent.dtype != INT64:
        return None

    def some_left(inner, left):
        return inner.Greater(inner.ReduceSum(inner.Cast(inner.Greater(left, 0), to=INT64), keepdims=0), 0)

    def step(inner, iteration, go, result, square, left):
        odd = inner.Equal(inner.Mod(left, 2), 1)
        result = inner.Mul(result, inner.Where(odd, square, inner.constant(1)))
        left = inner.Div(left, 2)
        return [some_left(inner, left), result, inner.Mul(square, square), left]

    magnitude = op.Abs(exponent)
    shape = op.Shape(op.Add(base, exponent))
    carried = [op.Expand(x, shape) for x in (op.constant(1), base, magnitude)]
    body = op.subgraph(step, [op.constant(0), op.constant(True), *carried])
    power = op.Loop(None, some_left(op, magnitude), *carried, body=body, outputs=3)[0]
    power.type, power.shape = base.type, ir.Shape([None] * max(rank(base), rank(exponent)))
    unit = op.Equal(op.Abs(base), 1)
    return op.Where(op.And(op.Less(exponent, 0), op.Not(unit)), op.constant(0), power)
