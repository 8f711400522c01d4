"""What objects of Python remember: the entries of dicts and lists, the attributes of plain objects, the module of a function."""

from __future__ import annotations

import collections
import functools
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from experimental_experiment.torch_interpreter.frames import is_library
from experimental_experiment.torch_interpreter.symbols import SYMBOLS

CONTAINERS = (collections.OrderedDict, dict, list, collections.deque, set)
"""What holds entries: of those that derive from them, the entries that they have, not those that they make when they are asked."""

WRAPPERS = (collections.UserDict, collections.UserList)
"""Classes whose objects hold a container."""

OF_PYTHON = (types.SimpleNamespace, threading.local)
"""Classes of Python's whose objects have attributes as those of a model do."""

TRACED = (FakeTensor, FunctionalTensor)
"""The tensors of a capture."""

REGISTERED = frozenset({"_buffers", "_modules", "_parameters"})
"""Where a module keeps what is registered: the model may put other tensors there, which are its own; torch.export follows most of them."""

DEPTH = 3
"""So many containers in one another are looked into."""

MANY = 1024
"""A dict or a list with more entries is no memory of tables."""


class Slots(MutableMapping):
    """The attributes of an object whose class names them in ``__slots__``."""

    def __init__(self, owner: Any):
        self.owner = owner

    def __getitem__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self.owner, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self.owner, name, value)

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self.owner, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in slots_of(type(self.owner)) if name in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name, self) is not self

    def __len__(self) -> int:
        return sum(1 for _ in self)


Memory = dict | list | collections.deque | set | Slots


def memories_in(values: Iterable[Any], depth: int) -> list[Memory]:
    """The containers among values, and the attributes of objects, each once; so many in one another."""
    found: dict[int, Memory] = {}
    for _ in range(depth):
        inner: list[Any] = []
        for value in values:
            for memory in memories_at(value):
                key = id(memory.owner if isinstance(memory, Slots) else memory)
                if key not in found and count_of(memory) <= MANY:
                    found[key] = memory
                    inner += items_of(memory)
        values = inner
    return [*found.values()]


def memories_at(value: Any) -> Iterator[Memory]:
    """Where a value keeps others: itself, when it is a container, what it wraps, its attributes."""
    kind = type(value)
    if container_of(kind) is not None:
        yield value
    elif is_wrapper(kind):
        yield value.data
    if is_object(kind):
        yield attributes_of(value)


@functools.lru_cache(maxsize=4096)
def container_of(kind: type) -> type | None:
    """The container that a class derives from, None where it derives from none."""
    return next((container for container in CONTAINERS if issubclass(kind, container)), None)


def items_of(memory: Any) -> Sequence[Any]:
    """The values that a container, a tuple or an object's attributes hold."""
    memory = unwrapped(memory)
    container = Slots if type(memory) is Slots else container_of(type(memory)) or tuple
    return [*(container.values(memory) if hasattr(container, "values") else container.__iter__(memory))]


def unwrapped(memory: Any) -> Any:
    """What an object of `WRAPPERS` holds, another one itself."""
    return memory.data if is_wrapper(type(memory)) else memory


@functools.lru_cache(maxsize=4096)
def is_wrapper(kind: type) -> bool:
    """Whether the objects of a class hold a container; Python takes its time to answer of classes that others may be registered with."""
    return issubclass(kind, WRAPPERS)


def count_of(memory: Any) -> int:
    """How many values these are."""
    memory = unwrapped(memory)
    container = Slots if type(memory) is Slots else container_of(type(memory)) or tuple
    return container.__len__(memory)


def contents_of(memory: Memory) -> dict | list:
    """A copy of what a container or an object's attributes hold."""
    container = Slots if type(memory) is Slots else container_of(type(memory)) or list
    return dict(container.items(memory)) if hasattr(container, "items") else items_of(memory)


@functools.lru_cache(maxsize=4096)
def is_plain(kind: type) -> bool:
    """Whether the objects of a class have attributes, and are neither modules, tensors and classes nor torch's or Python's."""
    if issubclass(kind, OF_PYTHON):
        return True
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
    """The attributes of an object that no ``__getattr__`` answers for, none for a class, or where it shows none of its own.

    Those of a ``threading.local`` are this thread's.
    """
    if issubclass(type(value), threading.local):
        return vars(value)
    if isinstance(value, type) or not has_attributes(type(value)):
        return {}
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:  # a class that mypyc compiled: the descriptor is there, what it describes is not
        return {}


@functools.lru_cache(maxsize=4096)
def slots_of(kind: type) -> tuple[str, ...]:
    """The names in ``__slots__`` of a class that is neither torch's nor Python's, nor a tuple's or a tensor's; classes written in C have members, none of these."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    is_other = issubclass(kind, (torch.nn.Module, torch.Tensor, type, types.ModuleType, tuple, *SYMBOLS))
    if is_other or kind.__module__ in sys.builtin_module_names or is_library(file):
        return ()
    descriptors = [item for base in kind.__mro__ if "__slots__" in vars(base) for item in vars(base).items()]
    return tuple(
        name
        for name, descriptor in descriptors
        if isinstance(descriptor, types.MemberDescriptorType) and not name.startswith("__")
    )


@functools.lru_cache(maxsize=4096)
def is_object(kind: type) -> bool:
    """Whether the objects of a class have attributes of a model's, in a ``__dict__`` or in slots."""
    return is_plain(kind) or bool(slots_of(kind))


def attributes_of(value: Any) -> dict[str, Any] | Slots:
    """The attributes of such an object."""
    return own_attributes(value) if is_plain(type(value)) else Slots(value)


def is_left(value: Any, depth: int = DEPTH) -> bool:
    """Whether a value is, or holds so deep, a tensor or a number of a capture; a container may hold itself."""
    if isinstance(value, (*TRACED, *SYMBOLS)):
        return True
    if not depth:
        return False
    memories = [value] if isinstance(value, (tuple, Slots)) else memories_at(value)
    return any(is_left(item, depth - 1) for memory in memories for item in items_of(memory))


def has_entries(memory: Memory, contents: dict | list) -> bool:
    """Whether what is held are these very values, under these names, and no others."""
    now = contents_of(memory)
    if len(now) != len(contents):
        return False
    if isinstance(memory, set):
        return {*map(id, now)} == {*map(id, contents)}
    if not all(map(operator.is_, now, contents)):
        return False
    return isinstance(now, list) or all(map(operator.is_, now.values(), contents.values()))


def put_into(memory: Memory, contents: dict | list) -> None:
    """Let a container, or an object's attributes, hold these entries and no others."""
    container = Slots if type(memory) is Slots else container_of(type(memory)) or type(memory)
    container.clear(memory)
    (container.extend if hasattr(container, "extend") else container.update)(memory, contents)


def called_module(function: Callable) -> torch.nn.Module | None:
    """The module of a method, or the one that ``functools.partial`` calls; None of another function."""
    called = function.func if isinstance(function, functools.partial) else function
    owner = called if isinstance(called, torch.nn.Module) else getattr(called, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None
