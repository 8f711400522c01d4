"""Products in operators of onnxruntime."""

from __future__ import annotations

import math

import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, const, number_of, var
from experimental_experiment.xoptim.patterns.transposing import swaps_last_two
from experimental_experiment.xoptim.patterns_ort.attention import MICROSOFT
from experimental_experiment.xoptim.rules import no, rule

x, y = var("x"), var("y")
SCALED = P.Mul(x, const("factor"))
CACHED_OR_ROTATED = (("", "Concat"), ("", "RotaryEmbedding"), (MICROSOFT, "RotaryEmbedding"))
LEFT = P.Reshape(SCALED, var("shape")) | SCALED | x


@rule(P.MatMul(P.Transpose(x, name="swap"), const("weight")), set="onnxruntime")
def fused_matmul_of_columns(op, x, weight, swap):
    """A linear layer along the axis before the last one transposes itself, as onnxruntime makes it when it loads."""
    if x.dtype != ir.DataType.FLOAT or len(weight.shape) != 2:
        return no("not in float32, or no matrix")
    if not swaps_last_two(swap):
        return no("other axes than the last two are transposed")
    return op.FusedMatMul(x, weight, transA=1, domain=MICROSOFT)


@rule(P.MatMul(LEFT, P.Transpose(y, name="swap")), set="onnxruntime")
def fused_matmul(op, x, y, factor, shape, swap):
    """A product with the keys of a cache, or with keys that are rotated, transposes and scales itself.

    onnxruntime does the same when it loads, but for a factor that is multiplied before heads are grouped: a token takes as long, in two
    nodes less a layer.
    """
    if x.dtype != ir.DataType.FLOAT or x.shape is None or len(x.shape) < 2:
        return no("not in float32, or of unknown axes")
    if not swaps_last_two(swap):
        return no("other axes than the last two are transposed")
    before = y.producer()
    if before is None or (before.domain, before.op_type) not in CACHED_OR_ROTATED:
        return no("neither a cache nor rotated: other operators take keys with their Transposes")
    alpha = 1.0 if factor is None else number_of(factor)
    if (
        alpha is None
        or not math.isfinite(alpha)
        or len(factor.shape if factor is not None else ()) > len(x.shape)
    ):
        return no("the factor is no finite number")
    if shape is not None:
        x = op.Reshape(x, shape)
    return op.FusedMatMul(x, y, alpha=float(alpha), transB=1, domain=MICROSOFT)
