"""``compare a.onnx b.onnx``: two models side by side: versions, inputs and outputs, operators, weights, and the numbers they give."""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterable, Mapping
from typing import Any

import onnx
from tabulate import tabulate

from experimental_experiment.command_line import feeds
from experimental_experiment.command_line.model_file import all_graphs, session, sound
from experimental_experiment.command_line.running import executed
from experimental_experiment.command_line.weights import weights
from experimental_experiment.helpers import dtype_text, type_text
from experimental_experiment.reference.statistics import described
from experimental_experiment.xoptim.bisection import gap

MOST = 10
"""Names of a list that are printed."""


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser("compare", help="compare two models", description=__doc__)
    command.add_argument("first", metavar="a.onnx", help="a model")
    command.add_argument("second", metavar="b.onnx", help="another one")
    feeds.add_arguments(command)
    command.add_argument(
        "--no-run", action="store_true", help="compare the graphs alone; weights are not read"
    )
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the differences; 1 when inputs, outputs or numbers differ."""
    paths = given.first, given.second
    models = [sound(path, reads_weights=not given.no_run) for path in paths]
    sections = [
        (
            "operator set",
            [{item.domain or "ai.onnx": str(item.version) for item in m.opset_import} for m in models],
        ),
        ("input", [{value.name: type_text(value.type) for value in m.graph.input} for m in models]),
        ("output", [{value.name: type_text(value.type) for value in m.graph.output} for m in models]),
        ("nodes", [operators(model) for model in models]),
        ("weight", [{tensor.name: kind_of(tensor) for tensor in weights(model)} for model in models]),
    ]
    rows = [row for kind, (one, other) in sections for row in differing(kind, one, other)]
    if rows:
        print(tabulate(rows, ["", "name", *paths], disable_numparse=True))
    else:
        print("the graphs have the same inputs, outputs, operators and weights")
    if any(set(one) != set(other) for _, (one, other) in sections[1:3]):
        print("the numbers are not compared: the names of inputs or outputs differ")
        return 1
    if given.no_run:
        return 0
    runner = session(models[0], paths[0])
    arrays = feeds.feeds_of(given, runner)
    expected = executed(runner, arrays)
    del runner  # one model in memory at a time
    return report(expected, executed(session(models[1], paths[1]), arrays))


def operators(model: onnx.ModelProto) -> dict[str, str]:
    """How often each operator is used, in all graphs."""
    counts = collections.Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for _, graph in all_graphs(model)
        for node in graph.node
    )
    return {"all": str(sum(counts.values()))} | {name: str(count) for name, count in sorted(counts.items())}


def kind_of(tensor: onnx.TensorProto) -> str:
    """Dtype and shape of a weight, wherever its numbers are."""
    return f"{dtype_text(tensor.data_type)} shape={list(tensor.dims)}"


def differing(kind: str, first: Mapping[str, str], second: Mapping[str, str]) -> Iterable[list[str]]:
    """A row for each name whose text differs, the first ones of a long list."""
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    rows = [[kind, name, first.get(name, "-"), second.get(name, "-")] for name in names]
    if kind != "nodes" and len(rows) > MOST:
        rows[MOST:] = [[kind, f"... {len(rows) - MOST} more", "", ""]]
    return rows


def report(first: Mapping[str, Any], second: Mapping[str, Any]) -> int:
    """Print the largest difference of each output; 1 when one is beyond the tolerance of its dtype."""
    rows, wrong = [], 0
    for name, one in first.items():
        difference, within = gap(one, second[name])
        wrong += not within
        texts = described(one), described(second[name])
        rows.append([name, *texts, f"{difference:.1e}", "ok" if within else "DIFFERS"])
    print(tabulate(rows, ["output", "first", "second", "difference", ""], disable_numparse=True))
    print(f"{wrong} of {len(rows)} outputs differ" if wrong else f"{len(rows)} of {len(rows)} outputs agree")
    return 1 if wrong else 0
