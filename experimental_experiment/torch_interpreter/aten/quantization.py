"""Quantization: fake quantization, quantized tensors of ATen, of PT2E (``quantized_decomposed``).

Source of semantics: torch.fake_quantize_per_tensor_affine: ``round(input / scale) + zero_point``, half to even, kept in range. A range of
8 bits becomes QuantizeLinear and DequantizeLinear, which runtimes fuse. ATen's kernels multiply by ``1 / scale``: they differ by one step
for an input within a rounding error of a tie.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.runtime.kernels import is_zero

aten = torch.ops.aten

FLOAT, INT8, UINT8, INT32, INT64 = (
    ir.DataType.FLOAT, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32, ir.DataType.INT64,
)  # fmt: skip

RANGES = {UINT8: (0, 255), INT8: (-128, 127)}
"""The quantized dtypes of ONNX that every opset and runtime knows."""

WIDE = (FLOAT, INT32, INT64)
"""Dtypes that hold the numbers of 8 bits: a Cast to them changes none."""

EVERY_AXIS = -1
"""Stands for one scale for the whole tensor."""


# ---- fake quantization


@translates(aten.fake_quantize_per_tensor_affine.default, aten.fake_quantize_per_tensor_affine.tensor_qparams)
def fake_quantize_per_tensor_affine(op, self, scale, zero_point, quant_min, quant_max):
    """Quantize and dequantize."""
    return rounded(op, self, scale, zero_point, quant_min, quant_max)[0]


@translates(aten.fake_quantize_per_tensor_affine_cachemask.default)
def fake_quantize_per_tensor_affine_cachemask(op, self, scale, zero_point, quant_min, quant_max):
    """Quantize and dequantize; which elements are in range."""
    return rounded(op, self, scale, zero_point, quant_min, quant_max)


@translates(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def fake_quantize_tensor_qparams(op, self, scale, zero_point, fake_quant_enabled, quant_min, quant_max):
    """Quantize and dequantize where the flag is set; which elements are in range."""
    result, mask = rounded(op, self, scale, zero_point, quant_min, quant_max)
    enabled = op.Cast(op.Reshape(fake_quant_enabled, [1] * max(1, rank(self))), to=ir.DataType.BOOL)
    return op.Where(enabled, result, self), op.Or(op.Not(enabled), mask)


@translates(aten.fake_quantize_per_channel_affine.default)
def fake_quantize_per_channel_affine(op, self, scale, zero_point, axis, quant_min, quant_max):
    """Quantize and dequantize with one scale for every index of an axis."""
    return rounded(op, self, scale, zero_point, quant_min, quant_max, axis)[0]


@translates(aten.fake_quantize_per_channel_affine_cachemask.default)
def fake_quantize_per_channel_affine_cachemask(op, self, scale, zero_point, axis, quant_min, quant_max):
    """Quantize and dequantize by channel; which elements are in range."""
    return rounded(op, self, scale, zero_point, quant_min, quant_max, axis)


@translates(aten._fake_quantize_learnable_per_tensor_affine.default)
def _fake_quantize_learnable_per_tensor_affine(op, self, scale, zero_point, quant_min, quant_max):
    """Fake quantization whose zero point is a float, rounded half up and kept in range."""
    zero_point = op.Floor(op.Add(zero_point, 0.5))
    zero_point = kept_integer(op, zero_point, quant_min, quant_max)
    return rounded(op, self, scale, zero_point, quant_min, quant_max)[0]


@translates(aten._fake_quantize_learnable_per_channel_affine.default)
def _fake_quantize_learnable_per_channel_affine(op, self, scale, zero_point, axis, quant_min, quant_max):
    """Fake quantization by channel whose zero points are floats, rounded half to even and kept in range."""
    zero_point = kept_integer(op, op.Round(zero_point), quant_min, quant_max)
    return rounded(op, self, scale, zero_point, quant_min, quant_max, axis)[0]


def kept_integer(op, zero_point, quant_min, quant_max):
    """Whole floats as integers in range."""
    return op.Cast(op.Clip(zero_point, float(quant_min), float(quant_max)), to=INT32)


def rounded(op, x, scale, zero_point, quant_min, quant_max, axis=EVERY_AXIS):
    """*x* quantized and dequantized, and which elements are in range."""
    if x.dtype not in (FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE):
        raise Untranslatable(f"the quantization of {x.dtype.name}")
    wide = op.Cast(x, to=FLOAT)
    scale, zero_point = parameters(op, scale, FLOAT, axis), parameters(op, zero_point, None, axis)
    steps = steps_of(op, wide, scale, zero_point, axis)
    mask = op.And(op.GreaterOrEqual(steps, float(quant_min)), op.LessOrEqual(steps, float(quant_max)))
    dtype = storage(quant_min, quant_max)
    is_whole = not zero_point.dtype.is_floating_point()
    # by channel, torch refuses integers outside of the range
    if dtype is not None and is_whole and (axis != EVERY_AXIS or is_within(zero_point, dtype)):
        small = quantized(op, wide, scale, zero_point, quant_min, quant_max, dtype, axis)
        return op.Cast(dequantized(op, small, scale, zero_point, axis), to=x.dtype), mask
    shift = along(op, op.Cast(zero_point, to=FLOAT), x, axis)
    kept = op.Sub(op.Clip(steps, float(quant_min), float(quant_max)), shift)
    return op.Cast(op.Mul(kept, along(op, scale, x, axis)), to=x.dtype), mask


def steps_of(op, x, scale, zero_point, axis):
    """The step of every element, before it is kept in range; a float zero point is rounded with it."""
    ratio, shift = op.Div(x, along(op, scale, x, axis)), along(op, op.Cast(zero_point, to=FLOAT), x, axis)
    if zero_point.dtype.is_floating_point():
        return op.Round(op.Add(ratio, shift))
    return op.Add(op.Round(ratio), shift)


# ---- shared


def parameters(op, value, dtype, axis):
    """Scales or zero points: a 0-d value for a whole tensor, a 1-D value along an axis, in *dtype* if one is given."""
    value = op.constant(value, None if isinstance(value, ir.Value) else dtype)
    value = op.Cast(value, to=dtype) if dtype is not None else value
    return op.Reshape(value, op.constant([], INT64)) if axis == EVERY_AXIS and rank(value) else value


def along(op, value, x, axis):
    """Parameters broadcast against *x*."""
    if axis == EVERY_AXIS:
        return value
    return op.Unsqueeze(value, list(range(1, rank(x) - axis % rank(x))))


def storage(quant_min: int, quant_max: int) -> ir.DataType | None:
    """The dtype of 8 bits that holds a range."""
    for dtype, (low, high) in RANGES.items():
        if low <= quant_min and quant_max <= high:
            return dtype
    return None


def is_within(zero_point: ir.Value, dtype: ir.DataType) -> bool:
    """Whether zero points are integers that a dtype of 8 bits holds: that dtype, constants, or what was clipped; others would wrap."""
    if zero_point.dtype == dtype or zero_point.dtype.is_floating_point():
        return zero_point.dtype == dtype
    bounds = [zero_point.const_value, zero_point.const_value]
    node = producer_of(zero_point)
    while node is not None and node.op_type in ("Cast", "Reshape") and node.outputs[0].dtype in WIDE:
        node = producer_of(node.inputs[0])
    if node is not None and node.op_type == "Clip":
        bounds = [None if bound is None else bound.const_value for bound in node.inputs[1:]]
    if len(bounds) < 2 or None in bounds:
        return False
    low, high = RANGES[dtype]
    return bool((bounds[0].numpy() >= low).all() and (bounds[1].numpy() <= high).all())


def quantized(op, x, scale, zero_point, quant_min, quant_max, dtype, axis=EVERY_AXIS):
    """*x* (FLOAT) in steps, in a dtype of 8 bits, kept in range: before it is rounded where that is known, as runtimes fuse it then."""
    is_whole = (quant_min, quant_max) == RANGES[dtype]
    bounds = () if is_whole or axis != EVERY_AXIS else bounds_of(scale, zero_point, quant_min, quant_max)
    if bounds:
        x = op.Clip(x, *bounds)
    steps = op.QuantizeLinear(
        x, scale, op.Cast(zero_point, to=dtype), axis=None if axis == EVERY_AXIS else axis
    )
    if is_whole or bounds:
        return steps
    return op.Clip(steps, op.constant(quant_min, dtype), op.constant(quant_max, dtype))


def bounds_of(scale: ir.Value, zero_point: ir.Value, *steps: int) -> tuple[float, ...]:
    """What some *steps* stand for, nothing when scale or zero point are no constants, or tell no range."""
    if scale.const_value is None or zero_point.const_value is None:
        return ()
    step, zero = (float(value.const_value.numpy().item()) for value in (scale, zero_point))
    bounds = tuple(float(np.float32((number - zero) * step)) for number in steps)
    return bounds if step > 0 and np.isfinite(bounds).all() else ()


def dequantized(op, steps, scale, zero_point, axis=EVERY_AXIS):
    """Steps of 8 bits as FLOAT."""
    zero_point = op.Cast(zero_point, to=steps.dtype)
    return op.DequantizeLinear(steps, scale, zero_point, axis=None if axis == EVERY_AXIS else axis)


# ---- quantized tensors of ATen


@translates(aten.quantize_per_tensor.default)
def quantize_per_tensor(op, self, scale, zero_point, dtype):
    """A quantized tensor as the floats that it stands for, which is also how torch.export describes it."""
    kinds = {torch.quint8: UINT8, torch.qint8: INT8}
    if dtype not in kinds:
        raise Untranslatable(f"dtype={dtype} is not handled")
    return rounded(op, self, scale, zero_point, *RANGES[kinds[dtype]])[0]


@translates(aten.dequantize.self)
def dequantize(op, self):
    """The floats that a quantized tensor stands for."""
    return op.copy(self)


# ---- PT2E


@translates(
    "quantized_decomposed::quantize_per_tensor",
    "quantized_decomposed::quantize_per_tensor.tensor",
    "quantized_decomposed::quantize_per_tensor.tensor2",
)
def decomposed_quantize_per_tensor(op, input, scale, zero_point, quant_min, quant_max, dtype):
    """Steps of a whole tensor, in *dtype*."""
    return to_steps(op, input, scale, zero_point, quant_min, quant_max, dtype)


@translates(
    "quantized_decomposed::dequantize_per_tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor2",
)
def decomposed_dequantize_per_tensor(
    op, input, scale, zero_point, quant_min, quant_max, dtype, out_dtype
):  # fmt: skip
    """The value of steps of a whole tensor."""
    return from_steps(op, input, scale, zero_point, out_dtype)


@translates("quantized_decomposed::quantize_per_channel")
def decomposed_quantize_per_channel(op, input, scales, zero_points, axis, quant_min, quant_max, dtype):
    """Steps with one scale for every index of an axis."""
    return to_steps(op, input, scales, zero_points, quant_min, quant_max, dtype, axis % rank(input))


@translates("quantized_decomposed::dequantize_per_channel")
def decomposed_dequantize_per_channel(
    op, input, scales, zero_points, axis, quant_min, quant_max, dtype, out_dtype
):  # fmt: skip
    """The value of steps with one scale for every index of an axis."""
    if zero_points is not None and zero_points.dtype == input.dtype and not is_zero(zero_points):
        # torch subtracts in that dtype, where differences wrap
        input, zero_points = op.Sub(input, along(op, zero_points, input, axis)), None
    zero_points = op.Cast(op.Mul(scales, 0.0), to=INT32) if zero_points is None else zero_points
    return from_steps(op, input, scales, zero_points, out_dtype, axis % rank(input))


def to_steps(op, x, scale, zero_point, quant_min, quant_max, dtype, axis=EVERY_AXIS):
    """``round(x / scale) + zero_point`` kept in range, in a torch dtype; a float zero point loses its fraction then."""
    quant_min, quant_max = (number(limit) for limit in (quant_min, quant_max))
    kind = dtypes.onnx_dtype(dtype)
    wide = op.Cast(x, to=FLOAT)
    scale, zero_point = parameters(op, scale, FLOAT, axis), parameters(op, zero_point, None, axis)
    if kind in RANGES and storage(quant_min, quant_max) == kind and is_within(zero_point, kind):
        return quantized(op, wide, scale, zero_point, quant_min, quant_max, kind, axis)
    shift = along(op, op.Cast(zero_point, to=FLOAT), x, axis)
    steps = op.Add(op.Round(op.Div(wide, along(op, scale, x, axis))), shift)
    return op.Cast(op.Clip(steps, float(quant_min), float(quant_max)), to=kind)


def from_steps(op, steps, scale, zero_point, out_dtype, axis=EVERY_AXIS):
    """``(steps - zero_point) * scale``, in FLOAT or in *out_dtype*."""
    scale, zero_point = parameters(op, scale, FLOAT, axis), parameters(op, zero_point, None, axis)
    if steps.dtype in RANGES and is_within(zero_point, steps.dtype):
        value = dequantized(op, steps, scale, zero_point, axis)
    else:
        shifted = op.Sub(op.Cast(steps, to=FLOAT), along(op, op.Cast(zero_point, to=FLOAT), steps, axis))
        value = op.Mul(shifted, along(op, scale, steps, axis))
    return value if out_dtype is None else op.Cast(value, to=dtypes.onnx_dtype(out_dtype))


def number(limit) -> int:
    """A limit of a range that is a number, or a constant tensor."""
    if not isinstance(limit, ir.Value):
        return int(limit)
    if limit.const_value is None:
        raise Untranslatable("a range that is not a constant")
    return int(limit.const_value.numpy().item())
