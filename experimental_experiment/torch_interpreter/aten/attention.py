"""Attention: scaled_dot_product_attention in all its forms, and the fast path of nn.MultiheadAttention.

Source of semantics: ``torch.nn.functional.scaled_dot_product_attention`` and ONNX Attention-23. float16 and bfloat16 are computed
in float32 as eager's kernels do. A row whose mask lets nothing through gives 0, in eager as here.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import cast
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@translates(aten.scaled_dot_product_attention.default)
def scaled_dot_product_attention(op, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """``softmax(query @ key.T * scale + mask) @ value``; one ONNX Attention where onnxruntime computes it as eager does."""
    refuse_dropout(dropout_p)
    if attn_mask is not None and is_causal:
        raise Untranslatable("attn_mask and is_causal=True at once")
    if fits_attention(op, query, key, value, attn_mask, scale, enable_gqa):
        return op.Attention(query, key, value, attn_mask, is_causal=int(is_causal), scale=scale)
    if enable_gqa:
        key, value = repeated_heads(op, query, key), repeated_heads(op, query, value)
    return attend(op, query, key, value, attn_mask, is_causal, scale)[0]


def attend(op, query, key, value, attn_mask, is_causal, scale):
    """The attended values and the weights, of MatMul and Softmax."""
    dtype = query.dtype
    computed = ir.DataType.FLOAT if dtype in HALVES else dtype
    query, key, value = (cast(op, tensor, computed) for tensor in (query, key, value))
    swapped = [*range(rank(key) - 2), rank(key) - 1, rank(key) - 2]
    scores = op.MatMul(op.Mul(query, factor(op, query, scale)), op.Transpose(key, perm=swapped))
    bias = causal_bias(op, query, key) if is_causal else additive(op, attn_mask, computed)
    weights = op.Softmax(scores if bias is None else op.Add(scores, bias), axis=-1)
    result = op.MatMul(weights, value)
    if attn_mask is not None and not attends_everywhere(attn_mask):
        closed = op.Equal(op.ReduceMax(bias, [-1], keepdims=1), -math.inf)
        weights, result = (op.Where(closed, op.constant(0.0, computed), x) for x in (weights, result))
    return cast(op, result, dtype), cast(op, weights, dtype)


def factor(op, query, scale):
    """What the scores are multiplied by, in the dtype of *query*: *scale*, by default 1 / sqrt(size of the last axis)."""
    if scale is None:
        size = op.size(query, -1)
        if isinstance(size, ir.Value):
            return op.Reciprocal(op.Sqrt(op.Cast(size, to=query.dtype)))
        scale = 1.0 / math.sqrt(size) if size else 1.0
    return cast(op, scale, query.dtype)


def additive(op, attn_mask, dtype):
    """A mask to add to the scores: minus infinity where a boolean one is False."""
    if attn_mask is None or attn_mask.dtype != ir.DataType.BOOL:
        return None if attn_mask is None else cast(op, attn_mask, dtype)
    return op.Where(attn_mask, op.constant(0.0, dtype), op.constant(-math.inf, dtype))


def causal_bias(op, query, key):
    """Minus infinity where the position of the key is after that of the query, counted from the first of both."""
    rows, columns = (op.Range(0, op.size(x, -2), 1) for x in (query, key))
    return additive(op, op.GreaterOrEqual(op.Unsqueeze(rows, [1]), columns), query.dtype)


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
    times = (
        op.Div(heads, groups)
        if isinstance(heads, ir.Value) or isinstance(groups, ir.Value)
        else heads // groups
    )
    sizes = [op.size(key, axis) for axis in range(rank(key))]
    spread = op.Expand(op.Unsqueeze(key, [-3]), op.shape([*sizes[:-2], times, *sizes[-2:]]))
    return op.Reshape(spread, op.shape([*sizes[:-3], heads, *sizes[-2:]]), allowzero=1)


def fits_attention(op, query, key, value, attn_mask, scale, enable_gqa) -> bool:
    """Whether onnxruntime's Attention gives what eager gives.

    Measured with onnxruntime 1.31: it refuses empty tensors, batches and masks that broadcast over positions, bfloat16 and negative scales;
    its scale is a float32; it gives 0, not the mean of the values, where a whole row of a float mask is the lowest float.
    """
    if not op.has("Attention") or query.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return False
    if any(rank(x) != 4 or {0, None} & set(x.shape) for x in (query, key, value)):
        return False
    if len({x.shape[0] for x in (query, key, value)}) > 1 or key.shape[1] != value.shape[1]:
        return False
    if query.shape[1] != key.shape[1] and not enable_gqa:
        return False
    if scale is not None and (isinstance(scale, ir.Value) or scale <= 0):
        return False
    positions = [query.shape[-2], key.shape[-2]]
    return attn_mask is None or (
        attn_mask.dtype == ir.DataType.BOOL
        and rank(attn_mask) >= 2
        and list(attn_mask.shape)[-2:] == positions
    )


def refuse_dropout(dropout_p) -> None:
    """Raise Untranslatable when attention weights are dropped at random."""
    if isinstance(dropout_p, ir.Value) or dropout_p != 0:
        raise Untranslatable(f"dropout_p={dropout_p} drops at random: call model.eval() first")
