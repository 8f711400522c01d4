"""What a report of an export tells: gathered as plain values, written as Markdown; `page` makes a page of them."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import tabulate
import torch

from experimental_experiment import __version__
from experimental_experiment.investigate.alignment import recorded
from experimental_experiment.investigate.modules import module_tree, node_text, type_in_brief
from experimental_experiment.investigate.onnx_side import loaded
from experimental_experiment.investigate.replay import ordered_leaves
from experimental_experiment.investigate.results import Discrepancies
from experimental_experiment.investigate.side_by_side import Comparison
from experimental_experiment.refusals import FAILURES
from experimental_experiment.torch_interpreter.errors import (
    EagerError,
    brief,
    module_path,
    source_line,
    target_name,
)
from experimental_experiment.torch_interpreter.journal import Journal
from experimental_experiment.torch_interpreter.runtime.table import ROWS

Content = dict[str, Any]

MOST = 20
"""Rows of a table of Markdown that are told."""


def gathered(
    journal: Journal,
    name: str,
    args: tuple,
    kwargs: Mapping[str, Any],
    model: onnx.ModelProto | str | os.PathLike,
    filename: str | os.PathLike | None,
) -> Content:
    """All that a report tells, as lists, dicts, texts and numbers. *filename*: where the *model* will be, when that is a file."""
    graph_model = loaded(model)
    nodes = list(graph_model.graph.all_nodes()) + [
        node for function in graph_model.functions.values() for node in function.all_nodes()
    ]
    differences = compared(journal, args, kwargs, model)
    return {
        "title": name,
        "summary": summary(graph_model, nodes, filename),
        "stages": [[stage, round(seconds, 3)] for stage, seconds in journal.progress.stages],
        "inputs": [described(value) for value in graph_model.graph.inputs],
        "outputs": [described(value) for value in graph_model.graph.outputs],
        "weights": weights(graph_model),
        "warnings": list(journal.warnings),
        "patches": list(journal.patches),
        "rows": applied_rows(journal.rows),
        "optimizer": optimizer(journal),
        "nodes": node_table(journal, nodes),
        "operators": collections.Counter(node.op_type for node in nodes).most_common(),
        "tree": module_tree(graph_model),
        "discrepancies": differences,
    }


def summary(model: ir.Model, nodes: Sequence[ir.Node], filename: str | os.PathLike | None) -> list[list[str]]:
    """Versions and sizes."""
    opsets = ", ".join(
        f"{domain or 'ai.onnx'} {version}" for domain, version in model.graph.opset_imports.items()
    )
    rows = [
        ["nodes", str(len(nodes))],
        ["operator sets", opsets],
        ["weights", size_text(sum(value.const_value.nbytes for value in model.graph.initializers.values()))],
        ["exporter", f"experimental_experiment {__version__}"],
        ["torch, onnx, onnxruntime", f"{torch.__version__}, {onnx.__version__}, {onnxruntime.__version__}"],
    ]
    if model.functions:
        rows.insert(1, ["local functions", str(len(model.functions))])
    if filename is not None:
        rows.insert(0, ["file", os.path.basename(os.fspath(filename))])
    return rows


def size_text(size: int) -> str:
    """A number of bytes for people."""
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def described(value: ir.Value) -> list[str]:
    """Name and type of an input or an output."""
    return [value.name or "", type_in_brief(value)]


def weights(model: ir.Model, most: int = 20) -> list[list[str]]:
    """The largest weights: name, type, size."""
    values = sorted(model.graph.initializers.values(), key=lambda value: -value.const_value.nbytes)[:most]
    return [[*described(value), size_text(value.const_value.nbytes)] for value in values]


def applied_rows(counts: Mapping[str, int]) -> list[list[Any]]:
    """The rows of the runtime table that were applied: name, how often, why."""
    reasons = {row.name: row.because for row in ROWS}
    return [[name, count, reasons.get(name, "")] for name, count in sorted(counts.items())]


def optimizer(journal: Journal) -> Content:
    """What the optimizer did, all its runs together."""
    applied = collections.Counter(rule for report in journal.optimized for rule, _ in report.applications)
    declined: collections.Counter[tuple[str, str]] = collections.Counter()
    for report in journal.optimized:
        declined.update(report.declined)
    return {
        "before": journal.optimized[0].nodes_before if journal.optimized else 0,
        "after": journal.optimized[-1].nodes_after if journal.optimized else 0,
        "seconds": round(sum(report.seconds for report in journal.optimized), 3),
        "rules": applied.most_common(),
        "declined": [[rule, reason, count] for (rule, reason), count in declined.most_common()],
    }


def node_table(journal: Journal, nodes: Iterable[ir.Node]) -> list[list[Any]]:
    """Each FX node with the ONNX nodes that come from it: name, operator, type, module, line, code, ONNX nodes."""
    written: dict[str, list[list[str]]] = collections.defaultdict(list)
    for node in nodes:
        written[recorded(node)[0]].append(node_text(node))
    rows = []
    for module in journal.program.module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op == "call_function":
                source = source_line(node)
                place, code = (f"{source[0]}:{source[1]}", source[3]) if source else ("", "")
                rows.append(
                    [
                        node.name,
                        target_name(node.target),
                        brief(node.meta.get("val")),
                        module_path(node),
                        place,
                        code,
                        written.pop(node.name, []),
                    ]
                )
    others = [item for items in written.values() for item in items]
    if others:
        rows.append(["", "written for no single node", "", "", "", "", others])
    return rows


def compared(journal: Journal, args: tuple, kwargs: Mapping[str, Any], model: Any) -> Content:
    """The results beside eager's: the verdict in words, a row for each."""
    leaves = ordered_leaves(journal.exported, args, kwargs)
    try:
        found: Discrepancies = Comparison(journal.program, model, leaves, 1.0).told(None)
    except (*FAILURES, EagerError, ValueError) as error:
        return {"verdict": "not compared", "told": f"not compared with eager: {error}", "results": []}
    rows = [
        [
            result.output or result.name,
            result.operator,
            result.gap.got,
            finite(result.gap.absolute),
            finite(result.gap.relative),
            finite(result.gap.excess),
            result.status,
            result.module,
        ]
        for result in found.results
    ]
    told = "\n".join([found.told(), *(f"the whole model in {way}" for way in found.ways)])
    return {"verdict": found.verdict, "told": told, "results": rows}


def finite(number: float) -> float | str:
    """A number that JSON has, ``"inf"`` for infinity."""
    return number if number < float("inf") else "inf"


# ---- Markdown


def as_markdown(content: Content) -> str:
    """A report to paste: the node table and the differences are cut to the `MOST` telling rows."""
    differences = content["discrepancies"]
    worst = sorted(differences["results"], key=lambda row: -float(row[5]))[:MOST]
    parts = [
        f"# {content['title']}",
        table(content["summary"], ["", ""]),
        "## Differences from eager",
        f"```text\n{differences['told']}\n```",
        table(
            [row[:7] for row in worst],
            ["result", "operator", "type", "absolute", "relative", "tolerances", ""],
        ),
        "## Inputs and outputs",
        table(
            [["input", *row] for row in content["inputs"]] + [["output", *row] for row in content["outputs"]],
            ["", "name", "type"],
        ),
    ]
    for title, lines in (("Warnings", content["warnings"]), ("Patches used", content["patches"])):
        if lines:
            parts += [f"## {title}", "\n".join(f"- {line.splitlines()[0]}" for line in lines)]
    optimizer_told = content["optimizer"]
    parts += [
        "## Times",
        table([[stage, f"{seconds:.2f}"] for stage, seconds in content["stages"]], ["stage", "seconds"]),
        "## Operators",
        table(content["operators"][:MOST], ["operator", "nodes"]),
        "## Optimizer",
        f"{optimizer_told['before']} nodes before, {optimizer_told['after']} after",
        table(optimizer_told["rules"], ["rule", "applied"]),
    ]
    if content["rows"]:
        parts += ["## Runtime table", table(content["rows"], ["row", "applied", "because"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(rows: Sequence[Sequence[Any]], headers: Sequence[str]) -> str:
    """A table of Markdown, ``""`` without rows."""
    cells = [
        [f"{cell:.1e}" if isinstance(cell, float) else str(cell).replace("|", "\\|") for cell in row]
        for row in rows
    ]
    return tabulate.tabulate(cells, headers, "pipe", disable_numparse=True) if cells else ""
