"""Attention by the kernels of GPUs: flash, memory-efficient, cuDNN's, and the one that a backend of its own brings; their gradients.

Source of semantics: ``aten::_scaled_dot_product_flash_attention`` and its siblings, whose shapes stand in
``torch/_meta_registrations.py``. A program that was decomposed on a GPU holds one of them for each scaled_dot_product_attention.
"""

from __future__ import annotations

import math

import torch

from experimental_experiment.torch_interpreter.aten.attention import scaled_dot_product_attention, with_sums
from experimental_experiment.torch_interpreter.aten.backward_attention import attention_gradients
from experimental_experiment.torch_interpreter.aten.spatial import short_of
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.unread import reads_result, unread

aten = torch.ops.aten

ALIGNMENT = 32
"""The memory-efficient kernel keeps the logarithms of a multiple of so many queries."""


@translates(aten._scaled_dot_product_flash_attention.default)
def flash_attention(op, query, key, value, dropout_p, is_causal, return_debug_mask, scale):
    """The attended values, the logarithms of the sums (batch, heads, queries), the lengths, an empty random state."""
    return fused(op, query, key, value, None, dropout_p, is_causal, scale)


@translates(aten._scaled_dot_product_efficient_attention.default)
def efficient_attention(op, query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, scale):
    """The attended values and the logarithms of the sums (batch, heads, queries rounded up), none when not asked for."""

    def rounded_up(sums):
        missing = short_of(op, op.size(query, -2), ALIGNMENT)
        return op.Pad(sums, op.shape([0, 0, 0, 0, 0, missing]), op.constant(math.inf, sums.dtype))

    return fused(
        op, query, key, value, attn_bias, dropout_p, is_causal, scale, compute_log_sumexp, rounded_up
    )


@translates(aten._scaled_dot_product_cudnn_attention.default)
def cudnn_attention(
    op, query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, return_debug_mask, scale
):  # fmt: skip
    """The attended values, the logarithms of the sums (batch, heads, queries, 1), the lengths, an empty random state."""

    def columns(sums):
        return op.Unsqueeze(sums, [-1])

    return fused(op, query, key, value, attn_bias, dropout_p, is_causal, scale, compute_log_sumexp, columns)


@translates(aten._scaled_dot_product_fused_attention_overrideable.default)
def overrideable_attention(
    op, query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, scale
):  # fmt: skip
    """`flash_attention` with a mask."""
    return fused(op, query, key, value, attn_bias, dropout_p, is_causal, scale)


def fused(op, query, key, value, mask, dropout_p, is_causal, scale, keeps=True, form=lambda sums: sums):
    """The attended values, the logarithms of the sums in their *form*, and what only the kernels need.

    The logarithms are zeros when they are not kept or nothing reads them.
    """
    fakes = op.context.node.meta["val"]
    is_read = reads_result(op, 1)
    if dropout_p and is_read:
        raise Untranslatable(f"dropout_p={dropout_p} with a gradient, which draws the same numbers again")
    if keeps and is_read:
        result, sums = with_sums(op, query, key, value, mask, is_causal, scale)
        sums = form(sums)
    else:
        result = scaled_dot_product_attention(op, query, key, value, mask, dropout_p, is_causal, scale, True)
        sums = unread(op, fakes[1])
    lengths = iter((op.size(query, -2), op.size(key, -2)))
    others = [
        unread(op, fake) if isinstance(fake, torch.Tensor) else None if fake is None else next(lengths)
        for fake in fakes[2:]
    ]
    return result, sums, *others


# ---- gradients


@translates(aten._scaled_dot_product_flash_attention_backward.default)
def flash_attention_backward(
    op, grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
    is_causal, philox_seed, philox_offset, scale,
):  # fmt: skip
    """The gradients of query, key and value."""
    given = grad_out, query, key, value, out, logsumexp
    return attention_gradients(op, *given, dropout_p, is_causal, None, scale)[:3]


@translates(aten._scaled_dot_product_efficient_attention_backward.default)
def efficient_attention_backward(
    op, grad_out_, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p,
    grad_input_mask, is_causal, scale,
):  # fmt: skip
    """The gradients of query, key, value and the mask, those that are asked for."""
    sums = op.Slice(logsumexp, [0], op.shape([op.size(query, -2)]), [-1])
    given = grad_out_, query, key, value, out, sums
    return wanted(attention_gradients(op, *given, dropout_p, is_causal, attn_bias, scale), grad_input_mask)


@translates(aten._scaled_dot_product_cudnn_attention_backward.default)
def cudnn_attention_backward(
    op, grad_out, query, key, value, out, logsumexp, philox_seed, philox_offset, attn_bias, cum_seq_q,
    cum_seq_k, max_q, max_k, dropout_p, is_causal, scale,
):  # fmt: skip
    """The gradients of query, key and value."""
    given = grad_out, query, key, value, out, op.Squeeze(logsumexp, [-1])
    return attention_gradients(op, *given, dropout_p, is_causal, attn_bias, scale)[:3]


@translates(aten._scaled_dot_product_fused_attention_overrideable_backward.default)
def overrideable_attention_backward(
    op, grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k,
    max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset, scale,
):  # fmt: skip
    """The gradients of query, key, value and the mask, those that are asked for."""
    given = grad_out, query, key, value, out, logsumexp
    return wanted(attention_gradients(op, *given, dropout_p, is_causal, attn_bias, scale), grad_input_mask)


def wanted(gradients, mask):
    """The gradients that are asked for, None for the others."""
    return tuple(gradient if asked else None for gradient, asked in zip(gradients, mask))
