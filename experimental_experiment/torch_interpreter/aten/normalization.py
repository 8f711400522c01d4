"""Normalization: batch, layer, group, instance and root mean square.

Source of semantics: torch.nn.functional.batch_norm, layer_norm, group_norm, instance_norm and rms_norm.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import raised, rounded, wide
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Size, is_static, quotient, sizes_of, volume

aten = torch.ops.aten


# ---- batch


@translates(aten.batch_norm.default)
def batch_norm(
    op, input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled
):  # fmt: skip
    """Normalize each channel, with running statistics or, when training, with the batch's, then updates the former."""
    if rank(input) == 1:  # torch only takes an empty tensor
        kept = (running_mean, running_var) if training and running_mean is not None else ()
        return (input, *kept) if kept else input
    result, _, _, *new = with_statistics(
        op, input, weight, bias, running_mean, running_var, training, momentum, eps
    )
    return (result, *new) if training and new else result


@translates(aten.native_batch_norm.default)
def native_batch_norm(op, input, weight, bias, running_mean, running_var, training, momentum, eps):
    """`batch_norm` with the mean and 1 / deviation of the batch; both are empty without training."""
    results = with_statistics(op, input, weight, bias, running_mean, running_var, training, momentum, eps)
    return as_torch_says(op, results if training else results[:3])


@translates(aten._native_batch_norm_legit.default, aten._native_batch_norm_legit_functional.default)
def _native_batch_norm_legit(op, input, weight, bias, running_mean, running_var, training, momentum, eps):
    """`native_batch_norm`, then the new running statistics."""
    results = with_statistics(op, input, weight, bias, running_mean, running_var, training, momentum, eps)
    return as_torch_says(op, results)


@translates(aten._native_batch_norm_legit.no_stats)
def _native_batch_norm_legit_no_stats(op, input, weight, bias, training, momentum, eps):
    """`native_batch_norm` without running statistics: always with the batch's."""
    return as_torch_says(op, with_statistics(op, input, weight, bias, None, None, True, momentum, eps))


@translates(aten._native_batch_norm_legit_no_training.default)
def _native_batch_norm_legit_no_training(op, input, weight, bias, running_mean, running_var, momentum, eps):
    """`native_batch_norm` with the running statistics."""
    results = with_statistics(op, input, weight, bias, running_mean, running_var, False, momentum, eps)
    return as_torch_says(op, results[:3])


@translates(aten._batch_norm_with_update.default, aten._batch_norm_with_update_functional.default)
def _batch_norm_with_update(op, input, weight, bias, running_mean, running_var, momentum, eps):
    """`native_batch_norm` in training, an empty reserve, then the new running statistics."""
    results = with_statistics(op, input, weight, bias, running_mean, running_var, True, momentum, eps)
    return as_torch_says(op, (*results[:3], empty(op, ir.DataType.UINT8), *results[3:]))


@translates(aten._batch_norm_no_update.default)
def _batch_norm_no_update(op, input, weight, bias, running_mean, running_var, momentum, eps):
    """`native_batch_norm` without training, and an empty reserve."""
    results = with_statistics(op, input, weight, bias, running_mean, running_var, False, momentum, eps)
    return as_torch_says(op, (*results[:3], empty(op, ir.DataType.UINT8)))


def with_statistics(op, input, weight, bias, running_mean, running_var, training, momentum, eps):
    """The result, the mean and 1 / deviation of the batch, and the running mean and variance if there are any.

    Without training the batch has no statistics: they are empty on a CPU, on a GPU those that were used.
    """
    if not training:
        result = normalized(op, input, running_mean, running_var, weight, bias, eps)
        used = (empty(op, running_mean.dtype),) * 2
        fakes = op.context.node.meta["val"]
        if not isinstance(fakes, torch.Tensor) and fakes[0].device.type != "cpu":
            used = raised(op, running_mean), reciprocal_root(op, raised(op, running_var), eps)
        return result, *used, running_mean, running_var
    if rank(input) < 2:
        raise Untranslatable("an input without an axis of channels")
    axes = other_axes(input)
    mean, var = moments(op, raised(op, input), axes)
    statistics = op.Squeeze(mean, axes), op.Squeeze(var, axes)
    result = normalized(op, input, *statistics, weight, bias, eps)
    used = result, statistics[0], reciprocal_root(op, statistics[1], eps)
    if running_mean is None:
        return used
    return *used, *updated(op, input, axes, (running_mean, running_var), statistics, momentum)


def normalized(op, input, mean, var, weight, bias, eps):
    """``(input - mean) / sqrt(var + eps) * weight + bias``, with one number a channel for each of them."""
    channels = op.size(input, 1)
    if is_static(channels):
        kind = mean.dtype.numpy()
        scale = op.constant(np.ones(channels, kind)) if weight is None else weight
        shift = op.constant(np.zeros(channels, kind)) if bias is None else bias
        if input.dtype == ir.DataType.DOUBLE:  # the attribute is a float32
            var = op.Add(var, eps - float(np.float32(eps)))
        x, *given = in_one_dtype(op, input, scale, shift, mean, var)
        return op.Cast(op.BatchNormalization(x, *given, epsilon=eps), to=input.dtype)
    mean, var = (channelwise(op, x, input) for x in (mean, var))
    result = op.Mul(op.Sub(raised(op, input), mean), reciprocal_root(op, var, eps))
    return op.Cast(scaled_channels(op, result, weight, bias), to=input.dtype)


def updated(op, input, axes, running, batch, momentum):
    """The running mean and variance after one batch; the variance that enters is the unbiased one."""
    mean, var = batch
    count = op.CastLike(op.constant(elements(op, input, axes)), var)
    unbiased = op.Mul(var, op.Div(count, op.Sub(count, 1)))
    new = []
    for old, now in zip(running, (mean, unbiased)):
        kept = op.Mul(raised(op, old), 1 - momentum)
        new.append(op.Cast(op.Add(kept, op.Mul(op.CastLike(now, kept), momentum)), to=old.dtype))
    return tuple(new)


# ---- layer, root mean square


@translates(aten.layer_norm.default)
def layer_norm(op, input, normalized_shape, weight, bias, eps):
    """Normalize over the last len(normalized_shape) axes."""
    result = layer_normalization(op, input, normalized_shape, weight, bias, eps)
    return rounded(op, result, input.dtype)


@translates(aten.native_layer_norm.default)
def native_layer_norm(op, input, normalized_shape, weight, bias, eps):
    """`layer_norm` with the mean and 1 / deviation of every row, which LayerNormalization gives in float32 at most."""
    if input.dtype == ir.DataType.DOUBLE:
        result = layer_norm(op, input, normalized_shape, weight, bias, eps)
        mean, var = moments(op, input, list(range(-len(normalized_shape), 0)))
        return result, mean, reciprocal_root(op, var, eps)
    return as_torch_says(op, layer_normalization(op, input, normalized_shape, weight, bias, eps, outputs=3))


def layer_normalization(op, input, normalized_shape, weight, bias, eps, outputs=None):
    """LayerNormalization, in float32 where the dtypes differ, with the first *outputs* of its three results."""
    axis = -len(normalized_shape)
    if weight is None:
        weight = ones_like_axes(op, input, axis)
    x, weight, bias = in_one_dtype(op, input, weight, bias)
    return op.LayerNormalization(x, weight, bias, axis=axis, epsilon=eps, outputs=outputs)


@translates(aten.rms_norm.default)
def rms_norm(op, input, normalized_shape, weight, eps):
    """Divide by the root of the mean square over the last axes; no eps is the smallest step of the computing dtype."""
    axis = -len(normalized_shape)
    if weight is None:
        weight = ones_like_axes(op, input, axis)
    x, weight = in_one_dtype(op, input, weight)
    result = op.RMSNormalization(x, weight, axis=axis, epsilon=smallest_step(input, eps))
    return rounded(op, result, input.dtype)


@translates(aten._fused_rms_norm.default)
def _fused_rms_norm(op, input, normalized_shape, weight, eps):
    """`rms_norm` and 1 / root mean square of every row."""
    x = raised(op, input)
    square = op.ReduceMean(op.Mul(x, x), list(range(-len(normalized_shape), 0)), keepdims=1)
    factor = reciprocal_root(op, square, smallest_step(input, eps))
    return as_torch_says(op, (rms_norm(op, input, normalized_shape, weight, eps), factor))


def smallest_step(input, eps):
    """*eps*, by default the distance from 1 to the next number of the dtype that *input* is computed in."""
    return float(np.finfo(wide(input.dtype).numpy()).eps) if eps is None else eps


# ---- group, instance


@translates(aten.group_norm.default)
def group_norm(op, input, num_groups, weight, bias, eps):
    """Normalize over the channels of a group and all spatial axes, then scale each channel."""
    channels = op.size(input, 1)
    weight = repeated_number(op, 1.0, channels, input.dtype) if weight is None else weight
    bias = repeated_number(op, 0.0, channels, input.dtype) if bias is None else bias
    x, weight, bias = in_one_dtype(op, input, weight, bias)
    # the statistics are of float32 where the node does not say otherwise
    precision = {"stash_type": x.dtype.value} if x.dtype == ir.DataType.DOUBLE else {}
    result = op.GroupNormalization(x, weight, bias, num_groups=num_groups, epsilon=eps, **precision)
    return rounded(op, result, input.dtype)


@translates(aten.native_group_norm.default)
def native_group_norm(op, input, weight, bias, N, C, HxW, group, eps):
    """`group_norm` with the mean and 1 / deviation of every group."""
    mean, var = statistics_of(op, in_groups(op, raised(op, input), group))
    result = group_norm(op, input, group, weight, bias, eps)
    return as_torch_says(op, (result, mean, reciprocal_root(op, var, eps)))


@translates(aten.instance_norm.default)
def instance_norm(
    op, input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled
):  # fmt: skip
    """Normalize each channel of each sample, by its own statistics or by the running ones."""
    if not use_input_stats:
        return normalized(op, input, running_mean, running_var, weight, bias, eps)
    rows = input if rank(input) > 2 else op.Unsqueeze(input, [2])
    result = op.Cast(normalized_rows(op, *in_one_dtype(op, rows, weight, bias), eps), to=input.dtype)
    if running_mean is None:
        # as of channels of one element, whose spread torch divides by 0
        return result if rank(input) > 2 else op.Squeeze(result, [2])
    mean, var = (
        op.ReduceMean(statistic, [0], keepdims=0) for statistic in statistics_of(op, raised(op, input))
    )
    return result, *updated(
        op, input, range(2, rank(input)), (running_mean, running_var), (mean, var), momentum
    )


def in_groups(op, x, groups):
    """*x* (N, channels, *) as (N, groups, *), the spatial axes where they are and the channels of a group last: a constant says it all.

    The elements of a group stand in a row, whichever axes they count.
    """
    batch, channels, *behind = sizes_of(op, x)
    if groups == channels and behind:
        return x
    if is_static(channels, *behind):
        return reshaped(op, x, [batch, groups, volume(op, [channels, *behind]) // groups])
    return reshaped(op, x, [batch, groups, *behind, quotient(op, channels, groups)])


def normalized_rows(op, rows, weight, bias, eps):
    """Every ``rows[n, g]`` (N, G, *) normalized, then scaled by weight and bias, one number for each g."""
    if rows.dtype != ir.DataType.DOUBLE and rank(rows) > 2:
        scale = repeated_number(op, 1.0, op.size(rows, 1), rows.dtype) if weight is None else weight
        shift = repeated_number(op, 0.0, op.size(rows, 1), rows.dtype) if bias is None else bias
        return op.InstanceNormalization(rows, scale, shift, epsilon=eps)
    x = raised(op, rows)
    mean, var = moments(op, x, list(range(2, rank(x))))
    result = op.Mul(op.Sub(x, mean), reciprocal_root(op, var, eps))
    return scaled_channels(op, result, weight, bias)


def statistics_of(op, rows):
    """The mean and the variance of every ``rows[n, g]``, both of shape (N, G)."""
    axes = list(range(2, rank(rows)))
    return [op.Squeeze(statistic, axes) for statistic in moments(op, rows, axes)]


def repeated_number(op, number, count, dtype):
    """A vector of one number."""
    return op.Expand(op.constant(number, dtype), op.shape([count]))


# ---- shared


def in_one_dtype(op, *given: ir.Value | None) -> list[ir.Value | None]:
    """The tensors as they are when they have one dtype, in the dtype that torch computes in otherwise."""
    if len({x.dtype for x in given if x is not None}) == 1:
        return list(given)
    return [None if x is None else raised(op, x) for x in given]


def moments(op, x: ir.Value, axes: list[int]) -> tuple[ir.Value, ir.Value]:
    """The mean and the biased variance over some axes, which stay with size 1."""
    mean = op.ReduceMean(x, axes, keepdims=1)
    centered = op.Sub(x, mean)
    return mean, op.ReduceMean(op.Mul(centered, centered), axes, keepdims=1)


def reciprocal_root(op, var: ir.Value, eps: float) -> ir.Value:
    """``1 / sqrt(var + eps)``."""
    return op.Reciprocal(op.Sqrt(op.Add(raised(op, var), eps)))


def channelwise(op, x: ir.Value, like: ir.Value) -> ir.Value:
    """One number a channel, broadcast along the second axis of *like*."""
    return op.Unsqueeze(raised(op, x), list(range(1, rank(like) - 1)))


def scaled_channels(op, x: ir.Value, weight: ir.Value | None, bias: ir.Value | None) -> ir.Value:
    """``x * weight + bias`` by channel, in the dtype of *x*."""
    if weight is not None:
        x = op.Mul(x, op.CastLike(channelwise(op, weight, x), x))
    return x if bias is None else op.Add(x, op.CastLike(channelwise(op, bias, x), x))


def other_axes(input: ir.Value) -> list[int]:
    """All axes but that of the channels."""
    return [axis for axis in range(rank(input)) if axis != 1]


def elements(op, input: ir.Value, axes) -> Size:
    """Number of elements over some axes."""
    return volume(op, [op.size(input, axis) for axis in axes])


def ones_like_axes(op, input: ir.Value, axis: int) -> ir.Value:
    """Ones in the shape of the axes from *axis* on."""
    return op.Expand(op.constant(1, input.dtype), op.shape_of(input, axis))


def empty(op, dtype: ir.DataType) -> ir.Value:
    """A 1-D tensor without elements."""
    return op.constant(np.zeros(0), dtype)


def as_torch_says(op, results):
    """The results in the dtypes that torch gives them, which depend on the device for means and deviations of halves."""
    fakes = op.context.node.meta["val"]
    cast = [op.Cast(result, to=dtypes.onnx_dtype(fake.dtype)) for result, fake in zip(results, fakes)]
    return *cast, *results[len(cast) :]
