"""Activations in operators of onnxruntime."""

from __future__ import annotations

import math

import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, const, number_of, var
from experimental_experiment.xoptim.patterns_ort.attention import MICROSOFT
from experimental_experiment.xoptim.rules import no, rule
from experimental_experiment.xoptim.shapes import same_sizes

x = var("x")


@rule(P.Mul(x, P.Sigmoid(P.Mul(x, const("factor")) | x)), set="onnxruntime")
def quick_gelu(op, x, factor, root):
    """x * sigmoid(a * x), also the Silu of 1, is the kernel that onnxruntime makes of it when it loads."""
    alpha = 1.0 if factor is None else number_of(factor)
    if x.dtype != ir.DataType.FLOAT or alpha is None or not math.isfinite(alpha):
        return no("not in float32, or times no finite number")
    if not same_sizes(x.shape, root.outputs[0].shape):
        return no("the factor adds axes")
    return op.QuickGelu(x, alpha=float(alpha), domain=MICROSOFT)
