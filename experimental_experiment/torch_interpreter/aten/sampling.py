"""Sampling at the points of a grid: grid_sampler, affine_grid_generator.

Source of semantics: torch.nn.functional.grid_sample and affine_grid, ATen's GridSampler.h, ONNX GridSample.
"""

from __future__ import annotations

import functools
import itertools

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.resize import IN_RESIZE, cubic_weights
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import LOW_PRECISION, RoundedEmitter
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Size, counted, larger, minus

aten = torch.ops.aten

MODES = ("linear", "nearest", "cubic")
"""ONNX's names of the interpolations since opset 20, as ATen numbers them."""

OLD_MODES = ("bilinear", "nearest", "bicubic")
"""ONNX's names of the interpolations before."""

PADDINGS = ("zeros", "border", "reflection")
"""The paddings, as ATen numbers them."""


@translates(
    aten.grid_sampler.default,
    aten.grid_sampler_2d.default,
    aten.grid_sampler_3d.default,
)
def grid_sampler(op, input, grid, interpolation_mode, padding_mode, align_corners):
    """*input* (N, C, *spatial*) at the points of *grid* (N, *out*, axes), which range from -1 to 1, last axis first."""
    method, padding, axes = MODES[interpolation_mode], PADDINGS[padding_mode], rank(input) - 2
    if input.dtype != ir.DataType.FLOAT or (axes == 3 and op.opset < 20):
        return gathered(op, input, grid, method, padding, align_corners)
    mode = method if op.opset >= 20 else OLD_MODES[interpolation_mode]
    # onnxruntime reads anywhere when a position does not fit an integer
    points = grid if padding == "reflection" else op.Clip(grid, -10.0, 10.0)
    attributes = dict(mode=mode, padding_mode=padding, align_corners=int(align_corners))
    if axes == 2 and (method == "cubic" or (method == "linear" and padding == "zeros")):
        # at a point that is not finite ATen's weights are NaN
        nan = op.ReduceSum(op.Mul(grid, 0.0), [-1], keepdims=0)
        return op.Add(op.GridSample(input, points, **attributes), op.Unsqueeze(nan, [1]))
    if axes == 3 or padding == "zeros":
        # there ATen reads nothing, or the last element
        is_finite = op.Equal(op.Mul(points, 0.0), 0.0)
        points = op.Where(is_finite, points, op.constant(-10.0 if padding == "zeros" else 1.0, grid.dtype))
    return op.GridSample(input, points, **attributes)


def gathered(op, input, grid, mode: str, padding: str, align_corners: bool):
    """`grid_sampler` in elementary operators: the elements around every point, times their weights."""
    axes = rank(input) - 2
    wide = op.Cast(input, to=ir.DataType.FLOAT) if input.dtype in IN_RESIZE else input
    if input.dtype in LOW_PRECISION:
        op = RoundedEmitter(op, input.dtype)
    coordinates = reversed(op.Split(op.Cast(grid, to=wide.dtype), axis=-1, num_outputs=axes, outputs=axes))
    sizes = [op.size(input, axis + 2) for axis in range(axes)]
    taps = [
        taps_of(op, op.Squeeze(coordinate, [-1]), size, mode, padding, align_corners, axes)
        for coordinate, size in zip(coordinates, sizes)
    ]
    outer = [op.size(input, 0), op.size(input, 1)]
    flat = reshaped(op, wide, [*outer, -1])
    out = [op.size(grid, axis) for axis in range(1, axes + 1)]

    def read(corner):
        position, inside = located(op, corner, sizes)
        row = op.Expand(reshaped(op, position, [outer[0], 1, -1]), op.shape([1, outer[1], 1]))
        values = reshaped(op, op.GatherElements(flat, row, axis=2), [*outer, *out])
        return op.Where(op.Unsqueeze(inside, [1]), values, op.constant(0, wide.dtype))

    if mode == "cubic":
        rows = [(weighted(op, [(read((y, x)), [x[1]]) for x in taps[1]]), [y[1]]) for y in taps[0]]
        return op.Cast(weighted(op, rows), to=input.dtype)
    # ATen multiplies the weights of the last axis first
    corners = [(read(c), [weight for _, weight in reversed(c)]) for c in itertools.product(*taps)]
    return op.Cast(weighted(op, corners), to=input.dtype)


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
        if axes == 2 and isinstance(op, RoundedEmitter):
            # ATen converts these to 0 in its vectors of halves
            place = op.Where(op.Equal(op.Mul(place, 0.0), 0.0), place, op.constant(0.0, place.dtype))
        return [(op.Round(place), None)]
    floor = op.Floor(place)
    part = op.Sub(place, floor)
    # a half precision does not hold every integer: positions are not rounded, weights in a volume are
    rest = op.Sub(1.0, part) if axes == 2 else op.Sub(op.Add(floor, 1.0), place)
    return [(floor, rest), (op.emit("Add", (floor, 1.0)), part)]


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


@translates(aten.affine_grid_generator.default)
def affine_grid_generator(op, theta, size, align_corners):
    """*theta* (N, axes, axes + 1) applied to the centers of the elements of an image of shape *size*.

    ONNX AffineGrid puts the only element of an axis at -1 when corners are aligned, torch at 0.
    """
    axes = len(size) - 2
    wide = op.Cast(theta, to=ir.DataType.FLOAT) if theta.dtype in IN_RESIZE else theta
    columns = op.Split(wide, axis=2, num_outputs=axes + 1, outputs=axes + 1)
    *columns, total = (op.Unsqueeze(op.Squeeze(c, [2]), list(range(1, axes + 1))) for c in columns)
    for axis, count in enumerate(size[2:]):
        last = minus(op, count, 1)
        parts = larger(op, last, 1) if align_corners else count
        numerator = op.Cast(op.Sub(op.Mul(counted(op, count), 2), last), to=wide.dtype)
        place = op.Div(numerator, op.Cast(op.constant(parts), to=wide.dtype))
        place = op.Unsqueeze(place, list(range(1, axes - axis + 1)))
        total = op.Add(total, op.Mul(columns[axes - 1 - axis], place))
    return op.Cast(total, to=theta.dtype)
