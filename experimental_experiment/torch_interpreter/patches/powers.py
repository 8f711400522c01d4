"""Powers of two: ``2 ** math.ceil(math.log2(n))`` of a size, by an operator of whole numbers.

Source of semantics: ``math.log2``, ``math.log(n, 2)``, ``int.bit_length``; their rounding is left out, sizes are below 2 ** 48.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced, wrapped
from experimental_experiment.torch_interpreter.patches.quotients import key

LIBRARY = torch.library.Library("experimental_experiment", "FRAGMENT")
LIBRARY.define("ceil_log2(SymInt n) -> SymInt")

Known = dict[tuple, torch.SymInt]
"""The size of each logarithm, by where it was computed and what it is."""


@torch.library.impl(LIBRARY, "ceil_log2", "CompositeExplicitAutograd")
def of_number(n: int) -> int:
    """The least exponent whose power of two is not below a positive number."""
    return (n - 1).bit_length()


@torch.library.register_fake("experimental_experiment::ceil_log2", lib=LIBRARY)
def of_size(n: Any) -> Any:
    """The same of a size, in an expression that torch has the value of the example for."""
    return math.ceil(torch._sym_log2(n)) if isinstance(n, torch.SymInt) else of_number(n)


def ceil_log2(n: torch.SymInt) -> torch.SymInt:
    """The least exponent whose power of two is not below a positive size."""
    powers_of_two.used()
    return torch.ops.experimental_experiment.ceil_log2(n)


def floor_log2(n: torch.SymInt) -> torch.SymInt:
    """The greatest exponent whose power of two is not above a positive size."""
    return ceil_log2(n + 1) - 1


@patch(
    "torch",
    replaces=(
        "math.log",
        "math.log2",
        "torch.SymFloat.__ceil__",
        "torch.SymFloat.__floor__",
        "torch.SymFloat.__trunc__",
        "torch.SymInt.bit_length",
    ),
    default=True,
)
def powers_of_two() -> Iterator[None]:
    """``2 ** math.ceil(math.log2(n))`` is refused as a size that depends on the data, ``n.bit_length()`` is the example's."""
    known: Known = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(math, "log2", remembered(math.log2, known, ((),))))
        stack.enter_context(replaced(math, "log", remembered(math.log, known, ((2,), (2.0,)))))
        for name, exponent in (("__ceil__", ceil_log2), ("__floor__", floor_log2), ("__trunc__", floor_log2)):
            original = getattr(torch.SymFloat, name)
            stack.enter_context(replaced(torch.SymFloat, name, among_exponents(original, exponent, known)))
        stack.enter_context(replaced(torch.SymInt, "bit_length", bits(torch.SymInt.bit_length)))
        yield


SHIFTED = "torch.utils._sympy.functions.LShift.eval"


@patch("torch", replaces=(SHIFTED,), until="2.13", default=True)
def shifts_by_sizes() -> Iterator[None]:
    """``1 << (n - 1).bit_length()`` is refused: torch asks whether the shift is below 0, which the expression of one does not tell."""
    importlib.import_module(SHIFTED.rsplit(".", 2)[0])  # a capture loads it, importing this file does not
    with wrapped({SHIFTED: lambda asks: classmethod(shifted)}):
        yield


def shifted(cls: type, base: Any, shift: Any) -> Any:
    """The expression of ``base << shift``; raises ValueError where the shift is known to be negative, as Python does."""
    shifts_by_sizes.used()
    if shift.is_negative:
        raise ValueError("negative shift count")
    return base * 2**shift


def remembered(logarithm: Callable, known: Known, bases: tuple) -> Callable:
    """*logarithm* that remembers the sizes whose logarithm to the base 2 it gives."""

    @functools.wraps(logarithm)
    def called(x: Any, /, *base: Any) -> Any:
        result = logarithm(x, *base)
        if isinstance(x, torch.SymInt) and isinstance(result, torch.SymFloat) and base in bases:
            known[key(result)] = x
        return result

    return called


def among_exponents(rounded: Callable, exponent: Callable, known: Known) -> Callable:
    """*rounded* that is the *exponent* of a size where it is asked for its logarithm."""

    @functools.wraps(rounded)
    def called(self: torch.SymFloat) -> Any:
        size = known.get(key(self))
        return rounded(self) if size is None else exponent(size)

    return called


def bits(bit_length: Callable) -> Callable:
    """`int.bit_length` of a size, or of what is known not to be negative."""

    @functools.wraps(bit_length)
    def called(self: torch.SymInt) -> Any:
        least = self.node.shape_env.bound_sympy(self.node.expr).lower
        return ceil_log2(self + 1) if least >= 0 else bit_length(self)

    return called
