"""The nodes that read a weight in blocks: those of com.microsoft, or those of ai.onnx."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from experimental_experiment.protos import MICROSOFT
from experimental_experiment.torch_interpreter.emitter import Names
from experimental_experiment.xoptim.blocks import Blocks, pack
from experimental_experiment.xoptim.pattern import only_reader


@dataclasses.dataclass(frozen=True)
class Reader:
    """A node that reads a weight: a product, or a Gather of its rows.

    Attributes:
        node: the node.
        gathers: whether it is a Gather.
        rows_first: whether the weight is stored as [N, K]: N results of K terms, or N rows of K columns.
    """

    node: ir.Node
    gathers: bool
    rows_first: bool


@dataclasses.dataclass
class WeightPlace:
    """Where the tensors and the nodes of one weight are written.

    Attributes:
        weight: the weight that they replace.
        graph: the graph of the tensors.
        names: the names that are taken.
        accuracy_level: of MatMulNBits.
        written: bytes of the tensors that were written.
    """

    weight: ir.Value
    graph: ir.Graph
    names: Names
    accuracy_level: int
    written: int = 0

    def tensor(self, suffix: str, tensor: np.ndarray | ir.TensorProtocol) -> ir.Value:
        """An initializer beside the weight, called after it."""
        name = self.names.unique(f"{self.weight.name}_{suffix}")
        tensor = ir.Tensor(np.ascontiguousarray(tensor)) if isinstance(tensor, np.ndarray) else tensor
        tensor.name = name
        value = ir.Value(
            name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor
        )
        self.graph.register_initializer(value)
        self.written += tensor.nbytes
        return value

    def before(
        self, anchor: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], domain: str = "", **more: Any
    ) -> ir.Value:
        """Write a node before *anchor*; its result."""
        node = ir.node(
            op_type,
            inputs,
            more,
            domain=domain,
            name=self.names.unique(f"{anchor.name or anchor.op_type}_{op_type}"),
        )
        node.outputs[0].name = self.names.unique(node.name)
        node.metadata_props.update(anchor.metadata_props)
        anchor.graph.insert_before(anchor, node)
        return node.outputs[0]


def replace(node: ir.Node, value: ir.Value) -> None:
    """*value* is what *node* gave: its name, type and readers."""
    old = node.outputs[0]
    value.type, value.shape = old.type, old.shape
    old.replace_all_uses_with(value, replace_graph_outputs=True)
    value.name = old.name
    node.graph.remove(node, safe=True)


def write_microsoft(place: WeightPlace, blocks: Blocks, readers: Sequence[Reader]) -> None:
    """MatMulNBits and GatherBlockQuantized, which share their tensors."""
    count, columns = len(blocks.packed), blocks.columns
    scales = place.tensor("scales", blocks.scales)
    offsets = None if blocks.zero_points is None else place.tensor("zero_points", blocks.zero_points)
    suffix, shape = f"Q{blocks.bits}", blocks.packed.shape
    gathered = multiplied = None
    if any(reader.gathers for reader in readers):
        gathered = place.tensor(suffix, blocks.rows())
    if gathered is None or gathered.const_value.size != blocks.packed.size:
        multiplied = place.tensor(suffix, blocks.packed)
    is_read = False  # by a product
    for reader in readers:
        node, inputs = reader.node, reader.node.inputs
        if reader.gathers:
            value = place.before(
                node,
                "GatherBlockQuantized",
                [gathered, inputs[1], scales, offsets],
                MICROSOFT,
                bits=blocks.bits,
                block_size=blocks.block_size,
                gather_axis=0,
                quantize_axis=1,
            )
            replace(node, value)
            continue
        packed = multiplied
        if packed is None:
            sizes = place.tensor("shape", np.array(shape))
            packed = place.before(node, "Reshape", [gathered, sizes])
        if is_read and is_cast_in_vain(blocks.scales.dtype, place.accuracy_level):
            scales = place.tensor("scales", blocks.scales)
        is_read = True
        added = inputs[2] if len(inputs) > 2 else None
        is_bias = is_row(added, count)
        last = node
        total = only_reader(node.outputs[0], "Add") if added is None else None
        if total is not None and total.graph is node.graph:
            others = [value for value in total.inputs if value is not node.outputs[0]]
            added = next((value for value in others if is_row(value, count)), None)
            is_bias, last = added is not None, total if added is not None else node
        value = place.before(
            last,
            "MatMulNBits",
            [inputs[0], packed, scales, offsets, None, added if is_bias else None],
            MICROSOFT,
            K=columns,
            N=count,
            bits=blocks.bits,
            block_size=blocks.block_size,
            accuracy_level=place.accuracy_level,
        )
        if added is not None and not is_bias:
            value = place.before(node, "Add", [value, added])
        replace(last, value)
        if last is not node:
            node.graph.remove(node, safe=True)


def is_cast_in_vain(dtype: np.dtype, accuracy_level: int) -> bool:
    """Whether a product may lose scales that are no constant of its own.

    onnxruntime 1.31 computes a product of float16 between nodes without such a kernel in float32. It casts the scales when it loads the
    model where one product reads them, otherwise at each run: MatMulNBits of level 4 then takes zeros for them.
    """
    return dtype == np.float16 and accuracy_level == 4


def is_row(value: ir.Value | None, count: int) -> bool:
    """Whether a value is known to have one axis of so many elements."""
    return value is not None and value.shape is not None and tuple(value.shape) == (count,)


def write_standard(place: WeightPlace, blocks: Blocks, readers: Sequence[Reader]) -> None:
    """DequantizeLinear of the weight before each product, and of the gathered rows after a Gather."""
    codes, offsets, scales = blocks.codes(), blocks.offsets(), blocks.scales
    gathers = readers[0].gathers  # all of them or none, see `quantized`
    if not gathers:  # [K, N], as onnxruntime wants it for MatMulNBits
        codes, scales = codes.T, scales.T
        offsets = None if offsets is None else offsets.T
    arrays = {f"Q{blocks.bits}": typed(codes, blocks), "scales": scales}
    if offsets is not None:
        arrays["zero_points"] = typed(offsets, blocks)
    tables = [place.tensor(suffix, array) for suffix, array in arrays.items()]
    first: ir.Value | None = None
    for reader in readers:
        node = reader.node
        if gathers:
            rows = node.inputs[1]
            apart = needs_an_axis(rows, blocks)
            if apart and first is None:
                first = place.tensor("axis", np.array([0]))
            if apart:
                rows = place.before(node, "Unsqueeze", [rows, first])
            picked = [place.before(node, "Gather", [table, rows], axis=0) for table in tables]
            value = place.before(node, "DequantizeLinear", picked, axis=-1, block_size=blocks.block_size)
            replace(node, place.before(node, "Squeeze", [value, first]) if apart else value)
        else:
            weight = place.before(node, "DequantizeLinear", tables, axis=0, block_size=blocks.block_size)
            weight.type, weight.shape = place.weight.type, ir.Shape(codes.shape)
            node.replace_input_with(1, weight)
            node.attributes.pop("transB", None)


def needs_an_axis(rows: ir.Value, blocks: Blocks) -> bool:
    """Whether what is gathered has one more axis until it is dequantized.

    onnxruntime 1.31 takes a row in one block for a tensor of one scale, and makes a product of rows with zero points one of integers,
    which it refuses to compute; a Squeeze between them keeps it from that.
    """
    return blocks.zero_points is not None or (blocks.scales.shape[1] == 1 and not rows.shape)


def typed(codes: np.ndarray, blocks: Blocks) -> ir.TensorProtocol:
    """Codes or zero points in the type of DequantizeLinear: signed when the zero point is in the middle of the codes."""
    signed = blocks.zero_points is None
    if signed:
        codes = (codes ^ 2 ** (blocks.bits - 1)).view(np.int8)  # minus the middle, in two's complement
    codes = np.ascontiguousarray(codes)
    if blocks.bits == 8:
        return ir.Tensor(codes)
    kind = ir.DataType.INT4 if signed else ir.DataType.UINT4
    return ir.PackedTensor(pack(codes.view(np.uint8)), kind, shape=codes.shape)


WRITERS = {MICROSOFT: write_microsoft, "": write_standard}
"""What writes the nodes, by domain."""
