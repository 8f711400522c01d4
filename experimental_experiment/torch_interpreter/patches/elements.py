"""The elements along an axis: a Python loop over a tensor, ``unbind``, where the length is a product of dynamic sizes.

Source of semantics: torch.unbind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch._decomp import decomposition_table

from experimental_experiment.torch_interpreter.patches.patch import entry, patch

aten = torch.ops.aten


@patch("torch", replaces=("torch._decomp.decomposition_table",), default=True)
def elements_along_products() -> Iterator[None]:
    """``for row in x.flatten(0, 1)`` of dynamic sizes is refused: what torch knows of its rows has an axis too many.

    The loop has as many turns as for the example, as torch's own guard on the product of the sizes says.
    """
    with contextlib.ExitStack() as stack:
        entry(stack, decomposition_table, aten.unbind.int, unbind)
        yield


def unbind(t: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, ...]:
    """Every element is selected: torch squeezes pieces, of which it does not see that their length is 1."""
    if isinstance(t.shape[dim], torch.SymInt):
        elements_along_products.used()
    return tuple(t.select(dim, place) for place in range(t.shape[dim]))
