"""Gelu before its operator, and in float64."""

from __future__ import annotations

import math

import onnx_ir as ir

from experimental_experiment.torch_interpreter.runtime.table import before, repairs


@repairs("Gelu", when="float64", because="there is no kernel", nodes=70)
def half_of_it_times_one_and_more(op, x, *, approximate="none"):
    """``x / 2 * (1 + erf(x / sqrt(2)))``, or its approximation with a tanh."""
    return composed_gelu(op, x, approximate) if x.dtype == ir.DataType.DOUBLE else None


@before(20, "Gelu", because="there is no such operator", nodes=4)
def half_of_it_times_one_and_erf(op, x, *, approximate="none"):
    """``x / 2 * (1 + erf(x / sqrt(2)))``, or its approximation with a tanh; halves in float32."""
    wide = op.Cast(x, to=ir.DataType.FLOAT) if x.dtype != ir.DataType.DOUBLE else x
    return op.Cast(composed_gelu(op, wide, approximate), to=x.dtype)


def composed_gelu(op, x: ir.Value, approximate: str) -> ir.Value:
    """gelu without its operator."""
    if approximate == "tanh":
        cube = op.Mul(op.Mul(op.Mul(x, x), x), 0.044715)
        inner = op.Tanh(op.Mul(op.Add(x, cube), math.sqrt(2 / math.pi)))
    else:
        inner = op.Erf(op.Mul(x, math.sqrt(0.5)))
    return op.Mul(op.Mul(x, 0.5), op.Add(inner, 1.0))
