"""Attention and rotary embeddings of com.microsoft: rows of heads that stand side by side."""

from __future__ import annotations

import math

import numpy as np

from experimental_experiment.reference.registry import computes


def apart(rows: np.ndarray, heads: int) -> np.ndarray:
    """[batch, heads, positions, size] of [batch, positions, heads * size]."""
    return rows.reshape(*rows.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def side_by_side(heads: np.ndarray) -> np.ndarray:
    """The inverse of `apart`."""
    batch, _, positions, _ = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(batch, positions, -1)


def weighted(scores: np.ndarray, v: np.ndarray, sink: np.ndarray | float | None = None) -> np.ndarray:
    """softmax(scores) @ v. *sink*: one more score of each row, of nothing."""
    top = scores.max(axis=-1, keepdims=True)
    top = top if sink is None else np.maximum(top, sink)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True) + (0 if sink is None else np.exp(sink - top))
    return np.matmul(weights / total, v).astype(v.dtype)


def products(q: np.ndarray, k: np.ndarray, scale: float) -> np.ndarray:
    """scale * q @ k.T, the scale being 1 / sqrt(size) when it is 0."""
    return np.matmul(q, k.swapaxes(-1, -2)) * (scale or 1 / math.sqrt(q.shape[-1]))


def causal(queries: int, keys: int) -> np.ndarray:
    """0 where a key is not after the query, the last query standing at the last key; -inf elsewhere."""
    after = np.arange(keys)[None] > np.arange(keys - queries, keys)[:, None]
    return np.where(after, -np.inf, 0.0).astype(np.float32)


def padding(mask: np.ndarray | None, batch: int, keys: int, filter_value: float) -> np.ndarray | float:
    """What a mask of com.microsoft adds to [batch, heads, queries, keys] scores.

    A mask is the number of keys of each sample, those numbers and where each begins, or 0 and 1 for each key, for each query and
    key, or for the largest of both.
    """
    if mask is None:
        return 0.0
    positions = np.arange(keys)[None]
    if mask.ndim == 1:
        ends = mask[:batch, None]
        begins = mask[batch : 2 * batch, None] if len(mask) == 2 * batch else 0
        kept = ((positions >= begins) & (positions < ends))[:, None, None]
    elif mask.ndim == 2:
        kept = mask[:, None, None, :] != 0
    elif mask.ndim == 3:
        kept = mask[:, None] != 0
    else:
        raise NotImplementedError(f"a mask of shape {mask.shape} is not handled")
    return np.where(kept, 0.0, filter_value).astype(np.float32)


@computes("MultiHeadAttention")
def multi_head_attention(
    query, key=None, value=None, bias=None, key_padding_mask=None, attention_bias=None, past_key=None, past_value=None,
    past_sequence_length=None, cache_indirection=None,
    *, num_heads, mask_filter_value=-10000.0, scale=0.0, unidirectional=0,
):  # fmt: skip
    """Attention of heads that stand side by side; the keys and values with those of the past."""
    if past_sequence_length is not None or cache_indirection is not None:
        raise NotImplementedError("MultiHeadAttention with the cache of a beam search is not handled")
    if key is None or value is None:
        raise NotImplementedError(
            "MultiHeadAttention with queries, keys and values in one tensor is not handled"
        )
    if bias is not None:
        sizes = query.shape[-1], bias.shape[0] - query.shape[-1] - (value_size := last(value)), value_size
        q_bias, k_bias, v_bias = np.split(bias, np.cumsum(sizes)[:-1])
        query = query + q_bias
        key = key + k_bias if key.ndim == 3 else key
        value = value + v_bias if value.ndim == 3 else value
    q = apart(query, num_heads)
    k, v = (rows if rows.ndim == 4 else apart(rows, num_heads) for rows in (key, value))
    if past_key is not None:
        k, v = np.concatenate([past_key, k], axis=2), np.concatenate([past_value, v], axis=2)
    total = padding(key_padding_mask, len(q), k.shape[2], mask_filter_value)
    if attention_bias is not None:
        total = total + attention_bias
    if unidirectional:
        total = total + causal(q.shape[2], k.shape[2])
    return side_by_side(weighted(products(q, k, scale) + total, v)), k, v


def last(value: np.ndarray) -> int:
    """Elements of all heads at one position."""
    return value.shape[-1] if value.ndim == 3 else value.shape[1] * value.shape[3]


@computes("Attention")
def attention(
    x, weights, bias=None, mask_index=None, past=None, attention_bias=None, past_sequence_length=None,
    *, num_heads, qkv_hidden_sizes=None, mask_filter_value=-10000.0, scale=0.0, unidirectional=0,
    do_rotary=0, rotary_embedding_dim=0, past_present_share_buffer=0,
):  # fmt: skip
    """The products that give queries, keys and values, then attention; keys and values with those of the past."""
    if do_rotary or past_present_share_buffer:
        raise NotImplementedError(
            "com.microsoft.Attention with do_rotary or past_present_share_buffer is not handled"
        )
    rows = np.matmul(x, weights)
    rows = rows if bias is None else rows + bias
    sizes = qkv_hidden_sizes or [rows.shape[-1] // 3] * 3
    q, k, v = (apart(part, num_heads) for part in np.split(rows, np.cumsum(sizes)[:-1], axis=-1))
    if past is not None:
        k, v = np.concatenate([past[0], k], axis=2), np.concatenate([past[1], v], axis=2)
    total = padding(mask_index, len(q), k.shape[2], mask_filter_value)
    if attention_bias is not None:
        total = total + attention_bias
    if unidirectional:
        total = total + causal(q.shape[2], k.shape[2])
    result = side_by_side(weighted(products(q, k, scale) + total, v))
    return (result, np.stack([k, v])) if k.shape == v.shape else result


@computes("RotaryEmbedding")
def rotary_embedding(
    x, position_ids, cos_cache, sin_cache,
    *, interleaved=0, num_heads=0, rotary_embedding_dim=0, is_packed_batching=0, scale=1.0,
):  # fmt: skip
    """Turn pairs of elements of each head by the angles of its position; one position is that of the first row."""
    if is_packed_batching:
        raise NotImplementedError("RotaryEmbedding with is_packed_batching is not handled")
    size = rotary_embedding_dim or 2 * cos_cache.shape[1]
    heads = x if x.ndim == 4 else apart(x, num_heads or x.shape[2] // size)
    batch, _, positions, _ = heads.shape
    if position_ids.size == 1:
        position_ids = np.broadcast_to(position_ids.reshape(1, 1) + np.arange(positions), (batch, positions))
    result = rotated(heads, position_ids, cos_cache, sin_cache, interleaved)
    return result if x.ndim == 4 else side_by_side(result)


def rotated(
    heads: np.ndarray, positions: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: int
) -> np.ndarray:
    """[batch, heads, rows, size], turned at [batch, rows] positions of two tables; elements beyond the tables stay."""
    cos, sin = cos[positions][:, None], sin[positions][:, None]
    width = 2 * cos.shape[-1]
    turning, kept = heads[..., :width], heads[..., width:]
    if interleaved:
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = np.split(turning, 2, axis=-1)
    parts = first * cos - second * sin, second * cos + first * sin
    turned = np.stack(parts, axis=-1).reshape(turning.shape) if interleaved else np.concatenate(parts, -1)
    return np.concatenate([turned, kept], axis=-1).astype(heads.dtype)


@computes("GroupQueryAttention")
def group_query_attention(
    query, key=None, value=None, past_key=None, past_value=None, seqlens_k=None, total_sequence_length=None,
    cos_cache=None, sin_cache=None, position_ids=None, attention_bias=None, head_sink=None,
    k_scale=None, v_scale=None, q_norm_weight=None, k_norm_weight=None,
    *, num_heads, kv_num_heads, scale=0.0, softcap=0.0, do_rotary=0, rotary_interleaved=0, local_window_size=-1,
    smooth_softmax=0, qk_output=0, causal=1, sliding_window_cache=0,
    k_quant_type="NONE", v_quant_type="NONE", kv_cache_bit_width=0, qk_norm_epsilon=0.0,
):  # fmt: skip
    """Causal attention with a cache that has room: sample b has seqlens_k[b] + 1 keys with those of this call.

    The width of quantized numbers and the epsilon of norms change nothing where there are none.
    """
    is_quantized = k_scale is not None or v_scale is not None or {k_quant_type, v_quant_type} != {"NONE"}
    has_norms = q_norm_weight is not None or k_norm_weight is not None
    if qk_output or not causal or sliding_window_cache or is_quantized or has_norms:
        raise NotImplementedError(
            "GroupQueryAttention with qk_output, causal=0, sliding_window_cache, a quantized cache or norms is not handled"
        )
    if key is None:
        size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        query, key, value = np.split(query, [num_heads * size, (num_heads + kv_num_heads) * size], axis=-1)
    q, k, v = apart(query, num_heads), apart(key, kv_num_heads), apart(value, kv_num_heads)
    batch, _, rows, size = q.shape
    longest = int(total_sequence_length.reshape(()))
    is_first = rows == longest
    begins = np.zeros(batch, np.int64) if is_first else seqlens_k.reshape(-1).astype(np.int64) + 1 - rows
    positions = begins[:, None] + np.arange(rows)
    if do_rotary:
        angles = positions
        if position_ids is not None:  # the first call reads its first element only
            angles = positions + position_ids.reshape(-1)[0] if is_first else position_ids
        q, k = (rotated(heads, angles, cos_cache, sin_cache, rotary_interleaved) for heads in (q, k))
    room = max(longest, 0 if past_key is None else past_key.shape[2])
    cached = [np.zeros((batch, kv_num_heads, room, size), q.dtype) for _ in range(2)]
    for cache, past, new in zip(cached, (past_key, past_value), (k, v)):
        for sample, begin in enumerate(begins):
            if past is not None and begin:
                cache[sample, :, :begin] = past[sample, :, :begin]
            cache[sample, :, begin : begin + rows] = new[sample]
    keys, values = (np.repeat(cache, num_heads // kv_num_heads, axis=1) for cache in cached)
    gap = positions[:, None, :, None] - np.arange(room)
    closed = (gap < 0) | ((gap >= local_window_size) if local_window_size > 0 else False)
    scores = products(q, keys, scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if attention_bias is not None:
        scores[..., : attention_bias.shape[-1]] += attention_bias
    scores = np.where(closed, -np.inf, scores)
    sink = 0.0 if smooth_softmax else None if head_sink is None else head_sink.reshape(1, -1, 1, 1)
    return side_by_side(weighted(scores, values, sink)), *cached
