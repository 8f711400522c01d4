"""``find model.onnx NAME``: what a name is in a model, what gives it and what reads it, subgraphs and functions included."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import onnx

from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.command_line.model_file import all_graphs, loaded
from experimental_experiment.helpers import module_path, pretty_onnx

MOST = 20
"""Names that are listed when none is the one that was asked for."""


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser(
        "find", help="a name in a model: its producer and users", description=__doc__
    )
    command.add_argument("model", metavar="model.onnx", help="the model; external data is not read")
    command.add_argument("name", metavar="NAME", help="the name of a result, an input, a weight or a node")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print where the name is; 1 when it is nowhere, after the names that contain it."""
    model = loaded(given.model)
    lines = [line for way, graph in all_graphs(model) for line in places(graph, way, given.name)]
    if not lines:
        near = sorted(name for name in names(model) if given.name.lower() in name.lower())
        more = f" and {len(near) - MOST} more" if len(near) > MOST else ""
        hint = f"; these contain it: {', '.join(near[:MOST])}{more}" if near else ""
        raise CommandError(f"{given.model!r} has no {given.name!r}{hint}", status=1)
    print("\n".join(lines))
    return 0


def places(graph: onnx.GraphProto | onnx.FunctionProto, way: str, name: str) -> Iterator[str]:
    """A line for each place of a name in one graph."""
    where = f" in {way}" if way else ""
    if isinstance(graph, onnx.GraphProto):
        yield from (f"input{where}: {pretty_onnx(value)}" for value in graph.input if value.name == name)
        yield from (
            f"weight{where}: {pretty_onnx(tensor)}" for tensor in graph.initializer if tensor.name == name
        )
    elif name in graph.input:
        yield f"input{where}"
    for node in graph.node:
        origin = f", module {module_path(node)}" if module_path(node) else ""
        line = f"{pretty_onnx(node, highlight=[name]).splitlines()[0]}  (node {node.name!r}{origin})"
        if name in node.output:
            yield f"given by{where}: {line}"
        if name in node.input:
            yield f"read by{where}: {line}"
        if name == node.name:
            yield f"node{where}: {line}"
    if isinstance(graph, onnx.GraphProto):
        yield from (f"output{where}: {pretty_onnx(value)}" for value in graph.output if value.name == name)
    elif name in graph.output:
        yield f"output{where}"


def names(model: onnx.ModelProto) -> set[str]:
    """Every name of a model."""
    found: set[str] = set()
    for _, graph in all_graphs(model):
        for node in graph.node:
            found.update([node.name, *node.input, *node.output])
        if isinstance(graph, onnx.GraphProto):
            found.update(item.name for item in [*graph.input, *graph.initializer, *graph.output])
        else:
            found.update([*graph.input, *graph.output])
    return found - {""}
