"""Norms written by hand: layers, roots of mean squares, in float32 and in float16 around float32."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.dtypes import FLOATS
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.pattern import (
    P,
    attribute_of,
    const,
    constant_of,
    only_reader,
    optional,
    var,
)
from experimental_experiment.xoptim.patterns.arithmetic import (
    MISREAD,
    is_misread_epsilon,
    is_misread_norm,
    never_negative,
)
from experimental_experiment.xoptim.rules import Declined, no, once_more, rule
from experimental_experiment.xoptim.shapes import adds_no_axes, same_sizes
from experimental_experiment.xoptim.spans import told_axes

x, weight, scale = var("x"), var("weight"), const("scale")
FLOAT, FLOAT16 = ir.DataType.FLOAT, ir.DataType.FLOAT16

NORMS = "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"
"""Norms with a scale; the last one is the second before opset 23, which onnxruntime has in the domain of ONNX."""


def over_root_of_mean(value, square):
    """``value / sqrt(mean(square) + epsilon)``."""
    total = P.Add(P.ReduceMean(square, optional("axes"), name="mean"), const("epsilon"))
    return P.Div(value, P.Sqrt(total) | P.Pow(total, 0.5))


def squared(value):
    """``value ** 2``, in its two spellings."""
    return P.Pow(value, 2.0) | P.Mul(value, value)


def centered(name):
    """``x - mean(x)``, the mean as *name*."""
    return P.Sub(x, P.ReduceMean(x, optional(f"{name}_axes"), name=name))


def first_axis(x: ir.Value, mean: ir.Node) -> int | None:
    """The first axis of a mean over the last ones, as a negative number; None when they are others, empty or not known."""
    if x.shape is None or not attribute_of(mean, "keepdims", 1):
        return None
    width = len(x.shape)
    given = told_axes(mean)
    if given == [] and not attribute_of(mean, "noop_with_empty_axes", 0):
        given = [*range(width)]
    if not given or not width:
        return None
    same = sorted(axis % width for axis in given) == list(range(width - len(given), width))
    known = all(isinstance(size, int) and size for size in x.shape[-len(given) :])  # onnxruntime refuses none
    return -len(given) if same and known else None


def number_for(x: ir.Value, epsilon: ir.Value) -> float | None:
    """Epsilon as an attribute, None when it is no number or *x* has a dtype that no norm has."""
    tensor = constant_of(epsilon)
    if x.dtype not in (FLOAT, FLOAT16) or tensor.size != 1:
        return None
    if x.shape is None or len(tensor.shape) > len(x.shape):
        return None
    return tensor.numpy().item()


def is_ones(value: ir.Value) -> bool:
    """Whether all elements of a constant are 1."""
    return bool((constant_of(value).numpy() == 1).all())


def ones(op, x: ir.Value, axis: int) -> ir.Value:
    """A scale that changes nothing."""
    return op.constant(np.ones(list(x.shape[axis:]), x.dtype.numpy()))


def written(
    op, operator: str, root: ir.Node, x: ir.Value, epsilon: ir.Value, *means: ir.Node
) -> ir.Value | Declined:
    """A norm without scale over the axes of these means, instead of *root*."""
    axes, number = {first_axis(x, mean) for mean in means}, number_for(x, epsilon)
    if len(axes) > 1 or None in axes:
        return no("the axes are not the last ones, or their sizes are unknown")
    if number is None:
        return no("epsilon is no number, or the dtype is neither float32 nor float16")
    result = root.outputs[0]
    if result.shape is None or len(result.shape) != len(x.shape):
        return no("an exponent adds axes")
    axis = axes.pop()
    return op.append(operator, [x, ones(op, x, axis)], {"axis": axis, "epsilon": number}, 1).outputs[0]


@rule(P.Mul(x, P.Pow(var("y"), -0.5, name="power")), set="default", looks_further=True)
def mul_reciprocal_root(op, x, y, power, root):
    """x * y ** -0.5 is x / sqrt(y) of what is never negative, which the rules of norms know; that of -infinity is 0, its root is not."""
    if y.dtype not in FLOATS or not never_negative(y):
        return no("it may be negative")
    if is_misread_norm(op, x, y, root.outputs[0]):
        return MISREAD
    return op.Div(x, op.Sqrt(y)) if adds_no_axes(power, y) else no("the exponent adds axes")


@rule(over_root_of_mean(centered("center"), squared(centered("again"))), set="default", since=17)
def layer_normalization(op, x, center, again, mean, epsilon, root):
    """(x - mean) / sqrt(mean((x - mean) ** 2) + epsilon) is LayerNormalization, which exists from opset 17 on."""
    return written(op, "LayerNormalization", root, x, epsilon, mean, center, again)


@rule(over_root_of_mean(x, squared(x)), set="default", since=23)
def rms_normalization(op, x, mean, epsilon, root):
    """x / sqrt(mean(x ** 2) + epsilon) is RMSNormalization, which exists from opset 23 on.

    Measured with onnxruntime 1.31: (2, 128, 384) 55 us instead of 160, one token of 512 13 us instead of 20.
    """
    return written(op, "RMSNormalization", root, x, epsilon, mean)


@rule(P.ReduceMean(P.Mul(x, x), optional("axes")), set="default", before=23, looks_further=True)
def square_of_norm(op, x, root):
    """Before opset 23 the square is written x ** 2, not x * x: onnxruntime then makes one kernel of the norm when it loads.

    Measured with onnxruntime 1.31: (2, 128, 384) 55 us instead of 160, one token of 512 13 us instead of 20.
    """
    if op.context.runtime != "onnxruntime":
        return no("onnxruntime alone tells them apart")
    if x.dtype not in (FLOAT, FLOAT16) or first_axis(x, root) != -1:
        return no("onnxruntime knows norms of the last axis, in float32 and float16")
    if len(x.shape) == 1:
        return no("onnxruntime does not load a norm of a vector as one kernel")
    if not is_scaled_norm(x, root.outputs[0]):
        return no("no norm with a scale follows, or none whose epsilon onnxruntime reads")
    if is_cast_of_bfloat16_for_itself(x):
        return no("the kernel of CUDA would read the bfloat16, and there is none with a scale of float32")
    return {root.inputs[0]: op.append("Pow", [x, op.constant(2.0, x.dtype)], {}, 1).outputs[0]}


@rule(P.ReduceMean(x, optional("axes")), set="default")
def mean_of_vector(op, x, root):
    """The mean of a vector along its axis is that of all axes, which onnxruntime takes for no norm: it does not load those of vectors."""
    if op.context.runtime != "onnxruntime":
        return no("onnxruntime alone tells them apart")
    axes = told_axes(root)
    if not axes:
        return no("it is told no axes, or they are unknown")
    if x.shape is None or len(x.shape) != 1:
        return no("it is no vector")
    return op.append("ReduceMean", [x], {"keepdims": attribute_of(root, "keepdims", 1)}, 1).outputs[0]


def is_scaled_norm(x: ir.Value, mean: ir.Value) -> bool:
    """Whether ``x / sqrt(mean + epsilon)``, or the same by Reciprocal and Mul, is all that follows, then a scale."""
    total = followed_by(mean, "Add")
    if total is not None and is_misread_epsilon(x, total, "Mul"):
        return False
    root = followed_by(total, "Sqrt")
    inverse = followed_by(root, "Reciprocal")
    result = followed_by(root, "Div") if inverse is None else followed_by(inverse, "Mul")
    producer = None if result is None else result.producer()
    if producer is None or x not in (producer.inputs[:1] if producer.op_type == "Div" else producer.inputs):
        return False
    scaled = followed_by(followed_by(result, "Cast") or result, "Mul")
    return scaled is not None and any(is_scale(value, x, -1) for value in scaled.producer().inputs)


def is_cast_of_bfloat16_for_itself(x: ir.Value) -> bool:
    """Whether the product, the quotient and nothing else read a value that was bfloat16: onnxruntime takes that Cast into its kernel.

    Measured with onnxruntime-gpu 1.31: such models are not loaded; with bfloat16 scales, or another reader of the Cast, they are.
    """
    cast = producer_of(x, "Cast")
    return cast is not None and cast.inputs[0].dtype is ir.DataType.BFLOAT16 and len(x.uses()) == 3


def followed_by(value: ir.Value | None, operator: str) -> ir.Value | None:
    """The result of the one node that reads a value, when it is of this operator."""
    reader = only_reader(value, operator)
    return None if reader is None else reader.outputs[0]


# ---- scales and biases beside norms


def is_scale(weight: ir.Value, x: ir.Value, axis: int) -> bool:
    """Whether a value has the shape of the normalized axes."""
    return x.shape is not None and weight.shape is not None and list(weight.shape) == list(x.shape[axis:])


def with_scale(op, norm: ir.Node, x: ir.Value, *scale_and_bias: ir.Value) -> ir.Value | Declined:
    """The same norm with another scale, or with a bias."""
    axis = attribute_of(norm, "axis", -1)
    if x.shape is None or not is_scale(scale_and_bias[-1], x, axis if axis < 0 else axis - len(x.shape)):
        return no("the constant is not of the shape of the normalized axes")
    return once_more(op, norm, [x, *scale_and_bias], outputs=1)[0]


@rule(P.Mul(P.one_of(*NORMS)(x, scale, name="norm"), weight), set="default")
def scale_of_norm(op, x, scale, norm, weight):
    """A norm without scale times a vector is the norm with that scale."""
    return with_scale(op, norm, x, weight) if is_ones(scale) else no("the norm has a scale")


@rule(P.Add(P.LayerNormalization(x, var("scale"), name="norm"), var("bias")), set="default")
def bias_of_norm(op, x, scale, norm, bias):
    """A norm without bias plus a vector is the norm with that bias."""
    return with_scale(op, norm, x, scale, bias)


@rule(
    P.Cast(P.one_of(*NORMS)(P.Cast(x), scale, name="norm"), name="cast"),
    set="default",
)
def norm_of_halves(op, x, scale, norm, cast):
    """Casts around a norm without scale: the operator computes in float32 and rounds its result before it scales it."""
    if x.dtype != FLOAT16 or attribute_of(cast, "to") != FLOAT16 or scale.dtype != FLOAT:
        return no("no float16 around float32")
    if not is_ones(scale) or attribute_of(norm, "stash_type", 1) != FLOAT:
        return no("the norm has a scale, which is multiplied in float32")
    return once_more(op, norm, [x, op.constant(np.ones(list(scale.shape), np.float16))], outputs=1)[0]


# ---- residuals


@rule(P.LayerNormalization(P.Add(x, var("y"), name="add"), var("scale"), optional("bias")), set="default")
def sum_before_layer_normalization(op, x, y, scale, bias, root):
    """A residual that only a LayerNormalization reads is written Sum, not Add.

    onnxruntime makes SkipLayerNormalization of an Add of three axes of the same sizes and a scale of one axis, which is slow on CPU,
    and wrong where more axes are normalized: no translation writes such a scale, other files may. It is no row of the runtime table, which
    does not see who reads a value later. Measured with onnxruntime 1.31: (2, 128, 384) 61 us instead of 488, BERT 0.93 of the time.
    """
    if op.context.runtime != "onnxruntime" or x.dtype != FLOAT:
        return no("onnxruntime keeps the Add")
    if not is_skip(x, y):
        return no("onnxruntime keeps the Add: it is not of three axes of the same sizes")
    return once_more(op, root, [op.Sum(x, y), scale, bias])


def is_skip(x: ir.Value, y: ir.Value) -> bool:
    """Whether onnxruntime takes the sum of two values for a residual."""
    return x.shape is not None and len(x.shape) == 3 and same_sizes(x.shape, y.shape)
