"""Windows added into an image: dtypes and operator sets without Col2Im."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.pooling import numbered
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.aten.spatial import columns, padded
from experimental_experiment.torch_interpreter.runtime.pads import numbers_of
from experimental_experiment.torch_interpreter.runtime.table import before, repairs
from experimental_experiment.torch_interpreter.sizes import plus, quotient, volume

COMPUTED = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
"""What the kernel computes, with a cast where it must."""


@repairs(
    "Col2Im",
    when="neither float32 nor a half",
    because="there is no kernel, and float32 loses digits",
    nodes="4; more for dynamic sizes",
)
def scattered(op, x, image_shape, block_shape, **attributes):
    """A ScatterElements that adds."""
    if x.dtype in COMPUTED:
        return None
    return added_at_windows(op, x, image_shape, block_shape, **attributes)


@before(18, "Col2Im", because="it does not exist", nodes="4; more for dynamic sizes")
def added(op, x, image_shape, block_shape, **attributes):
    """A ScatterElements that adds."""
    return added_at_windows(op, x, image_shape, block_shape, **attributes)


def added_at_windows(op, x, image_shape, block_shape, *, dilations, pads, strides):
    """Columns (N, C * kernel, windows) added into a padded plane, which is then cropped; *pads* are the same at both ends."""
    kernel, padding = numbers_of(op, block_shape), pads[: len(strides)]
    whole = [plus(op, size, 2 * before) for size, before in zip(numbers_of(op, image_shape), padding)]
    where, _ = columns(op, numbered(op, whole), kernel, strides, dilations)
    batch, channels = op.size(x, 0), quotient(op, op.size(x, 1), volume(op, kernel))
    flat = reshaped(op, x, [batch, channels, -1])
    zeros = op.Expand(op.constant(0, x.dtype), op.shape([batch, channels, volume(op, whole)]))
    where = op.Expand(op.Reshape(where, [1, 1, -1]), op.Shape(flat))
    total = op.ScatterElements(zeros, where, flat, axis=2, reduction="add")
    plane = reshaped(op, total, [batch, channels, *whole])
    crop = [-before for before in padding]
    return padded(op, plane, crop, crop)
