"""Losses of classification and regression: likelihoods, cross entropies, divergences, errors; their gradients.

Source of semantics: https://pytorch.org/docs/stable/nn.functional.html#loss-functions.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.reduction import mean_dim, reduce
from experimental_experiment.torch_interpreter.composite import composite
from experimental_experiment.torch_interpreter.dtypes import HALVES
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
INT64 = ir.DataType.INT64
NONE, MEAN, SUM = 0, 1, 2
REDUCTIONS = ("none", "mean", "sum")

NO_CLASS = -100
"""What stands for the ignored targets where a size says which they are: ATen's default."""

composite(
    aten.binary_cross_entropy_backward.default,
    aten.huber_loss_backward.default,
    aten.mse_loss_backward.default,
    aten.poisson_nll_loss.default,
    aten.smooth_l1_loss_backward.default,
)


@translates(aten.binary_cross_entropy.default)
def binary_cross_entropy(op, self, target, weight, reduction):
    """``-target * log(self) - (1 - target) * log(1 - self)``, each logarithm at least -100."""
    self, target, weight = promote(op, self, target, weight)
    one = op.CastLike(1.0, self)
    sure = op.Max(op.Log(self), -100.0)
    unsure = op.Max(op.Log(op.Sub(one, self)), -100.0)
    loss = op.Sub(op.Mul(op.Sub(target, one), unsure), op.Mul(target, sure))
    return reduced(op, loss if weight is None else op.Mul(loss, weight), reduction)


@translates(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(op, self, target, weight, pos_weight, reduction):
    """``(1 - target) * x + softplus(-x)``: binary cross entropy after a sigmoid; *pos_weight* weighs the targets that are 1."""
    self, target, weight, pos_weight = promote(op, self, target, weight, pos_weight)
    one = op.CastLike(1.0, self)
    doubt = op.Softplus(op.Neg(self))
    if pos_weight is not None:
        doubt = op.Mul(doubt, op.Add(op.Mul(op.Sub(pos_weight, one), target), one))
    loss = op.Add(op.Mul(op.Sub(one, target), self), doubt)
    loss = reduced(op, loss if weight is None else op.Mul(loss, weight), reduction)
    # that of the target where the dtypes differ
    return op.Cast(loss, to=dtypes.onnx_dtype(op.context.node.meta["val"].dtype))


@translates(aten.cross_entropy_loss.default)
def cross_entropy_loss(op, self, target, weight, reduction, ignore_index, label_smoothing):
    """The negative log likelihood after a log-softmax; targets are classes, or probabilities when they are floats."""
    axis = class_axis(self)
    is_class = target.dtype not in dtypes.FLOATS
    if is_class and not label_smoothing:
        return likelihood(op, self, target, weight, reduction, ignore_index, "SoftmaxCrossEntropyLoss")[0]
    logs = op.LogSoftmax(self, axis=axis)
    if not is_class:
        return likelihood_of_probabilities(op, logs, target, weight, reduction, label_smoothing)

    loss, total = likelihood(op, logs, target, weight, reduction, ignore_index)
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


@translates(aten.huber_loss.default)
def huber_loss(op, self, target, reduction, delta):
    """Half the squared error, linear beyond *delta*: the error up to *delta* times the error less half of that."""
    error = op.Abs(op.Sub(*promote(op, self, target)))
    near = op.Min(error, float(delta))
    return reduced(op, op.Mul(near, op.Sub(error, op.Mul(near, 0.5))), reduction)


@translates(aten.kl_div.default)
def kl_div(op, self, target, reduction, log_target):
    """``target * (log(target) - self)``, 0 for a target that is 0; *log_target*: its logarithm is given."""
    self, target = promote(op, self, target)
    if log_target:
        return reduced(op, op.Mul(op.Exp(target), op.Sub(target, self)), reduction)
    zero = op.CastLike(0.0, target)
    entropy = op.Where(op.Equal(target, zero), zero, op.Mul(target, op.Log(target)))
    return reduced(op, op.Sub(entropy, op.Mul(target, self)), reduction)


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


@translates(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(op, grad_output, self, target, weight, reduction, ignore_index, total_weight):
    """Minus the gradient of each loss, or its part of the mean, at the target class, times the weight of the class; nothing for ignored targets."""
    axis = class_axis(self)
    if reduction == MEAN:
        grad_output = op.Div(grad_output, total_weight)
    if rank(self) == 1:  # a loss and a target, with an axis or without
        grad_output, target = op.Reshape(grad_output, [1]), op.Reshape(target, [1])
    else:
        grad_output, target = (
            op.Unsqueeze(x, [axis]) if rank(x) == rank(target) else x for x in (grad_output, target)
        )
    classes = op.Range(0, op.size(self, axis), 1)
    is_target = op.Equal(target, op.Reshape(classes, [-1] + [1] * (rank(self) - axis - 1)))
    gradient = op.Neg(op.Where(op.Equal(target, ignore_index), 0.0, grad_output))
    if weight is not None:
        gradient = op.Mul(gradient, along_classes(op, weight, self))
    return op.Where(is_target, gradient, 0.0)


@translates(aten.smooth_l1_loss.default)
def smooth_l1_loss(op, self, target, reduction, beta):
    """The absolute error less half of *beta*, squared below *beta*."""
    error = op.Abs(op.Sub(*promote(op, self, target)))
    if beta == 0:
        return reduced(op, error, reduction)
    near = op.Min(error, float(beta))
    loss = op.Mul(op.Div(near, float(beta)), op.Sub(error, op.Mul(near, 0.5)))
    return reduced(op, loss, reduction)


# ---- helpers


def along_classes(op, weight, self) -> ir.Value:
    """A weight for each class, shaped to multiply *self*."""
    return op.Reshape(weight, [-1] + [1] * (rank(self) - class_axis(self) - 1))


def class_axis(self) -> int:
    """The axis of classes: the first one without a batch, the second one with it."""
    return 1 if rank(self) > 1 else 0


def likelihood(
    op, self, target, weight, reduction, ignore_index, operator="NegativeLogLikelihoodLoss"
) -> tuple[ir.Value, ir.Value]:
    """The loss of log probabilities, or of scores, and the total weight; ignored targets count for nothing.

    Halves are summed in float32, as in torch.
    """
    logs = op.Cast(self, to=ir.DataType.FLOAT) if self.dtype in HALVES else self
    weight = None if weight is None else op.CastLike(weight, logs)
    target = op.Cast(target, to=INT64)
    if isinstance(ignore_index, ir.Value):  # the operators have it as an attribute: a number that is no class
        target, ignore_index = op.Where(op.Equal(target, ignore_index), NO_CLASS, target), NO_CLASS
    operands = logs, target
    if rank(self) == 1:
        operands = op.Unsqueeze(logs, [0]), op.Unsqueeze(target, [0])
    attributes = {"ignore_index": ignore_index, "reduction": REDUCTIONS[reduction]}
    loss = op.emit(operator, (*operands, weight), attributes)
    if reduction == NONE:
        loss = op.Squeeze(loss, [0]) if rank(self) == 1 else loss
        return op.CastLike(loss, self), op.CastLike(0.0, self)

    kept = op.Not(op.Equal(target, ignore_index))
    weights = op.CastLike(kept, logs)
    if weight is not None:
        index = op.Where(kept, target, op.constant(0, INT64))
        weights = op.Where(kept, op.Gather(weight, index), op.CastLike(0.0, logs))
    return op.CastLike(loss, self), op.CastLike(op.ReduceSum(weights, keepdims=0), self)


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
