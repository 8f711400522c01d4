"""Quantization of PT2E whose scales are computed while the model runs, or belong to tokens or to groups of columns.

Source of semantics: ``torch/ao/quantization/fx/_decomposed.py``, ``torch.ao.quantization.utils.determine_qparams``. The operators of this
file are those of ``quantized_decomposed`` that `quantization` does not have.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.block_quantization import dequantize_affine
from experimental_experiment.torch_interpreter.aten.quantization import rounded
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import sizes_of

DOUBLE, FLOAT, INT64 = ir.DataType.DOUBLE, ir.DataType.FLOAT, ir.DataType.INT64

EPSILON = torch.finfo(torch.float32).eps
"""The smallest scale of a token."""


@translates("quantized_decomposed::choose_qparams.tensor")
def choose_qparams(op, input, quant_min, quant_max, eps, dtype):
    """Scale (DOUBLE) and zero point (INT64), of one element each, that spread the elements and 0 over the range."""
    low, high = ends(op, input)
    scale = op.Max(op.Div(op.Sub(high, low), float(quant_max - quant_min)), [eps])
    steps = op.Round(op.Div(low, scale))
    zero_point = op.Clip(op.Sub(float(quant_min), steps), float(quant_min), float(quant_max))
    return op.Cast(scale, to=DOUBLE), op.Cast(zero_point, to=INT64)


@translates("quantized_decomposed::choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(op, input, quant_min, quant_max, eps, dtype):
    """Scale (DOUBLE) that spreads the largest magnitude over half of the range, and the zero point (INT64) in its middle."""
    low, high = ends(op, input)
    largest = op.Max(op.Neg(low), high)
    scale = op.Max(op.Div(largest, float(quant_max - quant_min) / 2), [eps])
    return op.Cast(scale, to=DOUBLE), op.constant([128 if dtype == torch.uint8 else 0], INT64)


@translates("quantized_decomposed::choose_qparams_per_token")
def choose_qparams_per_token(op, input, dtype):
    """For the last axis, of size 1 then: a 127th of the largest magnitude, and 0.

    In DOUBLE and INT64, as torch.export declares them; eager gives float32, or bfloat16.
    """
    if dtype != torch.int8:
        raise Untranslatable(f"scales of tokens in {dtype}: torch has those of int8")
    largest = op.Cast(op.ReduceMax(op.Abs(input), [-1], keepdims=1), to=FLOAT)
    scales = op.Cast(op.Div(op.Max(largest, 1e-5), 127.0), to=DOUBLE)
    return scales, op.Cast(op.Mul(scales, 0.0), to=INT64)


@translates("quantized_decomposed::choose_qparams_per_token_asymmetric")
def choose_qparams_per_token_asymmetric(op, input, dtype):
    """For the last axis, of size 1 then: scale (DOUBLE) and zero point (INT64) that spread its elements and 0 over -128 to 127."""
    low, high = ends(op, input, [-1])
    scale = op.Max(op.Div(op.Sub(high, low), 255.0), EPSILON)
    lowest, highest = op.Div(low, scale), op.Div(high, scale)
    # counted from the end of the range that is nearer to a whole step
    is_lower = op.Greater(op.Add(op.Add(lowest, -128.0), op.Add(highest, 127.0)), 0.0)
    zero_point = op.Where(is_lower, op.Sub(-128.0, lowest), op.Sub(127.0, highest))
    zero_point = op.Round(op.Clip(zero_point, -128.0, 127.0))
    return op.Cast(scale, to=DOUBLE), op.Cast(zero_point, to=INT64)


@translates("quantized_decomposed::quantize_per_token")
def quantize_per_token(op, input, scales, zero_points, quant_min, quant_max, dtype):
    """``round(input / scales + zero_points)`` kept in range, in *dtype*; *scales* have size 1 along the last axis."""
    return steps_by_factor(op, input, scales, zero_points, quant_min, quant_max, dtype)


@translates("quantized_decomposed::dequantize_per_token")
def dequantize_per_token(
    op, input, scales, zero_points, quant_min, quant_max, dtype, output_dtype=torch.float32
):
    """``(input - zero_points) * scales`` in *output_dtype*."""
    shifted = op.Sub(*promote(op, input, zero_points))
    return op.Cast(op.Mul(*promote(op, shifted, scales)), to=dtypes.onnx_dtype(output_dtype))


@translates("quantized_decomposed::quantize_per_channel_group")
def quantize_per_channel_group(op, input, scales, zero_points, quant_min, quant_max, dtype, group_size=128):
    """Steps of a matrix with one scale for every *group_size* elements of a row."""
    group = group_of(op, input, scales, group_size)
    rows = reshaped(op, input, [-1, group])
    scales, zero_points = (reshaped(op, value, [-1, 1]) for value in (scales, zero_points))
    steps = steps_by_factor(op, rows, scales, zero_points, quant_min, quant_max, dtype)
    return reshaped(op, steps, sizes_of(op, input))


@translates("quantized_decomposed::dequantize_per_channel_group")
def dequantize_per_channel_group(
    op, input, scales, zero_points, quant_min, quant_max, dtype, group_size=128, output_dtype=torch.float32
):
    """The value of the steps of a matrix with one scale for every *group_size* elements of a row."""
    block = [1, group_of(op, input, scales, group_size)]
    return dequantize_affine(
        op, input, block, scales, zero_points, dtype, quant_min, quant_max, output_dtype=output_dtype
    )


@translates("quantized_decomposed::fake_quant_per_channel")
def fake_quant_per_channel(op, input, scales, zero_points, axis, quant_min, quant_max):
    """Quantize and dequantize with one scale for every index of an axis; zero points that are floats lose their fraction."""
    zero_points = op.Cast(zero_points, to=ir.DataType.INT32)
    return rounded(op, input, scales, zero_points, quant_min, quant_max, axis)[0]


@translates("quantized_decomposed::convert_element_type.no_fuse")
def convert_element_type(op, input, dtype):
    """A conversion that no pass of PT2E merges with another one."""
    return op.Cast(input, to=dtypes.onnx_dtype(dtype))


# ---- helpers


def ends(op, x: ir.Value, axes: list[int] | None = None) -> tuple[ir.Value, ir.Value]:
    """The smallest element or 0, and the largest element or 0, in FLOAT: eager rounds what it makes of halves at every step."""
    keepdims = int(axes is not None)
    low, high = (reduce(x, axes, keepdims=keepdims) for reduce in (op.ReduceMin, op.ReduceMax))
    return op.Min(op.Cast(low, to=FLOAT), 0.0), op.Max(op.Cast(high, to=FLOAT), 0.0)


def steps_by_factor(op, x, scales, zero_points, quant_min, quant_max, dtype) -> ir.Value:
    """``round(x * (1 / scales) + zero_points)`` kept in range, in a torch dtype; computed in the dtype of torch's promotion."""
    factor = op.Div(op.constant(1.0, scales.dtype), scales)
    steps = op.Mul(*promote(op, x, factor))
    steps = op.Round(op.Add(*promote(op, steps, zero_points)))
    limits = (op.constant(float(limit), steps.dtype) for limit in (quant_min, quant_max))
    return op.Cast(op.Clip(steps, *limits), to=dtypes.onnx_dtype(dtype))


def group_of(op, x: ir.Value, scales: ir.Value, group_size: int):
    """How many elements of a row share a scale: the whole row where it is shorter and has one."""
    size = op.size(x, -1)
    is_short = isinstance(size, int) and group_size > size and rank(scales) and scales.shape[-1] == 1
    return size if is_short else group_size
