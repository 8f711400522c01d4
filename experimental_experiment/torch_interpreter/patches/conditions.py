"""Conditions as torch.export does not take them: ``is_short ^ (height < width)``, compared with numbers, bytes in the place of booleans."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.indices import HANDLER
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced, wrapped


@patch("torch", replaces=("^ of SymBool", "^ of SymInt"), default=True)
def exclusive_conditions() -> Iterator[None]:
    """``is_short ^ (height < width)``, as Kornia resizes, is a TypeError: the conditions that torch follows know ``&`` and ``|`` only.

    So do the numbers that a program holds: ``x.shape[0] ^ 3`` is refused.
    """
    with contextlib.ExitStack() as stack:
        for name in ("__xor__", "__rxor__"):
            stack.enter_context(replaced(torch.SymBool, name, exclusive))
            stack.enter_context(replaced(torch.SymInt, name, exclusive_bits))
        yield


def exclusive(self: torch.SymBool, other: Any) -> Any:
    """Whether one of two conditions holds, and the other one does not."""
    if not isinstance(other, (bool, torch.SymBool)):
        return NotImplemented
    exclusive_conditions.used()
    if isinstance(other, bool):
        return torch.sym_not(self) if other else self
    return (self | other) & torch.sym_not(self & other)


def exclusive_bits(self: torch.SymInt, other: Any) -> Any:
    """The bits that one of two integers has and the other one has not: those of any less those of both."""
    if not isinstance(other, (int, torch.SymInt)):
        return NotImplemented
    exclusive_conditions.used()
    other = int(other) if isinstance(other, bool) else other
    return (self | other) - (self & other)


@patch("torch", replaces=("== of SymBool",), default=True)
def conditions_as_numbers() -> Iterator[None]:
    """``if (x > 0).any().item() == 0`` is never true for torch.export, whatever the data: a condition equals no number there.

    For Python True is 1 and False is 0.
    """
    with replaced(torch.SymBool, "__eq__", equal_to_numbers(torch.SymBool.__eq__)):
        yield


def equal_to_numbers(equal: Callable) -> Callable:
    """``SymBool.__eq__`` that knows the numbers of conditions."""

    def __eq__(self: torch.SymBool, other: Any) -> Any:
        if isinstance(other, (torch.SymInt, torch.SymFloat)):
            conditions_as_numbers.used()
            return torch.sym_ite(self, 1, 0) == other
        if isinstance(other, (int, float)):
            conditions_as_numbers.used()
            return self if other == 1 else torch.sym_not(self) if other == 0 else False
        return equal(self, other)

    return __eq__


@patch("torch", replaces=(HANDLER,), default=True)
def conditions_of_bytes() -> Iterator[None]:
    """``torch.where(mask, x, y)`` of a mask of bytes, as pytorch-crf has it, is refused: eager takes it with a warning."""
    importlib.import_module("torch._export.non_strict_utils")  # it brings TorchDynamo
    with wrapped({HANDLER: with_booleans}):
        yield


def with_booleans(override: Callable) -> Callable:
    """The handler that gives ``where`` booleans: what is not zero holds."""
    functions = {torch.where: 0, torch.Tensor.where: 1}

    @functools.wraps(override)
    def _override(self: Any, func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple:
        position = functions.get(func)
        if position is not None:
            is_named = len(args) <= position
            condition = kwargs.get("condition") if is_named else args[position]
            if isinstance(condition, torch.Tensor) and condition.dtype == torch.uint8:
                conditions_of_bytes.used()
                if is_named:
                    kwargs = kwargs | {"condition": condition.bool()}
                else:
                    args = (*args[:position], condition.bool(), *args[position + 1 :])
        return override(self, func, args, kwargs)

    return _override
