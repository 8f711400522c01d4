"""Distances of all rows of two tensors, which torch computes in one of two ways by the number of rows.

Source of semantics: aten/src/ATen/native/Distance.cpp, the documentation of torch.cdist.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

EITHER_WAY, OF_DIFFERENCES = "use_mm_for_euclid_dist_if_necessary", "donot_use_mm_for_euclid_dist"
"""Compute modes: from a matrix product where there are many rows, and always of the differences."""


@patch("torch", replaces=("torch.cdist",), default=True)
def distances_of_any_size() -> Iterator[None]:
    """``torch.cdist`` keeps dynamic numbers of rows below 26, or above 25, as the example has them, and refuses those that the data decide.

    From 26 on torch computes Euclidean distances from a matrix product. The model decides that for the rows that it gets; where the
    data decide how many there are it takes the norms of the differences.
    """
    with replaced(torch, "cdist", of_any_size(torch.cdist)):
        yield


def of_any_size(of_numbers: Callable) -> Callable:
    """`torch.cdist` that is recorded without a guard on its rows."""

    @functools.wraps(of_numbers)
    def cdist(
        x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: str = EITHER_WAY
    ) -> torch.Tensor:
        mode = None if torch.compiler.is_dynamo_compiling() else get_proxy_mode()
        is_plain = mode is None or p != 2 or compute_mode != EITHER_WAY
        sizes = [] if is_plain else [size for x in (x1, x2) for size in x.shape if is_symbolic(size)]
        if not sizes:
            return of_numbers(x1, x2, p, compute_mode)
        distances_of_any_size.used()
        if not all(size.node.has_hint() for size in sizes):  # torch asks whether there are elements
            return torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), dim=-1)
        found = of_numbers(x1, x2, p, OF_DIFFERENCES)
        recorded = get_proxy_slot(found, mode.tracer, None)
        if recorded is not None:  # the elements of torch.vmap are not
            node = recorded.proxy.node
            node.args = node.args[:3]  # without its last one it is computed either way
        return found

    return cdist


def is_symbolic(size: Any) -> bool:
    """Whether a size is a symbol."""
    return isinstance(size, torch.SymInt)
