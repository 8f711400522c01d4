"""Gradients of the reduced rows of embedding_bag.

Source of semantics: ``aten::_embedding_bag_backward`` and the documentation of torch.nn.EmbeddingBag.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.embedding import (
    MAX,
    MEAN,
    bag_of_each,
    row_counts,
)
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import cast, wide
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


@translates(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    op, grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, sparse,
    per_sample_weights, padding_idx,
):  # fmt: skip
    """The gradient of each bag added to its rows: over its length for the mean, times the weights of the samples.

    torch's scale_grad_by_freq divides by the uses of other rows: it is refused.
    """
    if sparse or scale_grad_by_freq:
        raise Untranslatable("only dense gradients without scale_grad_by_freq are handled")
    if mode == MAX:
        return added_to_largest(op, grad, bag_size, maximum_indices, num_weights)
    indices = cast(op, indices, ir.DataType.INT64)
    bags = op.Unsqueeze(bag_of_each(op, indices, cast(op, offsets, ir.DataType.INT64)), [1])
    kept = is_kept(op, indices, padding_idx)
    wide_grad = cast(op, grad, wide(grad.dtype))
    if mode == MEAN:
        zero, one = (op.constant(number, wide_grad.dtype) for number in (0.0, 1.0))
        lengths = row_counts(op, op.Expand(zero, op.shape([op.size(grad, 0), 1])), indices, bags, kept)
        wide_grad = op.Div(wide_grad, op.Max(lengths, one))
    rows = op.GatherND(wide_grad, bags)
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(cast(op, per_sample_weights, rows.dtype), [1]))
    if kept is not None:
        rows = op.Mul(rows, op.Cast(kept, to=rows.dtype))
    zeros = op.Expand(op.constant(0.0, rows.dtype), op.shape([num_weights, op.size(grad, 1)]))
    return cast(op, op.ScatterND(zeros, op.Unsqueeze(indices, [1]), rows, reduction="add"), grad.dtype)


@translates(aten._embedding_bag_per_sample_weights_backward.default)
def embedding_bag_per_sample_weights_backward(
    op, grad, weight, indices, offsets, offset2bag, mode, padding_idx
):
    """The scalar product of each row and the gradient of its bag."""
    indices = cast(op, indices, ir.DataType.INT64)
    bags = op.Unsqueeze(bag_of_each(op, indices, cast(op, offsets, ir.DataType.INT64)), [1])
    rows, grads = (
        cast(op, x, wide(grad.dtype)) for x in (op.Gather(weight, indices, axis=0), op.GatherND(grad, bags))
    )
    products = op.ReduceSum(op.Mul(rows, grads), [1], keepdims=0)
    kept = is_kept(op, indices, padding_idx)
    if kept is not None:
        products = op.Mul(products, op.Cast(op.Squeeze(kept, [1]), to=products.dtype))
    return cast(op, products, grad.dtype)


def added_to_largest(op, grad, bag_size, maximum_indices, num_weights):
    """Each element of the gradient of a bag that is not empty added to the row that it was read from."""
    is_empty = op.Unsqueeze(op.Equal(bag_size, 0), [1])
    wide_grad = op.Where(is_empty, op.constant(0.0, wide(grad.dtype)), cast(op, grad, wide(grad.dtype)))
    zeros = op.Expand(op.constant(0.0, wide_grad.dtype), op.shape([num_weights, op.size(grad, 1)]))
    total = op.ScatterElements(zeros, maximum_indices, wide_grad, axis=0, reduction="add")
    return cast(op, total, grad.dtype)


def is_kept(op, indices, padding_idx):
    """Whether each of the indices [indices, 1] is no padding, None when there is no padding."""
    return None if padding_idx < 0 else op.Unsqueeze(op.Not(op.Equal(indices, padding_idx)), [1])
