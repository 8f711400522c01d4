"""The table: which ONNX operator a runtime gets wrong or an operator set lacks, when, and what is written instead.

Translations write ONNX as a person would; the emitter asks this table before it writes a node. A row never sees what it
writes itself, so that a repair may use the operator that it repairs.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

RUNTIMES = ("onnxruntime", "onnx")
"""What a model is written for: onnxruntime's CPU provider, or the plain standard."""

MEASURED = "1.31.1"
"""The version of onnxruntime that rows were measured on, unless they say another."""


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


def written_as(opset: int, rows: Sequence[Row]) -> int:
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
            facts = {"operator": row.operator, "outputs": outputs}
            given = attributes | {name: facts[name] for name in row.listed}
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
    """``docs/runtime.md``: the rows of onnxruntime, those that only concern special values, those of the operator sets."""
    measured = [row for row in ROWS if row.measured is not None and row.runtime == "onnxruntime"]
    plain = [row for row in ROWS if row.measured is not None and row.runtime == "onnx"]
    lines = [
        "# What a runtime needs",
        "",
        "Generated by `python -m experimental_experiment runtime`; a test keeps it current. Translations write ONNX as a person",
        "would. What onnxruntime's CPU provider computes wrongly, or in a multiple of the time, is replaced by the rows of this table;",
        '`to_onnx(..., runtime="onnx")` leaves them out, for other runtimes and providers. Dtypes without a kernel',
        "(`runtime/kernels.json`, measured by `benchmarks/kernels.py`) are computed in a wider one and cast back, once around a region",
        "of operators.",
        "",
        "onnxruntime does the same to float16 nodes without a kernel, and leaves out the casts between them at every level of optimization: their",
        "results are nearer to the exact ones than eager's, and what overflows between two nodes may become small again. No row prevents that.",
        "",
        "A tensor without elements may end the process, where nothing else has as few nodes: in an Einsum that transposes one of two operands",
        "(`bqhd,bkhd->bhqk` of an empty batch), in a MatMul of a Transpose that moves an empty axis 0 (torch.nn.MultiheadAttention of an empty",
        "sequence), in an LSTM or GRU of an empty batch, in a float16 InstanceNormalization of no element; a padded Conv of no channel never ends.",
        "onnxruntime refuses, while the model runs, a matrix times an empty batch (a float64 Conv), a circular Pad of one, an adaptive maximum of one over uneven",
        "windows and a GlobalAveragePool of no element. No row prevents these either.",
        "",
        "What the nodes of a model give each other has types without the names of sizes: where two results have sizes of the same names, onnxruntime",
        "puts one into the buffer of the other, which the cache of the processor has lost, and it merges Add and LayerNormalization into a slower node.",
        "The names stand in the metadata of these types, where `optimize` and the commands read them; `optimize=False` leaves them out too,",
        '`runtime="onnx"` writes them as everybody does.',
        "",
        "The rows repair onnxruntime 1.29 and later; 1.29 and 1.30 lack a few kernels of small integers and halves that are counted on and refuse such a",
        "model when they load it. Through 1.28 the average over padded windows with ceil_mode is another one before opset 19, and NaN are lost in a",
        "float64 maximum of windows; through 1.26 also the statistics of LayerNormalization far from zero, PRelu and erf of infinities and the minimum",
        "of booleans differ; through 1.25 also GridSample at points that are NaN.",
        "",
        "On a GPU the default model suits as well: of 2 090 operators and modules in float32, float16, int64 and bool (`tests.sweep`, one sample) 2 042",
        "agree with eager in the CUDA provider of onnxruntime-gpu 1.31.1 on an H200 without TF32, and 523 of 534 in bfloat16; of",
        '`runtime="onnx"` 2 000 and 422, as that provider lacks kernels of bfloat16 (BatchNormalization, Pad, comparisons) and refuses the model when',
        "it loads it. It refuses, while the model runs, ScatterND of integers and booleans (index_put), a sum over no element and a circular Pad. Powers of",
        "large integers differ by rounding, cummax and cummin of booleans at some runs, and where an index is written twice any write may be the last.",
        "ReduceMax of minus infinities alone is the lowest float32 or float64 there, ReduceMin of infinities the largest one (float16 keeps them): a row that",
        "an attention mask of floats closes is NaN in a model that was exported on a CPU; one that was exported, or compiled by the backend, on the GPU has a row for it.",
        "From ai.onnx 22 on it has no InstanceNormalization: a model that was exported on a CPU computes group and instance norms on the CPU, a UNet takes",
        "2 to 6 times as long; opset 21, or an export on the GPU, does not.",
        "Of small models of transformers that were exported on a CPU (39 in float16, 30 in bfloat16, 23 in float16 and in float32 with operators of onnxruntime),",
        "run there on an H100, all agree with the CPU's provider, within their precision. Of 173 classes of transformers that were exported on an H200",
        "(float32, torch 2.11, transformers 5.17) 134 were run, with two sizes: 120 agree with eager there, ten differ by up to 1.3e-3 because torch rounds",
        "convolutions to TF32 (six were run without it: 3e-6), two detectors sort scores that differ by rounding, Doge chooses among ties, and UMT5's",
        "masks are others in a capture.",
        "",
        "## Numbers and infinities",
        "",
        "The version is the one of onnxruntime that the row was measured with.",
        "",
        *markdown_rows([row for row in measured if not row.special_values]),
        "## Special values",
        "",
        "Only with `to_onnx(..., special_values=True)`: NaN in orders, extrema and distinct elements, the mean of no element, the sign of zero, int64",
        "beyond 2 ** 53, ties of rounding. By default these are what the runtime's plain operator makes of them. Some translations do the same: a float divided by",
        "a power of two and floored is infinite for an infinity (NaN in torch) and 0 for the smallest negative numbers (-1 in torch); an int64",
        "within a divisor of the ends of int64 wraps in a floored division; a linear or cubic interpolation, one Resize, multiplies neighbours that",
        "are infinite or NaN by a weight of 0, not always those that torch multiplies; the median and the quantiles of a row with NaN are numbers",
        "that TopK leaves in their place; NaN comes before all elements of a sorted sequence; an infinity beside NaN has the length NaN (infinite",
        "in torch).",
        "",
        *markdown_rows([row for row in measured if row.special_values]),
        "## The plain standard",
        "",
        'What a model for `runtime="onnx"` says more plainly, where runtimes read the standard in different ways. The version is the one of onnx.',
        "",
        *markdown_rows(plain),
        "## Operator sets",
        "",
        "What older versions of ai.onnx need, in any runtime.",
        "",
        *markdown_rows([row for row in ROWS if row.measured is None]),
    ]
    return "\n".join(lines[:-1]) + "\n"


def markdown_rows(rows: Sequence[Row]) -> list[str]:
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
    return [*lines, ""]
