"""Quantiles, whose levels and number of elements torch reads while a model is captured.

Source of semantics: ``aten/src/ATen/native/Sorting.cpp``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch
from experimental_experiment.torch_interpreter.patches.recurrent import everywhere, kernels

aten = torch.ops.aten

QUANTILES = (aten.nanquantile.default, aten.nanquantile.scalar, aten.quantile.default, aten.quantile.scalar)


@patch("torch", replaces=tuple(f"torch.ops.{operator}" for operator in QUANTILES), until="2.13", default=True)
def levels_of_quantiles() -> Iterator[None]:
    """``torch.quantile`` and ``torch.nanquantile`` ask whether all levels are between 0 and 1, and are refused for a branch on the data."""
    with contextlib.ExitStack() as stack:
        for operator in QUANTILES:
            kernels(stack, operator, quantiles, everywhere)
        yield


def quantiles(
    self: torch.Tensor,
    q: torch.Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> torch.Tensor:
    """A tensor of the shape of the quantiles; raises RuntimeError for what torch refuses, but for levels in a tensor."""
    levels_of_quantiles.used()
    is_tensor = isinstance(q, torch.Tensor)
    torch._check(self.dtype in (torch.float32, torch.float64), lambda: f"quantiles of {self.dtype}")
    torch._check(
        not is_tensor or q.dtype == self.dtype, lambda: "the levels have another dtype than the input"
    )
    torch._check(not is_tensor or q.dim() < 2, lambda: "the levels are neither a number nor a vector")
    torch._check(is_tensor or 0 <= q <= 1, lambda: f"the level {q} is not between 0 and 1")

    axis = None if dim is None else torch._prims_common.canonicalize_dim(self.dim(), dim)
    is_reduced = [axis is None or place == axis for place in range(self.dim())]
    shape = [
        1 if reduced else size for size, reduced in zip(self.shape, is_reduced) if keepdim or not reduced
    ]
    return self.new_empty([*(q.shape if is_tensor else ()), *shape])
