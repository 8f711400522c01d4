"""Walks over whole graphs in linear time: all nodes, nodes that nothing uses, expressions that stand twice.

onnx-ir has passes of the same meaning; these look at each node once and also share the expressions of bodies with what stands before.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

from experimental_experiment.torch_interpreter.inference import schema_of

RANDOM = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)
"""Two of these are not equal, whatever their inputs; a Dropout may be one in training."""

COUNTED = frozenset(("Attention", "BatchNormalization"))
"""The number of results says what they do: train; join past and present, which onnxruntime 1.31 refuses to do for nobody."""

SMALL = 64
"""Tensors of more elements are not compared as attributes."""

BODIES = frozenset((ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS))
COMPARED = frozenset(
    (ir.AttributeType.INT, ir.AttributeType.INTS, ir.AttributeType.STRING, ir.AttributeType.STRINGS)
)
"""Attributes whose values are compared as they are."""

Scope = collections.ChainMap[tuple, ir.Node]


def bodies_of(node: ir.Node) -> list[ir.Graph]:
    """The graphs among the attributes of a node."""
    found = []
    for attribute in node.attributes.values():
        if attribute.type in BODIES:
            found += [attribute.value] if attribute.type is ir.AttributeType.GRAPH else attribute.value
    return found


def nodes_of(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """All nodes in order, each before those of its bodies."""
    for node in list(graph):
        yield node
        if node.attributes:
            for body in bodies_of(node):
                yield from nodes_of(body)


def remove_unused_nodes(graph: ir.Graph | ir.Function, opset: int) -> None:
    """Remove the nodes and the optional results that neither a node nor an output reads, then the weights that no node reads."""
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)
            continue
        if len(node.outputs) > 1:
            remove_unused_outputs(node, opset)
        if node.attributes:
            for body in bodies_of(node):
                remove_unused_nodes(body, opset)
    if isinstance(graph, ir.Graph):
        for name, value in list(graph.initializers.items()):
            if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
                del graph.initializers[name]


def remove_unused_outputs(node: ir.Node, opset: int) -> None:
    """A node does not list the optional results that nothing reads: some kernels then do not compute them."""
    schema = schema_of(node.op_type, opset, node.domain)
    if schema is None or node.op_type in COUNTED:
        return
    unread = [not (value.uses() or value.is_graph_output()) for value in node.outputs]
    used = len(unread) - unread[::-1].index(False)
    for position, value in enumerate(node.outputs):
        kind = schema.outputs[min(position, len(schema.outputs) - 1)].option
        if kind != onnx.defs.OpSchema.FormalParameterOption.Optional:
            used = max(used, position + 1)
        elif unread[position]:
            value.name = ""
    node.resize_outputs(used)


def share_expressions(graph: ir.Graph | ir.Function, outer: Scope | None = None) -> list[ir.Node]:
    """Keep the first of the nodes that compute the same from the same values, also for the bodies after it.

    Only operators of ONNX: those of other domains, local functions too, may draw random numbers or keep a state. Returns the nodes that
    are kept for others: more nodes read them now.
    """
    scope = outer.new_child() if outer is not None else collections.ChainMap()
    kept = []
    for node in list(graph):
        bodies = bodies_of(node) if node.attributes else ()
        for body in bodies:
            kept += share_expressions(body, scope)
        key = None if bodies or node.domain or node.op_type in RANDOM else key_of(node)
        if key is None:
            continue
        first = scope.setdefault(key, node)
        if first is node:
            continue
        for value, same in zip(node.outputs, first.outputs):
            if not same.name:  # a result that nothing read so far
                same.name = f"{value.name}_shared"
            replacement = copied(node, value, same) if value.is_graph_output() else same
            value.replace_all_uses_with(replacement, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        kept.append(first)
    return kept


def copied(before: ir.Node, value: ir.Value, same: ir.Value) -> ir.Value:
    """An Identity of *same*, under the name that the output *value* has."""
    node = ir.node("Identity", [same], name=f"{before.name}_{value.name}")
    (result,) = node.outputs
    value.name, result.name = f"{value.name}_shared", value.name
    result.type, result.shape = value.type, value.shape
    result.metadata_props.update(value.metadata_props)
    before.graph.insert_before(before, node)
    return result


def key_of(node: ir.Node) -> tuple | None:
    """What makes two nodes equal, None when they cannot be compared."""
    key: tuple[Any, ...] = (node.op_type, len(node.outputs), node.inputs)
    for name, attribute in node.attributes.items():
        value = attribute.value
        if attribute.is_ref():
            value = attribute.ref_attr_name
        elif attribute.type is ir.AttributeType.FLOAT:
            value = repr(value)  # 0 and -0 differ
        elif attribute.type is ir.AttributeType.TENSOR and value.size <= SMALL:
            value = (value.dtype, tuple(value.shape), value.tobytes())
        elif attribute.type not in COMPARED:
            return None
        key += (name, value)
    return key
