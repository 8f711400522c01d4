"""Resizing to the nearest element, and to the one whose center is nearest.

Source of semantics: torch.nn.functional.interpolate and ATen's UpSample.h. ONNX Resize where it reads the same elements; otherwise every
axis is gathered at the positions that ATen computes, in its precision: a nearest neighbour is one element or another.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.resize_sizes import (
    DOUBLE,
    FLOAT,
    INT64,
    LARGEST,
    is_told,
    step_of,
    stretch,
    target,
    whole_factor,
)
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import (
    Size,
    is_static,
    know_sizes,
    minus,
    sizes_of,
    times,
)

aten = torch.ops.aten

BFLOAT16 = ir.DataType.BFLOAT16

SHORT = 4096
"""Fewer outputs of an axis that is about doubled are read as torch reads them in any precision from float32 on.

Of n elements and 2n - 1 or 2n + 1 outputs, no place but the first is that of an element: it is more than 1 / SHORT away from each. Two roundings
of a place below SHORT / 2 in float32 are an error of 1 / SHORT at most.
"""

EXACT = np.array([(2, 1), *((2, 2 << k) for k in range(6))])
"""Factors of the elements and of the outputs of an axis, [ratios, 2], whose products are equal, or of (2, 1) one apart, where float32 decides
nothing: the size is doubled, kept, or divided by a power of 2, whose places are exact. Where an axis grows by more, Resize takes longer."""

CHECKED = 8192
"""Positions for which a whole factor is verified to repeat elements exactly, when sizes are symbolic."""


@translates(aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec)
def upsample_nearest_vec(op, input, output_size, scale_factors):
    """The nearest element below."""
    return nearest(op, input, *target(op, input, output_size, scale_factors), 0.0)


@translates(
    aten._upsample_nearest_exact1d.vec,
    aten._upsample_nearest_exact2d.vec,
    aten._upsample_nearest_exact3d.vec,
)
def upsample_nearest_exact_vec(op, input, output_size, scale_factors):
    """The element whose center is nearest."""
    return nearest(op, input, *target(op, input, output_size, scale_factors), 0.5)


@translates(aten.upsample_nearest1d.default)
def upsample_nearest1d(op, self, output_size, scales):
    """The nearest element below."""
    return nearest(op, self, output_size, [scales], 0.0)


@translates(aten.upsample_nearest2d.default)
def upsample_nearest2d(op, self, output_size, scales_h, scales_w):
    """The nearest element below."""
    return nearest(op, self, output_size, [scales_h, scales_w], 0.0)


@translates(aten.upsample_nearest3d.default)
def upsample_nearest3d(op, self, output_size, scales_d, scales_h, scales_w):
    """The nearest element below."""
    return nearest(op, self, output_size, [scales_d, scales_h, scales_w], 0.0)


@translates(aten._upsample_nearest_exact1d.default)
def upsample_nearest_exact1d(op, self, output_size, scales):
    """The element whose center is nearest."""
    return nearest(op, self, output_size, [scales], 0.5)


@translates(aten._upsample_nearest_exact2d.default)
def upsample_nearest_exact2d(op, self, output_size, scales_h, scales_w):
    """The element whose center is nearest."""
    return nearest(op, self, output_size, [scales_h, scales_w], 0.5)


@translates(aten._upsample_nearest_exact3d.default)
def upsample_nearest_exact3d(op, self, output_size, scales_d, scales_h, scales_w):
    """The element whose center is nearest."""
    return nearest(op, self, output_size, [scales_d, scales_h, scales_w], 0.5)


def nearest(op, x, sizes: Sequence[Size], scales: Sequence[float | None], shift: float):
    """Element ``floor((i + shift) * step)`` for output ``i`` of each axis; Resize where it is known to read the same, or is found to while the model runs."""
    inner = [op.size(x, axis) for axis in range(2, rank(x))]
    fits = rank(x) == 4 and shift == 0
    if fits:
        scales = [None if keeps_or_doubles(*axis) else axis[2] for axis in zip(inner, sizes, scales)]
    axes = list(zip(inner, sizes, scales))
    factors = [repetitions(op, *axis, shift) for axis in axes]
    if None in factors and shift == 0 and x.dtype != DOUBLE and all(is_told(op, *axis) for axis in axes):
        factors = [sampling(*axis, fits) for axis in axes]
    if None not in factors:
        return resized(op, x, scales=op.constant(np.array([1, 1, *factors], np.float32)))
    indices = functools.partial(
        nearest_indices, dtype=DOUBLE if x.dtype == DOUBLE else FLOAT, sizes=inner, outs=sizes, scales=scales,
        shift=shift, fits=fits,
    )  # fmt: skip
    if x.dtype in (BFLOAT16, DOUBLE) or shift or any(scales) or is_static(*inner, *sizes):
        return gathered(op, x, indices(op), all(itertools.starmap(grows, axes)))

    def at_once(inside):
        return [resized(inside, x, sizes=inside.shape([*sizes_of(inside, x)[:2], *sizes]))]

    def along_each_axis(inside):
        return [gathered(inside, x, indices(inside), False)]

    then, otherwise = op.subgraph(at_once), op.subgraph(along_each_axis)
    result = op.If(are_exact(op, inner, sizes), then_branch=then, else_branch=otherwise)
    result.type, result.shape = x.type, ir.Shape([*x.shape[:2], *[None] * len(sizes)])
    know_sizes(op, result, [*sizes_of(op, x)[:2], *sizes])
    return result


def resized(op, x, scales=None, sizes=None):
    """The element that stands before each place, of which Resize computes the distance in its own precision."""
    return op.Resize(
        x,
        None,
        scales,
        sizes,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def gathered(op, x, indices, grows: bool):
    """The elements at *indices*, a vector for each of the last axes; where they *grow* the last axis comes first, so that less is moved."""
    axes = list(enumerate(indices, 2))
    for axis, index in reversed(axes) if grows else axes:
        x = op.Gather(x, index, axis=axis)
    return x


def are_exact(op, sizes: Sequence[Size], outs: Sequence[Size]) -> ir.Value:
    """Whether the ratio of each axis is one of `EXACT`, as in a pyramid of features: Resize is several times as fast there."""
    sizes, outs = op.shape(sizes), op.shape(outs)
    differences = op.Abs(op.Sub(op.Mul(sizes, EXACT[:, :1]), op.Mul(outs, EXACT[:, 1:])))
    nearest = op.ReduceMin(differences, [0], keepdims=0)
    return op.Less(op.ReduceMax(op.Max(nearest, op.Div(outs, SHORT // 2)), keepdims=0), 2)


def grows(size: Size, out: Size, scale: float | None) -> bool:
    """Whether an axis is known not to have fewer outputs than elements."""
    return scale >= 1 if scale else is_static(size, out) and out >= size


def keeps_or_doubles(size: Size, out: Size, scale: float | None) -> bool:
    """Whether an axis is known to keep its size, or to double it: ATen does so in whole elements, whatever the factor."""
    return is_static(size, out) and out in (size, 2 * size)


def repetitions(op, size: Size, out: Size, scale: float | None, shift: float) -> int | None:
    """The whole number of times that every element of an axis is repeated, None when this is not so."""
    scale = scale or whole_factor(op, size, out)
    if is_static(size, out):
        repeats, count = out // size if size else 0, out
    elif scale is not None and scale == int(scale):
        repeats, count = int(scale), CHECKED
    else:
        return None
    read = elements_read(np.float32, size, count, scale, shift)
    return repeats if repeats and np.array_equal(read, np.arange(count) // repeats) else None


def sampling(size: Size, out: Size, scale: float | None, fits: bool) -> np.float32 | None:
    """The factor with which Resize reads what torch reads of an axis, in float32 and in float64; None when there is none.

    *fits*: as in `nearest_indices`.
    """
    if is_static(size, out):
        if not size or not out:
            return None
        found, read = stretch(size, out, None, False), elements_read(np.float32, size, out, scale, 0.0)
        last = size - 1
    else:
        found = stretch(size, out, scale, False)
        if found is None or (fits and not keeps_or_doubles_alike(scale)):
            return None
        read, last = elements_read(np.float32, size, LARGEST, scale, 0.0), math.inf
    same = all(
        np.array_equal(
            np.minimum(np.floor(np.arange(len(read), dtype=kind) / kind(found.factor)), last), read
        )
        for kind in (np.float32, np.float64)
    )
    return found.factor if found.is_exact and same else None


def keeps_or_doubles_alike(scale: float) -> bool:
    """Whether a factor agrees with ATen wherever it keeps or doubles a size, for which ATen counts whole elements.

    It does when it is 1 or 2, and when it keeps or doubles no size but that of one element.
    """
    size = np.arange(2, LARGEST)
    out = (size * scale).astype(np.int64)
    return scale in (1, 2) or not ((out == size) | (out == 2 * size)).any()


def elements_read(dtype: type, size: Size, out: int, scale: float | None, shift: float) -> np.ndarray:
    """The element of an axis that each of *out* outputs reads, in the precision of ATen, whose floor is that of float32."""
    step = dtype(1 / scale) if scale else dtype(size) / dtype(out or 1)
    place = (np.arange(out, dtype=dtype) + dtype(shift)) * step
    read = np.floor(place.astype(np.float32)).astype(np.int64)
    return np.minimum(read, size - 1) if is_static(size) else read


def nearest_indices(
    op,
    dtype: ir.DataType,
    sizes: Sequence[Size],
    outs: Sequence[Size],
    scales: Sequence[float | None],
    shift: float,
    fits: bool,
) -> list[ir.Value]:
    """The element that every output reads, for each of some axes, computed in *dtype*.

    *fits*: an axis that keeps its size or doubles it does so in whole elements, as in ATen's kernels of two axes and in gradients.
    Without a factor, positions of sizes that are not known now are inside of the axis up to four million outputs.
    """
    if fits:
        scales = [None if keeps_or_doubles(*axis) else axis[2] for axis in zip(sizes, outs, scales)]
    if is_static(*sizes, *outs):
        axes = zip(sizes, outs, scales)
        return [op.constant(elements_read(dtype.numpy().type, *axis, shift)) for axis in axes]
    if any(scales):
        counts = [op.Cast(op.constant(out), to=dtype) for out in outs]
        steps = [
            fitted(op, step_of(op, dtype, *axis), *axis) if fits else step_of(op, dtype, *axis)
            for axis in zip(sizes, outs, scales)
        ]
    else:
        count = op.Cast(op.shape(outs), to=dtype)
        counts = [op.Gather(count, axis) for axis in range(len(outs))]
        steps = [op.Div(op.Cast(op.shape(sizes), to=dtype), count)]
        if len(outs) > 1:
            steps = op.Split(steps[0], axis=0, num_outputs=len(outs), outputs=len(outs))
    indices = []
    for size, count, step, scale in zip(sizes, counts, steps, scales):
        number = op.Range(op.constant(0, dtype), count, op.constant(1, dtype))
        place = op.Mul(op.Add(number, shift) if shift else number, step)
        index = op.Cast(op.Cast(place, to=FLOAT), to=INT64)  # ATen's floor is that of float32
        indices.append(op.Min(index, minus(op, size, 1)) if scale else index)
    return indices


def fitted(op, step: ir.Value, size: Size, out: Size, scale: float | None) -> ir.Value:
    """The step of an axis that may keep its size or double it by a factor that is not 1 or 2."""
    whole = int(scale or 0)
    if is_static(size, out) or whole not in (1, 2) or not whole < scale < whole + 0.5:
        return step
    return op.Where(op.Equal(times(op, size, whole), out), op.constant(1 / whole, step.dtype), step)
