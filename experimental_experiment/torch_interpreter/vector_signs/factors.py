"""Signs as formal factors of the elements of tensors: what they are, how products and sums join them, where axes go."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.symbols import expression_of

ALL = ("all",)
"""The place of the product of all signs, as a determinant has it."""


@dataclasses.dataclass(frozen=True)
class Signs:
    """Signs that are factors of the elements of a tensor.

    Attributes:
        vectors: what has these signs.
        places: for each axis of the batch of vectors, then for their own, which one an element has: that of the same index along an axis
            of the tensor (an int), or along a letter of an equation, a certain one (`at`), or `ALL`.
        start: the first of the vectors along an axis of the tensor, a number or an expression.
    """

    vectors: Hashable
    places: tuple[Hashable, ...]
    start: Any = 0

    def moved(self, place_of: Callable[[Hashable], Hashable]) -> Signs:
        """The signs of a tensor whose axes are elsewhere."""
        return dataclasses.replace(self, places=tuple(map(place_of, self.places)))


Factors = frozenset[Signs]
"""All signs that are factors of a tensor, those that occur twice left out: the square of a sign is 1."""

NONE: Factors = frozenset()
"""The factors of what has no signs."""

Arguments = dict[str, Any]
"""The arguments of a node by their names in its schema."""


class SignsMatter(Exception):
    """A result that is not the same up to signs when the vectors have others."""


def at(index: Any) -> Hashable:
    """The place of the sign of one vector."""
    return "at", index


def shape_of(node: Any) -> Sequence[Any]:
    """The sizes of a result; none of a number."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.shape if isinstance(value, torch.Tensor) else ()


def is_same(one: Any, other: Any) -> bool:
    """Whether two sizes are one number, or one expression."""
    return bool(expression_of(one) == expression_of(other))


def same_sizes(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two shapes are the same."""
    return len(one) == len(other) and all(map(is_same, one, other))


def axis_of(node: Any, axis: int) -> int:
    """An axis of a result, counted from the first one."""
    return axis % max(1, len(shape_of(node)))


def product(factors: Iterable[Factors]) -> Factors:
    """The factors of a product."""
    return functools.reduce(operator.xor, factors, NONE)


def sum_of(factors: Sequence[Factors]) -> Factors:
    """The factors of a sum. Raises SignsMatter when its terms have others."""
    if any(term != factors[0] for term in factors):
        raise SignsMatter
    return factors[0]


def moved(factors: Factors, places: Mapping[Any, Hashable]) -> Factors:
    """The factors where axes, or letters, have other places; those that are equal then cancel. Raises SignsMatter for an axis that has none."""

    def place_of(place: Hashable) -> Hashable:
        if isinstance(place, tuple):
            return place
        if place not in places:
            raise SignsMatter
        return places[place]

    return product(frozenset((signs.moved(place_of),)) for signs in factors)
