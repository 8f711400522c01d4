"""Sampling at the points of a grid: grid_sampler, affine_grid_generator.

Source of semantics: torch.nn.functional.grid_sample and affine_grid, ONNX GridSample.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.promotion import wide
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import counted, larger, minus

aten = torch.ops.aten

MODES = ("linear", "nearest", "cubic")
"""ONNX's names of the interpolations, as ATen numbers them."""

PADDINGS = ("zeros", "border", "reflection")
"""The paddings, as ATen numbers them."""


@translates(
    aten.grid_sampler.default,
    aten.grid_sampler_2d.default,
    aten.grid_sampler_3d.default,
)
def grid_sampler(op, input, grid, interpolation_mode, padding_mode, align_corners):
    """*input* (N, C, *spatial*) at the points of *grid* (N, *out*, axes), which range from -1 to 1, last axis first."""
    return op.GridSample(
        input,
        grid,
        mode=MODES[interpolation_mode],
        padding_mode=PADDINGS[padding_mode],
        align_corners=int(align_corners),
    )


@translates(aten.affine_grid_generator.default)
def affine_grid_generator(op, theta, size, align_corners):
    """*theta* (N, axes, axes + 1) applied to the centers of the elements of an image of shape *size*.

    ONNX AffineGrid puts the only element of an axis at -1 when corners are aligned, torch at 0.
    """
    axes = len(size) - 2
    computed = wide(theta.dtype)
    columns = op.Split(op.Cast(theta, to=computed), axis=2, num_outputs=axes + 1, outputs=axes + 1)
    *columns, total = (op.Unsqueeze(op.Squeeze(c, [2]), list(range(1, axes + 1))) for c in columns)
    for axis, count in enumerate(size[2:]):
        last = minus(op, count, 1)
        parts = larger(op, last, 1) if align_corners else count
        numerator = op.Cast(op.Sub(op.Mul(counted(op, count), 2), last), to=computed)
        place = op.Div(numerator, op.Cast(op.constant(parts), to=computed))
        place = op.Unsqueeze(place, list(range(1, axes - axis + 1)))
        total = op.Add(total, op.Mul(columns[axes - 1 - axis], place))
    return op.Cast(total, to=theta.dtype)
