"""Images that are resized by a factor that sizes tell, as DINOv2 resizes its positions: ``(height // 14 + 0.1) / 37``.

Source of semantics: ``aten/src/ATen/native/UpSample.h``: the size is cut off, the positions are those of the factor and not of the sizes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

NEAREST = {"upsample_nearest1d": 0.0, "upsample_nearest2d": 0.0, "upsample_nearest3d": 0.0}
NEAREST |= {f"_upsample_nearest_exact{count}d": 0.5 for count in (1, 2, 3)}
"""The functions that take the nearest element, and what is added to a place first."""

SAMPLED = {"upsample_bilinear2d": "bilinear", "upsample_bicubic2d": "bicubic"}
"""Those that take the elements around a place, and their mode for ``grid_sample``."""

FIXED_STEPS = {"upsample_bilinear2d": (1,), "upsample_nearest2d": (1, 2)}
"""How many times its size an axis may become for whatever factor, exactly."""


@patch("torch", replaces=tuple(f"torch._C._nn.{name}" for name in (*NEAREST, *SAMPLED)), default=True)
def factors_of_sizes() -> Iterator[None]:
    """A factor of ``interpolate`` that sizes tell is the example's: DINOv2 resizes its positions by one."""
    functions = torch._C._nn
    with contextlib.ExitStack() as stack:
        for name, offset in NEAREST.items():
            stack.enter_context(replaced(functions, name, nearest(getattr(functions, name), offset)))
        for name, mode in SAMPLED.items():
            stack.enter_context(replaced(functions, name, sampled(getattr(functions, name), mode)))
        yield


def is_told(factors: Sequence[Any] | None) -> bool:
    """Whether sizes tell one of the factors."""
    return factors is not None and any(isinstance(item, (torch.SymInt, torch.SymFloat)) for item in factors)


def sizes_and_steps(x: torch.Tensor, factors: Sequence[Any], name: str) -> tuple[list[Any], list[Any]]:
    """The sizes of the result of the function *name*, and how far apart its elements stand in *x*, along each axis."""
    factors_of_sizes.used()
    factors = [torch.sym_float(factor) for factor in factors]
    sizes = [torch.sym_int(torch.sym_float(size) * factor) for size, factor in zip(x.shape[2:], factors)]
    steps = [1.0 / factor for factor in factors]
    for times in FIXED_STEPS.get(name, ()):
        is_fixed = [as_number(size == times * count) for size, count in zip(sizes, x.shape[2:])]
        steps = [step + (1 / times - step) * one for step, one in zip(steps, is_fixed)]
    return sizes, steps


def as_number(condition: bool | torch.SymBool) -> int | torch.SymInt:
    """1 where a condition holds, 0 where it does not."""
    return torch.sym_ite(condition, 1, 0) if isinstance(condition, torch.SymBool) else int(condition)


def nearest(upsample: Callable, offset: float) -> Callable:
    """*upsample* that picks elements by their numbers where sizes tell the factor."""

    @functools.wraps(upsample)
    def called(input: torch.Tensor, output_size: Any, scale_factors: Any = None) -> torch.Tensor:
        if not is_told(scale_factors):
            return upsample(input, output_size, scale_factors)
        for axis, (size, step) in enumerate(
            zip(*sizes_and_steps(input, scale_factors, upsample.__name__)), 2
        ):
            places = ((torch.arange(size, device=input.device).float() + offset) * step).floor().long()
            input = input.index_select(axis, places.clamp(max=input.shape[axis] - 1))
        return input

    return called


def sampled(upsample: Callable, mode: str) -> Callable:
    """*upsample* that samples a grid where sizes tell the factor of floats; aligned corners do not depend on it."""

    @functools.wraps(upsample)
    def called(
        input: torch.Tensor, output_size: Any, align_corners: bool, scale_factors: Any = None
    ) -> torch.Tensor:
        if not is_told(scale_factors) or not input.is_floating_point():
            return upsample(input, output_size, align_corners, scale_factors)
        dtype = torch.promote_types(input.dtype, torch.float32)
        sizes, steps = sizes_and_steps(input, scale_factors, upsample.__name__)
        if align_corners:
            return upsample(input, sizes, True, None)
        # along each axis from -1, the beginning of the first element, to 1, the end of the last one
        rows, columns = (
            (torch.arange(size, device=input.device).to(dtype) + 0.5) * (2 * step / count) - 1
            for size, step, count in zip(sizes, steps, input.shape[2:])
        )
        grid = torch.stack([columns.expand(*sizes), rows[:, None].expand(*sizes)], dim=-1)
        places = grid.expand(input.shape[0], *grid.shape)
        found = F.grid_sample(input.to(dtype), places, mode, padding_mode="border", align_corners=False)
        return found.to(input.dtype)

    return called
