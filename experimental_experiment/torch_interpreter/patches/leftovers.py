"""What a capture leaves outside of the model: fake tensors and symbols of sizes, in globals, in classes, in functions.

A table that forward makes at its first call, and keeps for all models in a global, would be a fake tensor for later calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from experimental_experiment.torch_interpreter.memories import (
    DEPTH,
    contents_of,
    has_entries,
    is_left,
    memories_in,
    put_into,
)
from experimental_experiment.torch_interpreter.patches.patch import MISSING, patch
from experimental_experiment.torch_interpreter.patches.whole_numbers import (
    BEGINNINGS,
    captures_begin,
    cell_contents,
    looked_into,
    outer_variables,
)


@patch("torch", replaces=BEGINNINGS, default=True)
def fake_tensors_left_behind() -> Iterator[None]:
    """``TABLES[n] = torch.arange(n)`` of a global keeps a tensor of the capture: the model fails when it is called, or exported, again.

    Globals of the modules of the model and of those that these import from, variables of outer functions, attributes of classes, functions and
    objects, defaults, and the dicts and lists among them, get back what they held.
    """
    with captures_begin(put_back):
        yield


def put_back(model: torch.nn.Module, stack: contextlib.ExitStack) -> None:
    """Let what a capture leaves be taken away when *stack* is closed."""
    owners, functions = looked_into(model)
    names = [(owner, dict(vars(owner))) for owner in owners]
    values = [value for _, held in names for value in held.values()]
    for function in functions:
        values += [vars(function), *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    cells = [(variable.cell, cell_contents(variable.cell)) for variable in outer_variables(functions)]
    values += [value for _, contents in cells for value in contents]
    memories = [(memory, contents_of(memory)) for memory in memories_in(values, DEPTH)]

    @stack.callback
    def take_away() -> None:
        for owner, held in names:
            for name, value in [*vars(owner).items()]:
                before = held.get(name, MISSING)
                if value is not before and is_left(value):
                    fake_tensors_left_behind.used()
                    delattr(owner, name) if before is MISSING else setattr(owner, name, before)
        for cell, contents in cells:
            if is_left(cell_contents(cell)) and not is_left(contents):
                fake_tensors_left_behind.used()
                if contents:
                    cell.cell_contents = contents[0]
                else:
                    del cell.cell_contents
        for memory, held in memories:
            if not has_entries(memory, held) and is_left(memory):
                fake_tensors_left_behind.used()
                put_into(memory, held)
