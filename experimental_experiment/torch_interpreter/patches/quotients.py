"""Quotients of sizes that are rounded: what ``math.ceil(n / 4)`` is among whole numbers.

Source of semantics: ``torch.SymInt``, ``torch.SymFloat``, ``math.ceil``, ``math.floor``.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

Rounded = tuple[torch.SymInt, int, float]
"""A size, the integer that it is divided by, and what is taken off: one of the two changes nothing."""

Known = dict[tuple, Rounded]
"""What each quotient is, by where it was computed and what it is."""


@patch(
    "torch",
    replaces=(
        "torch.SymInt.__truediv__",
        "torch.SymInt.__sub__",
        "torch.SymFloat.__truediv__",
        "torch.SymFloat.__ceil__",
        "torch.SymFloat.__floor__",
    ),
    default=True,
)
def rounded_quotients() -> Iterator[None]:
    """``math.ceil(n / 4)`` of a size is a fraction that is rounded: torch.export needs minutes for sizes that are computed from several.

    So is the length of ``torch.arange(0.5, n)``, the middles of pixels of DINOv3: ``math.ceil((n - 0.5) / 1)`` is no size that torch knows.
    """
    known: Known = {}
    with contextlib.ExitStack() as stack:
        for cls, name, before in (
            (torch.SymInt, "__sub__", less_a_fraction),
            (torch.SymFloat, "__truediv__", by_one),
        ):
            stack.enter_context(replaced(cls, name, remembered(getattr(cls, name), known, before)))
        stack.enter_context(
            replaced(torch.SymInt, "__truediv__", remembered(torch.SymInt.__truediv__, known, by_an_integer))
        )
        for name, whole in (("__ceil__", up), ("__floor__", down)):
            original = getattr(torch.SymFloat, name)
            stack.enter_context(replaced(torch.SymFloat, name, among_integers(original, whole, known)))
        yield


def up(size: torch.SymInt, divisor: int, less: float) -> torch.SymInt:
    """The least integer that is not below the quotient less a fraction."""
    return size + math.ceil(-less) if less else (size + divisor - 1) // divisor


def down(size: torch.SymInt, divisor: int, less: float) -> torch.SymInt:
    """The greatest integer that is not above the quotient less a fraction."""
    return size + math.floor(-less) if less else size // divisor


def remembered(
    operator: Callable, known: Known, read: Callable[[Any, Any, Known], Rounded | None]
) -> Callable:
    """*operator* that remembers what *read* makes of its operands."""

    @functools.wraps(operator)
    def called(self: Any, other: Any) -> Any:
        result = operator(self, other)
        if isinstance(result, torch.SymFloat):
            found = read(self, other, known)
            if found is not None:
                known[key(result)] = found
        return result

    return called


def by_an_integer(size: torch.SymInt, divisor: Any, known: Known) -> Rounded | None:
    """A size by a positive integer."""
    return (size, divisor, 0.0) if type(divisor) is int and divisor > 0 else None


def less_a_fraction(size: torch.SymInt, fraction: Any, known: Known) -> Rounded | None:
    """A size less a number that is exact in the difference, too."""
    is_exact = type(fraction) is float and abs(fraction) < 2**20 and (fraction * 1024).is_integer()
    return (size, 1, fraction) if is_exact else None


def by_one(quotient: torch.SymFloat, divisor: Any, known: Known) -> Rounded | None:
    """What is divided by the step of an ``arange`` that has none."""
    return known.get(key(quotient)) if type(divisor) in (int, float) and divisor == 1 else None


def among_integers(rounded: Callable, whole: Callable, known: Known) -> Callable:
    """*rounded* that is *whole* of what is known, where it is asked for a quotient of integers, or for a size less a fraction."""

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
