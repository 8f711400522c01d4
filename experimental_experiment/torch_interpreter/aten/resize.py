"""Resizing: linear, bilinear, trilinear, bicubic and the antialiased ones, Lanczos among them.

Source of semantics: torch.nn.functional.interpolate and ATen's UpSample.h. ONNX Resize where it reads the same positions; otherwise every
axis is gathered at the positions that ATen computes, in its precision. Bytes are interpolated in integers, as ATen does on every CPU
that has AVX2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.resize_sizes import (
    DOUBLE,
    INT64,
    UINT8,
    Stretch,
    check_float,
    computing_dtype,
    is_told,
    positions,
    step_of,
    stretch,
    target,
    whole_factor,
)
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Size, counted, is_static, minus
from experimental_experiment.torch_interpreter.torch_versions import installed

aten = torch.ops.aten

DIGITS = 22
"""The most binary digits that ATen gives to a weight of bytes."""


# ---- linear, cubic


@translates(aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec)
def upsample_linear_vec(op, input, output_size, align_corners, scale_factors):
    """Interpolate linearly along every spatial axis."""
    return linear(op, input, *target(op, input, output_size, scale_factors), align_corners)


@translates(aten.upsample_linear1d.default)
def upsample_linear1d(op, self, output_size, align_corners, scales):
    """Interpolate linearly."""
    return linear(op, self, output_size, [scales], align_corners)


@translates(aten.upsample_bilinear2d.default)
def upsample_bilinear2d(op, self, output_size, align_corners, scales_h, scales_w):
    """Interpolate linearly along two axes."""
    return linear(op, self, output_size, [scales_h, scales_w], align_corners)


@translates(aten.upsample_trilinear3d.default)
def upsample_trilinear3d(op, self, output_size, align_corners, scales_d, scales_h, scales_w):
    """Interpolate linearly along three axes."""
    return linear(op, self, output_size, [scales_d, scales_h, scales_w], align_corners)


@translates(aten.upsample_bicubic2d.vec)
def upsample_bicubic2d_vec(op, input, output_size, align_corners, scale_factors):
    """Interpolate with a cubic along two axes."""
    return cubic(op, input, *target(op, input, output_size, scale_factors), align_corners)


@translates(aten.upsample_bicubic2d.default)
def upsample_bicubic2d(op, self, output_size, align_corners, scales_h, scales_w):
    """Interpolate with a cubic along two axes."""
    return cubic(op, self, output_size, [scales_h, scales_w], align_corners)


def linear(op, x, sizes, scales, align_corners):
    """Each output is between two elements of an axis, weighted by its distance to them."""
    return interpolated(op, x, sizes, scales, align_corners, "linear", linear_taps)


def cubic(op, x, sizes, scales, align_corners):
    """Each output is a cubic convolution of four elements of an axis, those at the ends repeated."""
    return interpolated(op, x, sizes, scales, align_corners, "cubic", cubic_taps)


def linear_taps(op, dtype, size: Size, out: Size, scale: float | None, align_corners: bool, copied=True):
    """The two elements of an axis that every output reads, and their weights."""
    step = step_of(op, dtype, size, out, scale, align_corners, copied)
    place = op.Max(positions(op, step, out, align_corners), 0.0)
    last = minus(op, size, 1)
    below = op.Min(op.Cast(op.Floor(place), to=INT64), last)
    part = op.Sub(place, op.Cast(below, to=dtype))
    distance: int | ir.Value = 1  # torch reads an axis that keeps its size at one place
    if is_static(size, out):
        distance = int(size != out)
    elif op.context.special_values:
        distance = op.Cast(op.Not(op.Equal(op.constant(size), out)), to=INT64)
    return [(below, op.Sub(1.0, part)), (op.Min(op.Add(below, distance), last), part)]


def cubic_taps(op, dtype, size: Size, out: Size, scale: float | None, align_corners: bool, copied=False):
    """The four elements of an axis that every output reads, and their weights."""
    place = positions(op, step_of(op, dtype, size, out, scale, align_corners, copied), out, align_corners)
    floor = op.Floor(place)
    first, last = op.Cast(floor, to=INT64), minus(op, size, 1)
    indices = [op.Min(op.Max(op.Add(first, offset), 0), last) for offset in (-1, 0, 1, 2)]
    return list(zip(indices, cubic_weights(op, op.Sub(place, floor))))


def cubic_weights(op, part):
    """The weights of four elements for a place at *part* between the second and the third."""
    rest, a = op.Sub(1.0, part), -0.75
    return [
        far(op, op.Add(part, 1.0), a),
        near(op, part, a),
        near(op, rest, a),
        far(op, op.Add(rest, 1.0), a),
    ]


def near(op, t, a):
    """The cubic kernel at a distance below 1: ``((a + 2) t - (a + 3)) t t + 1``."""
    return op.Add(op.Mul(op.Mul(op.Sub(op.Mul(t, a + 2), a + 3), t), t), 1.0)


def far(op, t, a):
    """The cubic kernel at a distance between 1 and 2: ``((a t - 5 a) t + 8 a) t - 4 a``."""
    return op.Sub(op.Mul(op.Add(op.Mul(op.Sub(op.Mul(t, a), 5 * a), t), 8 * a), t), 4 * a)


def interpolated(op, x, sizes, scales, align_corners, mode: str, taps: Callable):
    """Resize; otherwise a weighted sum of the elements of *taps*, axis by axis.

    On a thousand elements an axis, Resize, the sum and torch round positions in float32 by 1e-4 each, not alike; the sum takes 3 to
    7 times as long, but a fifth for cubics that make an image smaller. Resize gives an element that is not finite to other neighbours
    with the weight 0, or to none.
    """
    if x.dtype == UINT8 and rank(x) == 4:
        return of_bytes(op, x, sizes, scales, align_corners, taps)
    check_float(x)
    if op.context.special_values:
        return sum_of_taps(op, x, sizes, scales, align_corners, taps)
    attributes = dict(mode=mode, cubic_coeff_a=-0.75 if mode == "cubic" else None)
    result = resized(op, x, sizes, scales, align_corners, mode == "linear", **attributes)
    return sum_of_taps(op, x, sizes, scales, align_corners, taps) if result is None else result


def resized(op, x, sizes, scales, align_corners: bool, copied: bool, **attributes) -> ir.Value | None:
    """Resize, None where its factors, which are float32, do not say enough."""
    if x.dtype in (DOUBLE, UINT8):
        return None
    attributes["coordinate_transformation_mode"] = "align_corners" if align_corners else "half_pixel"
    axes = [(op.size(x, axis), *item) for axis, item in enumerate(zip(sizes, scales), 2)]
    told = all(is_told(op, *axis) for axis in axes)
    if not any(scales):
        factors = [whole_factor(op, size, out) for size, out, _ in axes]
        axes = axes if None in factors else [(*axis[:2], factor) for axis, factor in zip(axes, factors)]
    if align_corners:  # positions depend on the sizes alone: their quotient gives a whole length
        axes = [(size, out, None if is_static(size, out) else scale) for size, out, scale in axes]
    found = [stretch(*axis, copied and not align_corners) for axis in axes] if told else [None]
    if None not in found and all(item.is_exact for item in found):
        if all(item.factor == 1 for item in found):
            return x
        return op.Resize(x, None, factors_of(op, x, found), **attributes)
    if align_corners or not any(scales):  # positions depend on the sizes alone
        whole = op.shape([op.size(x, 0), op.size(x, 1), *sizes])
        return op.Resize(x, None, None, whole, **attributes)
    if None in found:
        return None
    result = op.Resize(x, None, factors_of(op, x, found), **attributes)
    return op.Slice(result, [0] * len(axes), op.shape(sizes), list(range(2, rank(x))))


def factors_of(op, x, found: Sequence[Stretch]) -> ir.Value:
    """The factors of Resize for all axes, 1 for an axis that keeps its size."""
    factors = op.constant(np.array([1, 1, *(item.factor for item in found)], np.float32))
    kept = [0, 0, *(item.kept for item in found)]
    if not any(kept):
        return factors
    return op.Where(op.Greater(op.Shape(x), op.constant(kept)), factors, op.constant(1.0))


def sum_of_taps(op, x, sizes, scales, align_corners, taps: Callable):
    """*x* in other *sizes*: axis by axis, each output is the sum of the elements at the indices of *taps*, times their weights.

    One Gather reads all elements of an axis when indices and weights are constants.
    """
    wide = op.Cast(x, to=computing_dtype(x))
    for axis, size, scale in zip(range(2, rank(x)), sizes, scales):
        read = taps(op, wide.dtype, op.size(x, axis), size, scale, align_corners)
        behind = list(range(1, rank(x) - axis))
        read = [(index, op.Unsqueeze(weight, behind)) for index, weight in read]
        if all(value.const_value is not None for tap in read for value in tap):
            indices, weights = (
                op.Concat(*(op.Unsqueeze(x, [0]) for x in values), axis=0) for values in zip(*read)
            )
            wide = op.ReduceSum(op.Mul(op.Gather(wide, indices, axis=axis), weights), [axis], keepdims=0)
        else:
            terms = [op.Mul(op.Gather(wide, index, axis=axis), weight) for index, weight in read]
            wide = functools.reduce(op.Add, terms)
    return op.Cast(wide, to=x.dtype)


# ---- antialiased


@translates(aten._upsample_bilinear2d_aa.vec)
def upsample_bilinear2d_aa_vec(op, input, output_size, align_corners, scale_factors):
    """Interpolate with triangles as wide as the reduction."""
    return antialiased(
        op, input, *target(op, input, output_size, scale_factors), align_corners, triangle, 1.0
    )


@translates(aten._upsample_bilinear2d_aa.default)
def upsample_bilinear2d_aa(op, self, output_size, align_corners, scales_h, scales_w):
    """Interpolate with triangles as wide as the reduction."""
    return antialiased(op, self, output_size, [scales_h, scales_w], align_corners, triangle, 1.0)


@translates(aten._upsample_bicubic2d_aa.vec)
def upsample_bicubic2d_aa_vec(op, input, output_size, align_corners, scale_factors):
    """Interpolate with cubics as wide as the reduction."""
    return antialiased(op, input, *target(op, input, output_size, scale_factors), align_corners, hat, 2.0)


@translates(aten._upsample_bicubic2d_aa.default)
def upsample_bicubic2d_aa(op, self, output_size, align_corners, scales_h, scales_w):
    """Interpolate with cubics as wide as the reduction."""
    return antialiased(op, self, output_size, [scales_h, scales_w], align_corners, hat, 2.0)


@translates(*installed("_upsample_lanczos2d_aa.vec"))
def upsample_lanczos2d_aa_vec(op, input, output_size, align_corners, scale_factors):
    """Interpolate with windowed sines as wide as the reduction."""
    return antialiased(op, input, *target(op, input, output_size, scale_factors), align_corners, lanczos, 3.0)


@translates(*installed("_upsample_lanczos2d_aa.default"))
def upsample_lanczos2d_aa(op, self, output_size, align_corners, scales_h, scales_w):
    """Interpolate with windowed sines as wide as the reduction."""
    return antialiased(op, self, output_size, [scales_h, scales_w], align_corners, lanczos, 3.0)


def antialiased(op, x, sizes, scales, align_corners, kernel: Callable, reach: float):
    """Resize, whose corners lie elsewhere and which has no Lanczos kernel; otherwise products with matrices."""
    if x.dtype != UINT8:
        check_float(x)
    if not align_corners and kernel is not lanczos:
        mode, coefficient = ("cubic", -0.5) if kernel is hat else ("linear", None)
        attributes = dict(mode=mode, cubic_coeff_a=coefficient, antialias=1, exclude_outside=1)
        result = resized(op, x, sizes, scales, False, True, **attributes)
        if result is not None:
            return result
    return by_matrices(op, x, sizes, scales, align_corners, kernel, reach)


def by_matrices(op, x, sizes, scales, align_corners, kernel: Callable, reach: float):
    """One matrix product an axis."""
    wide = op.Cast(x, to=computing_dtype(x))
    for axis, out, scale in zip((3, 2), reversed(sizes), reversed(scales)):
        size = op.size(x, axis)
        weights = antialiased_matrix(op, wide.dtype, size, out, scale, align_corners, kernel, reach)
        wide = (
            weighted(op, wide, weights, weights, axis) if x.dtype == UINT8 else along(op, weights, wide, axis)
        )
    return op.Cast(wide, to=x.dtype)


def antialiased_matrix(op, dtype, size, out, scale, align_corners, kernel: Callable, reach: float):
    """Row ``i`` weights the elements within *reach* of the place of output ``i``.

    Source: ``_compute_indices_min_size_weights_aa`` of ATen.
    """
    step = step_of(op, dtype, size, out, scale, align_corners, copied=True)
    if align_corners:
        step = op.Where(op.Greater(op.constant(out), 1), step, op.constant(0.0, step.dtype))
    stretch = op.Max(step, 1.0)
    center = op.Mul(step, op.Add(op.Cast(counted(op, out), to=step.dtype), 0.5))
    support = op.Mul(stretch, reach)
    first = whole(op, op.Add(op.Sub(center, support), 0.5))
    last = whole(op, op.Add(op.Add(center, support), 0.5))
    place = op.Cast(counted(op, size), to=step.dtype)
    column = [op.Unsqueeze(value, [1]) for value in (center, first, last)]
    inside = op.And(op.GreaterOrEqual(place, column[1]), op.Less(place, column[2]))
    distance = op.Abs(op.Div(op.Add(op.Sub(place, column[0]), 0.5), stretch))
    weights = op.Where(inside, kernel(op, distance), op.constant(0.0, step.dtype))
    return op.Div(weights, op.ReduceSum(weights, [1], keepdims=1))


def along(op, weights, x, axis: int):
    """The product of a matrix with the columns of *x*, or with its rows for the last axis."""
    return op.MatMul(x, op.Transpose(weights, perm=[1, 0])) if axis == 3 else op.MatMul(weights, x)


def whole(op, value):
    """A number that is truncated, and not below 0."""
    return op.Max(op.Cast(op.Cast(value, to=INT64), to=value.dtype), 0.0)


def triangle(op, t):
    """The linear kernel: 1 at 0, 0 from 1 on."""
    return op.Max(op.Sub(1.0, t), 0.0)


def hat(op, t):
    """The cubic kernel of image libraries, 0 from 2 on."""
    outer = op.Where(op.Less(t, 2.0), far(op, t, -0.5), op.constant(0.0, t.dtype))
    return op.Where(op.Less(t, 1.0), near(op, t, -0.5), outer)


def lanczos(op, t):
    """The windowed sine of image libraries, ``sinc(t) sinc(t / 3)``, 0 from 3 on."""
    angle = op.Mul(t, math.pi)
    both = op.Mul(op.Sin(angle), op.Sin(op.Div(angle, 3.0)))
    wave = op.Div(both, op.Div(op.Mul(angle, angle), 3.0))
    inside = op.Where(op.Less(t, 3.0), wave, op.constant(0.0, t.dtype))
    return op.Where(op.Equal(t, 0.0), op.constant(1.0, t.dtype), inside)


# ---- bytes


def of_bytes(op, x, sizes, scales, align_corners, taps: Callable):
    """Bytes along two axes in the integers of ATen's AVX2 kernels, the last axis first."""
    wide = op.Cast(x, to=DOUBLE)
    for axis, out, scale in zip((3, 2), reversed(sizes), reversed(scales)):
        size = op.size(x, axis)
        places = op.Cast(counted(op, size), to=DOUBLE)
        weights, totals = op.constant(0.0, DOUBLE), []
        for index, weight in taps(op, DOUBLE, size, out, scale, align_corners, copied=True):
            here = op.Equal(op.Unsqueeze(op.Cast(index, to=DOUBLE), [1]), places)
            weights = op.Add(weights, op.Where(here, op.Unsqueeze(weight, [1]), op.constant(0.0, DOUBLE)))
            totals.append(weights)
        wide = weighted(op, wide, weights, op.Max(*totals), axis)
    return op.Cast(wide, to=x.dtype)


def weighted(op, x, weights, seen, axis: int):
    """The weighted sum, along an axis, of bytes that are held as float64. The weights are rounded to as many binary digits as int16 can
    hold of the largest one in *seen*.

    Source: ``_compute_index_ranges_int16_weights`` of ATen. The products are exact; each axis is rounded to bytes.
    """
    digits = op.constant(2.0 ** np.arange(1, DIGITS + 1), DOUBLE)
    filled = op.Floor(op.Add(op.Mul(op.ReduceMax(seen, keepdims=0), digits), 0.5))
    fits = op.Cast(op.Less(filled, 2.0**15), to=DOUBLE)
    unit = op.Pow(op.constant(2.0, DOUBLE), op.ReduceSum(fits, keepdims=0))
    scaled = op.Mul(weights, unit)
    rounded = op.Mul(op.Sign(scaled), op.Floor(op.Add(op.Abs(scaled), 0.5)))
    total = op.Add(along(op, rounded, x, axis), op.Mul(unit, 0.5))
    return op.Clip(op.Floor(op.Div(total, unit)), 0.0, 255.0)
