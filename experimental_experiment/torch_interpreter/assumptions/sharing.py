"""Copies that are the tensor itself for other sizes: ``x.T.contiguous()`` of one row, ``x[:, :n].reshape(-1)`` of all columns.

torch.export holds the copy that the example made. Which of both it is matters where the model writes to one and reads the other afterwards.

Source of semantics: ``Tensor.contiguous`` and ``Tensor.reshape`` of eager, which is asked for tensors of a few small sizes without data.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import sympy
import torch

from experimental_experiment.torch_interpreter.memory import places_of
from experimental_experiment.torch_interpreter.symbols import expression_of
from experimental_experiment.torch_interpreter.writes import SAME_TENSOR, storage_of, storages, written_nodes

aten = torch.ops.aten

RESHAPES = (
    aten.flatten.using_ints,
    aten.ravel.default,
    aten.reshape.default,
    aten.reshape_as.default,
)
"""Operators that view where the memory allows it, and copy otherwise."""

COPIES = frozenset({aten.contiguous.default, *RESHAPES})
"""Operators that copy for some layouts only."""

TRIED = (1, 2, 3)
"""The sizes that are tried."""

MANY = 5
"""Of more sizes than these, each is either 1 or a number of its own."""

ELEMENTS = 1 << 16
"""Whether two views of more elements have one in common is not looked at place by place."""

Sizes = dict[sympy.Symbol, sympy.Integer]


@dataclasses.dataclass(frozen=True)
class Shared:
    """Copies that are views for some sizes, one of which is written before what shares its memory then is read.

    Attributes:
        copies: their nodes, in order.
        condition: what holds of the sizes for which the program is right.
    """

    copies: tuple[torch.fx.Node, ...]
    condition: sympy.Basic

    @property
    def environment(self) -> Any:
        """The ShapeEnv of the sizes."""
        x = self.copies[0].args[0].meta["val"]
        layout = (*x.shape, *x.stride())
        return next(number.node.shape_env for number in layout if isinstance(number, torch.SymInt))


def shared_copies(module: torch.fx.GraphModule) -> Iterator[Shared]:
    """The copies of a program whose memory eager shares for some sizes, where that changes what the program computes."""
    for inner in module.modules():
        if isinstance(inner, torch.fx.GraphModule):
            copies = copies_of_symbols(inner.graph)
            if copies:
                yield from Memory(inner.graph, copies).shared()


def copies_of_symbols(graph: torch.fx.Graph) -> dict[int | None, torch.fx.Node]:
    """The nodes that copy a tensor whose layout depends on symbolic sizes, by the storage of the copy."""
    found = {}
    for node in graph.nodes:
        if node.target in COPIES:
            x, copy = node.args[0].meta.get("val"), node.meta.get("val")
            if storage_of(x) is not None and storage_of(x) != storage_of(copy):
                if any(isinstance(number, torch.SymInt) for number in (*x.shape, *x.stride())):
                    found[storage_of(copy)] = node
    return found


class Memory:
    """Who writes and who reads the memory of a graph, and which storages are one for some sizes.

    Attributes:
        copies: the copies that may be views, by their storage.
        positions: the place of each node in the graph.
        members: the nodes that show each storage.
        families: the storages that are one when all copies are views, by the one that was there first.
    """

    def __init__(self, graph: torch.fx.Graph, copies: dict[int | None, torch.fx.Node]):
        self.copies = copies
        self.positions = {node: position for position, node in enumerate(graph.nodes)}
        self.members: dict[int | None, list[torch.fx.Node]] = {}
        for node in graph.nodes:
            for storage in {*storages(node.meta.get("val"))} - {None}:
                self.members.setdefault(storage, []).append(node)
        self.families: dict[int | None, list[int | None]] = {}
        for storage in self.members:
            self.families.setdefault(self.path(storage)[1], []).append(storage)

    def shared(self) -> Iterator[Shared]:
        """The copies that matter; several that have to be views together are left out where each is there by itself."""
        pairs: dict[tuple[torch.fx.Node, ...], list[tuple[torch.fx.Node, torch.fx.Node]]] = {}
        for written, read in self.conflicts():
            copies, *shown = self.between(written, read)
            pairs.setdefault(copies, []).append((shown[0], shown[1]))
        found: set[torch.fx.Node] = set()
        views: dict[tuple, list[Sizes]] = {}
        explanations: dict[tuple, list[sympy.Basic]] = {}
        for copies in sorted(pairs, key=len):
            if found.issuperset(copies):
                continue
            layout = tuple(map(layout_of, copies))
            if layout not in views:
                tried = tried_sizes(copies)
                views[layout] = [each for each in tried if all(is_view(copy, each) for copy in copies)]
            for one, other in dict.fromkeys(pairs[copies]):
                sizes = [each for each in views[layout] if overlap(one, other, each)]
                key = layout, *map(str, sizes)
                if key not in explanations:
                    explanations[key] = [*explained(sizes, copies)]
                if explanations[key]:
                    yield from (Shared(copies, condition) for condition in explanations[key])
                    found.update(copies)
                    break

    def conflicts(self) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
        """A node that is written, and one of another storage, which may be the same one, that is read afterwards."""
        for node in self.positions:
            if node.op != "call_function" or node.target in SAME_TENSOR:
                continue
            for written in written_nodes(node):
                storage = storage_of(written.meta.get("val"))
                if storage is not None:
                    yield from ((written, read) for read in self.read_after(node, storage))

    def read_after(self, write: torch.fx.Node, storage: int) -> Iterator[torch.fx.Node]:
        """The nodes of other storages that may be one with *storage*, made before it is written and read later."""
        for other in self.families[self.path(storage)[1]]:
            members = self.members[other]
            if other != storage and self.positions[members[0]] < self.positions[write]:
                yield from (member for member in members if self.is_read_after(write, member, other))

    def is_read_after(self, write: torch.fx.Node, node: torch.fx.Node, storage: int | None) -> bool:
        """Whether what a node holds matters after a write: views of it, sizes and what is written there themselves do not."""
        return any(
            self.positions[user] > self.positions[write] and is_reader(user, node, storage)
            for user in node.users
        )

    def path(self, storage: int | None) -> tuple[list[torch.fx.Node], int | None]:
        """The copies that a storage was made by, the last one first, and the storage that it is when all are views."""
        made = []
        while storage in self.copies:
            made.append(self.copies[storage])
            storage = storage_of(made[-1].args[0].meta["val"])
        return made, storage

    def between(
        self, written: torch.fx.Node, read: torch.fx.Node
    ) -> tuple[tuple[torch.fx.Node, ...], torch.fx.Node, torch.fx.Node]:
        """The copies that have to be views for two nodes to share memory, and what both show of it then."""
        paths = [self.path(storage_of(node.meta["val"]))[0] for node in (written, read)]
        shown = [path[-1].args[0] if path else node for path, node in zip(paths, (written, read))]
        copies = {*paths[0]} ^ {*paths[1]}
        return (tuple(sorted(copies, key=self.positions.__getitem__)), *shown)


def is_reader(user: torch.fx.Node, node: torch.fx.Node, storage: int | None) -> bool:
    """Whether a user of a node reads its elements, rather than viewing, writing or measuring it."""
    if user.op == "output":
        return True
    value = user.meta.get("val")
    if isinstance(value, torch.Tensor) and storage_of(value) == storage:
        return False
    return not isinstance(value, (torch.SymInt, int)) and storage not in storages(value)


def tried_sizes(copies: Iterable[torch.fx.Node]) -> Iterator[Sizes]:
    """Small sizes for the symbols that the layouts of what is copied depend on."""
    tensors = [x for copy in copies for x in (copy.args[0].meta["val"], copy.meta["val"])]
    symbols = sorted(
        {symbol for x in tensors for number in (*x.shape, *x.stride()) for symbol in free_symbols(number)},
        key=str,
    )
    values: list[tuple[int, ...]] = [TRIED] * len(symbols)
    if len(symbols) > MANY:
        values = [(1, 5 + position) for position in range(len(symbols))]
    for chosen in itertools.islice(itertools.product(*values), 1024):
        yield {symbol: sympy.Integer(value) for symbol, value in zip(symbols, chosen)}


def free_symbols(number: int | torch.SymInt) -> set[sympy.Symbol]:
    """The symbols of a size."""
    return sympy.sympify(expression_of(number)).free_symbols


def numbers(values: Iterable[int | torch.SymInt], sizes: Mapping) -> list[int] | None:
    """Sizes or strides as numbers, None where *sizes* do not tell them or where they are none."""
    found = [sympy.sympify(expression_of(value)).xreplace(sizes) for value in values]
    return [int(value) for value in found] if all(value.is_Integer for value in found) else None


def layout_of(copy: torch.fx.Node) -> tuple:
    """What decides for which sizes a copy is a view; layers of one kind have the same."""
    x, y = copy.args[0].meta["val"], copy.meta["val"]
    values = *x.shape, *x.stride(), *y.shape
    return copy.target, copy.kwargs.get("memory_format"), x.dim(), *map(str, map(expression_of, values))


def is_view(copy: torch.fx.Node, sizes: Sizes) -> bool:
    """Whether eager makes no copy for some sizes; what has no element is none."""
    x, y = copy.args[0].meta["val"], copy.meta["val"]
    shape, strides, new = (numbers(values, sizes) for values in (x.shape, x.stride(), y.shape))
    if shape is None or strides is None or new is None:
        return False
    if min(shape, default=1) < 1 or min(strides, default=0) < 0 or math.prod(shape) != math.prod(new):
        return False
    tensor = torch.empty_strided(shape, strides, device="meta")
    if copy.target in RESHAPES:
        return storage_of(aten.reshape.default(tensor, new)) == storage_of(tensor)
    layout = copy.kwargs.get("memory_format", torch.contiguous_format)
    return tensor.is_contiguous(memory_format=layout)


def overlap(node: torch.fx.Node, other: torch.fx.Node, sizes: Sizes) -> bool:
    """Whether two nodes of one storage show one of its places, for some sizes; they do where that is not known."""
    places = []
    for value in (node.meta["val"], other.meta["val"]):
        if not isinstance(value, torch.Tensor):
            return True
        shape, strides, offset = (
            numbers(part, sizes) for part in (value.shape, value.stride(), [value.storage_offset()])
        )
        if shape is None or strides is None or offset is None or math.prod(shape) > ELEMENTS:
            return True
        places.append(places_of(shape, strides, offset[0]))
    return bool(np.intersect1d(*places).size)


def explained(found: list[Sizes], copies: tuple[torch.fx.Node, ...]) -> Iterator[sympy.Basic]:
    """Conditions that hold for none of the sizes that were found, and for most others: ``rows != 1``.

    They say that a size is not 1, that it is not another one, or not both of these.
    """
    if not found:
        return
    tried = list(tried_sizes(copies))
    equations = list(dict.fromkeys(equation for copy in copies for equation in equations_of(copy)))
    left, told = list(found), list[set[Any]]()
    for count in (1, 2, 3):
        for chosen in itertools.combinations(equations, count):
            if not left or any(set(chosen) >= other for other in told):
                continue
            holding = [each for each in tried if holds(chosen, each)]
            if holding and all(each in found for each in holding):
                told.append(set(chosen))
                left = [each for each in left if each not in holding]
                yield sympy.Or(*(sympy.Ne(*equation.args) for equation in chosen))
    if left:
        yield sympy.Or(*(sympy.Ne(symbol, value) for symbol, value in left[0].items()))


def equations_of(copy: torch.fx.Node) -> Iterator[sympy.Basic]:
    """What may be equal where memory becomes contiguous: a size and 1, a stride and what the axis behind it takes."""
    x = copy.args[0].meta["val"]
    shape, strides = ([sympy.sympify(expression_of(n)) for n in part] for part in (x.shape, x.stride()))
    for size in shape:
        if size.free_symbols:
            yield sympy.Eq(size, 1)
    for axis, other in itertools.permutations(range(len(shape)), 2):
        taken = shape[other] * strides[other]
        if taken != 0 and strides[axis] != 0:
            equation = sympy.Eq(*sympy.fraction(sympy.cancel(strides[axis] / taken)))
            if equation.free_symbols:
                yield equation


def holds(equations: Iterable[sympy.Basic], sizes: Sizes) -> bool:
    """Whether all equations hold for some sizes."""
    return all(equation.xreplace(sizes) == sympy.true for equation in equations)
