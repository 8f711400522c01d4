"""Conditions as torch.export does not take them: ``is_short ^ (height < width)``, compared with numbers, bytes in the place of booleans,
numbers that are themselves or zero."""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch

from experimental_experiment.torch_interpreter.frames import asking_frame
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


WHERE = torch.where
"""The function, which other patches may wrap: a handler is given this one, but of methods what stands in their place."""


@patch("torch", replaces=(HANDLER,), default=True)
def conditions_of_bytes() -> Iterator[None]:
    """``torch.where(mask, x, y)`` of a mask of bytes, as pytorch-crf has it, is refused: eager takes it with a warning."""
    importlib.import_module("torch._export.non_strict_utils")  # it brings TorchDynamo
    with wrapped({HANDLER: with_booleans}):
        yield


def with_booleans(override: Callable) -> Callable:
    """The handler that gives ``where`` booleans: what is not zero holds."""

    @functools.wraps(override)
    def _override(self: Any, func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple:
        if func is WHERE or func is torch.Tensor.where:
            position = int(func is not WHERE)
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


JUMPS = ("TO_BOOL", "POP_JUMP_IF_TRUE", "JUMP_IF_TRUE_OR_POP", "NOT_TAKEN", "POP_TOP")
"""How Python goes on to the second operand of an ``or`` whose first one is nothing."""


@patch("torch", replaces=("torch.SymInt.__bool__",), default=True)
def numbers_or_zero() -> Iterator[None]:
    """``minlength=dim_size or 0`` of a number that the data decide, as in PyTorch Geometric, is refused: torch cannot say whether it is zero.

    It is the number either way.
    """
    with replaced(torch.SymInt, "__bool__", kept_or_zero(torch.SymInt.__bool__)):
        yield


def kept_or_zero(bool_: Callable) -> Callable:
    """``SymInt.__bool__`` that answers yes where the other answer takes a zero in its place."""

    def __bool__(self: torch.SymInt) -> bool:
        frame = asking_frame(sys._getframe())
        if is_or_zero(frame.f_code, frame.f_lasti):
            numbers_or_zero.used()
            return True
        return bool_(self)

    return __bool__


@functools.cache
def is_or_zero(code: CodeType, offset: int) -> bool:
    """Whether the question at an offset of a function is that of ``number or 0``, which is there for its value, not for its truth."""
    steps = list(dis.get_instructions(code))
    at = next((place for place, step in enumerate(steps) if step.offset == offset), 0)
    if steps[at].opname != "JUMP_IF_TRUE_OR_POP" and steps[at - 1].opname != "COPY":  # from 3.12 on
        return False
    zero, *others = [step for step in steps[at : at + 8] if step.opname not in JUMPS]
    is_zero = zero.opname.startswith("LOAD_") and type(zero.argval) is int and zero.argval == 0
    # what is asked again may be the other side of the first question
    return is_zero and bool(others) and "JUMP" not in others[0].opname and others[0].opname != "COPY"
