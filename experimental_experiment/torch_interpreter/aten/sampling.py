"""Sampling at the points of a grid: grid_sampler, affine_grid_generator.

Source of semantics: torch.nn.functional.grid_sample and affine_grid, ONNX GridSample and AffineGrid.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.promotion import wide
from experimental_experiment.torch_interpreter.registry import translates

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

    ONNX AffineGrid puts the only element of an axis at -1 when corners are aligned, torch at 0: it counts nothing then.
    """
    places = op.Cast(theta, to=wide(theta.dtype))
    lengths = list(reversed(size[2:]))
    if align_corners and not all(isinstance(length, int) and length > 1 for length in lengths):
        counts = op.Cast(op.Greater(op.shape(lengths), 1), to=places.dtype)
        places = op.Mul(places, op.Concat(counts, op.constant([1.0], places.dtype), axis=0))
    return op.Cast(op.AffineGrid(places, op.shape(size), align_corners=int(align_corners)), to=theta.dtype)
