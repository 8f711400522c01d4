"""Gelu in all the forms that onnxruntime gives it."""

from __future__ import annotations

import math

import numpy as np

from experimental_experiment.reference.registry import computes

error_function = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the probability that a normal number is below it."""
    wide = x.astype(np.float64)
    return (wide * (1 + error_function(wide / math.sqrt(2))) / 2).astype(x.dtype)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """`gelu`, approximated by a tanh."""
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    return (wide * (1 + np.tanh(inner)) / 2).astype(x.dtype)


@computes("Gelu")
def microsoft_gelu(x):
    """Gelu, exact."""
    return gelu(x)


@computes("BiasGelu")
def bias_gelu(x, bias):
    """Gelu of a sum with a row."""
    return gelu(x + bias)


@computes("FastGelu")
def fast_gelu(x, bias=None):
    """Gelu by a tanh, of a sum with a row if there is one."""
    return gelu_tanh(x if bias is None else x + bias)


@computes("QuickGelu")
def quick_gelu(x, *, alpha=1.702):
    """x * sigmoid(alpha * x)."""
    return x * sigmoid(alpha * x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow."""
    return (np.tanh(x / 2) + 1) / 2


def activated(x: np.ndarray, activation: str, *parameters: float) -> np.ndarray:
    """What a fused product or convolution ends with, by the name of the ONNX operator; ``""`` is nothing.

    Raises NotImplementedError for an activation that onnxruntime does not fuse.
    """
    if activation not in ACTIVATIONS:
        raise NotImplementedError(f"the activation {activation!r} is not one that onnxruntime fuses")
    return ACTIVATIONS[activation](x, *parameters).astype(x.dtype)


ACTIVATIONS = {
    "": lambda x: x,
    "Clip": np.clip,
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
    "LeakyRelu": lambda x, alpha=0.01: np.where(x < 0, alpha * x, x),
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
}
"""By the name of the operator: the array, then its attributes in the order that onnxruntime gives them."""
