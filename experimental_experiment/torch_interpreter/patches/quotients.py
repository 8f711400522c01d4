"""Quotients of sizes that are rounded: what ``math.ceil(n / 4)`` is among whole numbers.

Source of semantics: ``torch.SymInt``, ``torch.SymFloat``, ``math.ceil``, ``math.floor``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

Known = dict[tuple, tuple[torch.SymInt, int]]
"""The size and the divisor of each quotient, by where it was computed and what it is."""


@patch(
    "torch",
    replaces=("torch.SymInt.__truediv__", "torch.SymFloat.__ceil__", "torch.SymFloat.__floor__"),
    default=True,
)
def rounded_quotients() -> Iterator[None]:
    """``math.ceil(n / 4)`` of a size is a fraction that is rounded: torch.export needs minutes for sizes that are computed from several."""
    known: Known = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            replaced(torch.SymInt, "__truediv__", remembered(torch.SymInt.__truediv__, known))
        )
        for name, whole in (("__ceil__", up), ("__floor__", down)):
            original = getattr(torch.SymFloat, name)
            stack.enter_context(replaced(torch.SymFloat, name, among_integers(original, whole, known)))
        yield


def up(size: torch.SymInt, divisor: int) -> torch.SymInt:
    """The least integer that is not below the quotient."""
    return (size + divisor - 1) // divisor


def down(size: torch.SymInt, divisor: int) -> torch.SymInt:
    """The greatest integer that is not above the quotient."""
    return size // divisor


def remembered(divide: Callable, known: Known) -> Callable:
    """*divide* that remembers what it divides by a positive integer."""

    @functools.wraps(divide)
    def called(self: torch.SymInt, other: Any) -> Any:
        result = divide(self, other)
        if type(other) is int and other > 0 and isinstance(result, torch.SymFloat):
            known[key(result)] = self, other
        return result

    return called


def among_integers(rounded: Callable, whole: Callable, known: Known) -> Callable:
    """*rounded* that is *whole* of the size and the divisor where it is asked for a quotient of integers."""

    @functools.wraps(rounded)
    def called(self: torch.SymFloat) -> Any:
        quotient = known.get(key(self))
        if quotient is None:
            return rounded(self)
        rounded_quotients.used()
        return whole(*quotient)

    return called


def key(quotient: torch.SymFloat) -> tuple:
    """Where a quotient was computed, and what it is."""
    return quotient.node.shape_env, quotient.node.expr


@patch("torch", replaces=("divmod of sizes",), default=True)
def quotients_and_remainders() -> Iterator[None]:
    """``divmod(x.shape[0], 2)`` is a TypeError: symbols of sizes know ``//`` and ``%`` only."""
    with contextlib.ExitStack() as stack:
        for cls in (torch.SymInt, torch.SymFloat):
            stack.enter_context(replaced(cls, "__divmod__", divided))
            stack.enter_context(replaced(cls, "__rdivmod__", lambda size, value: divided(value, size)))
        yield


def divided(value: Any, divisor: Any) -> tuple[Any, Any]:
    """Both, as Python rounds them: the quotient down, the remainder with the sign of the divisor."""
    quotients_and_remainders.used()
    return value // divisor, value % divisor
