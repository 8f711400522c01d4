"""Sampling at the points of a grid: points far outside and nowhere, dtypes and operator sets without GridSample.

Source of semantics: ATen's GridSampler.h.
"""

from __future__ import annotations

import functools
import itertools

import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.resize import cubic_weights
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import rounded_once, wide
from experimental_experiment.torch_interpreter.runtime.table import before, repairs
from experimental_experiment.torch_interpreter.sizes import Size, minus

OLD_MODES = {"linear": "bilinear", "cubic": "bicubic"}
"""The names that modes had."""


@repairs(
    "GridSample",
    when="float64",
    because="there is no kernel, and float32 loses half of the digits",
    nodes="31 to 400",
    before=20,
)
def in_float64(op, input, grid, **attributes):
    """The elements around every point, times their weights."""
    return gathered(op, input, grid, **attributes) if input.dtype == ir.DataType.DOUBLE else None


@repairs(
    "GridSample",
    when="mode nearest with padding reflection, corners not aligned",
    because="a place halfway between two elements is rounded before it is reflected, not after",
    nodes="40 to 120",
    special_values=True,
)
def reflected_before_it_is_rounded(op, input, grid, *, align_corners=0, **attributes):
    """The element at every point."""
    if align_corners or (attributes.get("mode"), attributes.get("padding_mode")) != ("nearest", "reflection"):
        return None
    return gathered(op, input, grid, align_corners=align_corners, **attributes)


@repairs(
    "GridSample",
    when="mode cubic, or linear with padding zeros, in an image",
    because="at points that are not numbers the result is one",
    nodes=4,
    special_values=True,
)
def nan_at_nowhere(op, input, grid, *, mode="linear", padding_mode="zeros", **attributes):
    """NaN is added where a coordinate is not finite."""
    if rank(input) != 4 or (mode != "cubic" and (mode, padding_mode) != ("linear", "zeros")):
        return None
    nan = op.ReduceSum(op.Mul(grid, 0.0), [3], keepdims=0)
    result = op.GridSample(input, grid, mode=mode, padding_mode=padding_mode, **attributes)
    return op.Add(result, op.Unsqueeze(nan, [1]))


@repairs(
    "GridSample",
    when="mode nearest in an image, or in a volume, with padding zeros",
    because="points that are not numbers read the first element, and so do infinite ones along an axis of one element",
    nodes=5,
    special_values=True,
)
def zero_at_nowhere(op, input, grid, *, mode="linear", padding_mode="zeros", **attributes):
    """Zero where a coordinate is not finite."""
    if padding_mode != "zeros" or (rank(input) != 5 and mode != "nearest"):
        return None
    somewhere = op.Equal(op.ReduceSum(op.Mul(grid, 0.0), [-1], keepdims=0), 0.0)
    result = op.GridSample(input, grid, mode=mode, padding_mode=padding_mode, **attributes)
    return op.Where(op.Unsqueeze(somewhere, [1]), result, op.constant(0, result.dtype))


@repairs(
    "GridSample",
    when="in a volume, with padding border or reflection",
    because="points that are not numbers read the first element; ATen reads the last one",
    nodes=4,
    special_values=True,
)
def end_at_nowhere(op, input, grid, *, padding_mode="zeros", **attributes):
    """Coordinates that are not finite are moved to the end."""
    if rank(input) != 5 or padding_mode == "zeros":
        return None
    points = op.Clip(grid, -FAR, FAR) if padding_mode == "border" else grid
    points = op.Where(op.Equal(op.Mul(points, 0.0), 0.0), points, op.constant(1.0, grid.dtype))
    return op.GridSample(input, points, padding_mode=padding_mode, **attributes)


@repairs(
    "GridSample",
    when="padding zeros or border",
    because="a position that does not fit an integer is the first element",
    nodes=1,
)
def near_enough(op, input, grid, *, padding_mode="zeros", **attributes):
    """Coordinates are clipped between -10 and 10, which is outside already."""
    if padding_mode == "reflection":
        return None
    if grid.dtype == ir.DataType.BFLOAT16:  # neither operator has a kernel
        grid = op.Cast(grid, to=ir.DataType.FLOAT)
    return op.GridSample(input, op.Clip(grid, -FAR, FAR), padding_mode=padding_mode, **attributes)


@before(
    20,
    "GridSample",
    when="always, from 16 on",
    because="modes have other names, and there are no volumes",
    nodes="0; 100 to 180 for a volume",
)
def of_images(op, input, grid, *, mode="linear", **attributes):
    """The operator with the old names; in a volume, the elements around every point, times their weights."""
    if op.opset < 16:
        return None
    if rank(input) == 5:
        return gathered(op, input, grid, mode=mode, **attributes)
    return op.GridSample(input, grid, mode=OLD_MODES.get(mode, mode), **attributes)


@before(16, "GridSample", because="the operator does not exist", nodes="31 to 400")
def in_elementary_operators(op, input, grid, **attributes):
    """The elements around every point, times their weights."""
    return gathered(op, input, grid, **attributes)


@before(20, "AffineGrid", because="the operator does not exist", nodes="8; 26 for dynamic sizes")
def sum_over_axes(op, theta, size, *, align_corners=0):
    """The places of the elements along each axis, times the columns of the matrices; a single one is at 0, as in ATen."""
    axes = size.shape[0] - 2
    columns = op.Split(theta, axis=2, num_outputs=axes + 1, outputs=axes + 1)
    *columns, total = (op.Unsqueeze(op.Squeeze(c, [2]), list(range(1, axes + 1))) for c in columns)
    for axis, column in enumerate(reversed(columns)):
        count = op.Gather(size, axis + 2)
        last = op.Sub(count, 1)
        parts = op.Max(last, 1) if align_corners else count
        numerator = op.Cast(op.Sub(op.Mul(op.Range(0, count, 1), 2), last), to=theta.dtype)
        place = op.Div(numerator, op.Cast(parts, to=theta.dtype))
        total = op.Add(total, op.Mul(column, op.Unsqueeze(place, list(range(1, axes - axis + 1)))))
    return total


FAR = 10.0
"""A coordinate that is outside of any image, with all that is read around it."""


def gathered(op, input, grid, **attributes):
    """GridSample in elementary operators; which elements are around a point depends on its rounding."""
    return of_points(op, input, op.Cast(grid, to=wide(grid.dtype)), **attributes)


@rounded_once
def of_points(op, input, grid, mode="linear", padding_mode="zeros", align_corners=0):
    """The elements around every point, times their weights."""
    axes, padding = rank(input) - 2, padding_mode
    coordinates = reversed(op.Split(grid, axis=-1, num_outputs=axes, outputs=axes))
    sizes = [op.size(input, axis + 2) for axis in range(axes)]
    taps = [
        taps_of(op, op.Squeeze(coordinate, [-1]), size, mode, padding, align_corners, axes)
        for coordinate, size in zip(coordinates, sizes)
    ]
    outer = [op.size(input, 0), op.size(input, 1)]
    flat = reshaped(op, input, [*outer, -1])
    out = [op.size(grid, axis) for axis in range(1, axes + 1)]

    def read(corner):
        position, inside = located(op, corner, sizes)
        row = op.Expand(reshaped(op, position, [outer[0], 1, -1]), op.shape([1, outer[1], 1]))
        values = reshaped(op, op.GatherElements(flat, row, axis=2), [*outer, *out])
        return op.Where(op.Unsqueeze(inside, [1]), values, op.constant(0, input.dtype))

    if mode == "cubic":
        rows = [(weighted(op, [(read((y, x)), [x[1]]) for x in taps[1]]), [y[1]]) for y in taps[0]]
        return weighted(op, rows)
    # ATen multiplies the weights of the last axis first
    corners = [(read(c), [weight for _, weight in reversed(c)]) for c in itertools.product(*taps)]
    return weighted(op, corners)


def weighted(op, terms):
    """The sum, from left to right, of values times the product of their weights, None for 1."""
    total = None
    for value, weights in terms:
        if None not in weights:
            value = op.Mul(value, op.Unsqueeze(functools.reduce(op.Mul, weights), [1]))
        total = value if total is None else op.Add(total, value)
    return total


def taps_of(op, coordinate, size: Size, mode: str, padding: str, align_corners: bool, axes: int):
    """The positions along one axis that a point reads, as whole floats, and their weights; nothing is read at NaN in a volume."""
    place = unnormalized(op, coordinate, size, align_corners)
    if axes == 3 and padding == "zeros":
        place = op.Where(op.Equal(op.Mul(place, 0.0), 0.0), place, op.constant(-100.0, place.dtype))
    if mode == "cubic":
        floor = op.Floor(place)
        weights = cubic_weights(op, op.Sub(place, floor))
        read = [
            inside_of(op, op.Add(floor, offset), size, padding, align_corners, axes)
            for offset in (-1.0, 0.0, 1.0, 2.0)
        ]
        return list(zip(read, weights))
    place = inside_of(op, place, size, padding, align_corners, axes)
    if mode == "nearest":
        return [(op.Round(place), None)]
    floor = op.Floor(place)
    part = op.Sub(place, floor)
    return [(floor, op.Sub(1.0, part)), (op.Add(floor, 1.0), part)]


def unnormalized(op, coordinate, size: Size, align_corners: bool):
    """A coordinate between -1 and 1 as a position along an axis."""
    if align_corners:
        last = op.CastLike(op.constant(minus(op, size, 1)), coordinate)
        return op.Mul(op.Div(op.Add(coordinate, 1.0), 2.0), last)
    size = op.CastLike(op.constant(size), coordinate)
    return op.Div(op.Sub(op.Mul(op.Add(coordinate, 1.0), size), 1.0), 2.0)


def inside_of(op, place, size: Size, padding: str, align_corners: bool, axes: int):
    """A position, moved into the axis when the padding says so: NaN to its start in an image, to its end in a volume."""
    if padding == "zeros":
        return place
    last = op.CastLike(op.constant(minus(op, size, 1)), place)
    if padding == "reflection":
        low, span = (0.0, last) if align_corners else (-0.5, op.Add(last, 1.0))
        distance = op.Abs(op.Sub(place, low))
        flips = op.Floor(op.Div(distance, span))
        extra = op.Mod(distance, span, fmod=1)
        even = op.Equal(op.Mod(flips, 2.0, fmod=1), 0.0)
        reflected = op.Add(op.Where(even, extra, op.Sub(span, extra)), low)
        place = op.Where(op.Equal(span, 0.0), op.constant(0.0, place.dtype), reflected)
    inside = op.Min(op.Max(place, 0.0), last)
    return op.Where(op.IsNaN(inside), op.constant(0.0, place.dtype) if axes == 2 else last, inside)


def located(op, corner, sizes: list[Size]):
    """The flat position of one corner, clipped into the input, and whether it is inside."""
    position, inside = None, None
    for (place, _), size in zip(corner, sizes):
        last = minus(op, size, 1)
        index = op.Cast(place, to=ir.DataType.INT64)
        clipped = op.Min(op.Max(index, 0), last)
        valid = op.Equal(index, clipped)
        position = clipped if position is None else op.Add(op.Mul(position, size), clipped)
        inside = valid if inside is None else op.And(inside, valid)
    return position, inside
