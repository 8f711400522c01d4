"""Operators of 8-bit integers: what they compute in floats, rounded again."""

from __future__ import annotations

import numpy as np

from experimental_experiment.reference.operators.activations import sigmoid
from experimental_experiment.reference.operators.convolution import channels_first, channels_last, evaluated
from experimental_experiment.reference.registry import computes


def floats(codes: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None) -> np.ndarray:
    """(code - zero point) * scale."""
    offset = 0 if zero_point is None else zero_point.astype(np.int32)
    return (codes.astype(np.int32) - offset) * scale


def rounded(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None) -> np.ndarray:
    """Codes of the dtype of *zero_point*, uint8 without one: ties go to even, what is out of range to its limits."""
    zero_point = np.zeros((), np.uint8) if zero_point is None else zero_point
    limits = np.iinfo(zero_point.dtype)
    codes = np.rint(x / scale) + zero_point.astype(np.float32)
    return np.clip(codes, limits.min, limits.max).astype(zero_point.dtype)


def along(parameter: np.ndarray | None, rank: int, axis: int) -> np.ndarray | None:
    """A parameter for each element of *axis* as it broadcasts; the one of a tensor as it is."""
    if parameter is None or parameter.ndim == 0 or rank == 0:
        return parameter
    return parameter.reshape([-1 if position == axis % rank else 1 for position in range(rank)])


@computes("QuantizeLinear")
def quantize_linear(x, y_scale, y_zero_point=None, *, axis=1):
    """QuantizeLinear before ONNX had 16 bits."""
    return rounded(x, along(y_scale, x.ndim, axis), along(y_zero_point, x.ndim, axis))


@computes("DequantizeLinear")
def dequantize_linear(x, x_scale, x_zero_point=None, *, axis=1):
    """DequantizeLinear before ONNX had 16 bits."""
    scale, zero_point = along(x_scale, x.ndim, axis), along(x_zero_point, x.ndim, axis)
    return floats(x, scale, zero_point).astype(x_scale.dtype)


@computes("QLinearAdd")
def qlinear_add(a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero=None):
    """A sum."""
    return rounded(floats(a, a_scale, a_zero) + floats(b, b_scale, b_zero), c_scale, c_zero)


@computes("QLinearMul")
def qlinear_mul(a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero=None):
    """A product, element by element."""
    return rounded(floats(a, a_scale, a_zero) * floats(b, b_scale, b_zero), c_scale, c_zero)


@computes("QLinearSigmoid")
def qlinear_sigmoid(x, x_scale, x_zero, y_scale, y_zero=None):
    """1 / (1 + exp(-x))."""
    return rounded(sigmoid(floats(x, x_scale, x_zero)), y_scale, y_zero)


@computes("QLinearLeakyRelu")
def qlinear_leaky_relu(x, x_scale, x_zero, y_scale, y_zero=None, *, alpha=0.01):
    """alpha * x below zero."""
    values = floats(x, x_scale, x_zero)
    return rounded(np.where(values < 0, alpha * values, values), y_scale, y_zero)


@computes("QLinearSoftmax")
def qlinear_softmax(x, x_scale, x_zero, y_scale, y_zero=None, *, axis=-1, opset=13):
    """Softmax; before opset 13 of all axes from *axis* on."""
    values = floats(x, x_scale, x_zero)
    axes = axis % x.ndim if opset >= 13 else tuple(range(axis % x.ndim, x.ndim))
    weights = np.exp(values - values.max(axis=axes, keepdims=True))
    return rounded(weights / weights.sum(axis=axes, keepdims=True), y_scale, y_zero)


@computes("QLinearWhere")
def qlinear_where(condition, x, x_scale, x_zero, y, y_scale, y_zero, z_scale, z_zero):
    """One of two tensors."""
    return rounded(
        np.where(condition, floats(x, x_scale, x_zero), floats(y, y_scale, y_zero)), z_scale, z_zero
    )


@computes("QLinearConcat")
def qlinear_concat(y_scale, y_zero, *inputs, axis):
    """Tensors, each followed by its scale and zero point, one after the other."""
    parts = [floats(*inputs[start : start + 3]) for start in range(0, len(inputs), 3)]
    return rounded(np.concatenate(parts, axis=axis), y_scale, y_zero)


@computes("QLinearGlobalAveragePool")
def qlinear_global_average_pool(x, x_scale, x_zero, y_scale, y_zero, *, channels_last):
    """The mean of each channel."""
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    return rounded(floats(x, x_scale, x_zero).mean(axis=axes, keepdims=True), y_scale, y_zero)


@computes("QLinearAveragePool")
def qlinear_average_pool(x, x_scale, x_zero, y_scale, y_zero=None, *, channels_last=0, **attributes):
    """AveragePool."""
    values = floats(x, x_scale, x_zero)
    image = evaluated("AveragePool", channels_first(values) if channels_last else values, **attributes)
    return rounded(last_if(image, channels_last), y_scale, y_zero)


@computes("QLinearConv")
def qlinear_conv(
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None, *, channels_last=0, **attributes
):
    """Conv, of images with the channels last if so; the bias is of integers, a step being x_scale * w_scale."""
    values = floats(x, x_scale, x_zero)
    scale, zero_point = along(w_scale, w.ndim, 0), along(w_zero, w.ndim, 0)
    image = evaluated(
        "Conv",
        channels_first(values) if channels_last else values,
        floats(w, scale, zero_point).astype(np.float32),
        **attributes,
    )
    if bias is not None:
        image = image + along(bias * (x_scale * w_scale).reshape(-1), image.ndim, 1)
    return rounded(last_if(image, channels_last), y_scale, y_zero)


def last_if(image: np.ndarray, wanted: int) -> np.ndarray:
    """An image with the channels last when they are wanted there."""
    return channels_last(image) if wanted else image


@computes("QGemm")
def qgemm(
    a,
    a_scale,
    a_zero,
    b,
    b_scale,
    b_zero,
    c=None,
    y_scale=None,
    y_zero=None,
    *,
    alpha=1.0,
    transA=0,
    transB=0,
):
    """Gemm; floats when no scale is given for the result. The bias is of integers, a step being alpha * a_scale * b_scale."""
    columns = 0 if transB else 1
    left = floats(a, a_scale, a_zero)
    right = floats(b, along(b_scale, 2, columns), along(b_zero, 2, columns))
    result = alpha * np.matmul(left.T if transA else left, right.T if transB else right)
    if c is not None:
        result = result + c * (alpha * a_scale * b_scale)
    return result.astype(np.float32) if y_scale is None else rounded(result, y_scale, y_zero)


@computes("MatMulIntegerToFloat")
def matmul_integer_to_float(a, b, a_scale, b_scale, a_zero=None, b_zero=None, bias=None):
    """A product of integers, in floats."""
    product = np.matmul(floats(a, a_scale, a_zero), floats(b, b_scale, b_zero))
    return (product if bias is None else product + bias).astype(a_scale.dtype)


@computes("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(a, b, b_scale, b_zero=None, bias=None):
    """`matmul_integer_to_float` of *a* rounded as DynamicQuantizeLinear does."""
    low, high = min(0.0, a.min()), max(0.0, a.max())
    scale = np.float32((high - low) / 255) if high > low else np.float32(1)
    zero_point = np.clip(np.rint(-low / scale), 0, 255).astype(np.uint8)
    codes = rounded(a, scale, zero_point)
    return matmul_integer_to_float(codes, b, scale, b_scale, zero_point, b_zero, bias)
