"""Gradients of attention, as aot_autograd writes them on the CPU.

Source of semantics: ``aten::_scaled_dot_product_flash_attention_for_cpu_backward`` and "FlashAttention-2", algorithm 2: the weights are
computed again from the logarithm of the sums that the forward operator keeps.
"""

from __future__ import annotations

import math

import torch

from experimental_experiment.torch_interpreter.aten.attention import (
    factor,
    repeated_heads,
    scores_of,
)
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.aten.transposing import transposed
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import cast, wide
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import quotient

aten = torch.ops.aten


@translates(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def flash_attention_for_cpu_backward(
    op, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale
):  # fmt: skip
    """The gradients of query, key and value."""
    return attention_gradients(
        op, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale
    )[:3]


def attention_gradients(
    op, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale
):  # fmt: skip
    """The gradients of query, key, value and, in the shape of the scores, of the mask that is added to them."""
    if dropout_p:
        raise Untranslatable(f"dropout_p={dropout_p} is not handled")
    dtypes = [x.dtype for x in (query, key, value, query if attn_mask is None else attn_mask)]
    grad_out, query, key, value, out = (
        cast(op, x, wide(x.dtype)) for x in (grad_out, query, key, value, out)
    )
    keys, values = repeated_heads(op, query, key), repeated_heads(op, query, value)
    scores, _ = scores_of(op, query, keys, attn_mask, is_causal, scale)
    sums = op.Unsqueeze(cast(op, logsumexp, query.dtype), [-1])
    weights = op.Exp(op.Sub(scores, sums))
    if attn_mask is not None:  # a row that lets nothing through
        weights = op.Where(op.Equal(sums, -math.inf), op.constant(0.0, weights.dtype), weights)
    of_value = op.MatMul(transposed(op, weights), grad_out)
    of_weights = op.MatMul(grad_out, transposed(op, values))
    mean = op.ReduceSum(op.Mul(grad_out, out), [-1], keepdims=1)
    of_mask = op.Mul(weights, op.Sub(of_weights, mean))
    of_scores = op.Mul(of_mask, factor(op, query, scale))
    found = (
        op.MatMul(of_scores, keys),
        of_group(op, op.MatMul(transposed(op, of_scores), query), key),
        of_group(op, of_value, value),
        of_mask,
    )
    return tuple(cast(op, x, dtype) for x, dtype in zip(found, dtypes))


def of_group(op, gradient, like):
    """The gradient of repeated heads summed over the copies of each head of *like*."""
    heads, groups = op.size(gradient, -3), op.size(like, -3)
    if heads is groups or heads == groups:
        return gradient
    sizes = [op.size(gradient, axis) for axis in range(rank(gradient))]
    apart = reshaped(op, gradient, [*sizes[:-3], groups, quotient(op, heads, groups), *sizes[-2:]])
    return op.ReduceSum(apart, [-3], keepdims=0)
