"""The table: which ONNX operator a runtime gets wrong or an operator set lacks, when, and what is written instead.

Translations write ONNX as a person would; the emitter asks this table before it writes a node. A row never sees what it
writes itself, so that a repair may use the operator that it repairs.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib.resources
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experimental_experiment.torch_interpreter.arguments import refuse_no_switches

RUNTIMES = ("onnxruntime", "onnx")
"""What a model is written for: onnxruntime's CPU provider, or the plain standard."""

MEASURED = "1.31.1"
"""The version of onnxruntime that rows were measured on, unless they say another."""


def refuse_misfit_target(runtime: Any, special_values: Any) -> None:
    """Raise ValueError for a runtime that there is not, TypeError for *special_values* that is neither True nor False."""
    if runtime not in RUNTIMES:
        raise ValueError(f"runtime is 'onnxruntime' or 'onnx', not {runtime!r}")
    refuse_no_switches(special_values=special_values)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One repair.

    Attributes:
        operator: the ONNX operator that is about to be written.
        rewrite: called as ``rewrite(op, *inputs, **attributes)``; what it returns stands in the place of the operator,
            None leaves the operator as it is. Its docstring says what is written instead. It may list ``operator``,
            the name of the operator, and ``outputs``, how many results are asked for.
        when: the condition on inputs and attributes, in words.
        because: what goes wrong without the row.
        nodes: how many nodes more the repair takes, in words where it depends.
        measured: version of onnxruntime, or of onnx; None for a row that an operator set needs in any runtime.
        before: the first version of ai.onnx that does not need the row; None when all do.
        special_values: whether only NaN, the sign of zero, int64 beyond 2 ** 53 or ties of rounding differ without it.
        runtime: whose models it repairs: onnxruntime's, or those of the plain standard, which every other runtime reads.
    """

    operator: str
    rewrite: Callable
    when: str
    because: str
    nodes: int | str
    measured: str | None = MEASURED
    before: int | None = None
    special_values: bool = False
    runtime: str = "onnxruntime"

    @property
    def name(self) -> str:
        """``Operator.function``, unique in the table."""
        return f"{self.operator}.{self.rewrite.__name__}"

    @property
    def place(self) -> str:
        """File of the row in this room."""
        return os.path.basename(inspect.unwrap(self.rewrite).__code__.co_filename)

    @functools.cached_property
    def listed(self) -> frozenset[str]:
        """Which of ``operator`` and ``outputs`` the function lists."""
        return frozenset(inspect.signature(self.rewrite).parameters) & {"operator", "outputs"}

    def applies(self, opset: int, runtime: str, special_values: bool) -> bool:
        """Whether a model for this target needs the row."""
        if self.before is not None and opset >= self.before:
            return False
        if self.measured is not None and runtime != self.runtime:
            return False
        return special_values or not self.special_values


ROWS: list[Row] = []
"""All rows, in the order they are tried for one operator."""


def repairs(
    *operators: str,
    when: str,
    because: str,
    nodes: int | str,
    special_values: bool = False,
    before: int | None = None,
    measured: str = MEASURED,
    runtime: str = "onnxruntime",
) -> Callable:
    """Register what a runtime needs in the place of these operators; see `Row`."""
    return register(operators, when, because, nodes, measured, before, special_values, runtime)


def before(opset: int, *operators: str, when: str = "always", because: str, nodes: int | str) -> Callable:
    """Register what the operator sets before *opset* need in the place of these operators, in any runtime; see `Row`."""
    return register(operators, when, because, nodes, None, opset, False)


def register(operators: Sequence[str], *facts: Any) -> Callable:
    """A decorator that adds one row for each operator; ValueError when the table has a row of that name."""

    def registered(rewrite: Callable) -> Callable:
        for operator in operators:
            row = Row(operator, rewrite, *facts)
            if any(known.name == row.name for known in ROWS):
                raise ValueError(f"the row {row.name} stands twice in the table")
            ROWS.append(row)
        active.cache_clear()
        return rewrite

    return registered


@functools.cache
def active(opset: int, runtime: str, special_values: bool) -> Mapping[str, tuple[Row, ...]]:
    """The rows that a target needs, by operator: repairs of the newest form first, then those that write an older one."""
    found = collections.defaultdict(list)
    for row in sorted(ROWS, key=lambda row: -row.before if row.measured is None else -sys.maxsize):
        if row.applies(opset, runtime, special_values):
            found[row.operator].append(row)
    return {operator: tuple(rows) for operator, rows in found.items()}


@functools.lru_cache(maxsize=1024)
def written_as(opset: int, rows: tuple[Row, ...]) -> int:
    """The version of ai.onnx whose schema a translation follows: a newer one where a row says it in the old one."""
    return max([opset, *(row.before for row in rows if row.before is not None)]) if rows else opset


def rewritten(
    op: Any, rows: Sequence[Row], inputs: Sequence[Any], attributes: dict[str, Any], outputs: int | None
) -> Any:
    """What the first row that applies writes in the place of the operator, None when none does.

    What the row of an operator set writes has an older form, which no other row of the operator sees.
    """
    if not rows:
        return None
    context = op.context
    if context.applying and any(row.measured is None and row in rows for row in context.applying):
        return None
    for row in rows:
        if row in context.applying:
            continue
        given = attributes
        if row.listed:
            given = dict(attributes)
            if "operator" in row.listed:
                given["operator"] = row.operator
            if "outputs" in row.listed:
                given["outputs"] = outputs
        context.applying.append(row)
        try:
            result = row.rewrite(op, *inputs, **given)
        finally:
            context.applying.pop()
        if result is not None:
            context.applied[row.name] += 1
            context.repaired += row.measured is not None
            return result
    return None


def markdown() -> str:
    """``docs/runtime.md``: ``table.md``, which says what was measured, with the rows."""
    measured = [row for row in ROWS if row.measured is not None and row.runtime == "onnxruntime"]
    tables = {
        "@NUMBERS@": [row for row in measured if not row.special_values],
        "@SPECIAL_VALUES@": [row for row in measured if row.special_values],
        "@PLAIN@": [row for row in ROWS if row.measured is not None and row.runtime == "onnx"],
        "@OPERATOR_SETS@": [row for row in ROWS if row.measured is None],
    }
    text = (importlib.resources.files(__package__) / "table.md").read_text(encoding="utf-8")
    for name, rows in tables.items():
        text = text.replace(name, markdown_rows(rows))
    return text


def markdown_rows(rows: Sequence[Row]) -> str:
    """One table: rows that share a function are one line."""
    by_function: dict[Callable, list[Row]] = collections.defaultdict(list)
    for row in rows:
        by_function[row.rewrite].append(row)
    lines = [
        "| operator | when | without the row | instead | nodes | version | place |",
        "|---|---|---|---|---|---|---|",
    ]
    for function, same in sorted(
        by_function.items(), key=lambda item: (item[1][0].operator, item[0].__name__)
    ):
        row = same[0]
        promise = " ".join(inspect.getdoc(function).split("\n\n")[0].split()).rstrip(".").replace("|", "\\|")
        version = f"before {row.before}" if row.before is not None else row.measured
        operators = ", ".join(sorted(item.operator for item in same))
        lines.append(
            f"| {operators} | {row.when} | {row.because} | {promise} | {row.nodes} | {version} | {row.place} |"
        )
    return "\n".join(lines)
