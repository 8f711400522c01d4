"""Conditions on sizes that exclude one another: ``is_short ^ (height < width)``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch("torch", replaces=("^ of SymBool",), default=True)
def exclusive_conditions() -> Iterator[None]:
    """``is_short ^ (height < width)``, as Kornia resizes, is a TypeError: the conditions that torch follows know ``&`` and ``|`` only."""
    with contextlib.ExitStack() as stack:
        for name in ("__xor__", "__rxor__"):
            stack.enter_context(replaced(torch.SymBool, name, exclusive))
        yield


def exclusive(self: torch.SymBool, other: Any) -> Any:
    """Whether one of two conditions holds, and the other one does not."""
    if not isinstance(other, (bool, torch.SymBool)):
        return NotImplemented
    exclusive_conditions.used()
    if isinstance(other, bool):
        return torch.sym_not(self) if other else self
    return (self | other) & torch.sym_not(self & other)
