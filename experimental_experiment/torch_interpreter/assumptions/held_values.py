"""Values of weights that decided a branch, or became a number, while a model was captured: the model holds what they were."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator

import torch

from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.errors import Source, located
from experimental_experiment.torch_interpreter.frames import asking_frame, line_around
from experimental_experiment.torch_interpreter.patches import flags
from experimental_experiment.torch_interpreter.signature import Input, Program


class HeldValues:
    """The weights whose values decided, and the lines of the model that asked for them.

    Attributes:
        weights: those that were asked for, which keeps their identities their own.
        lines: the lines that asked for each, by its identity, in order.
    """

    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []
        self.lines: dict[int, dict[Source | None, None]] = {}

    def note(self, weights: Iterable[torch.Tensor]) -> None:
        """Note the line that asks for these weights now."""
        source, _ = line_around(asking_frame(sys._getframe(1)))
        for weight in weights:
            self.weights.append(weight)
            self.lines.setdefault(id(weight), {})[source] = None

    def by_node(self, program: Program) -> dict[torch.fx.Node, list[Source | None]]:
        """The lines that asked for the value of a weight, by its placeholder."""
        asked = {entry.node: self.lines.get(id(entry.tensor)) for entry in program.inputs}
        return {node: [*lines] for node, lines in asked.items() if lines}


@contextlib.contextmanager
def values_that_decide() -> Iterator[HeldValues]:
    """Find the weights whose values the model asks for, while it is captured."""
    found = HeldValues()
    flags.LISTENERS.append(found.note)
    try:
        yield found
    finally:
        flags.LISTENERS.remove(found.note)


def warn_of_held(program: Program, inputs: Iterable[Input]) -> None:
    """Warn of the inputs of the model that are written buffers, and whose values decided: it does the same for all others."""
    for entry in inputs:
        for source in program.decided.get(entry.node, ()):
            logger.warning(
                "%s is an input of the model, which holds the branch or the number of its value in the module%s",
                entry.name,
                f"\n{located(source)}" if source else "",
            )
