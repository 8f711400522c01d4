"""Norms in operators of onnxruntime."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, attribute_of, constant_of, only_reader, var
from experimental_experiment.xoptim.patterns.norms import (
    centered,
    is_ones,
    is_scale,
    is_skip,
    over_root_of_mean,
    squared,
    written,
)
from experimental_experiment.xoptim.patterns.packing import is_one_row
from experimental_experiment.xoptim.patterns_ort.attention import MICROSOFT
from experimental_experiment.xoptim.rules import no, rule

x, weight = var("x"), var("weight")
RESIDUAL = P.Add(x, var("y"), name="residual", shared=True)


@rule(over_root_of_mean(centered("center"), squared(centered("again"))), set="onnxruntime", before=17)
def layer_normalization_of_onnxruntime(op, x, center, again, mean, epsilon, root):
    """(x - mean) / sqrt(mean((x - mean) ** 2) + epsilon) is LayerNormalization before opset 17 too, which onnxruntime has in every one.

    onnxruntime makes it itself when it loads, of a norm with a scale and a bias: it takes as long, in eight nodes less; with the rule below, which
    would take the norm of what is centred for one, 1.5 to 3 times as long. onnx.checker does not know it.
    """
    if isinstance(op.context.root, ir.Function):
        return no("onnxruntime crashes when it loads one in a local function")
    return written(op, "LayerNormalization", root, x, epsilon, mean, center, again)


@rule(over_root_of_mean(x, squared(x)), set="onnxruntime", before=23)
def simplified_layer_normalization(op, x, mean, epsilon, root):
    """x / sqrt(mean(x ** 2) + epsilon) is an operator that onnxruntime has in the domain of ONNX, where onnx.checker does not know it.

    onnxruntime makes it itself when it loads, of a norm in float32 with a scale: it takes as long, in five nodes less.
    Measured with onnxruntime 1.31 where it does not: (2, 128, 384) without a scale 0.56 of the time, with one in float16 0.26.
    """
    if isinstance(op.context.root, ir.Function):
        return no("onnxruntime crashes when it loads one in a local function")
    return written(op, "SimplifiedLayerNormalization", root, x, epsilon, mean)


@rule(
    P.one_of("RMSNormalization", "SimplifiedLayerNormalization")(RESIDUAL, weight, name="norm"),
    set="onnxruntime",
)
def skip_simplified_layer_normalization(op, x, y, weight, residual, norm):
    """The sum of a residual and its norm are one operator, for one token of each sample.

    Measured with onnxruntime 1.31: 0.96 of the time for one row of 512, 1.07 for one of 4096, and a token of Llama takes 108 nodes instead
    of 116. Not for more rows: 1.5 to 1.8 for 16 to 256 rows of 384 or 512.
    """
    total = residual.outputs[0]
    if total.dtype != ir.DataType.FLOAT or not is_skip(x, y) or not is_one_row(total):
        return no("not in float32, or not the same single row of three axes")
    if attribute_of(norm, "axis", -1) not in (-1, 2) or not is_scale(weight, total, -1):
        return no("no norm of the last axis with a scale for each element")
    if residual.graph is not norm.graph:
        return no("the residual is added outside")
    if weight.producer() is not None:
        return no("the scale is computed")
    if is_scaled_afterwards(norm):
        return no("the scale is multiplied afterwards")
    attributes = {"epsilon": attribute_of(norm, "epsilon", 1e-5)}
    if attributes["epsilon"] < 0:
        return no("the kernel refuses a negative epsilon")
    node = op.append("SkipSimplifiedLayerNormalization", [x, y, weight], attributes, 4, MICROSOFT)
    op.move_after(residual)
    return {norm.outputs[0]: node.outputs[0], total: node.outputs[3]}


def is_scaled_afterwards(norm: ir.Node) -> bool:
    """Whether a norm whose scale changes nothing is all that is multiplied by one that does: it is to become the scale of the norm."""
    x, weight = norm.inputs
    product = only_reader(norm.outputs[0], "Mul")
    if product is None or constant_of(weight) is None or not is_ones(weight):
        return False
    scales = [value for value in product.inputs if value is not norm.outputs[0]]
    return any(
        is_scale(value, x, -1) and (constant_of(value) is None or not is_ones(value)) for value in scales
    )
