"""Lists that are repeated as often as a size: ``[0] * x.shape[0]``.

Source of semantics: ``list``, ``torch.tensor``, ``torch.cat``, ``torch.stack``.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

HANDLER = "torch._export.non_strict_utils._NonStrictTorchFunctionHandler._override"
"""What torch.export, and `tracing`, ask what to call in the place of a function."""

PRODUCTS = ("torch.SymInt.__mul__", "torch.SymInt.__rmul__")

JOINS = (torch.cat, torch.concat, torch.concatenate, torch.stack)
"""What makes one tensor of a list of them, along its argument ``dim``."""


@patch("torch", replaces=(HANDLER, *PRODUCTS), default=True)
def repeated_lists() -> Iterator[None]:
    """``torch.tensor([0] * x.shape[0])``, as in Chroma and Lumina, fixes the size to the example's: a list of Python has a length.

    ``torch.tensor``, ``torch.cat`` and ``torch.stack`` of such a list repeat a tensor, and its elements are those that were given. What
    asks for its length, or for all of it, gets the example's, as without the patch.
    """
    importlib.import_module("torch._export.non_strict_utils")  # it brings TorchDynamo
    with wrapped({**dict.fromkeys(PRODUCTS, product), HANDLER: joined}):
        yield


class Element:
    """What a `Repeated` holds until it is filled: only torch's functions read the memory of a list, and they ask this what to call."""

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple, kwargs: dict | None = None) -> Any:
        return func(*map(filled, args), **{name: filled(value) for name, value in (kwargs or {}).items()})


class Repeated(list):
    """A list, repeated as often as a size says: empty until someone asks for more than it was given.

    Attributes:
        part: what is repeated.
        times: how often, None when all elements are there, as many as the example has.
    """

    def __init__(self, part: list, times: torch.SymInt):
        super().__init__([Element()])
        self.part = part
        self.times: torch.SymInt | None = times

    def fill(self) -> None:
        """Become the list that it is for the example."""
        if self.times is not None:
            times, self.times = int(self.times), None
            super().__init__(self.part * times)

    def __getitem__(self, place: Any) -> Any:
        if self.times is None or type(place) is not int or not self.part:
            self.fill()
            return super().__getitem__(place)
        length = len(self.part) * self.times
        if place >= length or place < -length:
            raise IndexError("list index out of range")
        return self.part[place % len(self.part)]

    def __radd__(self, other: Any) -> Any:
        self.fill()
        return other + list(self) if isinstance(other, list) else NotImplemented

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return list, (list(self),)


def of_all(name: str) -> Callable:
    """A method of ``list`` that needs all elements."""
    of_lists = getattr(list, name)

    @functools.wraps(of_lists)
    def method(self: Repeated, *args: Any, **kwargs: Any) -> Any:
        self.fill()
        return of_lists(self, *args, **kwargs)

    return method


COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__repr__")

for method_name in ({*dir(list)} - {*dir(object), *vars(Repeated), "__class_getitem__"}).union(COMPARISONS):
    setattr(Repeated, method_name, of_all(method_name))


def is_repeated(value: Any) -> bool:
    """Whether this is a list with as many elements as a size says."""
    return type(value) is Repeated and value.times is not None


def filled(value: Any) -> Any:
    """A list with all its elements, anything else as it is."""
    if is_repeated(value):
        value.fill()
    return value


def product(of_numbers: Callable) -> Callable:
    """The product of a size and a number, or a list."""

    @functools.wraps(of_numbers)
    def called(self: torch.SymInt, other: Any) -> Any:
        is_list = type(other) is list and self.node.has_hint()
        return Repeated(other, self) if is_list else of_numbers(self, other)

    return called


def joined(override: Callable) -> Callable:
    """The handler that repeats a tensor where a list is repeated, and gives other functions all the elements."""

    @functools.wraps(override)
    def _override(self: Any, func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple:
        if not any(map(is_repeated, (*args, *kwargs.values()))):
            return override(self, func, args, kwargs)
        first = args[0] if args else None
        if func not in (torch.tensor, *JOINS) or not is_repeated(first) or "out" in kwargs:
            kwargs = {name: filled(value) for name, value in kwargs.items()}
            return override(self, func, tuple(map(filled, args)), kwargs)
        repeated_lists.used()
        dim = 0 if func is torch.tensor else kwargs.get("dim", args[1] if len(args) > 1 else 0)
        of_lists, args, kwargs = override(self, func, (first.part, *args[1:]), kwargs)
        return lambda: along(of_lists(*args, **kwargs), dim, first.times), (), {}

    return _override


def along(x: torch.Tensor, dim: int, times: torch.SymInt) -> torch.Tensor:
    """A tensor, repeated along an axis."""
    return x.repeat([times if axis == dim % x.dim() else 1 for axis in range(x.dim())])
