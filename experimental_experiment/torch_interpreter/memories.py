"""What objects of Python remember: the entries of dicts and lists, the attributes of plain objects, the module of a function."""

from __future__ import annotations

import collections
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from experimental_experiment.torch_interpreter.frames import is_library
from experimental_experiment.torch_interpreter.symbols import SYMBOLS

CONTAINERS = (dict, list, collections.OrderedDict, collections.defaultdict)
"""The classes themselves: those that derive from them may have entries that are made when they are asked for."""

TRACED = (FakeTensor, FunctionalTensor)
"""The tensors of a capture."""

DEPTH = 3
"""So many containers in one another are looked into."""

MANY = 1024
"""A dict or a list with more entries is no memory of tables."""


def memories_in(values: Iterable[Any], depth: int) -> list[dict | list]:
    """The dicts and the lists among values, and the attributes of plain objects, each once; so many in one another."""
    found: dict[int, dict | list] = {}
    for _ in range(depth):
        inner: list[Any] = []
        for value in values:
            kind = type(value)
            if kind in CONTAINERS or is_plain(kind):
                memory = value if kind in CONTAINERS else own_attributes(value)
                if id(memory) not in found and len(memory) <= MANY:
                    found[id(memory)] = memory
                    inner += memory if isinstance(memory, list) else memory.values()
        values = inner
    return [*found.values()]


@functools.lru_cache(maxsize=4096)
def is_plain(kind: type) -> bool:
    """Whether the objects of a class have attributes, and are neither modules, tensors and classes nor torch's or Python's."""
    if not has_attributes(kind) or issubclass(kind, (torch.nn.Module, torch.Tensor, type, types.ModuleType)):
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__module__ not in sys.builtin_module_names and not is_library(file)


@functools.lru_cache(maxsize=4096)
def has_attributes(kind: type) -> bool:
    """Whether the objects of a class have a ``__dict__`` of Python's: proxies answer for another object."""
    shown = next((vars(base)["__dict__"] for base in kind.__mro__ if "__dict__" in vars(base)), None)
    return isinstance(shown, (types.GetSetDescriptorType, types.MemberDescriptorType))


def own_attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object that no ``__getattr__`` answers for, none for a class, or where it shows none of its own."""
    if isinstance(value, type) or not has_attributes(type(value)):
        return {}
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:  # a class that mypyc compiled: the descriptor is there, what it describes is not
        return {}


def is_left(value: Any, depth: int = DEPTH) -> bool:
    """Whether a value is, or holds so deep, a tensor or a number of a capture; a container may hold itself."""
    if (isinstance(value, tuple) or type(value) in CONTAINERS) and depth:
        inner = value.values() if isinstance(value, dict) else value
        return any(is_left(item, depth - 1) for item in inner)
    return isinstance(value, (*TRACED, *SYMBOLS))


def has_entries(memory: dict | list, contents: dict | list) -> bool:
    """Whether a dict or a list has these very values, under these names, and no others."""
    if len(memory) != len(contents) or not all(map(operator.is_, memory, contents)):
        return False
    return isinstance(memory, list) or all(map(operator.is_, memory.values(), contents.values()))


def put_into(memory: dict | list, contents: dict | list) -> None:
    """Let a dict or a list hold these entries and no others."""
    memory.clear()
    (memory.update if isinstance(memory, dict) else memory.extend)(contents)


def called_module(function: Callable) -> torch.nn.Module | None:
    """The module of a method, or the one that ``functools.partial`` calls; None of another function."""
    called = function.func if isinstance(function, functools.partial) else function
    owner = called if isinstance(called, torch.nn.Module) else getattr(called, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None
