"""What a compiled graph takes and returns: the names that its ONNX model has for it, and what it is in Python.

Tensors are ``input0`` and ``output_0``; sizes, integers in Python, are tensors of one element ``input_dim_1`` and
``output_dim_1``; what is None in Python is still an output of the model, ``output_NONE_2``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.torch_interpreter.interface import val_of
from experimental_experiment.torch_interpreter.interpreter import flat

TENSOR, DIM, FLOAT, BOOL, NONE, CONSTANT = "tensor", "dim", "float", "bool", "NONE", "constant"
"""Kinds: a tensor; a symbolic int, float, bool; None; a Python number that the graph knows."""

INFIXES = {TENSOR: "", DIM: "_dim_", FLOAT: "_float_", BOOL: "_bool_", NONE: "_NONE_"}


@dataclasses.dataclass(frozen=True)
class Entry:
    """An input or an output of a graph.

    Attributes:
        kind: see above.
        name: its name in the ONNX model.
        node: the node of the graph that it is; None for what no node computes.
        value: the Python value of a constant.
        source: the position of the input that an output is, None for any other.
        twin: the position of an output before this one that has the same memory, None without.
        base: the position of an output of which this one is a view, None without.
        shows: the position of an input of which an output is a view, None without.
    """

    kind: str
    name: str
    node: torch.fx.Node | None = None
    value: Any = None
    source: int | None = None
    twin: int | None = None
    base: int | None = None
    shows: int | None = None

    @property
    def fake(self) -> Any:
        """The fake value of the node."""
        return self.node.meta["val"]


def input_entries(module: torch.fx.GraphModule) -> list[Entry]:
    """The inputs of a graph, in order. Raises ExportError for what is neither a tensor nor a number."""
    entries = []
    for position, node in enumerate(module.graph.find_nodes(op="placeholder")):
        fake = node.meta["val"]
        kind = kind_of(fake)
        if kind is None:
            raise ExportError(
                f"the input {node.name} is a {type(fake).__name__}: ONNX has no such type", node
            )
        if kind in (CONSTANT, NONE):
            entries.append(Entry(CONSTANT, "", node, fake))
        else:
            entries.append(Entry(kind, f"input{INFIXES[kind]}{position}", node))
    return entries


def output_entries(module: torch.fx.GraphModule, inputs: Sequence[Entry]) -> list[Entry]:
    """The outputs of a graph, in order. Raises ExportError for what is neither a dense tensor, a number nor None."""
    positions = {entry.node: position for position, entry in enumerate(inputs)}
    shown: dict[torch.fx.Node, int] = {}
    entries = []
    for position, leaf in enumerate(flat(module.graph.output_node().args[0])):
        fake = val_of(leaf)
        kind = kind_of(fake)
        node = leaf if isinstance(leaf, torch.fx.Node) else None
        if kind == TENSOR and fake.layout is not torch.strided:
            raise ExportError(
                f"the output {leaf} is a sparse tensor, as the gradient of nn.Embedding(sparse=True): a model gives dense ones",
                node,
            )
        if kind is None:
            raise ExportError(f"the output {leaf} is a {type(fake).__name__}: ONNX has no such type", node)
        if kind == CONSTANT:
            entries.append(Entry(CONSTANT, f"output_dim_{position}", None, fake))
            continue
        infix = "_" if kind == TENSOR else INFIXES[kind]
        origin = undetached(node)
        twin = shown.setdefault(origin, position) if kind == TENSOR else position
        source, twin = positions.get(origin), None if twin == position else twin
        entries.append(Entry(kind, f"output{infix}{position}", node, None, source, twin))
    return entries


def undetached(node: torch.fx.Node | None) -> torch.fx.Node | None:
    """The node whose memory and values a node has: what it detaches."""
    while node is not None and node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        node = node.args[0]
    return node


def kind_of(fake: Any) -> str | None:
    """The kind of a value, None when it has none."""
    kinds = {
        torch.Tensor: TENSOR,
        torch.SymInt: DIM,
        torch.SymFloat: FLOAT,
        torch.SymBool: BOOL,
        type(None): NONE,
        (bool, int, float): CONSTANT,
    }
    return next((kind for types, kind in kinds.items() if isinstance(fake, types)), None)
