"""Views and mutation: a cell, a path of lenses, two folds.

Source of semantics: https://pytorch.org/docs/stable/tensor_view.html. Which nodes alias is read from the storages of the
fake tensors in ``meta["val"]``, never from names.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any

import onnx_ir as ir
import torch
from torch._C._functorch import is_batchedtensor

from experimental_experiment.torch_interpreter import registry
from experimental_experiment.torch_interpreter.errors import Untranslatable


@dataclasses.dataclass(frozen=True)
class Lens:
    """One view operator: ``get(op, base)`` reads the view, ``put(op, base, new)`` is the base after writing it."""

    get: Callable[[Any, ir.Value], ir.Value]
    put: Callable[[Any, ir.Value, ir.Value], ir.Value]


@dataclasses.dataclass(eq=False)
class Cell:
    """One storage: the value it holds now, and how often it was written."""

    value: ir.Value
    version: int = 0


@dataclasses.dataclass(eq=False)
class View:
    """One FX tensor: a storage cell seen through lenses. Reading is a fold, writing the reverse fold."""

    cell: Cell
    path: tuple[Lens, ...] = ()
    seen: int | None = None
    value: ir.Value | None = None

    def read(self, op) -> ir.Value:
        """The value of the view now; a stale view re-derives itself."""
        if self.seen != self.cell.version:
            self.value = reduce(lambda base, lens: lens.get(op, base), self.path, self.cell.value)
            self.seen = self.cell.version
        return self.value

    def write(self, op, new: ir.Value) -> None:
        """Replace the viewed elements of the storage by *new*, which has the view's shape and dtype."""
        bases = list(
            accumulate(self.path[:-1], lambda base, lens: lens.get(op, base), initial=self.cell.value)
        )
        written = new
        for lens, base in zip(reversed(self.path), reversed(bases)):
            written = lens.put(op, base, written)
        self.cell.value = written
        self.cell.version += 1

    def through(self, lens: Lens) -> View:
        """A view of this view."""
        return View(self.cell, (*self.path, lens))

    def reshape_in_place(self, lens: Lens) -> None:
        """What ``squeeze_``, ``t_``, ... do: every name of this tensor sees it through one more lens."""
        self.path = (*self.path, lens)
        self.seen = None


def lens_of(
    translation: registry.Translation,
    node: torch.fx.Node,
    target: Any,
    arguments: dict[str, Any],
    stamp: Callable[[ir.Value], ir.Value] = lambda value: value,
    position: int | None = None,
) -> Lens:
    """The lens of a view operator: its translation reads, its registered put writes.

    *node* is the node that made the view, *target* the view operator, *arguments* those after the viewed tensor;
    *stamp* checks what is read and gives it torch's sizes; *position* is the index of the result for an operator that has
    several. A view that reads as its base (a dropout that drops nothing) is written as its base.
    Raises Untranslatable, when written, if nothing says how to write through *target*.
    """
    viewed = registry.parameters(translation.function)[0]

    def get(op, base):
        with translating(op, node):
            result = translation.function(op, **{viewed: base}, **arguments)
        return stamp(result if position is None else result[position])

    def put(op, base, new):
        function = (registry.COMPLEX_PUTS if views_complex(node) else registry.PUTS).get(target)
        if function is None:
            if get(op, base) is base:
                return new
            raise Untranslatable(f"a write through the view {target} is not handled")
        extra = {} if position is None else {"position": position}
        listed = registry.parameters(function)
        known = {name: value for name, value in (arguments | extra).items() if name in listed}
        with translating(op, node):
            return like(base, function(op, base, new, **known))

    return Lens(get, put)


def views_complex(node: torch.fx.Node) -> bool:
    """Whether a node is a view of a complex tensor."""
    viewed = node.args[0]
    return isinstance(viewed, torch.fx.Node) and viewed.meta["val"].dtype.is_complex


def like(base: ir.Value, written: ir.Value) -> ir.Value:
    """*written* with the sizes of *base*, some of which ONNX may not know."""
    if written.producer() is not None and "stamped" not in written.meta:
        assert written.shape is None or len(written.shape) == len(base.shape), "a put changed the rank"
        written.shape = base.shape
    return written


@contextlib.contextmanager
def translating(op, node: torch.fx.Node):
    """While a lens is used, the node translated is the one that made the view, not the one that reads or writes."""
    current = op.context.node
    op.context.node = node
    try:
        yield
    finally:
        op.context.node = current


def storage_of(value: Any) -> int | None:
    """An identifier of the storage of a fake tensor, None for anything else."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not is_batchedtensor(value):
        return value.untyped_storage()._cdata
    return None


def storages(value: Any) -> list[int | None]:
    """The storages of the tensors of a node's value, in order."""
    if isinstance(value, (list, tuple)):
        return [storage for item in value for storage in storages(item)]
    return [storage_of(value)]


HIDDEN_WRITES = {
    torch.ops.aten.batch_norm.default: ("training", ("running_mean", "running_var")),
    torch.ops.aten.instance_norm.default: ("use_input_stats", ("running_mean", "running_var")),
    torch.ops.aten.native_batch_norm.default: ("training", ("running_mean", "running_var")),
    torch.ops.aten._batch_norm_impl_index.default: ("training", ("running_mean", "running_var")),
}
"""Operators that write arguments without saying so in their schema: the flag that makes them write, the arguments."""


def written_nodes(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes whose storages *node* writes: declared by the schema, hidden, or written inside a region it calls."""
    target = node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        return region_writes(node)
    flag, names = HIDDEN_WRITES.get(target, (None, registry.written_arguments(target)))
    if not names:
        return []
    given = dict(zip((argument.name for argument in schema.arguments), node.args)) | node.kwargs
    if flag is not None and not given.get(flag):
        return []
    found = []
    for name in names:
        value = given.get(name)
        found += [item for item in (value if isinstance(value, (list, tuple)) else [value])]
    return [item for item in found if isinstance(item, torch.fx.Node)]


def region_writes(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The operands of a higher-order operator that one of its bodies writes, by position of the body's placeholders."""
    bodies = [
        getattr(node.graph.owning_module, argument.target)
        for argument in node.args
        if isinstance(argument, torch.fx.Node) and argument.op == "get_attr"
    ]
    modules = [body for body in bodies if isinstance(body, torch.fx.GraphModule)]
    if not modules:
        return []
    operands = [
        item
        for argument in node.args
        for item in (argument if isinstance(argument, (list, tuple)) else [argument])
        if isinstance(item, torch.fx.Node) and item.op != "get_attr"
    ]
    found = []
    for module in modules:
        written = mutated_storages(module.graph)
        if not written:
            continue
        placeholders = module.graph.find_nodes(op="placeholder")
        for placeholder, operand in zip(reversed(placeholders), reversed(operands)):
            if storage_of(placeholder.meta.get("val")) in written:
                found.append(operand)
    return found


def mutated_storages(graph: torch.fx.Graph) -> set[int]:
    """Storages that a node of the graph writes; views of the others need no lens."""
    written: set[int | None] = set()
    for node in graph.nodes:
        if node.op == "call_function":
            for argument in written_nodes(node):
                written.update(storages(argument.meta.get("val")))
    pairs = [(node, returned_argument(node)) for node in graph.nodes]
    same = [storages([node.meta["val"], given.meta["val"]]) for node, given in pairs if given is not None]
    for pair in [*same, *reversed(same)]:
        if written.intersection(pair):
            written.update(pair)
    written.discard(None)
    return written


def returned_argument(node: torch.fx.Node) -> torch.fx.Node | None:
    """The argument that a node returns as it is in eager, although its fake result has a storage of its own."""
    if node.target is torch.ops.aten.dropout.default:
        input, p, train = node.args
        return input if p == 0 or not train else None
    return None
