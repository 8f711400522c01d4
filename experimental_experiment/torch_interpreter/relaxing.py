"""A second capture where torch.export refuses what is said of sizes: it may choose there what becomes of each one.

torch.export proves what a Dim promises with few rules, which know neither quotients (``x[: n // 2]``, ``x[::2]``, a pool) nor that an inner size may
be 1 (``x[1:]``). When the second program is one of all sizes, it is the one that was asked for; otherwise its sizes are a suggestion.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any

import sympy
import torch

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.assumptions.decisions import Decisions, constants_of
from experimental_experiment.torch_interpreter.assumptions.judging import (
    environment_of,
    is_for_sizes_from_two,
    replace_constants,
)
from experimental_experiment.torch_interpreter.dynamic_shapes import DynamicShapes, dim_name, is_asked
from experimental_experiment.torch_interpreter.errors import CaptureError
from experimental_experiment.torch_interpreter.export_options import CapturedOnce, ExportOptions
from experimental_experiment.torch_interpreter.signature import Program, described, in_order_of_placeholders
from experimental_experiment.torch_interpreter.torch_state import forget_marks

UNPROVEN = re.compile(
    r"Constraints violated|Expected op to be '=='|AssertionError: \S+ <= \w+|cannot be solved using|Failed to reduce inequalities"
)
"""What torch says where what is said of sizes does not hold, or is more than it can prove."""


@dataclasses.dataclass
class Relaxed:
    """The program of a capture that may choose what becomes of each size.

    Attributes:
        exported: the program.
        decisions: what was asked of sizes meanwhile.
        shapes: what the user says of them.
        described: the program with that.
        sizes: those of each leaf of the arguments, a number for itself.
    """

    exported: torch.export.ExportedProgram | Program
    decisions: Decisions
    shapes: DynamicShapes
    described: Program
    sizes: list[list]

    @classmethod
    def after(
        cls,
        error: CaptureError,
        module: torch.nn.Module,
        args: tuple,
        kwargs: dict[str, Any],
        shapes: DynamicShapes,
        options: ExportOptions | CapturedOnce,
    ) -> Relaxed | None:
        """The capture that takes the place of a refused one, when it is for all sizes; None when there is none.

        Adds to an error about sizes what the user said of them, and what the capture makes of it, to be pasted.
        """
        if not UNPROVEN.search(str(error)):
            return None
        plain = options.options if isinstance(options, CapturedOnce) else options
        forget_marks((args, kwargs))
        decisions = Decisions()
        try:
            exported = plain.capture(module, args, kwargs, shapes.relaxed(), shapes, decisions)
        except CaptureError:
            return None
        program = described(exported, args, kwargs, shapes.names, shapes.bounds)
        places = range(len(program.given))
        if not isinstance(exported, Program):
            places = in_order_of_placeholders(exported, args, kwargs, list(places))
        values = {place: entry.node.meta.get("val") for place, entry in zip(places, program.given)}
        found = cls(
            exported, decisions, shapes, program, [sizes_of(values[place]) for place in sorted(values)]
        )
        if found.is_for_all_sizes():
            logger.info("the model was captured twice: torch.export could not prove that it is for all sizes")
            if plain is not options:
                options.program = exported
            return found
        found.suggest(error, {**inspect.signature(module.forward).bind_partial(*args).arguments, **kwargs})
        return None

    def is_for_all_sizes(self) -> bool:
        """Whether the program is for all sizes that torch.export takes for possible, where its user says that they are Dims."""
        entries = [
            (entry, self.sizes[place][axis or 0])
            for place, said in enumerate(self.shapes.said)
            for axis, entry in said.items()
            if is_asked(entry)
        ]
        environment = environment_of(self.described.given)
        kept = {} if environment is None else constants_of(environment)
        plain = {dim_name(entry): size for entry, size in entries if not hasattr(entry, "root")}
        names: dict[Any, str] = {}
        for entry, size in entries:
            if not isinstance(size, torch.SymInt) or size.node.expr in kept:
                return False
            if not size.node.expr.is_Symbol and not is_derived(entry, size, plain):
                return False
            name = dim_name(entry)
            if name and names.setdefault(size.node.expr, name) != name:
                return False
        return any(isinstance(entry, torch.export.Dim) for entry, _ in entries) and is_for_sizes_from_two(
            self.described.inputs, self.described.module, self.decisions
        )

    def suggest(self, error: CaptureError, arguments: dict[str, Any]) -> None:
        """Add the sizes of this program to an error."""
        environment = environment_of(self.described.given)
        if environment is not None:
            replace_constants(environment)
        said = f"dynamic_shapes={self.shapes.written(arguments)}"
        better = f"dynamic_shapes={self.shapes.written(arguments, self.sizes)}"
        if better != said:
            error.args = (f"{error}\n  given  {said}\n  try    {better}",)


def is_derived(entry: Any, size: torch.SymInt, plain: Mapping[str, Any]) -> bool:
    """Whether a size is what its Dim derives from another one, ``2 * d`` or ``d + 1``; *plain*: the sizes of the others by name."""
    root = plain.get(entry.root.__name__) if hasattr(entry, "root") else None
    return isinstance(root, torch.SymInt) and sympy.expand(entry.fn(root.node.expr) - size.node.expr) == 0


def sizes_of(value: Any) -> list:
    """The sizes of a leaf of the arguments, as its placeholder has it."""
    return [*value.shape] if isinstance(value, torch.Tensor) else [value]
