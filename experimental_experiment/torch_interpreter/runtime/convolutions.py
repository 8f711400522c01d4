"""Convolutions in float64, with padded weights, transposed convolutions with much padding."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.convolution import exact_conv, spread_conv_transpose
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.runtime.pools import is_padded_with_zeros
from experimental_experiment.torch_interpreter.runtime.table import repairs


@repairs(
    "Conv",
    when="float64",
    because="there is no kernel, and float32 loses half of the digits",
    nodes="2 an axis, and 6; more for dynamic sizes",
)
def over_windows(op, x, weight, bias=None, *, strides, dilations, group=1, pads=None):
    """A matrix product over sliding windows."""
    if x.dtype != ir.DataType.DOUBLE:
        return None
    axes = rank(weight) - 2
    pads = pads or [0] * (2 * axes)
    return exact_conv(op, x, weight, bias, strides, pads[:axes], pads[axes:], dilations, group)


@repairs(
    "Conv",
    when="the weight is what a Pad surrounds with 0, also cast or transposed",
    because="the convolution takes over what is padded, as if it were the tensor: the model is refused, or where it is cast, the result is another one",
    nodes=1,
)
def of_padded_weight(op, x, weight, bias=None, **attributes):
    """A Sum of the weight alone, which is not looked at."""
    kept = weight
    while (node := producer_of(kept, "Cast", "Transpose")) is not None:  # onnxruntime moves transpositions
        kept = node.inputs[0]
    if not is_padded_with_zeros(kept):
        return None
    return op.Conv(x, op.Sum(weight), bias, **attributes)


@repairs(
    "ConvTranspose",
    when="float64",
    because="there is no kernel, and float32 loses half of the digits",
    nodes="8 an axis, and 10; more for dynamic sizes",
)
def of_float64(op, x, weight, bias=None, **attributes):
    """A matrix product over sliding windows of the elements with zeros between them."""
    return with_zeros_between(op, x, weight, bias, **attributes) if x.dtype == ir.DataType.DOUBLE else None


@repairs(
    "ConvTranspose",
    when="an output padding as large as the stride",
    because="it is refused, although a larger dilation allows it",
    nodes="4 an axis, and 4",
)
def with_much_padding(op, x, weight, bias=None, *, strides, output_padding, **attributes):
    """A convolution of the elements with zeros between them."""
    if all(more < step for more, step in zip(output_padding, strides)):
        return None
    return with_zeros_between(
        op, x, weight, bias, strides=strides, output_padding=output_padding, **attributes
    )


def with_zeros_between(op, x, weight, bias, *, strides, pads, output_padding, dilations, group):
    """Zeros between the elements, then a convolution with the flipped weight; *pads* are the same at both ends."""
    padding = pads[: len(strides)]
    return spread_conv_transpose(op, x, weight, bias, strides, padding, output_padding, group, dilations)
