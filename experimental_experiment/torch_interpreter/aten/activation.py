"""Activations: relu to mish, the soft and hard ones, glu, prelu, softmax and log_softmax.

Source of semantics: https://pytorch.org/docs/stable/nn.functional.html.
"""

from __future__ import annotations

import math
import operator

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.comparison import clamp
from experimental_experiment.torch_interpreter.aten.exponential import expm1
from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import promote_to_float, rounded_once
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import is_static
from experimental_experiment.torch_interpreter.symbolic import Scalar, calculated

aten = torch.ops.aten
DOUBLE = ir.DataType.DOUBLE


@translates(aten.relu.default)
def relu(op, self):
    """At least 0."""
    return op.Relu(self) if self.dtype.is_floating_point() else op.Max(self, 0)


@translates(aten.sigmoid.default)
def sigmoid(op, self):
    """``1 / (1 + exp(-self))``; integers give floats."""
    return op.Sigmoid(*promote_to_float(op, self))


@translates(aten.relu6.default)
def relu6(op, self):
    """Between 0 and 6."""
    return clamp(op, self, 0, 6)


@translates(aten.hardtanh.default)
def hardtanh(op, self, min_val, max_val):
    """Between *min_val* and *max_val*, which integers truncate."""
    return clamp(op, self, fitted(op, self, min_val), fitted(op, self, max_val))


@translates(aten.leaky_relu.default)
def leaky_relu(op, self, negative_slope):
    """Scaled by *negative_slope* where negative."""
    if not is_static(negative_slope):
        return rounded_once(scaled_where_negative)(op, self, negative_slope)
    return op.LeakyRelu(self, alpha=float(negative_slope))


@translates(aten.prelu.default)
def prelu(op, self, weight):
    """Scaled by the weight of its channel, or by the only weight, where negative."""
    if rank(weight) == 0:
        return scaled_where_negative(op, self, weight)
    channels = [-1] + [1] * (rank(self) - 2) if rank(self) > 1 else [1] * rank(self)
    return scaled_where_negative(op, self, op.Reshape(weight, op.shape(channels)))


@translates(aten._prelu_kernel.default)
def scaled_where_negative(op, self, weight):
    """Scaled by *weight*, which broadcasts, where negative."""
    return op.PRelu(self, weight)


@translates(aten.rrelu.default)
def rrelu(op, self, lower, upper, training):
    """leaky_relu with the middle slope, or a random one for each element while training."""
    if not training:
        middle = calculated(op, operator.truediv, calculated(op, operator.add, lower, upper), 2)
        return leaky_relu(op, self, middle)
    return op.Mul(self, random_slopes(op, self, lower, upper))


@translates(aten.rrelu_with_noise.default)
def rrelu_with_noise(op, self, noise, lower, upper, training):
    """rrelu, and the slopes that its backward reads, written into *noise* while training."""
    if not training:
        return rrelu(op, self, lower, upper, False), noise
    slopes = random_slopes(op, self, lower, upper)
    return op.Mul(self, slopes), slopes


@translates(aten.rrelu_with_noise_functional.default)
def rrelu_with_noise_functional(op, self, noise, lower, upper, training):
    """rrelu_with_noise, the new noise being a result."""
    return rrelu_with_noise(op, self, noise, lower, upper, training)


def random_slopes(op, self: ir.Value, lower: float, upper: float) -> ir.Value:
    """Uniform slopes where *self* is not positive, 1 elsewhere."""
    uniform = op.RandomUniformLike(self, dtype=ir.DataType.FLOAT, low=float(lower), high=float(upper))
    return op.Where(op.LessOrEqual(self, 0), op.Cast(uniform, to=self.dtype), op.constant(1, self.dtype))


@translates(aten.threshold.default)
def threshold(op, self, threshold, value):
    """*value* where the elements are not above the threshold; NaN stays."""
    value = op.constant(fitted(op, self, value), self.dtype)
    return op.Where(op.LessOrEqual(self, fitted(op, self, threshold)), value, self)


def fitted(op, self: ir.Value, number: Scalar) -> Scalar:
    """A number in the kind of *self*: integers truncate it."""
    return number if self.dtype.is_floating_point() else calculated(op, torch.sym_int, number)


# ---- exponential units


@translates(aten.elu.default)
def elu(op, self, alpha, scale, input_scale):
    """``scale * x`` where positive, ``scale * alpha * (exp(input_scale * x) - 1)`` elsewhere."""
    if is_static(alpha) and scale == 1 and input_scale == 1:
        return op.Elu(self, alpha=float(alpha))
    return composed_elu(op, self, alpha, scale, input_scale)


@rounded_once
def composed_elu(op, self, alpha, scale, input_scale):
    """elu with any scales; Min keeps the branch that is not taken finite."""
    factor = calculated(op, operator.mul, alpha, scale)
    negative = op.Mul(expm1(op, op.Mul(op.Min(self, 0), input_scale)), factor)
    return op.Where(op.LessOrEqual(self, 0), negative, op.Mul(self, scale))


@translates(aten.celu.default)
def celu(op, self, alpha):
    """``x`` where positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere."""
    if not is_static(alpha):
        return composed_elu(op, self, alpha, 1, calculated(op, operator.truediv, 1, alpha))
    return op.Celu(self, alpha=float(alpha))


@translates(aten.selu.default)
def selu(op, self):
    """The self-normalizing elu."""
    return op.Selu(self)


@translates(aten.gelu.default)
def gelu(op, self, approximate):
    """``x * Phi(x)``, Phi being exact or approximated by a tanh; inf for inf, where torch's loops give inf or NaN."""
    return op.Gelu(self, approximate=approximate)


@translates(aten.silu.default)
def silu(op, self):
    """``x * sigmoid(x)``."""
    return op.Mul(self, op.Sigmoid(self))


@translates(aten.mish.default)
def mish(op, self):
    """``x * tanh(softplus(x))``."""
    return op.Mish(self)


@translates(aten.softplus.default)
def softplus(op, self, beta, threshold):
    """``log(1 + exp(beta * x)) / beta``, and x itself above the threshold, which from 20 on only float64 shows."""
    if is_static(threshold) and beta == 1 and threshold >= 20 and self.dtype != DOUBLE:
        return op.Softplus(self)
    return composed_softplus(op, self, beta, threshold)


@rounded_once
def composed_softplus(op, self, beta, threshold):
    """softplus with any beta and threshold."""
    scaled = op.Mul(self, beta)
    return op.Where(op.Greater(scaled, threshold), self, op.Div(op.Softplus(scaled), beta))


@translates(aten.log_sigmoid.default)
def log_sigmoid(op, self):
    """``log(sigmoid(x))``, which is ``-softplus(-x)``."""
    return op.Neg(softplus(op, op.Neg(self), 1, 1000))


@translates(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(op, self):
    """log_sigmoid, and the ``exp(-|x|)`` that its backward reads on a CPU; on a GPU it keeps nothing."""
    buffer = op.context.node.meta["val"][1]
    is_kept = buffer.device.type == "cpu"
    return log_sigmoid(op, self), op.Exp(op.Neg(op.Abs(self))) if is_kept else op.constant([], buffer.dtype)


# ---- hard ones


@translates(aten.hardsigmoid.default)
def hardsigmoid(op, self):
    """``relu6(x + 3) / 6``."""
    return op.HardSigmoid(self, alpha=1 / 6, beta=0.5)


@translates(aten.hardswish.default)
def hardswish(op, self):
    """``x * relu6(x + 3) / 6``."""
    return op.HardSwish(self)


@translates(aten.hardshrink.default)
def hardshrink(op, self, lambd):
    """0 between ``-lambd`` and ``lambd``; NaN stays."""
    return op.Where(op.LessOrEqual(op.Abs(self), lambd), op.constant(0, self.dtype), self)


@translates(aten.softshrink.default)
def softshrink(op, self, lambd):
    """Nearer to 0 by *lambd*, and 0 between; NaN stays."""
    return op.Sub(self, clamp(op, self, calculated(op, operator.neg, lambd), lambd))


@translates(aten.glu.default)
def glu(op, self, dim):
    """The first half times the sigmoid of the second."""
    first, second = both_parts(op, self, dim)
    return op.Mul(first, op.Sigmoid(second))


def both_parts(op, self: ir.Value, dim: int) -> tuple[ir.Value, ir.Value]:
    """The first and the last elements along one axis, as many."""
    size = op.size(self, dim)
    if isinstance(size, int):
        return op.Split(self, [size // 2] * 2, axis=dim, outputs=2)
    return op.Split(self, axis=dim, num_outputs=2, outputs=2)


# ---- softmax


@translates(aten._safe_softmax.default)
def safe_softmax(op, self, dim, dtype):
    """softmax, and zeros where everything is minus infinity."""
    result = softmax(op, self, dim, dtype)
    largest = op.ReduceMax(self, [dim], keepdims=1) if rank(self) else self
    return op.Where(op.Equal(largest, -math.inf), op.constant(0, result.dtype), result)


@translates(aten._masked_softmax.default)
def masked_softmax(op, self, mask, dim, mask_type):
    """softmax of the elements that *mask* does not hide; the mask of keys (type 1) is that of a batch of sequences."""
    if rank(mask) == 2 and rank(self) == 4 and mask_type == 1:
        mask = op.Unsqueeze(mask, [1, 2])
    return softmax(
        op, op.Where(mask, op.constant(-math.inf, self.dtype), self), -1 if dim is None else dim, None
    )


@translates(aten.softmax.int)
def softmax(op, self, dim, dtype):
    """exp, divided by its sum along *dim*, computed in *dtype*."""
    return normalized(op, "Softmax", self, dim, dtype)


@translates(aten.log_softmax.int)
def log_softmax(op, self, dim, dtype):
    """The logarithm of softmax."""
    return normalized(op, "LogSoftmax", self, dim, dtype)


@translates(aten._softmax.default)
def softmax_of_half(op, self, dim, half_to_float):
    """softmax, of float16 into float32 when asked."""
    return normalized(op, "Softmax", self, dim, torch.float32 if half_to_float else None)


@translates(aten._log_softmax.default)
def log_softmax_of_half(op, self, dim, half_to_float):
    """log_softmax, of float16 into float32 when asked."""
    return normalized(op, "LogSoftmax", self, dim, torch.float32 if half_to_float else None)


def normalized(op, op_type: str, self: ir.Value, dim: int, dtype: torch.dtype | None) -> ir.Value:
    """A softmax or its logarithm along an axis; a 0-d tensor is given one."""
    if dtype is not None:
        self = op.Cast(self, to=onnx_dtype(dtype))
    if rank(self) == 0:
        return op.Squeeze(op.emit(op_type, (op.Unsqueeze(self, [0]),), {"axis": 0}), [0])
    return op.emit(op_type, (self,), {"axis": dim})
