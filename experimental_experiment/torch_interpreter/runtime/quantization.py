"""Quantization: signed steps of 8 bits that are moved."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.runtime.table import repairs

INT8, UINT8 = ir.DataType.INT8, ir.DataType.UINT8

PLAIN = frozenset(("axis", "saturate"))
"""Attributes that say nothing where one number is the zero point of all steps, which are integers."""


@repairs(
    "DequantizeLinear",
    when="INT8 with one zero point that a QuantizeLinear gives, ai.onnx 21 and later",
    because="what moves elements next (Transpose, Reshape, Slice) is done before, between a QuantizeLinear of INT8 and a zero point in UINT8: the model is refused",
    nodes="0, 1 where others read the steps",
)
def of_unsigned_steps(op, x, scale, zero_point=None, **attributes):
    """Both in UINT8, with 128 more in the zero point."""
    node = producer_of(x, "QuantizeLinear")
    if op.opset < 21 or x.dtype != INT8 or node is None or len(node.inputs) < 3:
        return None
    if not PLAIN.issuperset((*attributes, *node.attributes)):
        return None
    if not all(is_one_number(point) for point in (zero_point, node.inputs[2])):
        return None
    steps = op.QuantizeLinear(*node.inputs[:2], unsigned(op, node.inputs[2]))
    return op.DequantizeLinear(steps, scale, unsigned(op, zero_point))


@repairs(
    "DequantizeLinear",
    when="INT8 that is computed or an input, with the zero point 0, ai.onnx 21 and later",
    because="the same before what moves elements next",
    nodes=0,
)
def without_zero_point(op, x, scale, zero_point=None, **attributes):
    """No zero point, which is 0 then."""
    if not PLAIN.issuperset(attributes):
        return None
    if op.opset < 21 or x.dtype != INT8 or x.const_value is not None or not is_one_number(zero_point):
        return None
    return None if zero_point.const_value.numpy().any() else op.DequantizeLinear(x, scale)


def is_one_number(zero_point: ir.Value | None) -> bool:
    """Whether a zero point is a constant of the whole tensor."""
    return zero_point is not None and zero_point.const_value is not None and not len(zero_point.shape)


def unsigned(op, zero_point: ir.Value) -> ir.Value:
    """The same zero point among unsigned steps."""
    return op.constant(int(zero_point.const_value.numpy()) + 128, UINT8)
