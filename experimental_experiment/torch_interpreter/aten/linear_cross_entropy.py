"""torch.nn.functional.linear_cross_entropy in chunks: the loss is that of the whole batch.

Source of semantics: torch/nn/modules/linear_cross_entropy.py. Chunks bound the memory of the gradient, which is not exported.
"""

from __future__ import annotations

from torch.nn import _reduction

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.linear_algebra import linear
from experimental_experiment.torch_interpreter.aten.loss import cross_entropy_loss
from experimental_experiment.torch_interpreter.promotion import cast
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.unread import zeros_for_gradient


@translates("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(
    op, input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing,
    batch_chunk_size, acc_policy, acc_dtype, allow_retain_graph, compute_input_grad, compute_linear_weight_grad,
    compute_linear_bias_grad,
):  # fmt: skip
    """The loss, summed or averaged; the other results are gradients, refused when the program reads them."""
    operands = input, linear_weight, linear_bias, target, weight
    loss = whole_batch(op, *operands, reduction, ignore_index, label_smoothing, acc_dtype)
    return loss, *zeros_for_gradient(op)


@translates("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy_no_reduction(
    op, input, linear_weight, target, linear_bias, weight, ignore_index, batch_chunk_size, acc_policy, acc_dtype
):  # fmt: skip
    """The loss of every sample."""
    operands = input, linear_weight, linear_bias, target, weight
    return whole_batch(op, *operands, "none", ignore_index, 0.0, acc_dtype)


def whole_batch(
    op, input, linear_weight, linear_bias, target, weight, reduction, ignore_index, smoothing, acc_dtype
):
    """Cross entropy of ``input @ linear_weight.T + linear_bias``, accumulated in *acc_dtype*."""
    wide = dtypes.onnx_dtype(acc_dtype)
    logits = cast(op, linear(op, input, linear_weight, linear_bias), wide)
    weight = None if weight is None else cast(op, weight, wide)
    number = _reduction.get_enum(reduction)
    loss = cross_entropy_loss(op, logits, target, weight, number, ignore_index, smoothing)
    return cast(op, loss, input.dtype)
