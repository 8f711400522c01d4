"""Inputs that torch.export does not take as they are."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.patches.caches import known_caches
from experimental_experiment.torch_interpreter.patches.patch import LOCK, Convert, patch, wrapped


@patch("torch", replaces=("torch.utils._pytree.SUPPORTED_NODES",), default=True)
def dataclass_inputs() -> Iterator[Convert]:
    """A dataclass among the inputs or the results that is not registered with torch.export.register_dataclass is refused."""
    with contextlib.ExitStack() as registered:

        def convert(value: Any) -> Any:
            if register_dataclasses(value, registered):
                dataclass_inputs.used()
            return value

        yield convert


@contextlib.contextmanager
def known_containers(*trees: Any) -> Iterator[None]:
    """Let ``torch.utils._pytree`` look into the caches and the dataclasses of some trees for a while."""
    with known_caches(), LOCK, contextlib.ExitStack() as registered:
        register_dataclasses(trees, registered)
        yield


@contextlib.contextmanager
def known_results(module: torch.nn.Module) -> Iterator[None]:
    """Let torch look into the dataclasses that a module returns, for a while, while `dataclass_inputs` is applied.

    Not for TorchDynamo: it refuses them in any case, and torch 2.9 any hook. Torch's own modules return none, and their attention
    takes other ways when it has hooks.
    """
    if not dataclass_inputs.users or type(module).__module__.startswith("torch."):
        yield
        return
    with contextlib.ExitStack() as registered:

        def register(module: torch.nn.Module, args: tuple, result: Any) -> None:
            if register_dataclasses(result, registered):
                dataclass_inputs.used()

        hook = module.register_forward_hook(register)
        registered.callback(hook.remove)
        yield


def register_dataclasses(value: Any, registered: contextlib.ExitStack) -> bool:
    """Register the dataclasses of an object that torch does not know until *registered* is closed; whether there are any."""
    found = False
    with LOCK:
        for cls in unregistered(value):
            registered.enter_context(registered_dataclass(cls))
            found = True
    return found


def unregistered(value: Any) -> Iterator[type]:
    """The dataclasses that torch does not know, of an object and of what it holds."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from unregistered(item)
    elif isinstance(value, dict):
        yield from unregistered(list(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        if type(value) not in pytree.SUPPORTED_NODES:
            yield type(value)
        yield from unregistered([getattr(value, field.name) for field in dataclasses.fields(value)])


@contextlib.contextmanager
def registered_dataclass(cls: type) -> Iterator[None]:
    """Register a dataclass for a while."""
    with LOCK:
        pytree.register_dataclass(cls, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}")
    try:
        yield
    finally:
        with LOCK:
            pytree._deregister_pytree_node(cls)


CONSTANTS = "torch._export.non_strict_utils._is_constant_argument"
CHECK = "torch._export.verifier._check_val"


@patch("torch", replaces=(CONSTANTS, CHECK), default=True)
def enum_inputs() -> Iterator[None]:
    """An Enum among the inputs is refused where sizes are dynamic, an enum.Flag always: it is a constant, as a text is."""
    for path in (CONSTANTS, CHECK):
        importlib.import_module(path.rpartition(".")[0])

    def with_enums(is_constant: Callable[[Any], bool]) -> Callable[[Any], bool]:
        def is_constant_or_enum(value: Any) -> bool:
            if not isinstance(value, enum.Enum):
                return is_constant(value)
            enum_inputs.used()
            return True

        return is_constant_or_enum

    def but_enums(check: Callable[[torch.fx.Node], None]) -> Callable[[torch.fx.Node], None]:
        def check_others(node: torch.fx.Node) -> None:
            if not isinstance(node.meta.get("val"), enum.Enum):  # a Flag holds itself, without end
                check(node)

        return check_others

    with wrapped({CONSTANTS: with_enums, CHECK: but_enums}):
        yield


@patch("torch", replaces=("the inputs",))
def numpy_inputs() -> Iterator[Convert]:
    """Numpy's arrays and numbers among the inputs are refused: they become tensors and numbers of Python."""

    def convert(value: Any) -> Any:
        if not isinstance(value, (numpy.ndarray, numpy.generic)):
            return value
        numpy_inputs.used()
        return torch.from_numpy(value) if isinstance(value, numpy.ndarray) else value.item()

    yield convert
