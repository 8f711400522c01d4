"""Constants beside a product of weights go into the weights: batch norms, scales and biases of channels.

The new weights are computed when the model is written; the old ones, which nothing else may read, leave it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import attributes_of
from experimental_experiment.xoptim.pattern import (
    P,
    attribute_of,
    const,
    constant_of,
    number_of,
    optional,
    var,
)
from experimental_experiment.xoptim.patterns.transposing import perm, transposed
from experimental_experiment.xoptim.rules import Declined, again, no, rule
from experimental_experiment.xoptim.shapes import adds_no_axes, is_same

x, weight, constant = var("x"), const("weight"), const("constant")

PRODUCT = P.one_of("Conv", "ConvTranspose", "Gemm")(x, weight, optional("bias"), name="product")
SHOWING = P.one_of("Transpose", "Flatten", "Reshape", "Squeeze", "Unsqueeze")
CHANNELS = SHOWING(PRODUCT, ..., name="moved") | PRODUCT
"""A product whose channels stand where they are, or elsewhere, as the last axis in models that hold images so."""

LINEAR = P.MatMul(x, P.Transpose(weight, perm=[1, 0], name="transpose") | weight)
BIASED = P.Add(LINEAR, const("bias")) | LINEAR
WEIGHT_DTYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Dtypes of weights that take any constants."""

LARGE = 2.0**20
"""What constants multiply weights by at most; a single number by 1 / LARGE at least."""

SMALL = 2.0**-64
"""What those of a vector multiply weights by at least, if they are not 0: digits of weights beyond 1e-18 stay."""

NORM = {name: const(name) for name in ("scale", "shift", "mean", "variance")}


# ---- batch norms


@rule(P.BatchNormalization(CHANNELS, *NORM.values()), set="default")
def batch_norm_of_product(op, product, weight, bias, moved, scale, shift, mean, variance, root):
    """A BatchNormalization of a Conv, ConvTranspose or Gemm, which may be turned or reshaped, goes into its weight and its bias.

    In float16 it rounds the weights, as onnxruntime does otherwise when it loads the model, in steps of float16. Distance to the float64
    result beside eager's, beside onnxruntime's: ResNet 18 1.33 to 1.61, 0.82 to 0.87, DenseNet 121 0.48 to 0.99, 0.43 to 0.51, MobileNet
    v3 0.61 to 0.96, 0.53 to 0.63, RegNet 1.06, 0.63.
    """
    affine = running(op, root, scale, shift, mean, variance)
    if isinstance(affine, Declined):
        return affine
    place = place_of_channels(product, weight, moved)
    if place is None or place[0] != 1:
        return no("the second axis is not that of the channels")
    dtypes = *WEIGHT_DTYPES, ir.DataType.FLOAT16
    return moved_again(op, moved, scaled(op, product, weight, bias, *affine, dtypes=dtypes))


@rule(P.BatchNormalization(P.Transpose(BIASED, name="moved") | BIASED, *NORM.values()), set="default")
def batch_norm_of_linear(op, x, weight, transpose, bias, moved, scale, shift, mean, variance, root):
    """A BatchNormalization of a matrix product, which may be turned, goes into its weight and its bias.

    Measured with onnxruntime 1.31: a layer of 128 to 512 columns whose rows are turned, normalized and turned back 0.88 to 0.94 of the time.
    """
    affine = running(op, root, scale, shift, mean, variance)
    if isinstance(affine, Declined):
        return affine
    order = perm(moved) if moved is not None else x.shape and range(len(x.shape))
    if order is None or list(order).index(len(order) - 1) != 1:
        return no("the last axis is not that of the channels")
    return moved_again(op, moved, linear(op, x, weight, transpose, bias, *affine))


@rule(
    P.Transpose(
        P.BatchNormalization(P.Transpose(x, name="inner"), *NORM.values(), name="norm"), name="outer"
    ),
    set="default",
)
def batch_norm_between_transposes(op, x, inner, norm, outer, scale, shift, mean, variance):
    """A BatchNormalization of the last axis, as rows are normalized between two transpositions, is a product and a sum.

    Measured with onnxruntime 1.31: 8 x 64 x 128 elements 1.06 of the time, 1 x 196 x 384 0.80, 32 x 50 x 512 0.38.
    """
    affine = running(op, norm, scale, shift, mean, variance)
    if isinstance(affine, Declined):
        return affine
    before, after = perm(inner), perm(outer)
    if before is None or after is None or before[1] != len(before) - 1:
        return no("the last axis is not that of the channels")
    if x.dtype not in WEIGHT_DTYPES or scale.dtype is not x.dtype:
        return no("neither float32 nor float64")
    if not all(np.isfinite(numbers).all() for numbers in affine):
        return no("a number is not finite")
    factor, term = (op.constant(numbers.astype(x.dtype.numpy())) for numbers in affine)
    return transposed(op, op.Add(op.Mul(x, factor), term), [before[axis] for axis in after])


@rule(
    P.BatchNormalization(P.one_of("Flatten", "Reshape")(BIASED, ..., name="flat"), *NORM.values()),
    set="default",
)
def batch_norm_of_rows(op, weight, x, transpose, bias, flat, scale, shift, mean, variance, root):
    """The same where the rows of all samples are one matrix before, as in the layers of a LeViT.

    Measured with onnxruntime 1.31: a LeViT of images of 224 in 364 nodes instead of 464, 1.00 of the time.
    """
    affine = running(op, root, scale, shift, mean, variance)
    if isinstance(affine, Declined):
        return affine
    rows = flat.outputs[0].shape
    if rows is None or len(rows) != 2 or rows[1] != weight.shape[0 if transpose is not None else -1]:
        return no("the last axis is not that of the channels")
    result = linear(op, x, weight, transpose, bias, *affine)
    return result if isinstance(result, Declined) else again(op, flat, [result, *flat.inputs[1:]])


@rule(
    P.one_of("Conv", "Gemm")(
        P.BatchNormalization(x, *NORM.values(), name="norm"), weight, optional("bias"), name="product"
    ),
    set="default",
)
def product_of_batch_norm(op, x, norm, product, weight, bias, scale, shift, mean, variance):
    """A BatchNormalization before a Conv without padding, or a Gemm, goes into the weight and the bias."""
    affine = running(op, norm, scale, shift, mean, variance)
    if isinstance(affine, Declined):
        return affine
    if any(attribute_of(product, "pads", ())) or attribute_of(product, "auto_pad", "NOTSET") != "NOTSET":
        return no("the zeros of the padding are not normalized")
    if attribute_of(product, "transA", 0):
        return no("the channels are the rows")
    channels = channels_of(product, weight)
    reason = reason_to_stay(weight, bias, channels, *affine)
    if reason is not None:
        return reason
    factor, term = (along_inputs(product, weight, numbers) for numbers in affine)
    summed = tuple(axis for axis in range(len(weight.shape)) if axis != channel_axis(product))
    added = (constant_of(weight).numpy() * term).sum(axis=summed) * attribute_of(product, "alpha", 1.0)
    attributes = attributes_of(product)
    new = with_dtype(op, bias, weight, taken_bias(attributes, bias) + added)
    if isinstance(new, Declined):
        return new
    return op.append(product.op_type, [x, times(op, weight, factor), new], attributes, 1).outputs[0]


def along_inputs(product: ir.Node, weight: ir.Value, numbers: np.ndarray) -> np.ndarray:
    """One number for each channel that goes into a Conv or a Gemm, in the shape of its weight or broadcast to it."""
    if product.op_type == "Gemm":
        return numbers.reshape([-1, 1] if channel_axis(product) else [1, -1])
    channels, width, *kernel = weight.shape
    groups = attribute_of(product, "group", 1)
    rows = np.repeat(numbers.reshape(groups, 1, width), channels // groups, axis=1)
    return rows.reshape(channels, width, *[1] * len(kernel))


@rule(P.BatchNormalization(x, *NORM.values()), set="default")
def batch_norm_nothing(op, x, scale, shift, mean, variance, root):
    """A BatchNormalization that changes nothing."""
    affine = running(op, root, scale, shift, mean, variance)
    if isinstance(affine, Declined):
        return affine
    factor, term = affine
    return x if (factor == 1).all() and (term == 0).all() else None


def running(op, norm: ir.Node, *given: ir.Value) -> tuple[np.ndarray, np.ndarray] | Declined:
    """Factor and term of each channel, of a BatchNormalization with running statistics."""
    if op.opset < 9 or attribute_of(norm, "training_mode", 0) or len(norm.outputs) > 1:
        return no("the statistics are those of the batch")
    scale, shift, mean, variance = (constant_of(value).numpy().astype(np.float64) for value in given)
    with np.errstate(all="ignore"):  # numbers that are not finite decline
        factor = scale / np.sqrt(variance + attribute_of(norm, "epsilon", 1e-5))
    return factor, shift - mean * factor


# ---- scales and biases


@rule(P.Mul(CHANNELS, constant) | P.Div(CHANNELS, constant), set="default")
def scale_of_product(op, product, weight, bias, constant, moved, root):
    """A Conv, ConvTranspose or Gemm times one number for each channel, which may be turned: the numbers go into the weight and the bias.

    Measured with onnxruntime 1.31, with BiasOfProduct: models of Keras, whose channels are last and whose batch norms are products and
    sums, MobileNetV2 0.53 of the time (364 nodes, 114 now), EfficientNetB0 0.68, Xception 0.89, ResNet50V2 0.96.
    """
    factor = by_channel(product, weight, constant, moved)
    if isinstance(factor, Declined):
        return factor
    if root.op_type == "Div":
        if not factor.all():
            return no("a number is not finite")
        factor = 1 / factor
    if not are_moderate(factor):
        return no("a number is too large or too small")
    return moved_again(op, moved, scaled(op, product, weight, bias, factor, 0.0))


@rule(P.Add(CHANNELS, constant) | P.Sub(CHANNELS, constant), set="default")
def bias_of_product(op, product, weight, bias, constant, moved, root):
    """A Conv, ConvTranspose or Gemm plus one number for each channel, which may be turned: the numbers go into the bias."""
    term = by_channel(product, weight, constant, moved)
    if isinstance(term, Declined):
        return term
    new = scaled(op, product, weight, bias, None, -term if root.op_type == "Sub" else term)
    return moved_again(op, moved, new)


def moved_again(op, moved: ir.Node | None, product: ir.Value | Declined) -> ir.Value | Declined:
    """A product with other weights behind what turned or reshaped it."""
    if moved is None or isinstance(product, Declined):
        return product
    return again(op, moved, [product, *moved.inputs[1:]])


@rule(P.Mul(BIASED, constant), set="default")
def scale_of_linear(op, x, weight, transpose, bias, constant):
    """A matrix product times a vector, as a layer scale, or a number: they go into the weight and the bias.

    Measured with onnxruntime 1.31: ConvNeXt 0.98 of the time.
    """
    size = weight.shape[0 if transpose is not None else -1]
    if list(constant.shape) == [size]:
        factor = constant_of(constant).numpy().astype(np.float64)
    else:
        factor = one_factor(constant, size)
    if isinstance(factor, Declined):
        return factor
    if not are_moderate(factor):
        return no("a number is too large or too small")
    return linear(op, x, weight, transpose, bias, factor, 0.0)


SHOWN = P.Reshape(BIASED, var("shape"), name="heads")
MOVED = P.Transpose(SHOWN, name="moved") | SHOWN


@rule(P.Mul(MOVED, constant) | P.Div(MOVED, constant) | P.Div(BIASED, constant), set="default")
def scale_of_heads(op, x, weight, transpose, bias, constant, heads, moved, root):
    """A number that the heads of a matrix product are multiplied by or divided by, as queries are: it goes into the weight and the bias."""
    factor = one_factor(constant, weight.shape[0 if transpose is not None else -1])
    if isinstance(factor, Declined):
        return factor
    if constant.shape and not adds_no_axes(root, root.inputs[root.inputs[0] is constant]):
        return no("the number may add an axis")
    if root.op_type == "Div":
        factor = 1 / factor
    result = linear(op, x, weight, transpose, bias, factor, 0.0)
    for node in (heads, moved):
        if node is not None and not isinstance(result, Declined):
            result = again(op, node, [result, *node.inputs[1:]])
    return result


def one_factor(constant: ir.Value, size: int) -> np.ndarray | Declined:
    """A number as often as there are columns."""
    number = number_of(constant)
    if number is None or len(constant.shape) > 1:
        return no("the constant is no number, and no vector of one for each column")
    if not 1 / LARGE <= abs(number) <= LARGE:
        return no("small weights would lose digits")
    return np.full(size, number, np.float64)


def are_moderate(factors: np.ndarray) -> bool:
    """Whether weights may be multiplied by numbers, some of which may be 0: what is left of the range of their dtype stays wide."""
    sizes = np.abs(factors)
    return bool(((sizes == 0) | ((sizes >= SMALL) & (sizes <= LARGE))).all())


# ---- products with other weights


def channel_axis(product: ir.Node) -> int:
    """The axis of the weight along which the channels of the result are, in groups for a ConvTranspose."""
    if product.op_type == "Gemm":
        return 1 - attribute_of(product, "transB", 0)
    return int(product.op_type == "ConvTranspose")


def channels_of(product: ir.Node, weight: ir.Value) -> int:
    """How many channels a product has."""
    groups = attribute_of(product, "group", 1) if product.op_type == "ConvTranspose" else 1
    return weight.shape[channel_axis(product)] * groups


def place_of_channels(product: ir.Node, weight: ir.Value, moved: ir.Node | None) -> tuple[int, int] | None:
    """The axis of the channels of a product behind what turns or reshapes it, and the number of axes; None where it is not known."""
    if moved is None:
        return 1, len(weight.shape)
    if moved.op_type == "Transpose":
        order = perm(moved)
        return None if order is None else (order.index(1), len(order))
    before, after = product.outputs[0].shape, moved.outputs[0].shape
    if before is None or after is None or len(after) < 2:
        return None
    is_kept = is_same(before[0], after[0]) and after[1] == channels_of(product, weight)
    return (1, len(after)) if is_kept else None


def by_channel(
    product: ir.Node, weight: ir.Value, constant: ir.Value, moved: ir.Node | None
) -> np.ndarray | Declined:
    """The numbers of a constant that has one for each channel, or one for all, of a product behind *moved*."""
    place = place_of_channels(product, weight, moved)
    if place is None:
        return no("the axis of the channels is not known")
    (axis, rank), channels = place, channels_of(product, weight)
    shape = [1] * (rank - len(constant.shape)) + list(constant.shape)
    if len(shape) != rank or shape[axis] not in (1, channels) or {*shape[:axis], *shape[axis + 1 :]} - {1}:
        return no("the constant is not one number for each channel")
    return np.broadcast_to(constant_of(constant).numpy().reshape(-1).astype(np.float64), channels)


def scaled(op, product: ir.Node, weight, bias, factor, term, dtypes=WEIGHT_DTYPES) -> ir.Value | Declined:
    """``product * factor + term`` as a product with other weights, of one of these dtypes; no factor is 1."""
    channels = channels_of(product, weight)
    reason = reason_to_stay(weight, bias, channels, factor, term, dtypes)
    if reason is not None:
        return reason
    if weight.dtype is ir.DataType.FLOAT16 and not rounds(product, weight, bias, factor, term):
        return no("the weights are beyond float16")
    attributes = attributes_of(product)
    old = taken_bias(attributes, bias)
    numbers = old + term if factor is None else old * factor + term
    new = with_dtype(op, bias, weight, np.broadcast_to(numbers, channels))
    if isinstance(new, Declined):
        return new
    if factor is not None:
        weight = times(op, weight, along_results(product, weight, factor))
    return op.append(product.op_type, [product.inputs[0], weight, new], attributes, 1).outputs[0]


def taken_bias(attributes: dict[str, Any], bias: ir.Value | None) -> np.ndarray | float:
    """What a product adds, with the factor of a Gemm, which leaves the *attributes*: without a bias it says nothing."""
    beta = attributes.pop("beta", 1.0)
    return 0.0 if bias is None else constant_of(bias).numpy().astype(np.float64) * beta


def along_results(product: ir.Node, weight: ir.Value, factor: np.ndarray) -> np.ndarray:
    """One number for each channel that a product gives, in the shape of its weight or broadcast to it."""
    shape = [1] * len(weight.shape)
    if product.op_type == "ConvTranspose":
        groups = attribute_of(product, "group", 1)
        rows = weight.shape[0] // groups
        return np.repeat(factor.reshape(groups, 1, -1), rows, 1).reshape(*weight.shape[:2], *shape[2:])
    shape[channel_axis(product)] = len(factor)
    return factor.reshape(shape)


def rounds(product: ir.Node, weight: ir.Value, bias, factor: np.ndarray, term: np.ndarray) -> bool:
    """Whether float16 holds the products of a weight, those of each channel that give more than its smallest number, and what is added."""
    added = term if bias is None else constant_of(bias).numpy() * factor + term
    array = constant_of(weight).numpy().astype(np.float64) * along_results(product, weight, factor)
    axis = channel_axis(product)
    others = tuple(other for other in range(array.ndim) if other != axis)
    with np.errstate(all="ignore"):
        lost = array - array.astype(np.float16)
        is_finite = np.isfinite(lost).all() and np.isfinite(added.astype(np.float16)).all()
        lost, size = (np.sqrt(np.square(numbers).sum(axis=others)) for numbers in (lost, array))
    return bool(is_finite and ((lost <= 2.0**-11 * size) | (size < 2.0**-24)).all())


def linear(op, x, weight, transpose, bias, factor, term) -> ir.Value | Declined:
    """``(x @ weight + bias) * factor + term`` with other constants; *weight* may be transposed."""
    size = weight.shape[0 if transpose is not None else -1]
    if len(weight.shape) != 2:
        return no("the weight is no matrix")
    reason = reason_to_stay(weight, bias, size, factor, term)
    if reason is not None:
        return reason
    added = None
    if bias is not None or np.any(term):
        old = taken_bias({}, bias)
        added = with_dtype(op, bias, weight, np.broadcast_to(old * factor + term, size))
    if isinstance(added, Declined):
        return added
    new = times(op, weight, factor.reshape(-1, 1) if transpose is not None else factor)
    product = op.MatMul(x, new if transpose is None else op.Transpose(new, perm=[1, 0]))
    return product if added is None else op.Add(product, added)


def reason_to_stay(weight, bias, channels, factor, term, dtypes=WEIGHT_DTYPES) -> Declined | None:
    """Why constants do not go into these weights, None when they do."""
    if weight.dtype not in dtypes:
        return no("the weight is neither float32 nor float64")
    if factor is not None and (len(weight.uses()) > 1 or weight.is_graph_output()):
        return no("another reads the weight")
    if bias is not None and (constant_of(bias) is None or list(bias.shape) != [channels]):
        return no("the bias is no constant of one number for each channel")
    if not all(np.isfinite(numbers).all() for numbers in (1.0 if factor is None else factor, term)):
        return no("a number is not finite")
    most = 0.0 if factor is None else np.abs(factor).max(initial=0)
    if most > 1 and most * largest(weight) > np.finfo(weight.dtype.numpy()).max:
        return no("a weight would be infinite")
    return None


def largest(weight: ir.Value) -> float:
    """The largest magnitude among weights, which are not copied for it."""
    array = constant_of(weight).numpy()
    return max(float(array.max(initial=0)), -float(array.min(initial=0)))


def times(op, weight: ir.Value, factors: np.ndarray) -> ir.Value:
    """A weight times *factors*."""
    tensor = constant_of(weight)
    return op.lazy_weight(
        f"{weight.name}_scaled",
        lambda: (tensor.numpy() * factors).astype(tensor.dtype.numpy()),
        tensor.dtype,
        tensor.shape,
    )


def with_dtype(op, bias: ir.Value | None, weight: ir.Value, array: np.ndarray) -> ir.Value | Declined:
    """A bias of the dtype of *weight*, named after the one that it replaces, which is infinite where that was."""
    with np.errstate(over="ignore"):
        array = array.astype(weight.dtype.numpy())
    if not (np.isfinite(array) | ~np.isfinite(taken_bias({}, bias))).all():
        return no("the bias would be infinite")
    return op.weight(f"{weight.name}_bias" if bias is None else f"{bias.name}_scaled", ir.Tensor(array))
