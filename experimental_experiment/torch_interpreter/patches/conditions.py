"""Conditions as torch.export does not take them: ``is_short ^ (height < width)``, and bytes in the place of booleans."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
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


@patch("torch", replaces=("torch.where", "torch.Tensor.where"), default=True)
def conditions_of_bytes() -> Iterator[None]:
    """``torch.where(mask, x, y)`` of a mask of bytes, as pytorch-crf has it, is refused: eager takes it with a warning."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch, "where", of_booleans(torch.where, 0)))
        stack.enter_context(replaced(torch.Tensor, "where", of_booleans(torch.Tensor.where, 1)))
        yield


def of_booleans(where: Callable, position: int) -> Callable:
    """*where*, the argument of which at *position* is a condition: what is not zero holds."""

    @functools.wraps(where)
    def called(*args: Any, **kwargs: Any) -> Any:
        condition = args[position] if len(args) > position else kwargs.get("condition")
        if isinstance(condition, torch.Tensor) and condition.dtype == torch.uint8:
            conditions_of_bytes.used()
            if len(args) > position:
                args = (*args[:position], condition.bool(), *args[position + 1 :])
            else:
                kwargs["condition"] = condition.bool()
        return where(*args, **kwargs)

    return called
