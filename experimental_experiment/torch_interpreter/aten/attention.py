"""Attention: scaled_dot_product_attention in all its forms, and the fast path of nn.MultiheadAttention.

Source of semantics: ``torch.nn.functional.scaled_dot_product_attention`` and ONNX Attention-23. A row whose mask lets nothing
through gives 0, in eager as here.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.activation import gelu
from experimental_experiment.torch_interpreter.aten.dropout import dropout
from experimental_experiment.torch_interpreter.aten.linear_algebra import linear
from experimental_experiment.torch_interpreter.aten.normalization import layer_norm
from experimental_experiment.torch_interpreter.aten.shaping import expanded, reshaped
from experimental_experiment.torch_interpreter.aten.transposing import transposed
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import cast, raised, rounded
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import know_sizes, quotient, sizes_of
from experimental_experiment.torch_interpreter.unread import reads_result, zeros_for_gradient

aten = torch.ops.aten


@translates(aten.scaled_dot_product_attention.default)
def scaled_dot_product_attention(op, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """``softmax(query @ key.T * scale + mask) @ value``; one ONNX Attention of batches of heads."""
    # Attention takes the square root of the scale
    is_no_root = isinstance(scale, ir.Value) or (scale is not None and scale < 0)
    if dropout_p or is_no_root or not fits_attention(query, key, value, attn_mask):
        return rounded_attention(op, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)[0]
    return op.Attention(query, key, value, attn_mask, is_causal=int(is_causal), scale=scale)


def fits_attention(query, key, value, attn_mask) -> bool:
    """Whether ONNX Attention takes these shapes: four axes, one batch, whole groups of heads."""
    tensors = query, key, value
    if any(rank(x) != 4 for x in tensors) or (attn_mask is not None and rank(attn_mask) < 2):
        return False
    heads = [x.shape[1] for x in tensors]
    is_one_batch = len({x.shape[0] for x in tensors}) == 1
    return is_one_batch and heads[1] == heads[2] and (heads[0] == heads[1] or is_multiple(*heads[:2]))


def is_multiple(heads, groups) -> bool:
    """Whether a number of heads is known to be that of whole groups."""
    return isinstance(heads, int) and isinstance(groups, int) and groups > 0 and heads % groups == 0


@translates(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention_for_cpu(op, query, key, value, dropout_p, is_causal, attn_mask, scale):
    """What torch's decomposition leaves of scaled_dot_product_attention; the gradient reads the logarithm of the sums."""
    if dropout_p or not reads_result(op, 1):
        result = scaled_dot_product_attention(
            op, query, key, value, attn_mask, dropout_p, is_causal, scale, True
        )
        return result, *zeros_for_gradient(op)
    return with_sums(op, query, key, value, attn_mask, is_causal, scale)


def with_sums(op, query, key, value, attn_mask, is_causal, scale):
    """The attended values and, in float32 at least, the logarithm of the sum of exponentials of every row of scores."""
    dtype = query.dtype
    query, key, value = (raised(op, tensor) for tensor in (query, key, value))
    key, value = repeated_heads(op, query, key), repeated_heads(op, query, value)
    scores, bias = scores_of(op, query, key, attn_mask, is_causal, scale)
    result, _ = weighted(op, scores, bias, value, attn_mask, 0.0, is_causal)
    return rounded(op, result, dtype), op.ReduceLogSumExp(scores, [-1], keepdims=0)


@translates(aten._scaled_dot_product_attention_math.default)
def attention_math(op, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """scaled_dot_product_attention and its weights."""
    return rounded_attention(op, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def rounded_attention(op, query, key, value, attn_mask, *options):
    """`attend`, halves in float32, rounded once as in eager."""
    dtype = query.dtype
    query, key, value = (raised(op, tensor) for tensor in (query, key, value))
    return tuple(rounded(op, x, dtype) for x in attend(op, query, key, value, attn_mask, *options))


def attend(op, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """The attended values and the weights, of MatMul and Softmax."""
    if enable_gqa:
        key, value = repeated_heads(op, query, key), repeated_heads(op, query, value)
    scores, bias = scores_of(op, query, key, attn_mask, is_causal, scale)
    return weighted(op, scores, bias, value, attn_mask, dropout_p, is_causal)


def scores_of(op, query, key, attn_mask, is_causal, scale):
    """What the softmax is taken of, and the bias in it, None without a mask."""
    scores = op.MatMul(op.Mul(query, factor(op, query, scale)), transposed(op, key))
    bias = additive(op, attn_mask, query.dtype)
    if is_causal:
        causal = causal_bias(op, scores)
        bias = causal if bias is None else op.Add(bias, causal)
    return scores if bias is None else op.Add(scores, bias), bias


def weighted(op, scores, bias, value, attn_mask, dropout_p, is_causal):
    """The attended values and the weights; both 0 where the bias lets nothing through."""
    weights = op.Softmax(scores, axis=-1)
    result = op.MatMul(dropout(op, weights, dropout_p, True), value)
    if attn_mask is not None and (is_causal or not attends_everywhere(attn_mask)):
        largest = op.ReduceMax(bias, [-1], keepdims=1)
        closed = op.Equal(largest, -math.inf)
        weights, result = (op.Where(closed, op.constant(0.0, x.dtype), x) for x in (weights, result))
    return result, weights


def factor(op, query, scale):
    """What the scores are multiplied by, in the dtype of *query*: *scale*, by default 1 / sqrt(size of the last axis)."""
    if scale is None:
        size = op.size(query, -1)
        if isinstance(size, ir.Value):
            return op.Reciprocal(op.Sqrt(op.Cast(op.shape([size]), to=query.dtype)))
        scale = 1.0 / math.sqrt(size) if size else 1.0
    return cast(op, scale, query.dtype)


def additive(op, attn_mask, dtype):
    """A mask to add to the scores: minus infinity where a boolean one is False."""
    if attn_mask is None or attn_mask.dtype != ir.DataType.BOOL:
        return None if attn_mask is None else cast(op, attn_mask, dtype)
    return op.Where(attn_mask, op.constant(0.0, dtype), op.constant(-math.inf, dtype))


def causal_bias(op, scores):
    """Minus infinity where the position of the key is after that of the query, counted from the first of both."""
    closed = op.Expand(op.constant(-math.inf, scores.dtype), op.shape_of(scores, -2))
    know_sizes(op, closed, [op.size(scores, axis) for axis in (-2, -1)])
    return op.Trilu(closed, 1, upper=1)


def attends_everywhere(attn_mask: ir.Value) -> bool:
    """Whether the mask is a constant whose every row lets a position through."""
    if attn_mask.const_value is None:
        return False
    mask = attn_mask.const_value.numpy()
    return bool((mask if attn_mask.dtype == ir.DataType.BOOL else mask != -math.inf).any(axis=-1).all())


def repeated_heads(op, query, key):
    """Grouped queries: each head of *key* serves as many heads of *query*, which follow each other."""
    heads, groups = op.size(query, -3), op.size(key, -3)
    if heads is groups or heads == groups:
        return key
    sizes = sizes_of(op, key)
    copies = expanded(op, op.Unsqueeze(key, [-3]), [*sizes[:-2], quotient(op, heads, groups), *sizes[-2:]])
    return reshaped(op, copies, [*sizes[:-3], heads, *sizes[-2:]])


# ---- the fast path of nn.MultiheadAttention and nn.TransformerEncoderLayer in evaluation


@translates(aten._native_multi_head_attention.default)
def native_multi_head_attention(
    op,
    query,
    key,
    value,
    embed_dim,
    num_head,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    mask,
    need_weights,
    average_attn_weights,
    mask_type,
):
    """Self-attention and its weights: their mean over the heads, all of them, or none."""
    weights, biases = (
        op.Split(qkv_weight, num_outputs=3, outputs=3),
        op.Split(qkv_bias, num_outputs=3, outputs=3),
    )
    heads = [
        split_heads(op, linear(op, x, weight, bias), num_head)
        for x, weight, bias in zip((query, key, value), weights, biases)
    ]
    if mask is not None:
        mask = op.Where(
            closed_to(op, mask, mask_type), op.constant(-math.inf, query.dtype), op.CastLike(0.0, query)
        )
    q, k, v = heads
    scores = op.MatMul(op.Mul(q, factor(op, q, None)), op.Transpose(k, perm=[0, 1, 3, 2]))
    attention = op.Softmax(scores if mask is None else op.Add(scores, mask), axis=-1)
    joined = op.Reshape(op.Transpose(op.MatMul(attention, v), perm=[0, 2, 1, 3]), [0, 0, embed_dim])
    result = linear(op, joined, proj_weight, proj_bias)
    if not need_weights:
        return result, op.constant([], query.dtype)
    return result, op.ReduceMean(attention, [1], keepdims=0) if average_attn_weights else attention


@translates(aten._transformer_encoder_layer_fwd.default)
def transformer_encoder_layer(
    op,
    src,
    embed_dim,
    num_heads,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    use_gelu,
    norm_first,
    eps,
    norm_weight_1,
    norm_bias_1,
    norm_weight_2,
    norm_bias_2,
    ffn_weight_1,
    ffn_bias_1,
    ffn_weight_2,
    ffn_bias_2,
    mask,
    mask_type,
):
    """Self-attention then two linear layers, each added to its input, normalized before or after."""

    def attention(x):
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return native_multi_head_attention(
            op, x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type
        )[0]

    def feed_forward(x):
        hidden = linear(op, x, ffn_weight_1, ffn_bias_1)
        return linear(op, gelu(op, hidden, "none") if use_gelu else op.Relu(hidden), ffn_weight_2, ffn_bias_2)

    x = src
    for function, weight, bias in (
        (attention, norm_weight_1, norm_bias_1),
        (feed_forward, norm_weight_2, norm_bias_2),
    ):
        if norm_first:
            x = op.Add(x, function(layer_norm(op, x, [embed_dim], weight, bias, eps)))
        else:
            x = layer_norm(op, op.Add(x, function(x)), [embed_dim], weight, bias, eps)
    return x


def split_heads(op, x, num_head):
    """[batch, steps, heads * size] as [batch, heads, steps, size]."""
    return op.Transpose(op.Reshape(x, [0, 0, num_head, -1]), perm=[0, 2, 1, 3])


def closed_to(op, mask, mask_type):
    """Where attention is closed, by batch, head, query and key.

    *mask_type*: the mask is over queries and keys (0), over batch and keys (1), over all (2).
    """
    mask = op.Cast(mask, to=ir.DataType.BOOL)
    return op.Unsqueeze(mask, [1, 2]) if mask_type == 1 else mask
