"""Attention: what onnxruntime's kernel computes otherwise than eager, and the older sets, which lack it."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.attention import attend
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import raised, rounded, wide
from experimental_experiment.torch_interpreter.runtime.reductions import is_on_gpu
from experimental_experiment.torch_interpreter.runtime.table import before, repairs
from experimental_experiment.torch_interpreter.sizes import may_be_none

BOOL, DOUBLE = ir.DataType.BOOL, ir.DataType.DOUBLE


@repairs(
    "Attention",
    when="halves, but for those without a mask in a model on a GPU",
    because="float16 is added in float16, ten times further from the result than eager; bfloat16 has no kernel",
    nodes=4,
)
def of_halves(op, *tensors, **attributes):
    """Attention of float32 tensors, cast back."""
    dtype = tensors[0].dtype
    if wide(dtype) == dtype or is_exact_on_gpu(op, *tensors, **attributes):
        return None
    return rounded(op, op.emit("Attention", [raised(op, x) for x in tensors], attributes), dtype)


def is_exact_on_gpu(op, query, key, value, attn_mask=None, *, scale=None, is_causal=0) -> bool:
    """Whether CUDA's provider adds halves in float32, as eager does: not beside a mask, nor in heads that are not of eights."""
    sizes = [x.shape[-1] for x in (query, key, value)]
    queries, keys = query.shape[-2], key.shape[-2]
    # two sizes without names are equal
    is_square = queries == keys and getattr(queries, "value", queries) is not None
    return (
        op.opset >= 23
        and attn_mask is None
        and (scale is None or scale > 0)
        and (not is_causal or is_square)
        and all(isinstance(size, int) and size % 8 == 0 for size in sizes)
        and is_on_gpu(op)
    )


@repairs(
    "Attention",
    when="float64; a scale that is not positive; no element, or a size that the data decide; a float mask; a mask that broadcasts over positions",
    because="the scale is a float32; the kernel refuses; a row of the lowest float gives 0, not the mean of the values",
    nodes="4 to 12",
)
def where_eager_differs(op, query, key, value, attn_mask=None, *, scale=None, is_causal=0):
    """Two MatMul around a Softmax."""
    empty = any(size == 0 or may_be_none(op, size) for x in (query, key, value) for size in x.shape)
    if (
        query.dtype == DOUBLE
        or empty
        or (scale is not None and scale <= 0)
        or not fits(query, key, attn_mask)
    ):
        return composed(op, query, key, value, attn_mask, scale, is_causal)
    return None


@before(23, "Attention", because="it does not exist", nodes="4 to 12")
def of_two_products(op, query, key, value, attn_mask=None, *, scale=None, is_causal=0):
    """Two MatMul around a Softmax."""
    return composed(op, query, key, value, attn_mask, scale, is_causal)


def composed(op, query, key, value, attn_mask, scale, is_causal):
    """The attended values, of heads that serve as many others as there are."""
    return attend(op, query, key, value, attn_mask, 0.0, bool(is_causal), scale, True)[0]


def fits(query: ir.Value, key: ir.Value, attn_mask: ir.Value | None) -> bool:
    """Whether the kernel takes the mask: boolean, of the positions of queries and keys."""
    if attn_mask is None:
        return True
    positions = [query.shape[-2], key.shape[-2]]
    return attn_mask.dtype == BOOL and rank(attn_mask) >= 2 and list(attn_mask.shape)[-2:] == positions
