"""Norms of a sum, of embeddings, and the norm without a mean."""

from __future__ import annotations

import numpy as np

from experimental_experiment.reference.registry import computes


def normalized(x: np.ndarray, epsilon: float, axis: int = -1, centred: bool = True) -> tuple[np.ndarray, ...]:
    """What has mean 0 (when *centred*) and mean square 1 over the axes from *axis* on; the mean; 1 / the deviation. In float32."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    mean = wide.mean(axis=axes, keepdims=True) if centred else np.zeros((), wide.dtype)
    inverse = 1 / np.sqrt(np.square(wide - mean).mean(axis=axes, keepdims=True) + epsilon)
    return (wide - mean) * inverse, mean, inverse


@computes("SimplifiedLayerNormalization", domain="")
def simplified_layer_normalization(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """RMSNormalization under the name that onnxruntime had for it, in the domain of ONNX."""
    result, _, inverse = normalized(x, epsilon, axis, centred=False)
    return (result * scale).astype(x.dtype), inverse


@computes("SkipLayerNormalization")
def skip_layer_normalization(x, skip, gamma, beta=None, bias=None, *, epsilon=1e-12):
    """LayerNormalization of x + skip + bias, and that sum."""
    total = summed(x, skip, bias)
    result, mean, inverse = normalized(total, epsilon)
    result = result * gamma if beta is None else result * gamma + beta
    return result.astype(x.dtype), mean, inverse, total


@computes("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(x, skip, gamma, bias=None, *, epsilon=1e-12):
    """The same without a mean."""
    total = summed(x, skip, bias)
    result, mean, inverse = normalized(total, epsilon, centred=False)
    return (result * gamma).astype(x.dtype), mean, inverse, total


def summed(x: np.ndarray, skip: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """x + skip + bias; *skip* may lack the batch of *x*."""
    return x + skip if bias is None else x + skip + bias


@computes("EmbedLayerNormalization")
def embed_layer_normalization(
    input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta,
    mask=None, position_ids=None, *, epsilon=1e-12, mask_index_type=None,
):  # fmt: skip
    """LayerNormalization of the embeddings of words, positions and segments; the number of ones in each mask; their sum."""
    if position_ids is None:
        position_ids = np.arange(input_ids.shape[1])[None]
    total = word_embedding[input_ids] + position_embedding[position_ids]
    if segment_ids is not None:
        total = total + segment_embedding[segment_ids]
    result, _, _ = normalized(total, epsilon)
    counts = np.zeros(len(input_ids), np.int32) if mask is None else mask.sum(axis=1, dtype=np.int32)
    return (result * gamma + beta).astype(gamma.dtype), counts, total
