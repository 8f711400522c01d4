"""Tensors and lists that a model keeps from one call to the next, which reads them: caches that are no buffers, lists that grow.

torch.export captures one call, and puts back what the model had before it. What is read of it is known by the code of its classes.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import operator
import reprlib
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.assumptions.holders import (
    COPIES,
    Holder,
    begins,
    identity,
    line_that_reads,
    lines_that_read,
)
from experimental_experiment.torch_interpreter.assumptions.remade import only_remakes
from experimental_experiment.torch_interpreter.errors import Source, located
from experimental_experiment.torch_interpreter.frames import is_library, source_at
from experimental_experiment.torch_interpreter.memories import (
    MANY,
    REGISTERED,
    TRACED,
    attributes_of,
    container_of,
    count_of,
    is_object,
    is_wrapper,
    items_of,
)
from experimental_experiment.torch_interpreter.signature import Program
from experimental_experiment.torch_interpreter.symbols import SYMBOLS
from experimental_experiment.torch_interpreter.writes import storage_of, storages

NUMBERS = (bool, int, float, *SYMBOLS)
"""What is counted in a container."""

FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)

ATOMS = (*NUMBERS, complex, str, bytes, enum.Enum, torch.dtype, torch.device, *FUNCTIONS)
"""What is compared in a container that is changed in place."""

DEPTH = 3
"""So many containers in one another are looked into."""

ADDING = frozenset(
    "add append appendleft discard extend extendleft insert remove reverse rotate sort update".split()
)
"""Methods of a container that change it, and keep what there was, or most of it."""

TAKING = {"pop": "add", "popitem": "add", "popleft": "add", "setdefault": "put"}
"""Methods that change it, and give what there was; how they change it."""

SUBSCRIPTS = ("BINARY_SUBSCR", "BINARY_SLICE")
"""What gives one of the entries."""

EMPTYING = frozenset(("clear",))
"""Methods that keep nothing."""


@dataclasses.dataclass(frozen=True)
class Kept:
    """An attribute before the call that is captured.

    Attributes:
        holder: what has it.
        name: its name there.
        value: what it was.
        count: how many entries a container had.
        leaves: its tensors.
        numbers: those in a container or an object.
        atoms: these, and the texts, the functions and others of `ATOMS` there.
    """

    holder: Holder
    name: str
    value: Any
    count: int
    leaves: list[torch.Tensor]
    numbers: list[Any]
    atoms: list[Any]

    @classmethod
    def of(cls, holder: Holder, name: str, known: Collection[int]) -> Kept:
        """An attribute as it is now, None where there is none. *known*: the objects that are holders themselves, by `identity`."""
        value = holder.attributes.get(name)
        count = count_of(value) if is_container(value) else 0
        parts = items_of(attributes_of(value)) if is_object(type(value)) else [value] if count else []
        atoms = [atom for part in parts for atom in values_in(part, ATOMS, known)]
        numbers = [atom for atom in atoms if isinstance(atom, NUMBERS)]
        return cls(holder, name, value, count, [*values_in(value, torch.Tensor, known)], numbers, atoms)


@dataclasses.dataclass(frozen=True)
class Change:
    """What the next call would find changed.

    Attributes:
        text: the warning.
        tensors: those of the capture that are kept, none for numbers.
        replaced: those that were kept before.
        earlier: the same of another capture, which may be the one that the program is of.
    """

    text: str
    tensors: tuple[torch.Tensor, ...] = ()
    replaced: tuple[torch.Tensor, ...] = ()
    earlier: Change | None = None

    def is_seen_in(self, program: Program) -> bool:
        """Whether another call may compute something else: tables that depend on nothing but sizes are what they were."""
        made = [tensor for tensor in self.tensors if not is_constant(program, tensor, self.replaced)]
        is_seen = bool(made) or not self.tensors
        return is_seen and (self.earlier is None or self.earlier.is_seen_in(program))


def kept_in(holders: Sequence[Holder]) -> list[Kept]:
    """The attributes that may keep a tensor, or a list of anything."""
    known = {holder.identity for holder in holders}
    return [
        Kept.of(holder, name, known)
        for holder in holders
        for name, value in holder.attributes.items()
        if name not in REGISTERED and (value is None or may_keep(value))
    ]


def may_keep(value: Any) -> bool:
    """Whether a value is a tensor, or may hold some."""
    return isinstance(value, torch.Tensor) or is_container(value) or is_object(type(value))


def changed(
    holders: Sequence[Holder], before: Sequence[Kept], tables: Sequence[torch.Tensor] = ()
) -> Iterator[Change]:
    """The attributes that keep another tensor of the capture by now, or another number of entries, and are read before they are written.

    *tables*: tensors that are known to depend on nothing but sizes.
    """
    attributes = {(id(kept.holder), kept.name): kept for kept in before}
    kept_by: dict[int, list[str]] = {}
    for kept in before:
        kept_by.setdefault(id(kept.holder), []).append(kept.name)
    known = {holder.identity for holder in holders}
    for holder in holders:
        made: list[torch.Tensor] = []
        sizes: list[tuple[Kept, Kept]] = []
        names = dict.fromkeys((*holder.attributes, *kept_by.get(id(holder), ())))
        for name in names:
            value = holder.attributes.get(name)
            first = attributes.get((id(holder), name)) or Kept(holder, name, None, 0, [], [], [])
            is_dropped = value is None and bool(first.leaves)
            if name in REGISTERED or not (may_keep(value) or is_dropped):
                continue
            in_place = is_container(value) and value is first.value
            if value is first.value and not in_place:
                continue
            last = Kept.of(holder, name, known)
            new = [x for x in last.leaves if isinstance(x, TRACED) and not any(x is y for y in first.leaves)]
            remade = [x for x in new if any(x is table for table in tables)]
            if new and len(remade) == len(new):
                continue
            made += new
            if isinstance(value, (tuple, list)) and not in_place and last.numbers and not last.leaves:
                sizes.append((first, last))
            is_longer = in_place and not isinstance(value, dict) and last.count != first.count
            is_other = in_place and differ(first.atoms, last.atoms)
            is_counted = in_place and len(first.atoms) != len(last.atoms)
            # members of an Enum are values
            is_new_object = is_object(type(value)) and not isinstance(value, ATOMS)
            is_other |= is_new_object and not new and differ(first.atoms, last.atoms)
            is_exchanged = is_dropped or are_exchanged(first.leaves, last.leaves)
            if new or is_longer or is_other or is_counted or is_exchanged:
                if in_place:
                    source = line_that_reads_entries(holder, name, is_counted and not (new or is_longer))
                else:
                    source = line_that_reads(holder, name)
                if source is not None and not is_library(source[0]):
                    change = f"{holder.named(name)} is {described(first)} before it, {described_again(last, first)} after it"
                    text = f"the model does what the captured call does: {change}\n{located(source)}"
                    yield Change(text, tuple(new), tuple(first.leaves))
        for first, last in sizes:
            yield from changed_sizes(first, last, tuple(made))


def made_in(
    holder: Holder, before: Sequence[Kept], tables: Sequence[torch.Tensor] = ()
) -> list[torch.Tensor]:
    """The tensors of the capture that a holder keeps by now, but *tables*, and what it kept before."""
    first = {kept.name: kept.leaves for kept in before if kept.holder is holder}
    names = [name for name in holder.attributes if name not in REGISTERED]
    return [
        leaf
        for name in names
        for leaf in values_in(holder.attributes.get(name), TRACED, ())
        if not any(leaf is other for other in (*first.get(name, ()), *tables))
    ]


def are_exchanged(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> bool:
    """Whether tensors that were there before the capture stand in the places of others."""
    are_real = not any(isinstance(tensor, TRACED) for tensor in (*before, *after))
    return are_real and len(before) == len(after) and any(x is not y for x, y in zip(before, after))


def changed_sizes(first: Kept, last: Kept, made: tuple[torch.Tensor, ...]) -> Iterator[Change]:
    """The change of an attribute that is a tuple or a list of numbers, as sizes are which the next call compares with its own.

    *made*: what else is kept by now. Where nothing but that depends on the comparison, it decides whether the next call differs.
    """
    is_other = len(first.numbers) != len(last.numbers) or differ(first.numbers, last.numbers)
    lines = lines_that_read(last.holder, last.name) if is_other else []
    remakes = only_remakes(lines, last.name)
    if lines and (made if remakes else first.value is not None) and not is_library(lines[0][0]):
        change = f"{last.holder.named(last.name)} is {reprlib.repr(first.value)} before it, {reprlib.repr(last.value)} after it"
        text = f"the model does what the captured call does: {change}\n{located(lines[0])}"
        yield Change(text, made if remakes else ())


def described(kept: Kept) -> str:
    """What an attribute is, in words."""
    if is_container(kept.value):
        return f"a {type(kept.value).__name__} of {kept.count}"
    if isinstance(kept.value, torch.Tensor):
        return "a tensor"
    return f"a {type(kept.value).__name__}" if is_object(type(kept.value)) else repr(kept.value)


def described_again(last: Kept, first: Kept) -> str:
    """What an attribute is after the call, in words that are not those for what it was."""
    if described(last) != described(first):
        return described(last)
    if not is_container(last.value):
        return "another one"
    are_kept = len(last.leaves) == len(first.leaves) and all(map(operator.is_, last.leaves, first.leaves))
    are_numbers = len(last.numbers) != len(first.numbers) or differ(first.numbers, last.numbers)
    return (
        f"one with other {'values' if are_kept and not are_numbers else 'numbers' if are_kept else 'tensors'}"
    )


def is_container(value: Any) -> bool:
    """Whether a value is a list, a dict, a tuple or what derives from them, and no large one."""
    kind = type(value)
    is_one = container_of(kind) is not None or issubclass(kind, tuple) or is_wrapper(kind)
    return is_one and count_of(value) <= MANY


def values_in(
    value: Any, kinds: type | tuple[type, ...], known: Collection[int], depth: int = DEPTH
) -> Iterator[Any]:
    """The values of some classes in containers, and in objects that are not *known*, so deep in one another."""
    if isinstance(value, kinds):
        yield value
    elif depth and is_container(value):
        for item in items_of(value):
            yield from values_in(item, kinds, known, depth - 1)
    elif depth and is_object(type(value)) and identity(value) not in known:
        for item in items_of(attributes_of(value)):
            yield from values_in(item, kinds, known, depth - 1)


def differ(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether one of as many numbers is another one; symbolic ones are of the capture."""
    return len(before) == len(after) and any(
        y is not x and (isinstance(y, SYMBOLS) or y != x) for x, y in zip(before, after)
    )


def is_constant(program: Program, tensor: torch.Tensor, replaced: Sequence[torch.Tensor]) -> bool:
    """Whether neither inputs of the program decide what a tensor of its capture holds, but for their sizes, nor the tensors that it replaces."""
    storage = storage_of(tensor)
    made = [node for node in program.module.graph.nodes if storage in storages(node.meta.get("val"))]
    inputs = {
        entry.node
        for entry in program.inputs
        if entry.tensor is None or any(entry.tensor is other for other in replaced)
    }
    if any(entry.node in made and entry.tensor is not None for entry in program.inputs):
        return True  # a weight itself, as recurrent layers list theirs
    seen, left = set(made), list(made)
    while left:
        node = left.pop()
        if node in inputs:
            return False
        sources = [
            x for x in node.all_input_nodes if isinstance(x.meta.get("val"), (torch.Tensor, list, tuple))
        ]
        left += [x for x in sources if x not in seen]
        seen.update(sources)
    return bool(made) and storage is not None


def line_that_reads_entries(holder: Holder, name: str, only_added: bool = False) -> Source | None:
    """The first line that reads the entries of a list or a dict, where those of the call before are among them.

    They are where a function reads before it writes, or where a list is added to and nothing empties it. *only_added*: the latter alone:
    what is put into a dict of numbers the next call may find there, as the same number.
    """
    lines: list[Source] = []
    is_kept = is_added_to = is_emptied = False
    names = {name, *holder.through(name).read}
    for function in holder.functions():
        steps = list(uses(function.__code__, names, holder.access))
        lines += [source_at(code, line) for use, code, line in steps if use == "read"]
        order = [use for use, *_ in steps]
        is_kept |= not only_added and order[:1] == ["read"] and len({*order}) > 1
        is_added_to |= "add" in order
        is_emptied |= order[:1] == ["empty"] and not begins(function.__name__)
    return lines[0] if lines and (is_kept or (is_added_to and not is_emptied)) else None


def uses(
    code: types.CodeType, names: Collection[str], access: str
) -> Iterator[tuple[str, types.CodeType, int]]:
    """What a function, and those in it, do with the entries of what has one of some *names*, in order: read, add, put or empty."""
    lines = dict(dis.findlinestarts(code))
    steps, line = list(dis.get_instructions(code)), code.co_firstlineno
    variables: set[str] = set()
    for position, step in enumerate(steps):
        line = lines.get(step.offset) or line
        is_it = step.argval in names and step.opname in (f"LOAD_{access}", f"STORE_{access}")
        if is_it and step.opname != f"STORE_{access}" and steps[position + 1].opname == "STORE_FAST":
            variables.add(steps[position + 1].argval)  # past = self.past
        elif is_it or (step.opname == "LOAD_FAST" and step.argval in variables):
            use = "empty" if step.opname == f"STORE_{access}" else use_of(steps[position + 1 :])
            yield from ((each, code, line) for each in use.split())
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from uses(part, names, access)


def use_of(steps: Sequence[dis.Instruction]) -> str:
    """What is done with what was loaded before these steps, two words for two things."""
    called = steps[0].argval if steps[0].opname in ("LOAD_ATTR", "LOAD_METHOD") else None
    if called in TAKING:
        return f"read {TAKING[called]}"
    if called in ADDING or called in EMPTYING:
        return "add" if called in ADDING else "empty"
    place = next((at for at, step in enumerate(steps) if not step.opname.startswith("LOAD_")), len(steps))
    following = [step.opname for step in steps[place : place + 2]]
    if not place or not following:
        return "read"
    if following[0] in (*COPIES, "DELETE_SUBSCR"):  # self.counts["calls"] += 1
        return "add"
    if following[0] in SUBSCRIPTS and following[1:] != ["STORE_SUBSCR"]:  # self.layers[0].append(x)
        return use_of(steps[place + 1 :])
    is_put = following[0] in ("STORE_SUBSCR", "STORE_SLICE") or following == ["BUILD_SLICE", "STORE_SUBSCR"]
    return "put" if is_put else "read"
