"""Maxima of a number of sizes and one that it is never below, or never above.

Source of semantics: ``torch.sym_max``, which torch.export makes of ``max``; ``get_same_padding`` of timm.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

QUOTIENTS = 20
"""How many quotients a bound looks at."""


@patch("torch", replaces=("torch.SymInt.__sym_max__",), default=True)
def known_maxima() -> Iterator[None]:
    """``max((math.ceil(n / 2) - 1) * 2 + 3 - n, 0)``, as TensorFlow pads, is never the 0: torch.export needs minutes for what follows."""
    with replaced(torch.SymInt, "__sym_max__", without_the_less(torch.SymInt.__sym_max__)):
        yield


def without_the_less(maximum: Callable) -> Callable:
    """*maximum* that is one of both numbers where it is known which one is."""

    @functools.wraps(maximum)
    def called(self: torch.SymInt, other: Any) -> Any:
        # strides are products of max(size, 1), which torch compares as they are written
        if type(other) is int and other != 1 and self.node.expr.is_Add:
            if least(self) >= other:
                known_maxima.used()
                return self
            if -least(-self) <= other:
                known_maxima.used()
                return other
        return maximum(self, other)

    return called


def least(number: torch.SymInt | int) -> Any:
    """A number that another one is never below: quotients among its terms are rounded by less than 1."""
    if isinstance(number, int):
        return number
    # a SymInt has loaded them, importing this file has not
    import sympy
    from torch.utils._sympy.functions import FloorDiv

    expression = found = number.node.expr
    for _ in range(QUOTIENTS):
        terms = {
            term: factor
            for term, factor in found.as_coefficients_dict().items()
            if isinstance(term, FloorDiv) and term.args[1].is_Integer and term.args[1] > 0
        }
        if not terms:
            break
        # the outermost first: what is left of it may cancel those inside
        quotient = max(terms, key=lambda term: len(term.atoms(FloorDiv)))
        dividend, divisor = quotient.args
        rounded = divisor - 1 if terms[quotient] > 0 else 0
        found = sympy.expand(found + terms[quotient] * ((dividend - rounded) / divisor - quotient))
    return sympy.ceiling(found) if found.is_number else number.node.shape_env.bound_sympy(expression).lower
