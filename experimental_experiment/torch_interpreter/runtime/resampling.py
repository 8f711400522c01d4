"""Resizing: float64, cubics, what an operator set lacks."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.resize import (
    by_matrices,
    cubic_taps,
    hat,
    sum_of_taps,
    triangle,
)
from experimental_experiment.torch_interpreter.aten.resize_sizes import target
from experimental_experiment.torch_interpreter.aten.spatial import padded_along
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.runtime.table import before, repairs
from experimental_experiment.torch_interpreter.sizes import counted, times


@repairs(
    "Resize",
    when="float64, mode nearest, whole factors",
    because="there is no kernel, and float32 loses half of the digits",
    nodes="6 an axis of dynamic size, otherwise 0",
)
def repeated_elements(op, x, roi=None, scales=None, sizes=None, *, mode="nearest", **attributes):
    """The elements at their positions, divided by the factor."""
    repeats = mode == "nearest" and attributes.get("coordinate_transformation_mode") == "asymmetric"
    if x.dtype != ir.DataType.DOUBLE or not repeats or scales is None or scales.const_value is None:
        return None
    for axis, factor in enumerate(scales.const_value.numpy().astype(int).tolist()):
        if factor != 1:
            number = counted(op, times(op, op.size(x, axis), factor))
            x = op.Gather(x, op.Div(number, factor), axis=axis)
    return x


@repairs(
    "Resize",
    when="mode linear, three dimensions",
    because="what is in other channels is multiplied by 0, which makes NaN of an infinity; it takes 1.7 times as long",
    nodes="2, and 3 for a factor or a size that is not known",
)
def one_row_high(op, x, roi=None, scales=None, sizes=None, *, mode="nearest", antialias=0, **attributes):
    """Images of one row; all translations keep the first two dimensions."""
    if mode != "linear" or antialias or rank(x) != 3:
        return None
    if scales is not None:
        scales = op.Concat(op.Slice(scales, [0], [2]), [1.0], op.Slice(scales, [2], [3]), axis=0)
    if sizes is not None:
        sizes = op.Concat(op.Slice(sizes, [0], [2]), [1], op.Slice(sizes, [2], [3]), axis=0)
    image = op.Resize(op.Unsqueeze(x, [2]), None, scales, sizes, mode=mode, **attributes)
    return op.Squeeze(image, [2])


@repairs(
    "Resize",
    when="mode cubic, factors between 1 and 1.5 that may keep every size",
    because="the input is copied when every size is kept",
    nodes=6,
)
def continued(op, x, roi=None, scales=None, sizes=None, *, mode="nearest", antialias=0, **attributes):
    """The input is continued with its edge, so that an axis grows; the result is cut."""
    if mode != "cubic" or antialias or scales is None or scales.const_value is None:
        return None
    if attributes.get("coordinate_transformation_mode", "half_pixel") != "half_pixel":
        return None
    factors = dict(enumerate(scales.const_value.numpy().tolist()))
    moved = [axis for axis, factor in factors.items() if factor != 1]
    if not moved or not all(1 < factors[axis] < 1.5 for axis in moved):
        return None
    if any(grows(x.shape[axis], factors[axis]) for axis in moved):
        return None
    more = math.ceil(1 / (factors[moved[-1]] - 1))
    longer = padded_along(op, x, moved[-1:], [0], [more], mode="edge")
    result = op.Resize(longer, roi, scales, mode=mode, **attributes)
    cut = op.Mul(op.Cast(op.Shape(x), to=ir.DataType.FLOAT), scales)
    return op.Slice(result, [0] * rank(x), op.Cast(cut, to=ir.DataType.INT64))


@repairs(
    "Resize",
    when="mode cubic, factors of at least 1 that change every size but by 1",
    because="it takes 20 to 30 times as long as with antialias, which changes nothing where no axis shrinks",
    nodes=0,
)
def smoothed_nowhere(op, x, roi=None, scales=None, sizes=None, *, mode="nearest", antialias=0, **attributes):
    """The same with antialias."""
    transformation = attributes.get("coordinate_transformation_mode", "half_pixel")
    if op.opset < 18 or mode != "cubic" or antialias or transformation != "half_pixel":
        return None
    if scales is None or scales.const_value is None:
        return None
    axes = list(zip(x.shape, scales.const_value.numpy().tolist()))
    if not all(factor == 1 or factor >= 1.5 or grows(size, factor) for size, factor in axes):
        return None
    return op.Resize(x, roi, scales, mode=mode, antialias=1, **attributes)


@repairs(
    "Resize",
    when="mode cubic, two axes of static sizes, one that shrinks and none that grows",
    because="it takes 4 to 7 times as long",
    nodes=5,
)
def neighbours_of_less(
    op, x, roi=None, scales=None, sizes=None, *, mode="nearest", antialias=0, **attributes
):
    """The four neighbours on an axis are gathered, weighted and added, then those on the other axis."""
    transformation = attributes.pop("coordinate_transformation_mode", "half_pixel")
    if mode != "cubic" or antialias or transformation not in ("half_pixel", "align_corners"):
        return None
    if attributes != {"cubic_coeff_a": -0.75} or scales is None or scales.const_value is None or rank(x) != 4:
        return None
    inner, factors = list(x.shape)[2:], scales.const_value.numpy()[2:]
    if not all(isinstance(size, int) and size for size in inner) or max(factors) > 1 or min(factors) == 1:
        return None
    outs = [int(np.float32(size) * factor) for size, factor in zip(inner, factors)]
    given = [as_given(*axis) for axis in zip(inner, outs, factors)]
    return sum_of_taps(op, x, outs, given, transformation == "align_corners", cubic_taps)


@repairs(
    "Resize",
    when="mode cubic, an axis that may shrink",
    because="it is refused with channels last, to which transpositions are moved through it",
    nodes="2, and 3 for sizes, 2 for a number of channels that is not known",
)
def of_one_sample(op, x, roi=None, scales=None, sizes=None, *, mode="nearest", antialias=0, **attributes):
    """The channels of all samples are those of one: no transposition is moved through a Reshape."""
    if mode != "cubic" or antialias or rank(x) != 4 or grows_or_stays(x, scales, sizes):
        return None
    image = op.Reshape(x, [1, -1, 0, 0])
    if sizes is not None and op.opset >= 18:
        sizes, attributes["axes"] = op.Slice(sizes, [2], [4]), [2, 3]
    elif sizes is not None:
        sizes = op.Concat(op.Slice(op.Shape(image), [0], [2]), op.Slice(sizes, [2], [4]), axis=0)
    result = op.Resize(image, roi, scales, sizes, mode=mode, **attributes)
    return op.Reshape(result, op.shape([-1, op.size(x, 1), 0, 0]))


@repairs(
    "Resize",
    when="aligned corners, a factor that is not whole of an axis of dynamic size",
    because="onnx.reference aligns the corners with a length of 11.9 elements, where onnxruntime and torch cut it off",
    nodes=4,
    measured="1.23.2",
    runtime="onnx",
)
def of_whole_lengths(op, x, roi=None, scales=None, sizes=None, **attributes):
    """The sizes, cut off."""
    if attributes.get("coordinate_transformation_mode") != "align_corners" or scales is None:
        return None
    factors = [None] * rank(x) if scales.const_value is None else scales.const_value.numpy().tolist()
    if all(isinstance(size, int) or factor == int(factor or 0) for size, factor in zip(x.shape, factors)):
        return None
    lengths = op.Mul(op.Cast(op.Shape(x), to=ir.DataType.FLOAT), scales)
    return op.Resize(x, roi, None, op.Cast(lengths, to=ir.DataType.INT64), **attributes)


def grows_or_stays(x: ir.Value, scales: ir.Value | None, sizes: ir.Value | None) -> bool:
    """Whether no axis of *x* is known to shrink, or may."""
    given = scales if scales is not None else sizes
    if given is None or given.const_value is None:
        return False
    numbers = given.const_value.numpy().tolist()
    if scales is not None:
        return min(numbers) >= 1
    return all(isinstance(old, int) and old <= new for old, new in zip(x.shape[2:], numbers[2:]))


def as_given(size: int, out: int, factor: np.float32) -> float | None:
    """The factor of an axis in float64 as torch was given it, None when the sizes say it."""
    return None if np.float32(out) / np.float32(size) == factor else float(str(factor))


def grows(size: int | ir.SymbolicDim, factor: float) -> bool:
    """Whether an axis is known to grow by a factor."""
    return isinstance(size, int) and int(size * factor) > size


@before(
    18,
    "Resize",
    when="antialias of two axes",
    because="it has no antialias",
    nodes="2; 60 to 80 for dynamic sizes",
)
def antialiased(op, x, roi=None, scales=None, sizes=None, *, mode="nearest", antialias=0, **attributes):
    """Products with matrices of weights."""
    if not antialias or (sizes is None and scales.const_value is None):
        return None
    if sizes is not None:
        out = [op.Gather(sizes, axis) for axis in (2, 3)]
        factors = [None, None]
    else:
        out, factors = target(op, x, None, scales.const_value.numpy().astype(float).tolist()[2:])
    kernel, reach = (hat, 2.0) if mode == "cubic" else (triangle, 1.0)
    return by_matrices(op, x, out, factors, False, kernel, reach)
