"""Dropout: the identity in evaluation, an exact Bernoulli mask in training.

Source of semantics: torch.nn.functional.dropout and its kin. The mask is ``RandomUniformLike >= p``, see ``random`` for the reason.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
ALPHA = 1.7580993408473766
"""What selu tends to at minus infinity: alpha dropout puts it in the place of the dropped elements."""


@translates(aten.dropout.default)
def dropout(op, input, p, train):
    """Zeros with probability *p*, the other elements divided by ``1 - p``."""
    return masked(op, input, keeps(op, input, p), p) if train and p else input


@translates(aten.native_dropout.default)
def native_dropout(op, input, p, train):
    """dropout, and the mask of the elements that it keeps."""
    if train is False or not p:
        return input, op.Expand(op.constant(True), op.shape_of(input))
    mask = keeps(op, input, p)
    return masked(op, input, mask, p), op.Expand(mask, op.shape_of(input)) if p == 1 else mask


@translates(aten.feature_dropout.default)
def feature_dropout(op, input, p, train):
    """dropout of whole channels."""
    return masked(op, input, keeps(op, feature_noise(op, input), p), p) if train and p else input


@translates(aten.alpha_dropout.default)
def alpha_dropout(op, input, p, train):
    """dropout that keeps mean and variance for selu."""
    return self_normalizing(op, input, keeps(op, input, p), p) if train and p else input


@translates(aten.feature_alpha_dropout.default)
def feature_alpha_dropout(op, input, p, train):
    """alpha_dropout of whole channels."""
    if not (train and p):
        return input
    return self_normalizing(op, input, keeps(op, feature_noise(op, input), p), p)


def keeps(op, like: ir.Value, p: float) -> ir.Value:
    """A random mask in the shape of a value, true with probability ``1 - p``; one False when *p* is 1."""
    if p == 1:
        return op.constant(False)
    uniform = op.RandomUniformLike(like, dtype=ir.DataType.FLOAT)
    return op.GreaterOrEqual(uniform, float(p))


def feature_noise(op, input: ir.Value) -> ir.Value:
    """A value with the batches and channels of *input*, and ones behind."""
    sizes = [op.size(input, 0), op.size(input, 1), *[1] * (rank(input) - 2)]
    return op.ConstantOfShape(op.shape(sizes))


def masked(op, input: ir.Value, mask: ir.Value, p: float) -> ir.Value:
    """The kept elements divided by ``1 - p``; multiplied by the mask, as in torch, for NaN and infinities.

    The mask is what is divided: that of whole channels has fewer elements.
    """
    noise = op.Cast(mask, to=input.dtype)
    return op.Mul(input, noise if p == 1 else op.Mul(noise, 1 / (1 - p)))


def self_normalizing(op, input: ir.Value, mask: ir.Value, p: float) -> ir.Value:
    """``a * (input or -ALPHA) + b`` with the a and b that restore mean 0 and variance 1; zeros when *p* is 1."""
    noise = op.Cast(mask, to=input.dtype)
    if p == 1:
        return op.Mul(input, noise)
    a = 1 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    shift = op.Add(op.Mul(op.Sub(noise, 1.0), ALPHA * a), ALPHA * a * p)
    return op.Add(op.Mul(input, op.Mul(noise, a)), shift)
