"""What another call of the model would find changed: numbers that a module counts, random numbers of Python and of numpy.

torch.export follows tensors alone. The program has what such a number was in the call that was captured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import importlib
import inspect
import itertools
import linecache
import pickle
import random
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.errors import Source, located
from experimental_experiment.torch_interpreter.memories import MANY, is_plain, own_attributes
from experimental_experiment.torch_interpreter.patches.patch import wrapped

NUMBERS = (bool, int, float)
SYMBOLIC = (torch.SymBool, torch.SymInt, torch.SymFloat)

RESTORING = (
    "torch.export._trace._detect_attribute_assignment",
    "experimental_experiment.torch_interpreter.tracing._detect_attribute_assignment",
)
"""Where a capture puts back the attributes that the model has written."""

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


@contextlib.contextmanager
def what_one_call_changes(module: torch.nn.Module) -> Iterator[list[str]]:
    """Find what a call of a module changes and its next one reads, while it is captured; what is yielded has a text for each at the end."""
    holders = holders_in(module)
    numbers = [
        (holder, name, value)
        for holder in holders
        for name, value in holder.attributes.items()
        if type(value) in NUMBERS
    ]
    drawn = drawn_numbers(holders)
    states = [state_of(generator) for generator in drawn.values()]
    found: dict[str, None] = {}

    def compare() -> None:
        found.update(dict.fromkeys(changed_numbers(numbers)))

    def comparing(restoring: Callable) -> Callable:
        @contextlib.contextmanager
        def called(root: torch.nn.Module) -> Iterator[None]:
            with restoring(root):
                yield
                compare()

        return called

    for path in RESTORING:  # they bring TorchDynamo, as torch.export does when it is called
        importlib.import_module(path.rpartition(".")[0])
    texts: list[str] = []
    with wrapped(dict.fromkeys(RESTORING, comparing)):
        yield texts
    compare()
    for (name, generator), state in zip(drawn.items(), states, strict=True):
        if state_of(generator) != state:
            found[f"{name} gave numbers to the captured call: where the model uses them, it holds them"] = (
                None
            )
    texts += found


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
    """The plain objects that a value is, or lists, with their places."""
    if isinstance(value, list) and len(value) <= MANY:
        for index, item in enumerate(value):
            yield from objects_in(f"{place}[{index}]", item) if not isinstance(item, list) else ()
    elif is_plain(type(value)):
        yield place, value


def changed_numbers(numbers: list[tuple[Holder, str, Any]]) -> Iterator[str]:
    """A text for each of the attributes that are numbers, have another value by now, and are read."""
    for holder, name, value in numbers:
        last = holder.attributes.get(name)
        is_number = type(last) in NUMBERS and last is not value  # a NaN is not what it is
        if type(last) in SYMBOLIC or (is_number and last != value):
            source = line_that_reads(holder.kinds, name)
            if source is not None:
                change = f"{holder.named(name)} is {value} before it, {last} after it"
                yield f"the model does what the captured call does: {change}\n{located(source)}"


def warn_of_changes(found: list[str]) -> None:
    """Warn of what the model does in each call as in the one that was captured."""
    for text in found:
        logger.warning("%s", text)


def drawn_numbers(holders: list[Holder]) -> dict[str, Any]:
    """The random generators that are no torch.Generator, by their names: Python's and numpy's own, and those that the model keeps."""
    kept = {
        holder.named(name): value
        for holder in holders
        for name, value in holder.attributes.items()
        if isinstance(value, (random.Random, np.random.Generator, np.random.RandomState))
        and not isinstance(value, random.SystemRandom)  # which has no state
    }
    return {"Python's random": random, "numpy.random": np.random, **kept}


def state_of(generator: Any) -> Any:
    """What a generator draws next, as something that can be compared."""
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state)
    if hasattr(generator, "get_state"):
        return pickle.dumps(generator.get_state(legacy=False))
    return generator.getstate()


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
        lines += [
            (code.co_filename, line, code.co_name, linecache.getline(code.co_filename, line).strip())
            for kind, line in steps
            if kind == "LOAD_ATTR"
        ]
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
