"""What a call would leave in a model that TorchDynamo runs, ``strict=True``: it writes nothing itself, and replays what it has seen, or does not.

Source of semantics: ``torch._dynamo.side_effects.SideEffects``; torch.export asks for no replay.
"""

from __future__ import annotations

import contextlib
import importlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.memories import (
    Memory,
    attributes_of,
    container_of,
    contents_of,
    is_object,
    put_into,
)
from experimental_experiment.torch_interpreter.patches.patch import MISSING, wrapped
from experimental_experiment.torch_interpreter.patches.whole_numbers import cell_contents

ENDING = "torch._dynamo.side_effects.SideEffects.codegen_save_tempvars"
"""What TorchDynamo calls when it has run a function, and knows what that has written."""

OUTSIDE = (type, types.ModuleType, types.FunctionType, types.CellType)
"""What is written name by name: classes, globals, functions, the variables of outer functions."""


class Unknown:
    """A value that only TorchDynamo knows."""


@contextlib.contextmanager
def calls_end(look: Callable[[], None]) -> Iterator[None]:
    """For a while, call *look* whenever TorchDynamo has run a model: its objects hold then what they would after the call."""
    importlib.import_module(ENDING.rpartition(".SideEffects")[0])  # it brings TorchDynamo

    def ending(save: Callable) -> Callable:
        def called(effects: Any, *args: Any, **kwargs: Any) -> Any:
            with as_after_the_call(effects):
                look()
            return save(effects, *args, **kwargs)

        return called

    with wrapped({ENDING: ending}):
        yield


@contextlib.contextmanager
def as_after_the_call(effects: Any) -> Iterator[None]:
    """Let what a call would write hold what it would have then; sets, and dicts of classes of their own, stay as they are."""
    modified = [(item, effects.id_to_variable.get(id(item))) for item in effects.keepalive]
    modified = [(item, each) for item, each in modified if each is not None and effects.is_modified(each)]
    with contextlib.ExitStack() as stack:
        for item, variable in modified:
            written = effects.store_attr_mutations.get(variable, {})
            memory = memory_of(item)
            if isinstance(item, OUTSIDE):
                held = names_in(item)
                for name, value in written.items():
                    before = held.get(name, MISSING)
                    stack.callback(put, item, name, before)
                    put(item, name, value_of(value, before))
            elif memory is not None:
                contents = contents_of(memory)
                stack.callback(put_into, memory, contents)
                last = {name: value_of(value, contents.get(name)) for name, value in written.items()}
                put_into(memory, entries(variable, contents) if memory is item else {**contents, **last})
        yield


def names_in(item: Any) -> dict[str, Any]:
    """What a class, a module of Python, a function or the cell of a variable holds now, by name."""
    if isinstance(item, types.CellType):
        return dict(zip(["cell_contents"], cell_contents(item)))
    return dict(vars(item))


def put(item: Any, name: str, value: Any) -> None:
    """Let one of these hold a value, none where it is `MISSING`."""
    if value is not MISSING:
        setattr(item, name, value)
    elif name in names_in(item):
        delattr(item, name)


def memory_of(value: Any) -> Memory | None:
    """Where a value keeps others: its attributes, or itself when it is a container."""
    if isinstance(value, torch.nn.Module):
        return vars(value)
    if is_object(type(value)):
        return attributes_of(value)
    return value if container_of(type(value)) not in (None, set) else None


def entries(variable: Any, contents: dict | list) -> dict | list:
    """What a container holds after the call, *contents* where TorchDynamo does not tell."""
    items = getattr(getattr(variable, "_base_vt", None) or variable, "items", None)
    if isinstance(contents, list) and isinstance(items, Sequence):
        held = dict(enumerate(contents))
        return [value_of(item, held.get(place), variable) for place, item in enumerate(items)]
    if isinstance(contents, dict) and isinstance(items, Mapping):
        known = {
            key.vt.as_python_constant(): item for key, item in items.items() if key.vt.is_python_constant()
        }
        return {key: value_of(item, contents.get(key), variable) for key, item in known.items()}
    return contents


def value_of(variable: Any, before: Any, container: Any = None) -> Any:
    """A value that TorchDynamo follows; what was there *before* where it is that entry of a *container*, or a tensor that sizes alone decide."""
    if not variable.is_realized():
        return variable.peek_value()
    variable = variable.realize()
    if container is not None and name_of(container) and name_of(variable).startswith(name_of(container)):
        return before
    if node := getattr(getattr(variable, "proxy", None), "node", None):
        return node.meta.get("example_value") if reads_data(node) else before
    if variable.is_python_constant():
        return variable.as_python_constant()
    items = getattr(variable, "items", None)
    if not isinstance(items, list):
        return Unknown()
    values, kind = [value_of(item, None) for item in items], variable.python_type()
    return values if kind is list else getattr(kind, "_make", tuple)(values)


def name_of(variable: Any) -> str:
    """Where TorchDynamo has found a value, as code; a method before torch 2.10."""
    name = getattr(variable.source, "name", "")
    return name() if callable(name) else name


def reads_data(node: torch.fx.Node) -> bool:
    """Whether a value is a number, or a tensor that depends on inputs or buffers, but for their sizes."""
    if not isinstance(node.meta.get("example_value"), torch.Tensor):
        return True
    seen, left = {node}, [node]
    while left:
        each = left.pop()
        value = each.meta.get("example_value")
        if each.op in ("placeholder", "get_attr") and not isinstance(value, torch.nn.Parameter):
            return True
        sources = [x for x in each.all_input_nodes if isinstance(x.meta.get("example_value"), torch.Tensor)]
        left += [x for x in sources if x not in seen]
        seen.update(sources)
    return False
