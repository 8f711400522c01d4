"""Losses: cross entropy, negative log likelihood, mean squared and absolute errors, and their reductions.

Source of semantics: https://pytorch.org/docs/stable/nn.functional.html#loss-functions.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.reduction import HALVES, mean_dim, reduce
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
INT64 = ir.DataType.INT64
NONE, MEAN, SUM = 0, 1, 2


@translates(aten.cross_entropy_loss.default)
def cross_entropy_loss(op, self, target, weight, reduction, ignore_index, label_smoothing):
    """The negative log likelihood after a log-softmax; targets are classes, or probabilities when they are floats."""
    axis = class_axis(self)
    logs = op.LogSoftmax(self, axis=axis)
    if target.dtype in dtypes.FLOATS:
        return likelihood_of_probabilities(op, logs, target, weight, reduction, label_smoothing)
    loss, total = likelihood(op, logs, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return loss

    weighted = logs if weight is None else op.Mul(logs, along_classes(op, weight, logs))
    every = op.Neg(op.ReduceSum(weighted, [axis], keepdims=0))
    kept = op.Not(op.Equal(op.Cast(target, to=INT64), ignore_index))
    smooth = op.Where(kept, every, op.CastLike(0.0, every))
    if reduction != NONE:
        smooth = op.ReduceSum(smooth, keepdims=0)
    if reduction == MEAN:
        smooth = op.Div(smooth, total)
    share = op.Div(op.CastLike(label_smoothing, logs), op.CastLike(op.size(logs, axis), logs))
    return op.Add(op.Mul(loss, 1 - label_smoothing), op.Mul(smooth, share))


@translates(aten.l1_loss.default)
def l1_loss(op, self, target, reduction):
    """``|self - target|``, reduced."""
    return reduced(op, op.Abs(op.Sub(*promote(op, self, target))), reduction)


@translates(aten.mse_loss.default)
def mse_loss(op, self, target, reduction):
    """``(self - target) ** 2``, reduced."""
    error = op.Sub(*promote(op, self, target))
    return reduced(op, op.Mul(error, error), reduction)


@translates(aten.nll_loss.default, aten.nll_loss2d.default, aten.nll_loss_nd.default)
def nll_loss(op, self, target, weight, reduction, ignore_index):
    """Minus the log probability of the target class, weighted by class."""
    return likelihood(op, self, target, weight, reduction, ignore_index)[0]


@translates(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(op, self, target, weight, reduction, ignore_index):
    """The loss and the total weight of the targets that are not ignored."""
    return likelihood(op, self, target, weight, reduction, ignore_index)


# ---- helpers


def along_classes(op, weight, self) -> ir.Value:
    """A weight for each class, shaped to multiply *self*."""
    return op.Reshape(weight, [-1] + [1] * (rank(self) - class_axis(self) - 1))


def class_axis(self) -> int:
    """The axis of classes: the first one without a batch, the second one with it."""
    return 1 if rank(self) > 1 else 0


def likelihood(op, self, target, weight, reduction, ignore_index) -> tuple[ir.Value, ir.Value]:
    """The loss of log probabilities and the total weight; ignored targets count for nothing."""
    axis = class_axis(self)
    wide = op.Cast(self, to=ir.DataType.FLOAT) if self.dtype in HALVES else self
    target = op.Cast(target, to=INT64)
    kept = op.Not(op.Equal(target, ignore_index))
    index = op.Where(kept, target, op.constant(0, INT64))
    chosen = op.Squeeze(op.GatherElements(wide, op.Unsqueeze(index, [axis]), axis=axis), [axis])

    zero = op.CastLike(0.0, wide)
    weights = op.CastLike(kept, wide)
    loss = op.Neg(chosen)
    if weight is not None:
        weights = op.Where(kept, op.CastLike(op.Gather(weight, index), wide), zero)
        loss = op.Mul(loss, weights)
    loss = op.Where(kept, loss, zero)
    if reduction == NONE:
        return op.CastLike(loss, self), op.CastLike(0.0, self)
    loss, total = op.ReduceSum(loss, keepdims=0), op.ReduceSum(weights, keepdims=0)
    if reduction == MEAN:
        loss = op.Div(loss, total)
    return op.CastLike(loss, self), op.CastLike(total, self)


def likelihood_of_probabilities(op, logs, target, weight, reduction, label_smoothing) -> ir.Value:
    """Minus the expected log probability; the mean is over everything but the classes."""
    axis = class_axis(logs)
    if label_smoothing:
        share = op.Div(op.CastLike(label_smoothing, target), op.CastLike(op.size(logs, axis), target))
        target = op.Add(op.Mul(target, 1 - label_smoothing), share)
    product = op.Mul(*promote(op, logs, target))
    if weight is not None:
        product = op.Mul(product, along_classes(op, weight, logs))
    return reduced(op, op.Neg(op.ReduceSum(product, [axis], keepdims=0)), reduction)


def reduced(op, loss, reduction: int) -> ir.Value:
    """A loss as it is, its mean or its sum."""
    if reduction == NONE:
        return loss
    return reduce(op, "ReduceSum", loss, None) if reduction == SUM else mean_dim(op, loss, None, False, None)
