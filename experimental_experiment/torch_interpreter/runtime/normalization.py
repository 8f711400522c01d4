"""Normalization: kernels that round twice, are slow or missing, the older sets.

float16 and bfloat16 are computed in float32 and rounded once, as in eager.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.normalization import (
    in_groups,
    normalized_rows,
)
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import raised, rounded, rounded_once, wide
from experimental_experiment.torch_interpreter.runtime.reductions import is_on_gpu
from experimental_experiment.torch_interpreter.runtime.table import before, repairs
from experimental_experiment.torch_interpreter.sizes import sizes_of

DOUBLE = ir.DataType.DOUBLE


# ---- layer


@repairs(
    "LayerNormalization",
    when="bfloat16, but in a model on a GPU",
    because="the kernel takes 1.5 to 5 times as long as casts and that of float32",
    nodes=4,
)
def layers_of_bfloat16(op, x, scale, bias=None, *, outputs, **attributes):
    """LayerNormalization of float32 tensors, cast back."""
    if x.dtype != ir.DataType.BFLOAT16 or is_on_gpu(op):
        return None
    wider = [None if given is None else raised(op, given) for given in (x, scale, bias)]
    result = op.LayerNormalization(*wider, outputs=outputs, **attributes)
    if outputs is None:
        return rounded(op, result, x.dtype)
    return rounded(op, result[0], x.dtype), *result[1:]


@before(17, "LayerNormalization", because="it does not exist", nodes=10)
def layers_by_deviation(op, x, scale, bias=None, *, outputs, axis=-1, epsilon=1e-5, stash_type=1):
    """The distance from the mean, divided by the deviation; the mean is taken twice, for numbers far from 0."""
    result = layers(op, x, scale, bias, axis, epsilon)
    if outputs is None:
        return result
    x, axes = op.Cast(x, to=wide(x.dtype)), list(range(axis % rank(x), rank(x)))
    _, variance = deviation(op, x, axes)
    mean = op.ReduceMean(x, axes, keepdims=1)
    return (result, mean, op.Reciprocal(op.Sqrt(op.Add(variance, epsilon))))[:outputs]


@rounded_once
def layers(op, x, scale, bias, axis, epsilon):
    """Each row of the last axes, normalized and scaled."""
    axes = list(range(axis % rank(x), rank(x)))
    if x.dtype != DOUBLE:
        x = op.Sub(x, op.ReduceMean(x, axes, keepdims=1))
    centered, variance = deviation(op, x, axes)
    result = op.Mul(op.Div(centered, op.Sqrt(op.Add(variance, epsilon))), scale)
    return result if bias is None else op.Add(result, bias)


def deviation(op, x: ir.Value, axes: list[int]) -> tuple[ir.Value, ir.Value]:
    """The distance from the mean over some axes, and the biased variance."""
    centered = op.Sub(x, op.ReduceMean(x, axes, keepdims=1))
    return centered, op.ReduceMean(op.Mul(centered, centered), axes, keepdims=1)


# ---- instance


@repairs(
    "InstanceNormalization",
    when="ai.onnx 22 and later, in a model on a GPU",
    because="CUDA's provider has no kernel of that version, the CPU's runs instead: a UNet takes 2 to 6 times as long",
    nodes="7 to 11",
)
def instances_by_deviation(op, x, scale, bias, *, epsilon=1e-5):
    """The distance from the mean, divided by the deviation, then scaled."""
    if op.opset < 22 or not is_on_gpu(op):
        return None
    axes = list(range(2, rank(x)))
    scale, bias = (op.Unsqueeze(given, [axis - 1 for axis in axes]) for given in (scale, bias))
    return instances(op, x, scale, bias, axes, epsilon)


@rounded_once
def instances(op, x, scale, bias, axes, epsilon):
    """Each channel of each sample normalized, then scaled."""
    centered, variance = deviation(op, x, axes)
    return op.Add(op.Mul(op.Div(centered, op.Sqrt(op.Add(variance, epsilon))), scale), bias)


# ---- root mean square


@repairs(
    "RMSNormalization",
    when="halves",
    because="the result is rounded before it is scaled; bfloat16 has no kernel",
    nodes=3,
)
def squares_of_halves(op, x, scale, **attributes):
    """RMSNormalization of float32 tensors, cast back."""
    if wide(x.dtype) == x.dtype:
        return None
    return rounded(op, op.RMSNormalization(raised(op, x), raised(op, scale), **attributes), x.dtype)


@before(23, "RMSNormalization", because="it does not exist", nodes=6)
def root_of_mean_square(op, x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """Divided by the root of the mean square."""
    return squares(op, x, scale, axis, epsilon)


@rounded_once
def squares(op, x, scale, axis, epsilon):
    """Each row of the last axes divided by the root of its mean square, then scaled."""
    square = op.ReduceMean(op.Mul(x, x), list(range(axis % rank(x), rank(x))), keepdims=1)
    return op.Mul(op.Div(x, op.Sqrt(op.Add(square, epsilon))), scale)


# ---- group


@repairs(
    "GroupNormalization",
    when="always",
    because="there is no kernel: its function takes twice the time",
    nodes=3,
)
def groups_as_instances(op, x, scale, bias, *, num_groups, epsilon=1e-5, stash_type=1):
    """InstanceNormalization of the groups, BatchNormalization with no mean and deviation 1 to scale the channels."""
    return groups(op, x, scale, bias, num_groups, epsilon)


@before(21, "GroupNormalization", because="it does not exist, or scales the groups", nodes=3)
def groups_of_channels(op, x, scale, bias, *, num_groups, epsilon=1e-5, stash_type=1):
    """InstanceNormalization of the groups, BatchNormalization with no mean and deviation 1 to scale the channels."""
    return groups(op, x, scale, bias, num_groups, epsilon)


@rounded_once
def groups(op, x, scale, bias, num_groups, epsilon):
    """Each group of channels normalized, each channel scaled."""
    if num_groups == x.shape[1] and rank(x) > 2:
        return normalized_rows(op, x, scale, bias, epsilon)
    rows = in_groups(op, x, num_groups)
    if x.dtype == DOUBLE:
        centered, variance = deviation(op, rows, list(range(2, rank(rows))))
        rows = op.Div(centered, op.Sqrt(op.Add(variance, epsilon)))
    else:
        ones, zeros = np.ones(num_groups, np.float32), np.zeros(num_groups, np.float32)
        rows = op.InstanceNormalization(rows, ones, zeros, epsilon=epsilon)
    back = reshaped(op, rows, sizes_of(op, x))
    channels = x.shape[1]
    if x.dtype == DOUBLE or not isinstance(channels, int):
        scale, bias = (op.Unsqueeze(given, list(range(1, rank(x) - 1))) for given in (scale, bias))
        return op.Add(op.Mul(back, scale), bias)
    zeros, ones = (op.constant(np.full(channels, number), x.dtype) for number in (0.0, 1.0))
    if scale is ones and bias is zeros:
        return back
    return op.BatchNormalization(back, scale, bias, zeros, ones, epsilon=0.0)
