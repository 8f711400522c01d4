"""Backward of pointwise operators, as aot_autograd emits them: the gradient times a derivative.

Source of semantics: ``tools/autograd/derivatives.yaml`` and ``torch._decomp.decompositions`` of PyTorch.
"""

from __future__ import annotations

import math
import operator

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.activation import both_parts
from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import cast, promote_to_float, rounded_once, wide
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.symbolic import calculated

aten = torch.ops.aten


def zero_unless(op, condition: ir.Value, gradient: ir.Value) -> ir.Value:
    """The gradient where the condition holds, 0 elsewhere: not a product, which would keep NaN."""
    return op.Where(condition, gradient, op.constant(0, gradient.dtype))


def between(op, self: ir.Value, low: float, high: float) -> ir.Value:
    """Whether the elements are inside of an open interval; NaN is not."""
    return op.And(op.Greater(self, low), op.Less(self, high))


@translates(aten.threshold_backward.default)
def threshold_backward(op, grad_output, self, threshold):
    """0 where the elements are not above the threshold."""
    return zero_unless(op, op.Not(op.LessOrEqual(self, threshold)), grad_output)


@translates(aten.hardtanh_backward.default)
def hardtanh_backward(op, grad_output, self, min_val, max_val):
    """0 at and beyond the ends."""
    return zero_unless(op, between(op, self, min_val, max_val), grad_output)


@translates(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(op, grad_output, self):
    """A sixth of the gradient between -3 and 3."""
    return zero_unless(op, between(op, self, -3.0, 3.0), op.Mul(grad_output, 1 / 6))


@translates(aten.hardswish_backward.default)
@rounded_once
def hardswish_backward(op, grad_output, self):
    """0 up to -3, ``x / 3 + 1 / 2`` times the gradient below 3, the gradient from there on."""
    middle = op.Mul(grad_output, op.Add(op.Mul(self, 1 / 3), 0.5))
    upper = op.Where(op.GreaterOrEqual(self, 3.0), grad_output, middle)
    return zero_unless(op, op.Not(op.LessOrEqual(self, -3.0)), upper)


@translates(aten.hardshrink_backward.default)
def hardshrink_backward(op, grad_out, self, lambd):
    """0 between ``-lambd`` and ``lambd``."""
    return shrunk_backward(op, grad_out, self, lambd)


@translates(aten.softshrink_backward.default)
def softshrink_backward(op, grad_output, self, lambd):
    """0 between ``-lambd`` and ``lambd``."""
    return shrunk_backward(op, grad_output, self, lambd)


def shrunk_backward(op, gradient: ir.Value, self: ir.Value, lambd: float) -> ir.Value:
    """0 unless ``|self| > lambd``."""
    return zero_unless(op, op.Greater(op.Abs(self), lambd), gradient)


# ---- scaled where negative


@translates(aten.leaky_relu_backward.default)
def leaky_relu_backward(op, grad_output, self, negative_slope, self_is_result):
    """The gradient, scaled where *self* is not positive; *self_is_result* changes nothing, the result has its sign."""
    return op.Where(op.Greater(self, 0), grad_output, op.Mul(grad_output, negative_slope))


@translates(aten._prelu_kernel_backward.default)
def prelu_kernel_backward(op, grad_output, self, weight):
    """The gradients of the input and of the weight, the latter before its reduction."""
    positive = op.Greater(self, 0)
    of_weight = zero_unless(op, op.Not(positive), op.Mul(self, grad_output))
    return op.Where(positive, grad_output, op.Mul(grad_output, weight)), of_weight


@translates(aten.rrelu_with_noise_backward.default)
def rrelu_with_noise_backward(op, grad_output, self, noise, lower, upper, training, self_is_result):
    """The gradient times the slopes drawn, or leaky_relu's."""
    if training and upper - lower > 1e-6:
        return op.Mul(grad_output, noise)
    return leaky_relu_backward(op, grad_output, self, (lower + upper) / 2, self_is_result)


@translates(aten.elu_backward.default)
@rounded_once
def elu_backward(op, grad_output, alpha, scale, input_scale, is_result, self_or_result):
    """The derivative of elu, from its input or from its result."""
    if is_result:
        slope = op.Mul(op.Add(self_or_result, calculated(op, operator.mul, alpha, scale)), input_scale)
    else:
        grown = op.Exp(op.Mul(op.Min(self_or_result, 0), input_scale))
        factor = calculated(op, operator.mul, calculated(op, operator.mul, input_scale, alpha), scale)
        slope = op.Mul(grown, factor)
    negative, positive = op.Mul(grad_output, slope), op.Mul(grad_output, scale)
    return op.Where(op.Greater(self_or_result, 0), positive, negative)


# ---- smooth functions


@translates(aten.sigmoid_backward.default)
@rounded_once
def sigmoid_backward(op, grad_output, output):
    """``y * (1 - y)`` times the gradient."""
    return op.Mul(grad_output, op.Mul(output, op.Sub(1.0, output)))


@translates(aten.tanh_backward.default)
@rounded_once
def tanh_backward(op, grad_output, output):
    """``1 - y * y`` times the gradient."""
    return op.Mul(grad_output, op.Sub(1.0, op.Mul(output, output)))


@translates(aten.silu_backward.default)
@rounded_once
def silu_backward(op, grad_output, self):
    """``s * (1 + x * (1 - s))`` times the gradient, s being the sigmoid."""
    s = op.Sigmoid(self)
    return op.Mul(grad_output, op.Mul(s, op.Add(op.Mul(self, op.Sub(1.0, s)), 1.0)))


@translates(aten.softplus_backward.default)
@rounded_once
def softplus_backward(op, grad_output, self, beta, threshold):
    """The sigmoid of ``beta * x`` times the gradient, the gradient itself above the threshold."""
    scaled = op.Mul(self, beta)
    soft = op.Mul(grad_output, op.Sigmoid(scaled))
    return op.Where(op.Greater(scaled, threshold), grad_output, soft)


@translates(aten.log_sigmoid_backward.default)
@rounded_once
def log_sigmoid_backward(op, grad_output, self, buffer):
    """``1 - sigmoid(x)`` times the gradient; the buffer of the forward is not needed."""
    return op.Mul(grad_output, op.Sigmoid(op.Neg(self)))


@translates(aten.mish_backward.default)
@rounded_once
def mish_backward(op, grad_output, self):
    """``t + x * s * (1 - t * t)`` times the gradient, t being tanh(softplus(x)) and s the sigmoid."""
    s, t = op.Sigmoid(self), op.Tanh(op.Softplus(self))
    slope = op.Mul(op.Mul(self, s), op.Sub(1.0, op.Mul(t, t)))
    return op.Mul(grad_output, op.Add(t, slope))


@translates(aten.gelu_backward.default)
@rounded_once
def gelu_backward(op, grad_output, self, approximate):
    """``Phi(x) + x * Phi'(x)`` times the gradient, Phi being exact or approximated by a tanh."""
    square = op.Mul(self, self)
    if approximate == "tanh":
        scale = math.sqrt(2 / math.pi)
        inner = op.Mul(op.Mul(self, op.Add(op.Mul(square, 0.044715), 1.0)), scale)
        bend, slope = op.Tanh(inner), op.Mul(op.Add(op.Mul(square, 3 * 0.044715), 1.0), scale)
        density = op.Mul(op.Mul(op.Sub(1.0, op.Mul(bend, bend)), slope), 0.5)
    else:
        bend = op.Erf(op.Mul(self, math.sqrt(0.5)))
        density = op.Mul(op.Exp(op.Mul(square, -0.5)), 1 / math.sqrt(2 * math.pi))
    phi = op.Mul(op.Add(bend, 1.0), 0.5)
    return op.Mul(grad_output, op.Add(phi, op.Mul(self, density)))


@translates(aten.logit_backward.default)
@rounded_once
def logit_backward(op, grad_output, self, eps):
    """The gradient over ``x * (1 - x)``; outside of the interval 0 with *eps*, NaN without."""
    low, outside = (0.0, math.nan) if eps is None or eps < 0 else (float(eps), 0.0)
    inside = op.And(op.GreaterOrEqual(self, low), op.LessOrEqual(self, 1.0 - low))
    slope = op.Div(grad_output, op.Mul(self, op.Sub(1.0, self)))
    return op.Where(inside, slope, op.constant(outside, slope.dtype))


@translates(aten.glu_backward.default)
@rounded_once
def glu_backward(op, grad_output, self, dim):
    """The gradients of both parts, joined."""
    first, second = both_parts(op, self, dim)
    s = op.Sigmoid(second)
    of_first = op.Mul(grad_output, s)
    of_second = op.Mul(op.Mul(of_first, op.Sub(1.0, s)), first)
    return op.Concat(of_first, of_second, axis=dim)


# ---- softmax and dropout


@translates(aten._softmax_backward_data.default)
def softmax_backward_data(op, grad_output, output, dim, input_dtype):
    """``g * y - y * sum(g * y)``, rounded to the dtype of the input at the end."""
    gradient, output = (cast(op, x, wide(x.dtype)) for x in (grad_output, output))
    product = op.Mul(gradient, output)
    total = op.ReduceSum(product, [dim], keepdims=1) if rank(product) else product
    return op.Cast(op.Sub(product, op.Mul(output, total)), to=onnx_dtype(input_dtype))


@translates(aten._log_softmax_backward_data.default)
def log_softmax_backward_data(op, grad_output, output, dim, input_dtype):
    """``g - exp(y) * sum(g)``, rounded to the dtype of the input at the end."""
    gradient, output = (cast(op, x, wide(x.dtype)) for x in (grad_output, output))
    total = op.ReduceSum(gradient, [dim], keepdims=1) if rank(gradient) else gradient
    return op.Cast(op.Sub(gradient, op.Mul(op.Exp(output), total)), to=onnx_dtype(input_dtype))


@translates(aten.native_dropout_backward.default)
def native_dropout_backward(op, grad_output, mask, scale):
    """The gradient of the kept elements, scaled."""
    grad_output, scale = promote_to_float(op, grad_output, float(scale))
    return op.Mul(grad_output, op.Mul(op.CastLike(mask, grad_output), scale))
