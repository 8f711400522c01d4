"""Quantize and dequantize."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.dtypes import INTEGERS
from experimental_experiment.xoptim.pattern import P, attribute_of, constant_of, optional, var
from experimental_experiment.xoptim.patterns.casting import movement
from experimental_experiment.xoptim.rules import again, computes, no, rule

x, scale = var("x"), var("scale")
DEQUANTIZED = P.DequantizeLinear(x, scale, optional("zero"), name="inner")


@rule(P.QuantizeLinear(DEQUANTIZED, scale, optional("other_zero"), name="outer"), set="default")
def quantize_dequantized(op, x, scale, zero, other_zero, inner, outer):
    """What is dequantized and quantized again with the same numbers is what it was; the other order rounds, and stays."""
    if not is_same_zero(zero, other_zero) or not is_undone(x, scale, inner, outer):
        return no("other numbers, or a scale that may be tiny")
    return x


@rule(
    P.QuantizeLinear(
        movement(DEQUANTIZED, "first") | movement(movement(DEQUANTIZED, "first"), "second"),
        scale,
        optional("other_zero"),
        name="outer",
    ),
    set="default",
)
def quantize_moved(op, x, scale, zero, other_zero, inner, first, second, outer):
    """Elements that are moved between the two, with one scale for all, are moved as they are.

    onnxruntime 1.31 makes unsigned integers of int8 between a QuantizeLinear and the DequantizeLinear right behind it alone: a product of
    others is no QLinearMatMul, which takes 3.8 to 5.3 times as long.
    """
    if x.dtype == ir.DataType.INT8 and op.context.runtime == "onnxruntime":
        return no("onnxruntime would not make unsigned integers of them")
    steps = [node for node in (first, second) if node is not None]
    if scale.shape is None or any(size != 1 for size in scale.shape):
        return no("several scales")
    if not is_same_zero(zero, other_zero) or not is_undone(x, scale, inner, outer):
        return no("other numbers, or a scale that may be tiny")
    if not all(computes(op, node.op_type, x.dtype) for node in steps):
        return no("integers that are not moved")
    for node in steps:
        x = again(op, node, [x, *node.inputs[1:]])
    return x


def is_same_zero(zero: ir.Value | None, other: ir.Value | None) -> bool:
    """Whether two zero points are known to be the same: an absent one is 0."""
    if zero is None or other is None:
        tensors = [constant_of(value) for value in (zero, other) if value is not None]
        return all(tensor is not None and not tensor.numpy().astype(np.int64).any() for tensor in tensors)
    return zero is other


def is_undone(x: ir.Value, scale: ir.Value, inner: ir.Node, outer: ir.Node) -> bool:
    """Whether QuantizeLinear of the same scale and zero point gives the integers back: a product with a normal float, and its quotient."""
    tensor = constant_of(scale)
    if tensor is None or x.dtype not in INTEGERS or x.dtype.bitwidth > 8 or x.dtype != outer.outputs[0].dtype:
        return False
    if scale.dtype == ir.DataType.BFLOAT16:
        return False  # 8 bits of 255 times a scale are not enough
    same = all(
        attribute_of(inner, name, default) == attribute_of(outer, name, default)
        for name, default in (("axis", 1), ("block_size", 0))
    )
    values = np.abs(tensor.numpy().astype(np.float64))
    least, most = (1e-4, 1e2) if scale.dtype == ir.DataType.FLOAT16 else (1e-30, 1e30)
    return same and bool(np.all((values > least) & (values < most)))
