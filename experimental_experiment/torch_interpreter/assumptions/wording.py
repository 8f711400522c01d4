"""What a program assumes of sizes, in words: a condition as Python writes it, the sizes for which several hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import sympy
import torch
from torch.utils._sympy import functions
from torch.utils._sympy.printers import PythonPrinter

LAST = 4096
"""The sizes up to this one are tried."""

RUNS = 4
"""How many runs of sizes are named."""

OF_PYTHON = (
    functions.CeilToInt,
    functions.FloatPow,
    functions.FloatTrueDiv,
    functions.FloorToInt,
    functions.IntTrueDiv,
    functions.Mod,
    functions.PowByNatural,
    functions.PythonMod,
    functions.RoundDecimal,
    functions.RoundToInt,
    functions.ToFloat,
    functions.TruncToInt,
    functions.OpaqueUnaryFn_log2,
    functions.OpaqueUnaryFn_sqrt,
)
"""What torch calls by names of its own."""


def written(condition: sympy.Basic, names: dict[sympy.Symbol, sympy.Symbol]) -> str:
    """A condition in Python, in the user's names."""
    if isinstance(condition, sympy.Or):
        return " or ".join(sorted(written(part, names) for part in condition.args))
    named = condition.xreplace(names)
    if named.has(*OF_PYTHON):
        return in_python(named)
    if isinstance(named, sympy.core.relational.Relational):
        return f"{named.lhs} {named.rel_op} {named.rhs}"
    return str(named)


def in_python(condition: sympy.Basic) -> str:
    """A condition as Python computes it; a size needs no cast."""
    plain = condition.replace(functions.ToFloat, lambda size: size)
    integers = {
        number: sympy.Integer(int(number)) for number in plain.atoms(sympy.Float) if number == int(number)
    }
    return Printer().doprint(plain.xreplace(integers))


class Printer(PythonPrinter):
    """Sums in the order of sympy's text, and numbers with the digits that they need."""

    def _print_Add(self, expression: sympy.Basic, order: str | None = None) -> str:
        return sympy.printing.str.StrPrinter._print_Add(self, expression, order)

    def _print_Float(self, expression: sympy.Basic) -> str:
        return repr(float(expression))


def allowed(
    name: str, symbol: sympy.Symbol, conditions: Iterable[sympy.Basic], least: int, largest: int | None
) -> str:
    """The sizes from *least* to *largest* for which all conditions on one symbol hold, ``""`` when they are not known."""
    last = LAST if largest is None else min(largest, LAST)
    try:
        tests = [test_of(symbol, condition) for condition in conditions]
        found = [size for size in range(least, last + 1) if all(is_true_of(test, size) for test in tests)]
    except (AttributeError, NameError, NotImplementedError, SyntaxError, TypeError):
        return ""
    runs = list(consecutive(found))
    if not runs:
        return ""
    named = [run_in_words(*run, is_open=run[1] == last != largest) for run in runs[:RUNS]]
    return f"{name}: {', '.join(named)}{', ...' if len(runs) > RUNS else ''}"


def test_of(symbol: sympy.Symbol, condition: sympy.Basic) -> Callable[[int], bool]:
    """A condition on one symbol as a function of Python."""
    code = in_python(condition.xreplace({symbol: sympy.Symbol("size", integer=True)}))
    return eval(f"lambda size: {code}", {"math": math, "torch": torch})


def is_true_of(test: Callable[[int], bool], size: int) -> bool:
    """Whether a condition is true for a size; where a division by zero is asked for, there is no program."""
    try:
        return bool(test(size))
    except (ZeroDivisionError, ValueError):
        return False


def consecutive(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of each run of sizes that follow one another."""
    for _, run in itertools.groupby(enumerate(sizes), lambda pair: pair[1] - pair[0]):
        members = [size for _, size in run]
        yield members[0], members[-1]


def run_in_words(first: int, last: int, is_open: bool) -> str:
    """``9 to 4096 at least`` where larger ones were not tried, ``9 to 16`` or ``9``."""
    if is_open:
        return f"{first} to {last} at least"
    return f"{first} to {last}" if last > first else str(first)
