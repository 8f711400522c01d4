"""Convolutions with what onnxruntime fuses into them, and images with the channels last."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.ops import load_op

from experimental_experiment.reference.operators.activations import activated
from experimental_experiment.reference.registry import computes


def channels_first(x: np.ndarray) -> np.ndarray:
    """NCHW of NHWC."""
    return np.moveaxis(x, -1, 1)


def channels_last(x: np.ndarray) -> np.ndarray:
    """The inverse of `channels_first`."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def evaluated(op_type: str, *inputs: np.ndarray, **attributes: Any) -> np.ndarray:
    """What an operator of ONNX gives; attributes of None are left out."""
    given = {name: value for name, value in attributes.items() if value is not None}
    return load_op("", op_type).eval(*inputs, **given)


@computes("FusedConv")
def fused_conv(x, w, b=None, z=None, *, activation="", activation_params=(), **attributes):
    """Conv, the sum with another image, an activation."""
    inputs = (x, w) if b is None else (x, w, b)
    image = evaluated("Conv", *inputs, **attributes)
    return activated(image if z is None else image + z, activation, *activation_params)


@computes("NhwcMaxPool")
def nhwc_max_pool(x, **attributes):
    """MaxPool of images with the channels last, of 8-bit integers."""
    image = evaluated("MaxPool", channels_first(x).astype(np.float32), **attributes)
    return channels_last(image.astype(x.dtype))
