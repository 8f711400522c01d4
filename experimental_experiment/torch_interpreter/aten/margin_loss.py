"""Losses with a margin: rankings, embeddings, triplets, one or several target classes.

Source of semantics: https://pytorch.org/docs/stable/nn.functional.html#loss-functions.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.loss import NONE, reduced
from experimental_experiment.torch_interpreter.composite import composite, decomposed
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
INT64 = ir.DataType.INT64

composite(
    aten.cosine_embedding_loss.default,
    aten.soft_margin_loss_backward.default,
    aten.triplet_margin_loss.default,
)


@translates(aten.hinge_embedding_loss.default)
def hinge_embedding_loss(op, self, target, margin, reduction):
    """The distance of pairs that are alike (target 1), what others (target -1) lack to the margin."""
    self, target = promote(op, self, target)
    zero = op.CastLike(0.0, self)
    unlike = op.Where(op.Equal(target, 1.0), zero, op.Max(op.Sub(op.CastLike(margin, self), self), zero))
    alike = op.Where(op.Equal(target, -1.0), zero, self)
    return reduced(op, op.Add(unlike, alike), reduction)


@translates(aten.margin_ranking_loss.default)
def margin_ranking_loss(op, input1, input2, target, margin, reduction):
    """``max(0, margin - target * (input1 - input2))``."""
    product = op.Mul(*promote(op, op.Neg(target), op.Sub(*promote(op, input1, input2))))
    order, margin = promote(op, product, float(margin))
    return reduced(op, op.Max(op.Add(order, margin), 0.0), reduction)


@translates(aten.multi_margin_loss.default)
def multi_margin_loss(op, self, target, p, margin, weight, reduction):
    """How far the target class is from being a margin above each other one, to the power p."""
    if reduction == NONE and rank(target) == 0:
        raise Untranslatable(
            "torch.export declares a wrong shape for one target without reduction: reduction='sum' gives the number"
        )
    arguments = dict(self=self, target=target, p=p, margin=margin, weight=weight, reduction=reduction)
    return decomposed(aten.multi_margin_loss.default)(op, **arguments)


@translates(aten.multilabel_margin_loss.default)
def multilabel_margin_loss(op, self, target, reduction):
    """How far each target class is from being a margin of 1 above the others; targets end at the first -1."""
    return multilabel_margin_loss_forward(op, self, target, reduction)[0]


@translates(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_forward(op, self, target, reduction):
    """The loss, and which classes are targets."""
    size = op.constant(op.size(self, -1) if rank(self) else 1, INT64)
    scores, classes = (op.Reshape(part, op.shape([-1, size])) for part in (self, target))
    ended = op.CumSum(op.Cast(op.Less(classes, 0), to=INT64), 1)
    given = op.Equal(ended, 0)
    index = op.Where(given, classes, op.constant(0, INT64))
    marks = op.Cast(given, to=INT64)
    zeros = op.Expand(op.constant(0, INT64), op.shape_of(classes))
    is_target = op.Greater(op.ScatterElements(zeros, index, marks, axis=1, reduction="add"), 0)

    # for each target class, each other class
    chosen = op.Unsqueeze(op.GatherElements(scores, index, axis=1), [2])
    lack = op.Max(op.Sub(op.CastLike(1.0, scores), op.Sub(chosen, op.Unsqueeze(scores, [1]))), 0.0)
    counted = op.And(op.Unsqueeze(given, [2]), op.Not(op.Unsqueeze(is_target, [1])))
    lack = op.Where(counted, lack, op.CastLike(0.0, lack))
    loss = op.Div(op.ReduceSum(lack, [1, 2], keepdims=0), op.CastLike(size, lack))
    if reduction == NONE and rank(self) < 2:
        loss = op.Squeeze(loss, [0])
    return reduced(op, loss, reduction), op.Reshape(op.CastLike(is_target, self), op.shape_of(target))


@translates(aten.soft_margin_loss.default)
def soft_margin_loss(op, self, target, reduction):
    """``log(1 + exp(-target * self))``, inf beyond the range of exp as in torch."""
    product = op.Neg(op.Mul(*promote(op, self, target)))
    grown = op.Exp(product)
    if self.dtype == ir.DataType.FLOAT16:
        # a chain of three operators may be computed in float32, where nothing overflows
        grown = op.Where(op.Greater(product, math.log(65519)), op.CastLike(math.inf, grown), grown)
    return reduced(op, op.Log(op.Add(grown, 1.0)), reduction)
