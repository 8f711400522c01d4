"""Walks over whole graphs in linear time: all nodes, nodes that nothing uses, expressions that stand twice.

onnx-ir has passes of the same meaning; these look at each node once and also share the expressions of bodies with what stands before.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from experimental_experiment.torch_interpreter.inference import schema_of
from experimental_experiment.torch_interpreter.marks import ANNOTATION

RANDOM = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)
"""Two of these are not equal, whatever their inputs; a Dropout may be one in training."""

COUNTED = frozenset(("Attention", "BatchNormalization"))
"""Operators whose number of results says what they do: a BatchNormalization trains; an Attention joins past and present, all of which
onnxruntime 1.31 wants to be read."""

LISTED = frozenset(("GRU", "LSTM", "RNN", "Unique"))
"""Operators of which two that list other results compute the same. onnxruntime 1.31 joins them, too, and then refuses the model."""

MOST_COMPARED = 64
"""Tensors of more elements are not compared as attributes."""

WITH_BODIES = frozenset(("If", "Loop", "Scan", "SequenceMap"))
"""The operators of ONNX that have graphs among their attributes."""

BODIES = frozenset((ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS))
COMPARED = frozenset(
    (ir.AttributeType.INT, ir.AttributeType.INTS, ir.AttributeType.STRING, ir.AttributeType.STRINGS)
)
"""Attributes whose values are compared as they are."""

Known = dict[tuple, ir.Node]
"""The first node of each expression: by its operator and inputs, and by all of `key_of` where several nodes have these."""

Scope = tuple[Known, ...]
"""The expressions that are known: of a graph, then of those around it."""


def bodies_of(node: ir.Node) -> Sequence[ir.Graph]:
    """The graphs among the attributes of a node."""
    if node.op_type not in WITH_BODIES and not node.domain:
        return ()
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type in BODIES:
            found += [attribute.value] if attribute.type is ir.AttributeType.GRAPH else attribute.value
    return found


def nodes_of(graph: ir.Graph | ir.Function) -> list[ir.Node]:
    """All nodes in order, each before those of its bodies."""
    nodes = list(graph)
    if not holders_of(nodes):
        return nodes
    return [inner for node in nodes for part in ([node], *map(nodes_of, bodies_of(node))) for inner in part]


def holders_of(nodes: Iterable[ir.Node]) -> list[ir.Node]:
    """Those of the nodes that may have bodies."""
    return [node for node in nodes if node.op_type in WITH_BODIES or node.domain]


def remove_unused_nodes(graph: ir.Graph | ir.Function, opset: int) -> list[ir.Node]:
    """Remove the nodes and the optional results that neither a node nor an output reads, then the weights that no node reads.

    Returns the nodes that stay, as `nodes_of` does.
    """
    kept, removed = [], []  # kept from the last one on
    for node in reversed(list(graph)):
        outputs = node.outputs
        if len(outputs) != 1 or not outputs[0].uses():  # not as most nodes
            if not is_read(outputs):
                detach(node)
                removed.append(node)
                continue
            if len(outputs) > 1:
                remove_unused_outputs(node, opset)
        for body in reversed(bodies_of(node)) if node.op_type in WITH_BODIES or node.domain else ():
            kept += reversed(remove_unused_nodes(body, opset))
        kept.append(node)
    graph.remove(removed)
    if isinstance(graph, ir.Graph):
        remove_unused_weights(graph)
    kept.reverse()
    return kept


def remove_unused_weights(graph: ir.Graph) -> None:
    """Remove the initializers that nothing reads, and that are neither inputs nor outputs."""
    for name, value in list(graph.initializers.items()):
        if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
            del graph.initializers[name]


@contextlib.contextmanager
def annotated_weights(graph: ir.Graph) -> Iterator[None]:
    """After this, the scales and zero points are there that quantization annotations name: perhaps no node reads them."""
    nodes = (value for node in graph for value in node.outputs)
    values = itertools.chain(graph.inputs, graph.initializers.values(), nodes)
    annotations = [value.meta[ANNOTATION] for value in values if ANNOTATION in value.meta]
    names = {name for annotation in annotations for name in annotation.values()}
    named = {name: graph.initializers[name] for name in sorted(names & graph.initializers.keys())}
    yield
    for name, value in named.items():
        if name not in graph.initializers:
            graph.initializers.add(value)


def is_read(values: Sequence[ir.Value]) -> bool:
    """Whether a node or an output of a graph reads one of the values."""
    for value in values:
        if value.uses() or value.is_graph_output():
            return True
    return False


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


def share_expressions(graph: ir.Graph | ir.Function, outer: Scope = ()) -> dict[ir.Node, None]:
    """Keep the first of the nodes that compute the same from the same values, also for the bodies after it.

    Only operators of ONNX: those of other domains, local functions too, may draw random numbers or keep a state. Returns the nodes that
    are kept for others, each once: more nodes read them now.
    """
    here: Known = {}
    scope = (here, *outer)
    kept: dict[ir.Node, None] = {}
    removed = []
    for node in list(graph):
        operator = node.op_type
        brief = operator, node.inputs
        for body in bodies_of(node) if operator in WITH_BODIES or node.domain else ():
            kept |= share_expressions(body, scope)
        if not outer and here.setdefault(brief, node) is node:
            continue  # as most nodes
        first = first_like(node, brief, scope)
        if first is None or (operator == "Identity" and node.outputs[0].is_graph_output()):
            continue  # as it is, it is a copy for an output
        if len(first.outputs) < len(node.outputs):
            first.resize_outputs(len(node.outputs))
        for value, same in zip(node.outputs, first.outputs):
            if not value.name:
                continue  # nothing reads it
            if not same.name:  # a result that nothing read so far
                same.name, same.type, same.shape = f"{value.name}_shared", value.type, value.shape
            replacement = copied(node, value, same) if value.is_graph_output() else same
            value.replace_all_uses_with(replacement, replace_graph_outputs=True)
        detach(node)
        removed.append(node)
        kept[first] = None
    graph.remove(removed)
    return kept


def first_like(node: ir.Node, brief: tuple, scope: Scope) -> ir.Node | None:
    """The first node that computes the same as *node*, whose operator and inputs are *brief*.

    If there is none, *node* is the first one of the innermost graph.
    """
    for known in scope:
        first = known.get(brief)
        if first is None:
            continue
        key = key_of(node)
        if key is None:
            return None
        if key_of(first) != key:
            first = known.get(key)
        if first is not None:
            return first
    here = scope[0]
    if here.setdefault(brief, node) is not node:
        here[key_of(node)] = node
    return None


def detach(node: ir.Node) -> None:
    """Have a node read nothing, and its bodies hold nothing: what they read no longer counts them among its users."""
    for position, value in enumerate(node.inputs):
        if value is not None:
            node.replace_input_with(position, None)
    for body in bodies_of(node) if node.op_type in WITH_BODIES or node.domain else ():
        for inner in body:
            detach(inner)
        body.remove(list(body))


def values_read_by(node: ir.Node) -> Sequence[ir.Value | None]:
    """What a node and its bodies read, values of these bodies too."""
    bodies = bodies_of(node)
    if not bodies:
        return node.inputs
    inner = (value for body in bodies for member in nodes_of(body) for value in member.inputs)
    return [*node.inputs, *inner, *(value for body in bodies for value in body.outputs)]


def say_the_same(new: ir.Value, old: ir.Value) -> None:
    """What a model says of an output beside its name and type holds for the value that takes its place."""
    new.metadata_props.update(old.metadata_props)
    new.doc_string = old.doc_string
    if ANNOTATION in old.meta:
        new.meta[ANNOTATION] = old.meta[ANNOTATION]


def copied(before: ir.Node, value: ir.Value, same: ir.Value) -> ir.Value:
    """An Identity of *same*, under the name that the output *value* has."""
    node = ir.node("Identity", [same], name=f"{before.name}_{value.name}")
    (result,) = node.outputs
    value.name, result.name = f"{value.name}_shared", value.name
    result.type, result.shape = value.type, value.shape
    say_the_same(result, value)
    before.graph.insert_before(before, node)
    return result


Places = dict[ir.Value, int]
"""The place of each value of a body among them: those of two bodies that compute the same are others."""


def key_of(node: ir.Node, places: Places | None = None) -> tuple | None:
    """What makes two nodes equal, in a body those whose inputs have the same *places*; None when they cannot be compared."""
    if node.op_type in RANDOM or node.domain:
        return None
    inputs: tuple = node.inputs
    if places:
        inputs = tuple([places.get(value, value) for value in inputs])
    count = 0 if places is None and node.op_type in LISTED else len(node.outputs)
    key: tuple[Any, ...] = (node.op_type, count, inputs)
    for attribute in node.attributes.values() if node.attributes else ():
        value = attribute.value
        if attribute.is_ref():
            value = attribute.ref_attr_name
        elif attribute.type is ir.AttributeType.FLOAT:
            value = repr(value)  # 0 and -0 differ
        elif attribute.type is ir.AttributeType.TENSOR and value.size <= MOST_COMPARED:
            is_text = value.dtype is ir.DataType.STRING
            held = tuple(value.numpy().flat) if is_text else value.tobytes()
            value = (value.dtype, tuple(value.shape), held)
        elif attribute.type is ir.AttributeType.GRAPH:
            value = key_of_body(value, places or {})
        elif attribute.type not in COMPARED:
            value = None
        if value is None:
            return None
        key += (attribute.name, value)
    return key


def key_of_body(body: ir.Graph, around: Places) -> tuple | None:
    """What makes two bodies equal: the same nodes in the same order; None when one of them cannot be compared."""
    places = {**around}
    for value in body.inputs:
        places[value] = len(places)
    keys: list[tuple] = []
    for node in body:
        key = key_of(node, places)
        if key is None:
            return None
        keys.append(key)
        for value in node.outputs:
            places[value] = len(places)
    return len(body.inputs), tuple(keys), tuple([places.get(value, value) for value in body.outputs])
