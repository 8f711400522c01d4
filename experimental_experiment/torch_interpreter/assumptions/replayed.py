"""What a call would leave in a model that TorchDynamo runs, ``strict=True``: it writes nothing itself, and replays what it has seen, or does not.

Source of semantics: ``torch._dynamo.side_effects.SideEffects``; torch.export asks for no replay.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.memories import (
    attributes_of,
    container_of,
    contents_of,
    is_object,
    items_of,
    put_into,
)
from experimental_experiment.torch_interpreter.patches.patch import MISSING, wrapped
from experimental_experiment.torch_interpreter.patches.whole_numbers import cell_contents
from experimental_experiment.torch_interpreter.writes import storage_of

ENDING = "torch._dynamo.side_effects.SideEffects.codegen_save_tempvars"
"""What TorchDynamo calls when it has run a function, and knows what that has written."""

OUTSIDE = (type, types.ModuleType, types.FunctionType, types.CellType)
"""What is written name by name: classes, globals, functions, the variables of outer functions."""


class Unknown:
    """A value that only TorchDynamo knows."""


Look = Callable[[list[torch.Tensor], list[Iterator]], None]
"""What looks at the objects of a model, and gets those of the tensors in them that sizes alone decide, and the iterators that were asked."""


@contextlib.contextmanager
def calls_end(look: Look) -> Iterator[None]:
    """For a while, call *look* whenever TorchDynamo has run a model: its objects hold then what they would after the call."""
    importlib.import_module(ENDING.rpartition(".SideEffects")[0])  # it brings TorchDynamo

    def ending(save: Callable) -> Callable:
        def called(effects: Any, *args: Any, **kwargs: Any) -> Any:
            replay = Replay(effects)
            with replay.as_after_the_call():
                look(replay.tables, replay.asked)
            return save(effects, *args, **kwargs)

        return called

    with wrapped({ENDING: ending}):
        yield


class Replay:
    """What TorchDynamo has seen in a call.

    Attributes:
        effects: its own notes.
        items: the objects that it follows, by what it notes of their changes.
        modified: those that it would change, with its variables for them.
        replaced: the tensors that they hold where it would write.
        asked: the iterators among the objects that gave values.
        tables: the tensors that it would write, and that sizes alone decide.
    """

    def __init__(self, effects: Any):
        self.effects = effects
        known = [(item, effects.id_to_variable.get(id(item))) for item in effects.keepalive]
        followed = [(item, each) for item, each in known if each is not None]
        self.items = {id(each.mutation_type): item for item, each in followed if each.mutation_type}
        self.modified = [(item, each) for item, each in followed if effects.is_modified(each)]
        self.asked = [item for item, _ in self.modified if isinstance(item, Iterator)]
        self.replaced = [
            value
            for item, each in self.modified
            for value in held_where_written(item, self.written(each))
            if isinstance(value, torch.Tensor)
        ]
        self.tables: list[torch.Tensor] = []

    def written(self, variable: Any) -> dict[str, Any]:
        """What it would write into the attributes of an object."""
        return self.effects.store_attr_mutations.get(variable, {})

    @contextlib.contextmanager
    def as_after_the_call(self) -> Iterator[None]:
        """Let what a call would write hold what it would have then, and fill `tables`."""
        with contextlib.ExitStack() as stack:
            for item, variable in self.modified:
                last = {name: self.value_of(value) for name, value in self.written(variable).items()}
                if isinstance(item, OUTSIDE):
                    held = names_in(item)
                    for name, value in last.items():
                        if not isinstance(value, Unknown):
                            stack.callback(put, item, name, held.get(name, MISSING))
                            put(item, name, value)
                    continue
                if container_of(type(item)) is not None:
                    entries = self.entries(contained(variable))
                    stack.callback(put_into, item, contents_of(item))
                    put_into(item, contents_of(item) if entries is None else entries)
                memory = attributes_in(item)
                if last and memory is not None:
                    contents = contents_of(memory)
                    stack.callback(put_into, memory, contents)
                    after = {**contents, **last}
                    put_into(memory, {name: value for name, value in after.items() if value is not MISSING})
            yield

    def value_of(self, variable: Any) -> Any:
        """A value that TorchDynamo follows, `MISSING` for one that is deleted."""
        if not variable.is_realized():
            return variable.peek_value()
        variable = variable.realize()
        node = getattr(getattr(variable, "proxy", None), "node", None)
        if node is not None:
            return self.result_of(node)
        item = self.items.get(id(variable.mutation_type), ())
        if not isinstance(item, tuple):  # of a new named tuple TorchDynamo has an empty one
            return item
        if isinstance(variable, torch._dynamo.variables.DeletedVariable):
            return MISSING
        if variable.is_python_constant():
            return variable.as_python_constant()
        entries = self.entries(contained(variable))
        kind = variable.python_type() if entries is not None else Unknown
        if isinstance(entries, dict) or kind in (list, Unknown):
            return Unknown() if entries is None else entries
        return getattr(kind, "_make", kind if kind in (collections.deque, set) else tuple)(entries)

    def entries(self, variable: Any) -> dict | list | None:
        """What a container holds after the call, None where TorchDynamo does not tell, but for the keys that it does not know."""
        items = getattr(variable, "items", None)
        if isinstance(items, list):
            return [self.value_of(item) for item in items]
        if not isinstance(items, dict):
            return None
        if issubclass(variable.python_type(), (set, frozenset)):
            return [self.value_of(key.vt) for key in items]
        return {
            key.vt.as_python_constant(): self.value_of(item)
            for key, item in items.items()
            if key.vt.is_python_constant()
        }

    def result_of(self, node: torch.fx.Node) -> Any:
        """A number or a tensor of a capture; a tensor of the model itself where it is that, written in place or not."""
        value = node.meta.get("example_value")
        if not isinstance(value, torch.Tensor):
            return value
        for own in node.graph.find_nodes(op="get_attr"):
            if are_the_same_elements(own.meta.get("example_value"), value):
                return tensor_of(own)
        if not self.reads_data(node):
            self.tables.append(value)
        return value

    def reads_data(self, node: torch.fx.Node) -> bool:
        """Whether a tensor depends on inputs, but for their sizes, or on tensors that are replaced."""
        seen, left = {node}, [node]
        while left:
            each = left.pop()
            if each.op == "placeholder":
                return True
            if each.op == "get_attr" and any(tensor_of(each) is tensor for tensor in self.replaced):
                return True
            sources = [x for x in each.all_input_nodes if not is_number(x.meta.get("example_value"))]
            left += [x for x in sources if x not in seen]
            seen.update(sources)
        return False


def contained(variable: Any) -> Any:
    """TorchDynamo's variable for the entries of a container, where its class derives from one of Python's."""
    return getattr(variable, "_base_vt", None) or variable


def held_where_written(item: Any, names: dict[str, Any]) -> list[Any]:
    """What an object holds in the attributes of these names, and a container."""
    held = names_in(item) if isinstance(item, OUTSIDE) else attributes_in(item) or {}
    entries = [] if container_of(type(item)) is None else items_of(item)
    return [*entries, *(held[name] for name in names if name in held)]


def attributes_in(item: Any) -> Any:
    """The attributes of a module or of an object of a model's, None of another one."""
    if isinstance(item, torch.nn.Module):
        return vars(item)
    return attributes_of(item) if is_object(type(item)) else None


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


def tensor_of(node: torch.fx.Node) -> Any:
    """The tensor of the model that a node of TorchDynamo's graph gets."""
    return torch._guards.TracingContext.get().module_context.nn_modules.get(node.target)


def are_the_same_elements(one: Any, other: torch.Tensor) -> bool:
    """Whether two fake tensors are the same elements of the same memory: what is written into one of them is in the other one."""
    if one is other:
        return True
    return (
        storage_of(one) is not None
        and storage_of(one) == storage_of(other)
        and one.dtype == other.dtype
        and one.storage_offset() == other.storage_offset()
        and one.stride() == other.stride()
        and one.shape == other.shape
    )


def is_number(value: Any) -> bool:
    """Whether what a node gives is a size or another number, no tensor."""
    return isinstance(value, (int, float, torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool))
