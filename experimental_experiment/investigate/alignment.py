"""Which ONNX value is the result of which FX node: by the names that the exporter recorded.

A value is the result of a node when the node that computes it carries that FX node in its ``metadata_props`` and it has its name.
Source of semantics: `provenance`, the names of `Walk.stamp`; other exporters on torch.export write the same keys.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir
import torch

from experimental_experiment.inlining import inline_functions
from experimental_experiment.torch_interpreter.interface import output_leaves
from experimental_experiment.torch_interpreter.interpreter import flat
from experimental_experiment.torch_interpreter.provenance import provenance
from experimental_experiment.torch_interpreter.signature import Input, Program
from experimental_experiment.torch_interpreter.writes import SAME_TENSOR, storages, written_nodes

FX_NODE = "pkg.torch.onnx.fx_node"


@dataclasses.dataclass(frozen=True)
class Pair:
    """A tensor that both sides compute.

    Attributes:
        node: the FX node.
        position: which of its results.
        value: name of the ONNX value.
        operator: the ONNX operator that computes it.
        output: name of the model's output that it is, ``""`` for an intermediate result.
    """

    node: torch.fx.Node
    position: int
    value: str
    operator: str
    output: str = ""

    @property
    def name(self) -> str:
        """``topk[1]`` where a node gives several results, else the name of the node."""
        several = isinstance(self.node.meta.get("val"), (list, tuple))
        return f"{self.node.name}[{self.position}]" if several else self.node.name


def align(program: Program, model: ir.Model) -> list[Pair]:
    """The pairs of a program and its model in the order of the program, outputs included. Inlines the functions of *model*."""
    nodes = {node.name: node for node in program.module.graph.nodes if node.op == "call_function"}
    found = {(pair.node, pair.position): pair for pair in results_of_calls(nodes, model)}
    inline_functions(model)
    for pair in [*intermediates(nodes, model), *outputs(program, model), *new_values(program, model)]:
        found[pair.node, pair.position] = pair
    order = {node: place for place, node in enumerate(nodes.values())}
    return sorted(found.values(), key=lambda pair: (order.get(pair.node, len(order)), pair.position))


def results_of_calls(nodes: Mapping[str, torch.fx.Node], model: ir.Model) -> Iterator[Pair]:
    """The results of calls of local functions: they keep their names, their nodes may be shared with another call."""
    for caller in model.graph:
        if caller.op_identifier() in model.functions:
            for value in caller.outputs:
                node = nodes.get(value.name)
                if node is not None and isinstance(node.meta.get("val"), torch.Tensor):
                    yield Pair(node, 0, value.name, caller.op_type)


def outputs(program: Program, model: ir.Model) -> Iterator[Pair]:
    """The outputs of the model that are results of nodes; those that are numbers, inputs or weights are left out."""
    for (_, leaf), value in zip(output_leaves(program, None, ()), model.graph.outputs):
        is_result = isinstance(leaf, torch.fx.Node) and leaf.op == "call_function"
        if is_result and isinstance(leaf.meta.get("val"), torch.Tensor):
            producer = value.producer()
            yield Pair(*picked(leaf), value.name, producer.op_type if producer else "", value.name)


def new_values(program: Program, model: ir.Model) -> Iterator[Pair]:
    """The outputs that ``mutated_buffers="outputs"`` adds: what a buffer or an input holds in the end."""
    for value in model.graph.outputs[len(output_leaves(program, None, ())) :]:
        for entry in program.inputs:
            if re.fullmatch(rf"{re.escape(entry.name)}_out(_\d+)?", value.name):
                producer = value.producer()
                node, name = final(program, entry), recorded(producer)[0] if producer else ""
                if node.target is torch.ops.aten.copy_.default and node.args[1].name == name:
                    node = node.args[1]  # its result is what was copied
                yield Pair(node, 0, value.name, producer.op_type if producer else "", value.name)


def final(program: Program, entry: Input) -> torch.fx.Node:
    """The node that is the new value of an input.

    What a functionalized program returns for it, the last write when it writes all of it, else the input itself.
    """
    graph = program.module.graph
    leaves = flat(graph.output_node().args[0])
    for place, written in program.writes.items():
        if written is entry:
            return leaves[place]
    whole = entry.node.meta.get("val")
    for last in list(writers(graph, [entry.node]))[-1:]:
        written = [argument.meta.get("val") for argument in written_nodes(last)]
        if len(written) == 1 and (written[0].shape, written[0].stride()) == (whole.shape, whole.stride()):
            return last
    return entry.node


def writers(graph: torch.fx.Graph, tensors: Sequence[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """The nodes that write the memory of one of these, in order."""
    memory = {storage for tensor in tensors for storage in storages(tensor.meta.get("val"))} - {None}
    for node in graph.nodes:
        if node.op == "call_function" and node.target not in SAME_TENSOR:
            written = [storages(argument.meta.get("val")) for argument in written_nodes(node)]
            if any(memory.intersection(each) for each in written):
                yield node


def picked(node: torch.fx.Node) -> tuple[torch.fx.Node, int]:
    """The node that computes what *node* picks, and which of its results it is: ``topk(x)[1]`` is the second one of ``topk``."""
    if node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), (list, tuple)):
        return node.args[0], node.args[1]
    return node, 0


def intermediates(nodes: Mapping[str, torch.fx.Node], model: ir.Model) -> Iterator[Pair]:
    """The values of the main graph that carry the name of an FX node and come from it."""
    texts = {node: provenance(node) for node in nodes.values()}
    claims: dict[tuple[torch.fx.Node, int], tuple[tuple, Pair]] = {}
    for producer in model.graph:
        name, target = recorded(producer)
        node = nodes.get(name)
        if node is None or target != recorded_target(node):
            continue
        for value in producer.outputs:
            position = position_of(value.name or "", node)
            if position is None:
                continue
            # bodies that were written in place of a node have names of their own: the whole text tells them apart
            rank = (dict(producer.metadata_props) == texts[node], value.name == node.name)
            key = (node, position)
            if key not in claims or rank > claims[key][0]:
                claims[key] = rank, Pair(node, position, value.name, producer.op_type)
    yield from (pair for _, pair in claims.values())


def recorded(node: ir.Node) -> tuple[str, str]:
    """Name and target of the FX node that an ONNX node was written for, ``""`` when it has none."""
    found = re.match(r"%(\S+) : .*?\[target=([^\]]+)\]", node.metadata_props.get(FX_NODE, ""))
    return (found[1], found[2].removeprefix("torch.ops.")) if found else ("", "")


def recorded_target(node: torch.fx.Node) -> str:
    """The target of an FX node as its text spells it."""
    found = re.search(r"\[target=([^\]]+)\]", node.format_node() or "")
    return found[1].removeprefix("torch.ops.") if found else ""


def position_of(name: str, node: torch.fx.Node) -> int | None:
    """Which result of *node* the value *name* is, None when it is something on the way to it.

    Values are called as the node, several results with their positions behind it, and a number where the name was taken.
    """
    found = re.fullmatch(rf"{re.escape(node.name)}((?:_\d+)*)", name)
    if found is None:
        return None
    fake = node.meta.get("val")
    if isinstance(fake, torch.Tensor):
        return 0
    numbers = found.group(1).split("_")[1:]
    if not isinstance(fake, (list, tuple)) or not numbers or int(numbers[0]) >= len(fake):
        return None
    position = int(numbers[0])
    return position if isinstance(fake[position], torch.Tensor) else None
