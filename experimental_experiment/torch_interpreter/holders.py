"""What has attributes in a model, its modules and its plain objects, and how the functions of its classes read and write them."""

from __future__ import annotations

import dataclasses
import dis
import inspect
import itertools
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.errors import Source
from experimental_experiment.torch_interpreter.frames import source_at
from experimental_experiment.torch_interpreter.memories import CONTAINERS, MANY, is_plain, own_attributes

COPIES = frozenset(("COPY", "DUP_TOP"))
"""What ``self.count += 1`` does before it reads the attribute; the second one before Python 3.11."""

ADDED = "added"
"""What reads an attribute in order to write it."""

DEPTH = 4
"""So many plain objects in one another are looked into: an EncoderDecoderCache, a cache, one of its layers, and one more."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """What has attributes: the path to it, the attributes, and the classes whose functions may read and write them."""

    path: str
    attributes: dict[str, Any]
    kinds: tuple[type, ...]

    def named(self, name: str) -> str:
        """An attribute of it, as seen from the model."""
        return f"{self.path}.{name}" if self.path else name


def holders_in(module: torch.nn.Module) -> list[Holder]:
    """A module, its submodules, and the plain objects among their attributes, as caches and their layers are, `DEPTH` in one another."""
    modules = {type(part): None for part in module.modules()}
    found = [Holder(path, vars(part), (type(part),)) for path, part in module.named_modules()]
    seen = {id(holder.attributes) for holder in found}
    level = found
    for _ in range(DEPTH):
        inner = []
        for holder in level:
            for name, value in holder.attributes.items():
                for place, item in objects_in(holder.named(name), value):
                    attributes = own_attributes(item)
                    if id(attributes) not in seen:
                        seen.add(id(attributes))
                        inner.append(Holder(place, attributes, (type(item), *modules)))
        found, level = found + inner, inner
    return found


def objects_in(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The plain objects that a value is, or a list or a dict has, with their places."""
    if isinstance(value, list) and len(value) <= MANY:
        for index, item in enumerate(value):
            yield from objects_in(f"{place}[{index}]", item) if not isinstance(item, (dict, list)) else ()
    elif isinstance(value, dict) and type(value) in CONTAINERS and len(value) <= MANY:
        for key, item in value.items():
            yield from objects_in(f"{place}[{key!r}]", item) if not isinstance(item, (dict, list)) else ()
    elif is_plain(type(value)):
        yield place, value


def line_that_reads(kinds: Sequence[type], name: str) -> Source | None:
    """The first line of these classes that reads an attribute, where what the call before has left there is read.

    None where all that read it do so in order to add to it, as counters that nobody asks are, and where each function that writes it does
    that first.
    """
    lines: list[Source] = []
    is_kept = False
    for function in itertools.chain.from_iterable(map(methods_of, kinds)):
        code = function.__code__
        steps = list(accesses(code, name))
        is_kept |= "STORE_ATTR" in (kind for kind, _ in steps) and steps[0][0] != "STORE_ATTR"
        lines += [source_at(code, line) for kind, line in steps if kind == "LOAD_ATTR"]
    return lines[0] if lines and is_kept else None


def methods_of(kind: type) -> Iterator[types.FunctionType]:
    """The functions of the classes of a module, its constructors and torch's own left out."""
    for base in kind.__mro__:
        if base is not torch.nn.Module:
            for name, value in vars(base).items():
                if isinstance(value, types.FunctionType) and name != "__init__":
                    function = inspect.unwrap(value)
                    if isinstance(function, types.FunctionType):  # what is decorated may be another thing
                        yield function


def accesses(code: types.CodeType, name: str) -> Iterator[tuple[str, int]]:
    """How a function, and those in it, read and write the attributes of a *name*, with the lines: `ADDED` is a read of ``self.count += 1``."""
    lines = dict(dis.findlinestarts(code))
    previous, line = "", code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = lines.get(instruction.offset) or line
        if instruction.opname in ("LOAD_ATTR", "STORE_ATTR") and instruction.argval == name:
            yield ADDED if previous in COPIES else instruction.opname, line
        previous = instruction.opname
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from accesses(part, name)
