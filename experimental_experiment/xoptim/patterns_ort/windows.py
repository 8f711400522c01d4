"""Convolutions and pools as others that a runtime computes faster: it has kernels for images whose channels it takes in blocks."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, attribute_of, const, only_reader, optional, var
from experimental_experiment.xoptim.rules import no, once_more, rule

x = var("x")

LONG = 15
"""Shorter filters gain too little for what it costs to bring the channels together."""

MOST_WEIGHTS = 2**16
"""The most elements of the filters that take means."""

BLOCK = 16
"""Of images of a multiple of so many channels onnxruntime 1.31 pools several channels at once, with AVX-512."""

LARGE = 100
"""Means of this many elements and more are taken of rows first."""


@rule(P.Conv(x, const("weight"), optional("bias"), name="node"), set="onnxruntime")
def long_depthwise_of_one_axis(op, x, weight, bias, node):
    """Long filters of each channel along one axis are filters of images of one row.

    Measured with onnxruntime 1.31, one thread and two: 0.2 to 0.6 of the time, 15 to 87 elements, 12 to 1 024 channels, 20 to 2 000 positions;
    0.04 to 0.11 for a single position. It computes four channels at once of images alone.
    """
    sizes = weight.shape
    if sizes is None or len(sizes) != 3 or x.dtype != ir.DataType.FLOAT:
        return no("not along one axis, or not in float32")
    channels, inputs, length = sizes
    if attribute_of(node, "group", 1) != channels or inputs != 1 or channels % 4:
        return no("it adds channels, or their number is no multiple of four")
    if length < LONG:
        return no("the filters are short")
    if only_reader(node.outputs[0], "Slice") is not None:
        return no("what is cut may leave it")
    named = {name: attribute_of(node, name) for name in ("dilations", "strides", "kernel_shape")}
    changed = {name: [1, *given] for name, given in named.items() if given is not None}
    pads = attribute_of(node, "pads")
    if pads is not None:
        changed["pads"] = [0, pads[0], 0, pads[1]]
    given = [op.Unsqueeze(x, [2]), op.Unsqueeze(weight, [2]), *([] if bias is None else [bias])]
    return op.Squeeze(once_more(op, node, given, **changed)[0], [2])


@rule(P.one_of("AveragePool", "MaxPool")(x, name="pool"), set="onnxruntime", special_values=False)
def pool_of_rows_and_columns(op, x, pool):
    """The largest of a large window, or its mean, is that of its rows' ones: in float32 where a window moves by one.

    Measured with onnxruntime 1.31: means of 11 x 11 0.13 of the time, of 31 x 31 0.04. In blocks of 16 channels, in which it pools a
    multiple of them, 7 x 7 0.3 to 0.7 and 13 x 13 0.2 to 0.4; it has a fast kernel for maxima of other numbers of channels.
    """
    kernel, strides, dilations = (
        attribute_of(pool, name, [1, 1]) for name in ("kernel_shape", "strides", "dilations")
    )
    pads = attribute_of(pool, "pads", [0] * 4)
    if len(pool.outputs) > 1 or len(kernel) != 2 or strides != [1, 1]:
        return no("it gives positions, or windows are not of two axes, or move by more than one")
    if not is_pooled_plainly(x, pool):
        return no("not in float32, or windows are cut or padded automatically")
    if x.shape[1] % BLOCK == 0:
        if min(kernel) < 7:
            return no("the windows are small")
    elif pool.op_type == "MaxPool" or min(kernel) == 1 or math.prod(kernel) < LARGE:
        return no("not pooled in blocks, or the windows are small")
    for axis in (1, 0):
        changed = {"kernel_shape": along(axis, kernel, 1)}
        if any(pads):
            changed["pads"] = along(axis, pads[:2], 0) + along(axis, pads[2:], 0)
        if set(dilations) != {1}:
            changed["dilations"] = along(axis, dilations, 1)
        (x,) = once_more(op, pool, [x], **changed)
    return x


@rule(P.AveragePool(x, name="pool"), set="onnxruntime")
def average_by_filters(op, x, pool):
    """The mean of windows is a filter of each channel, in float32, of images of a number of channels that is no multiple of 16, or along one axis.

    Measured with onnxruntime 1.31, one thread and two: windows of 3 x 3 0.1 to 0.2 of the time, of 2 x 2 that move by 2 0.2 to 0.5, along one axis
    2 to 25 elements 0.15 to 0.65.
    """
    kernel, pads = attribute_of(pool, "kernel_shape"), attribute_of(pool, "pads", [0])
    if not is_pooled_plainly(x, pool) or (any(pads) and not attribute_of(pool, "count_include_pad", 0)):
        return no("not in float32, or windows have less elements at the sides")
    channels = x.shape[1]
    if (
        len(kernel) > 2
        or (len(kernel) == 2 and channels % BLOCK == 0)
        or channels * math.prod(kernel) > MOST_WEIGHTS
    ):
        return no("pooled in blocks, of more than two axes, or the filters take much room")
    weights = np.full((channels, 1, *kernel), 1 / math.prod(kernel), np.float32)
    ones = [1] * len(kernel)
    steps = {name: attribute_of(pool, name, ones) for name in ("dilations", "strides")}
    return op.Conv(x, weights, group=channels, pads=pads if any(pads) else None, **steps)


def is_pooled_plainly(x: ir.Value, pool: ir.Node) -> bool:
    """Whether all windows of float32 images of a known number of channels are whole."""
    if x.dtype != ir.DataType.FLOAT or x.shape is None or not isinstance(x.shape[1], int) or not x.shape[1]:
        return False
    if attribute_of(pool, "ceil_mode", 0) or attribute_of(pool, "auto_pad", "NOTSET") != "NOTSET":
        return False
    kernel = attribute_of(pool, "kernel_shape")
    pads = attribute_of(pool, "pads", [0] * (2 * len(kernel)))
    dilations = attribute_of(pool, "dilations", [1] * len(kernel))
    # onnxruntime takes the mean of what there is of a window larger than the image, where a Conv is refused
    return all(
        not isinstance(size, int) or size + begin + end > (reach - 1) * dilation
        for size, reach, dilation, begin, end in zip(
            x.shape[2:], kernel, dilations, pads[: len(kernel)], pads[len(kernel) :]
        )
    )


def along(axis: int, sizes: list[int], nothing: int) -> list[int]:
    """The size of one axis of two, *nothing* for the other."""
    return [size if place == axis else nothing for place, size in enumerate(sizes)]
