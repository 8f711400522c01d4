"""`quantize_weights`: the weights of products and embeddings in 4 or 8 bits.

Source of semantics: com.microsoft's MatMulNBits and GatherBlockQuantized, or DequantizeLinear-21 in blocks.
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import os
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from experimental_experiment.progress import Progress, silent
from experimental_experiment.protos import from_proto, load, to_proto
from experimental_experiment.torch_interpreter.arguments import refuse_no_progress, refuse_no_switches
from experimental_experiment.torch_interpreter.emitter import Names
from experimental_experiment.torch_interpreter.producers import is_of
from experimental_experiment.xoptim.blocks import BLOCK_SIZES, Blocks, quantize_blocks
from experimental_experiment.xoptim.constants import lift_constants, lowered_constants
from experimental_experiment.xoptim.graphs import nodes_of
from experimental_experiment.xoptim.quantized_nodes import (
    MICROSOFT,
    WRITERS,
    Reader,
    WeightPlace,
    is_cast_in_vain,
)

BLOCKS_SINCE = 21
"""The first version of ai.onnx whose DequantizeLinear has blocks."""

NO_BLOCKS = f"DequantizeLinear has blocks from opset {BLOCKS_SINCE} on, the model is of opset {{opset}}"
BLOCK_DTYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
"""Dtypes of weights that onnxruntime multiplies in blocks."""

LOST_IN_BODIES = "onnxruntime may lose float16 scales in a body; accuracy_level=0 of com.microsoft does not"
"""See `is_cast_in_vain`."""


@dataclasses.dataclass(frozen=True)
class QuantizedWeight:
    """One line of the report: what became of a weight.

    Attributes:
        name: name of the initializer.
        nodes: names of the nodes that read it.
        bits: bits of an element.
        error: Frobenius norm of the difference relative to that of the weight.
        bytes_before: size of the weight; 0 in the other lines of one that is read in several ways.
        bytes_after: size of the codes, the scales and the zero points.
    """

    name: str
    nodes: tuple[str, ...]
    bits: int
    error: float
    bytes_before: int
    bytes_after: int


@dataclasses.dataclass
class QuantizationReport:
    """Filled by `quantize_weights`.

    Attributes:
        weights: what was quantized, in order.
        kept: name and reason of each matrix of floats that was not.
    """

    weights: list[QuantizedWeight] = dataclasses.field(default_factory=list)
    kept: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        """A table of the weights with their errors, then one of those that are kept."""
        import tabulate  # only who prints a report needs it

        before = sum(item.bytes_before for item in self.weights)
        after = sum(item.bytes_after for item in self.weights)
        lines = [f"{len(self.weights)} weights quantized, {before} bytes became {after}"]
        if self.weights:
            rows = [
                (item.name, ", ".join(item.nodes), item.bits, item.bytes_before, item.bytes_after, item.error)
                for item in self.weights
            ]
            headers = ["weight", "read by", "bits", "bytes", "bytes after", "relative error"]
            lines += ["", tabulate.tabulate(rows, headers=headers, floatfmt=".2e")]
        if self.kept:
            lines += ["", tabulate.tabulate(self.kept, headers=["kept", "because"])]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How weights are quantized: the arguments of `quantize_weights`."""

    bits: int
    block_size: int
    symmetric: bool
    exclude: tuple[str, ...]
    domain: str
    accuracy_level: int

    def __post_init__(self):
        for name, allowed in (
            ("bits", (4, 8)),
            ("block_size", BLOCK_SIZES),
            ("domain", tuple(WRITERS)),
            ("accuracy_level", (0, 1, 2, 3, 4)),
        ):
            value = getattr(self, name)
            if value not in allowed or isinstance(value, (float, bool)):
                raise ValueError(f"{name} is one of {allowed}, not {value!r}")
        refuse_no_switches(symmetric=self.symmetric)


class Kept(Exception):
    """A weight stays as it is; the reason."""


def quantize_weights(
    model: ir.Model | onnx.ModelProto | str | os.PathLike,
    bits: int = 4,
    block_size: int = 32,
    symmetric: bool = True,
    exclude: Sequence[str] = (),
    *,
    domain: str = MICROSOFT,
    accuracy_level: int = 4,
    report: QuantizationReport | None = None,
    progress: Progress = silent,
) -> ir.Model | onnx.ModelProto:
    """Round the constant matrices of MatMul, Gemm and Gather to a few bits, one scale for each block of a row.

    Weights are read one at a time; what is kept in memory is their codes. A weight is quantized when every node that reads it,
    behind a Transpose or not, is such a product or a Gather of its rows: float32 or float16, also in the bodies of control flow,
    not in local functions; a product of float16 in a body with accuracy levels below 4 alone. Tied weights are quantized once.

    Args:
        model: an ``onnx_ir.Model``, changed in place, a ModelProto, which is left as it is, or a file, whose weights are read
            when they are needed.
        bits: 4 or 8.
        block_size: 16, 32, 64, 128 or 256 elements, along the axis that a product sums over and along the rows of a Gather.
        symmetric: whether the zero of all blocks is the middle code; otherwise each block has its own.
        exclude: names of weights or nodes, or patterns such as ``"*lm_head*"``: what they match stays as it is.
        domain: ``"com.microsoft"`` writes MatMulNBits and GatherBlockQuantized; ``""`` writes DequantizeLinear before the
            product, which onnxruntime makes MatMulNBits again, and keeps 8 bits for embeddings, because onnxruntime gathers no INT4.
        accuracy_level: of MatMulNBits: 4 rounds the other operand to 8 bits too, where a NaN counts as 0 and an infinity makes the row
            NaN (measured with onnxruntime 1.31 on x86), 0 does not. In onnxruntime 1.31, one row times (512, 8192)
            takes 0.25 (4 bits) and 0.5 (8 bits) of the time of float32 with 4; with 0 it takes 0.7 and 18.
            64 rows take 1.05 and 1.5, with 0 1.0 and 4.4: quantization pays for few rows.
            Of float16, a session below ORT_ENABLE_ALL, which is the default, may take zeros for the scales with 4, as sums beside a product
            make it do; with 0 it does not.
            With ``domain=""``, onnxruntime's session decides: ``session.qdq_matmulnbits_accuracy_level``, 4 by default.
        report: filled with the error of each weight.
        progress: as for `to_onnx`, a step a weight.

    Returns the model, of the type that was given; an ``onnx_ir.Model`` for a file.
    Raises ValueError for arguments out of range, a name in *exclude* that nothing has, and ``domain=""`` before opset 21;
    TypeError when *exclude* is no list of texts, and for another model, *symmetric*, *report* or *progress*.
    """
    are_names = isinstance(exclude, Collection) and all(isinstance(name, str) for name in exclude)
    if isinstance(exclude, str) or not are_names:
        raise TypeError(f"exclude is a list of names, not {exclude!r}")
    if not isinstance(report, QuantizationReport | None):
        raise TypeError(f"report is a QuantizationReport, which is filled, not {report!r}")
    refuse_no_progress(progress)
    settings = Settings(bits, block_size, symmetric, tuple(exclude), domain, accuracy_level)
    report = QuantizationReport() if report is None else report
    is_proto = isinstance(model, onnx.ModelProto)
    if isinstance(model, onnx.ModelProto):
        target = from_proto(model)
    else:
        target = model if isinstance(model, ir.Model) else load(model)
    opset = target.graph.opset_imports.get("", 1)
    if not domain and opset < BLOCKS_SINCE:
        raise ValueError(
            f"{NO_BLOCKS.format(opset=opset)}: export it with target_opset={BLOCKS_SINCE}, or allow the domain com.microsoft"
        )
    with lowered_constants(target):
        lift_constants(nodes_of(target.graph))
        check_names(target, settings.exclude)
        names = Names()
        for graph in target.graphs():
            for value in (
                *graph.inputs,
                *graph.initializers.values(),
                *(v for n in graph for v in n.outputs),
            ):
                names.count[value.name] = 0
        matrices = [w for graph in target.graphs() for w in graph.initializers.values() if is_matrix(w)]
        step = progress("quantize", len(matrices))
        for weight in matrices:
            try:
                report.weights += quantized(weight, target.graph, settings, names)
            except Kept as reason:
                report.kept.append((weight.name, str(reason)))
            step()
    if report.weights and domain:
        target.opset_imports.setdefault(domain, 1)
    if report.weights and not domain:
        target.ir_version = max(target.ir_version, 10)  # the first one with INT4
    return to_proto(target) if is_proto else target


def check_names(model: ir.Model, patterns: Sequence[str]) -> None:
    """ValueError when a pattern matches the name of no weight and of no node."""
    known = {value.name for graph in model.graphs() for value in graph.initializers.values()}
    known.update(node.name for node in nodes_of(model.graph) if node.name)
    for pattern in patterns:
        if not is_matched(known, pattern):
            near = difflib.get_close_matches(pattern, sorted(known), 3, 0.4)
            hint = f", did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(f"exclude: no weight and no node is called {pattern!r}{hint}")


def is_matched(names: Collection[str], pattern: str) -> bool:
    """Whether a pattern is one of these names, brackets and all, or matches one."""
    return pattern in names or bool(fnmatch.filter(names, pattern))


def is_matrix(weight: ir.Value) -> bool:
    """Whether an initializer is what this module looks at."""
    tensor = weight.const_value
    return (
        tensor is not None and len(tensor.shape) == 2 and tensor.size > 0 and tensor.dtype.is_floating_point()
    )


def readers_of(value: ir.Value, turned: bool, transposes: list[ir.Node]) -> Iterator[Reader]:
    """The nodes that read a weight, seen through Transposes, which are collected. Raises Kept when one cannot be replaced."""
    if value.is_graph_output():
        raise Kept("it is an output")
    for node, index in list(value.uses()):
        if is_of(node, "Transpose"):
            transposes.append(node)
            turns = list(node.attributes.get_ints("perm", [1, 0])) == [1, 0]
            yield from readers_of(node.outputs[0], turned != turns, transposes)
        elif is_product(node) and index == 1:
            yield Reader(node, False, turned != bool(node.attributes.get_int("transB", 0)))
        elif is_of(node, "Gather") and index == 0 and node.attributes.get_int("axis", 0) in (0, -2):
            yield Reader(node, True, not turned)
        else:
            raise Kept(f"{node.op_type} reads it")


def is_product(node: ir.Node) -> bool:
    """Whether a node multiplies by its second operand, maybe transposed, and adds a third one: nothing else."""
    attributes = node.attributes
    if node.op_identifier() == ("", "MatMul", ""):
        return True
    if node.op_identifier() == ("", "Gemm", ""):
        return not attributes.get_int("transA", 0) and all(
            attributes.get_float(name, 1.0) == 1.0 for name in ("alpha", "beta")
        )
    if node.op_identifier() == (MICROSOFT, "FusedMatMul", ""):
        plain = not any(attributes.get_int(name, 0) for name in ("transA", "transBatchA", "transBatchB"))
        return plain and attributes.get_float("alpha", 1.0) == 1.0
    return False


def quantized(weight: ir.Value, main: ir.Graph, settings: Settings, names: Names) -> list[QuantizedWeight]:
    """Replace a weight for all that read it; a line of the report for each way in which it is read. Raises Kept."""
    tensor = weight.const_value
    transposes: list[ir.Node] = []
    readers = list(readers_of(weight, False, transposes))
    if weight.is_graph_input():
        raise Kept("it is an input")
    if not readers:
        raise Kept("nothing reads it")
    if tensor.dtype not in BLOCK_DTYPES:
        raise Kept(f"onnxruntime multiplies no blocks of {tensor.dtype.name}")
    called = [weight.name, *(node.name or "" for node in (*transposes, *(reader.node for reader in readers)))]
    if any(is_matched(called, pattern) for pattern in settings.exclude):
        raise Kept("it is excluded")
    level = settings.accuracy_level if settings.domain else 4
    in_bodies = any(reader.node.graph is not main and not reader.gathers for reader in readers)
    if in_bodies and is_cast_in_vain(tensor.dtype.numpy(), level):
        raise Kept(LOST_IN_BODIES)
    ways: dict[tuple, list[Reader]] = {}
    for reader in readers:
        # onnxruntime 1.31 does not find what DequantizeLinear reads from outside of its body
        way = (False, weight.graph) if settings.domain else (reader.gathers, reader.node.graph)
        ways.setdefault((reader.rows_first, *way), []).append(reader)
    array, write = tensor.numpy(), WRITERS[settings.domain]
    if not np.isfinite(array).all():
        raise Kept("an element is not finite")
    rounded, size = [], 0
    for (rows_first, bytewise, graph), served in ways.items():
        matrix, bits = array if rows_first else array.T, 8 if bytewise else settings.bits
        if bits == 4 and matrix.shape[1] % 2 and any(reader.gathers for reader in served):
            raise Kept(f"rows of {matrix.shape[1]} elements of 4 bits do not fill bytes")
        blocks = quantize_blocks(matrix, bits, settings.block_size, settings.symmetric)
        size += blocks.nbytes
        if size >= tensor.nbytes:
            raise Kept("it would not be smaller")
        rounded.append((graph, served, blocks, lost(matrix, blocks)))
    lines: list[QuantizedWeight] = []
    for graph, served, blocks, error in rounded:
        place = WeightPlace(weight, graph, names, settings.accuracy_level)
        write(place, blocks, served)
        nodes = tuple(dict.fromkeys(reader.node.name or reader.node.op_type for reader in served))
        before = 0 if lines else tensor.nbytes
        lines.append(QuantizedWeight(weight.name, nodes, blocks.bits, error, before, place.written))
    for node in reversed(transposes):
        if not node.outputs[0].uses():
            node.graph.remove(node, safe=True)
    del weight.graph.initializers[weight.name]
    return lines


def lost(matrix: np.ndarray, blocks: Blocks) -> float:
    """The error of a matrix, see `Blocks.error`. Raises Kept where its blocks do not hold it."""
    if not blocks.are_held(matrix):
        raise Kept(f"one of its blocks has no scale in {matrix.dtype}")
    error = blocks.error(matrix)
    if not error < 1:
        raise Kept(f"its error would be {error:.1e}")
    return error
