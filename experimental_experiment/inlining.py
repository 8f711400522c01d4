"""Local functions put in the place of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass


def inline_functions(model: ir.Model) -> None:
    """Put the nodes of every local function in the place of its calls; the results of two nodes never have one name then.

    InlinePass reads the names of a body (a branch, a turn of a loop) when it comes there: what it put before may have one of them,
    and the inputs of bodies inside of a function keep theirs. Values of the main graph keep their names.
    """
    if not model.functions:
        return
    InlinePass()(model)
    taken = {value.name for value in values_of(model.graph)}
    numbers: Counter[str] = Counter()
    for body in model.graph.subgraphs():
        for value in values_of(body):
            if not value.name:  # an output that is left out
                continue
            name = value.name
            while value.name in taken:
                numbers[name] += 1
                value.name = f"{name}_{numbers[name]}"
            taken.add(value.name)


def values_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """What a graph names itself: its inputs, its weights and the results of its nodes, without those of bodies."""
    yield from graph.inputs
    yield from (value for value in tuple(graph.initializers.values()) if not value.is_graph_input())
    for node in graph:
        yield from node.outputs
