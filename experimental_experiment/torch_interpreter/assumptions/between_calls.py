"""What another call of the model would find changed: numbers that a module counts, tensors that it keeps, iterators, random numbers of Python and of numpy.

torch.export follows tensors alone, and of what is kept the buffers. The program has what the others were in the call that was captured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
import operator
import random
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.assumptions.holders import (
    Holder,
    holders_around,
    holders_in,
    line_that_reads,
    lines_that_read,
)
from experimental_experiment.torch_interpreter.assumptions.iterators import givers_in, state_of
from experimental_experiment.torch_interpreter.assumptions.kept_tensors import (
    FUNCTIONS,
    Change,
    changed,
    kept_in,
    made_in,
)
from experimental_experiment.torch_interpreter.assumptions.remade import is_set_there, only_remakes
from experimental_experiment.torch_interpreter.assumptions.replayed import calls_end
from experimental_experiment.torch_interpreter.errors import located
from experimental_experiment.torch_interpreter.memories import REGISTERED
from experimental_experiment.torch_interpreter.patches.patch import wrapped
from experimental_experiment.torch_interpreter.patches.whole_numbers import captures_begin, looked_into
from experimental_experiment.torch_interpreter.signature import Program

VALUES = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, *FUNCTIONS)
"""What is compared as it is."""

SYMBOLIC = (torch.SymBool, torch.SymInt, torch.SymFloat)

RESTORING = (
    "torch.export._trace._detect_attribute_assignment",
    "experimental_experiment.torch_interpreter.tracing._detect_attribute_assignment",
)
"""Where a capture puts back the attributes that the model has written."""


@contextlib.contextmanager
def what_one_call_changes(module: torch.nn.Module, is_followed: bool) -> Iterator[list[Change]]:
    """Find what a call of a module changes and its next one reads, while it is captured; what is yielded has each of it at the end.

    *is_followed*: whether TorchDynamo runs the model.
    """
    reached: list[types.FunctionType] = []
    holders = holders_in(module, reached)
    inside = Before(holders, {"Python's random": random, "numpy.random": np.random})
    around = Before([])
    found: dict[str, Change] = {}
    found_around: dict[str, Change] = {}

    def begin(model: torch.nn.Module, _: contextlib.ExitStack) -> None:
        nonlocal around
        around = Before(holders_around(model))
        reached[:] = looked_into(model)[1]
        found_around.clear()

    def compare(tables: Sequence[torch.Tensor] = (), asked: Sequence[Iterator] = ()) -> None:
        inside.compare(found, tables, asked)
        around.compare(found_around, tables, asked)

    def comparing(restoring: Callable) -> Callable:
        @contextlib.contextmanager
        def called(root: torch.nn.Module) -> Iterator[None]:
            with restoring(root):
                yield
                compare()

        return called

    for path in RESTORING:  # they bring TorchDynamo, as torch.export does when it is called
        importlib.import_module(path.rpartition(".")[0])
    changes: list[Change] = []
    following = calls_end(compare) if is_followed else contextlib.nullcontext()
    with captures_begin(begin), wrapped(dict.fromkeys(RESTORING, comparing)), following:
        yield changes
    inside.compare(found)
    changes += {**found, **found_around}.values()


class Before:
    """What holders keep before a call.

    Attributes:
        holders: these.
        values: the attributes that are numbers or texts, by what keeps them and their names.
        modules: the submodules of those that have some.
        kept: those that may keep a tensor, or a list.
        drawn: the generators and the iterators, by their names, with their states.
    """

    def __init__(self, holders: list[Holder], generators: Mapping[str, Any] = MappingProxyType({})):
        """*generators*: others that are asked, by their names."""
        self.holders = holders
        named = {
            place: giver
            for holder in holders
            for name, value in holder.attributes.items()
            if name not in REGISTERED
            for place, giver in givers_in(holder.named(name), value)
        }
        self.drawn = [(name, value, state_of(value)) for name, value in {**generators, **named}.items()]
        self.values = {
            (id(holder), name): value
            for holder in holders
            for name, value in holder.attributes.items()
            if is_value(value)
        }
        self.modules = [
            (holder, dict(holder.attributes["_modules"]))
            for holder in holders
            if isinstance(holder.attributes.get("_modules"), dict)
        ]
        self.kept = kept_in(holders)

    def compare(
        self,
        found: dict[str, Change],
        tables: Sequence[torch.Tensor] = (),
        asked: Sequence[Iterator] = (),
    ) -> None:
        """Add what is changed by now to *found*, by its text. *tables*: tensors that sizes alone decide. *asked*: iterators that gave values."""
        texts = [*self.changed_modules(), *self.changed_generators(asked)]
        changes = [*self.changed_values(tables), *map(Change, texts)]
        for change in [*changes, *changed(self.holders, self.kept, tables)]:
            found[change.text] = dataclasses.replace(change, earlier=found.get(change.text))

    def changed_values(self, tables: Sequence[torch.Tensor]) -> Iterator[Change]:
        """Those attributes that are numbers, texts or functions, have another value or None by now, and are read.

        Where they decide nothing but whether tensors are made again, these decide whether the next call differs.
        """
        for holder in self.holders:
            for name, last in holder.attributes.items():
                if not (last is None or type(last) in SYMBOLIC or is_value(last)):
                    continue
                value = self.values.get((id(holder), name), default_of(holder, name))
                is_other = type(last) in SYMBOLIC or (
                    last is not value and last != value
                )  # a NaN is what it is
                lines = lines_that_read(holder, name) if value is not None and is_other else []
                buffers = holder.attributes.get("_buffers", ())
                remakes = only_remakes(lines, name) and is_set_there(lines, name, buffers)
                made = made_in(holder, self.kept, tables) if remakes else []
                if made if remakes else lines:
                    change = f"{holder.named(name)} is {shown(value)} before it, {shown(last)} after it"
                    text = f"the model does what the captured call does: {change}\n{located(lines[0])}"
                    yield Change(text, tuple(made))

    def changed_modules(self) -> Iterator[str]:
        """A text for each of the submodules in whose place another one is by now, and that are read."""
        for holder, modules in self.modules:
            for name, module in modules.items():
                last = holder.attributes["_modules"].get(name)
                source = None if last is module else line_that_reads(holder, name)
                if source is not None:
                    change = f"{holder.named(name)} is a {type(module).__name__} before it, "
                    change += "another one" if type(last) is type(module) else f"a {type(last).__name__}"
                    yield f"the model does what the captured call does: {change} after it\n{located(source)}"

    def changed_generators(self, asked: Sequence[Iterator]) -> Iterator[str]:
        """A text for each of the generators and the iterators that have given something."""
        for name, generator, (told, held) in self.drawn:
            now, holds = state_of(generator)
            is_same = now == told and len(held) == len(holds) and all(map(operator.is_, held, holds))
            if not is_same or any(generator is each for each in asked):
                kind = "values" if isinstance(generator, Iterator) else "numbers"
                yield f"{name} gave {kind} to the captured call: where the model uses them, it holds them"


def is_value(value: Any) -> bool:
    """Whether a value is compared as it is: a number, a text, a member of an enumeration, a function."""
    return type(value) in VALUES or isinstance(value, enum.Enum)


def shown(value: Any) -> str:
    """A value in a text, of a function its name."""
    return value.__name__ if isinstance(value, FUNCTIONS) else repr(value)


def default_of(holder: Holder, name: str) -> Any:
    """The number or the text that the class of what has an attribute gives where it has none itself, None where it gives none."""
    value = getattr(holder.kinds[0], name, None) if holder.kinds else None
    return value if is_value(value) and not isinstance(value, FUNCTIONS) else None


def warn_of_changes(found: list[Change], program: Program) -> None:
    """Warn of what the model does in each call as in the one that was captured."""
    for change in found:
        if change.is_seen_in(program):
            logger.warning("%s", change.text)
