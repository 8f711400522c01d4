"""Modules as local functions: the nodes of every call of a submodule become one ONNX function, shared by equal modules.

The graph is cut after it was written, along the modules that its nodes come from: what is inside a function is what the
interpreter wrote, source lines included. Weights are inputs of the functions, small constants stay inside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import Context
from experimental_experiment.torch_interpreter.marks import BOUND, MODULES

Call = tuple[str, str, str]

MISTAKEN = frozenset("Add Constant Div Gather Mul Sub".split())
"""Names that no function has: onnxruntime 1.31 does not look at the domain, and ends the process when it reads a second input."""


def class_names(classes: bool | Collection[type]) -> Collection[str] | None:
    """The qualified names of the classes chosen, None for all or when there are none.

    Raises TypeError when *classes* is neither a bool nor a collection of module classes.
    """
    if isinstance(classes, bool):
        return None
    if not isinstance(classes, Collection) or isinstance(classes, str):
        raise TypeError(f"modules_as_functions is True or a set of classes of modules, not {classes!r}")
    names = set()
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
            raise TypeError(f"modules_as_functions holds {kind!r}, which is not a class of modules")
        names.add(f"{kind.__module__}.{kind.__qualname__}")
    return names


def extract(model: ir.Model, context: Context, classes: Collection[str] | None) -> None:
    """Replace the nodes of every submodule (of these classes) by calls of functions, callees first in the model."""
    cutter = Cutter(model, context, classes)
    cutter.cut(list(model.graph), 0)
    for domain, _, _ in model.functions:
        model.graph.opset_imports.setdefault(domain, 1)


class Cutter:
    """Cuts the nodes of a model along the calls of modules. *chosen*: names of classes, None for all."""

    def __init__(self, model: ir.Model, context: Context, chosen: Collection[str] | None):
        self.model = model
        self.context = context
        self.chosen = chosen
        self.shared: dict[tuple, tuple[ir.Function, list[ir.Node]]] = {}
        self.operators = {(node.domain, node.op_type) for node in model.graph.all_nodes()}

    def cut(self, nodes: Sequence[ir.Node], depth: int) -> list[ir.Node]:
        """Nodes with the calls of modules at *depth* and deeper made functions; one that calls nothing stays."""
        kept: list[ir.Node] = []
        for call, run in groupby(nodes, key=lambda node: call_at(node, depth)):
            part = list(run)
            if call is not None:
                part = self.cut(part, depth + 1)
                if self.chosen is None or call[2] in self.chosen:
                    part = [self.replace(part, call)]
            kept += part
        return kept

    def replace(self, nodes: list[ir.Node], call: Call) -> ir.Node:
        """One node that calls the function made of *nodes*, which leave the graph."""
        inside = set(with_subgraphs(nodes))
        inputs, constants = read_from_outside(nodes, self.context)
        outputs = [v for node in nodes for v in node.outputs if is_read_outside(v, inside)]
        text = Canonical(inputs).text(nodes, outputs)
        graph = self.model.graph
        name, domain = call[2].rsplit(".", 1)[-1], call[2].split(".")[0]
        caller = ir.node(name, inputs, domain=domain, num_outputs=len(outputs))
        caller.name = self.context.names.unique(f"call_{call[1]}")
        caller.metadata_props.update(nodes[0].metadata_props)
        caller.meta[MODULES] = nodes[0].meta[MODULES]
        graph.insert_before(nodes[0], caller)
        for old, new in zip(outputs, caller.outputs):
            self.reconnect(old, new, inside)
        graph.remove(nodes, safe=False)
        # equal modules of another package have a function of its domain; what a Cast does depends on what is cast
        key = domain, text, *(value.dtype for value in inputs)
        if key not in self.shared:
            self.shared[key] = self.function(name, domain, nodes, inputs, constants, outputs), nodes
        else:
            generalize(self.shared[key][1], nodes)
            forget_inputs(nodes)
        caller.op_type = self.shared[key][0].name
        return caller

    def reconnect(self, old: ir.Value, new: ir.Value, inside: set[ir.Node]) -> None:
        """Let what is outside of the function read the result of the call, under its old name."""
        new.type, new.shape, new.name = old.type, old.shape, old.name
        old.name = self.context.names.unique(f"{old.name}_inside")
        for user, index in list(old.uses()):
            if user not in inside:
                user.replace_input_with(index, new)
        outputs = self.model.graph.outputs
        for position, value in enumerate(outputs):
            if value is old:
                outputs[position] = new

    def function(
        self,
        name: str,
        domain: str,
        nodes: list[ir.Node],
        inputs: list[ir.Value],
        constants: list[ir.Value],
        outputs: list[ir.Value],
    ) -> ir.Function:
        """The function of *nodes*, under *name* or, when a function or an operator of the domain has it, *name* and a number."""
        named = [(where, existing) for where, existing, _ in self.model.functions]
        taken = MISTAKEN.union(existing for where, existing in (*named, *self.operators) if where == domain)
        unused = (f"{name}_{count}" if count else name for count in range(len(taken) + 1))
        free = next(candidate for candidate in unused if candidate not in taken)
        function = local_function(self.context, domain, free, nodes, inputs, constants, outputs)
        self.model.functions[function.identifier()] = function
        return function


def local_function(
    context: Context,
    domain: str,
    name: str,
    nodes: Sequence[ir.Node],
    inputs: Sequence[ir.Value],
    constants: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
) -> ir.Function:
    """A function of *nodes*, which are in no graph: its inputs are new values, its constants nodes."""
    formal = {value: ir.Value(name=f"{value.name}_formal", type=value.type) for value in inputs}
    first = []
    for value in constants:
        node = ir.node("Constant", [], {"value": value.const_value})
        node.outputs[0].name = f"{value.name}_inside"
        formal[value] = node.outputs[0]
        first.append(node)
    domains = set()
    for node in with_subgraphs(nodes):
        domains.add(node.domain)
        for index, value in enumerate(node.inputs):
            if value in formal:
                node.replace_input_with(index, formal[value])
    imports = {used: context.domains.get(used, 1) for used in sorted(domains)} | {"": context.opset}
    formals = [formal[value] for value in inputs]
    graph = ir.Graph(formals, outputs, nodes=[*first, *nodes], name=name, opset_imports=imports)
    return ir.Function(domain, name, graph=graph, attributes=[])


def generalize(nodes: Iterable[ir.Node], others: Iterable[ir.Node]) -> None:
    """Let the values of a shared function know only the sizes that they also have in another call, whose nodes are *others*."""
    for value, other in zip(bound(nodes), bound(others), strict=True):
        value.shape = common_shape(value.shape, other.shape)
        if value.meta.get(BOUND) != other.meta.get(BOUND):
            value.meta.pop(BOUND, None)


def common_shape(one: ir.Shape | None, other: ir.Shape | None) -> ir.Shape | None:
    """What two shapes have in common: None for a size that differs, or when the ranks do."""
    if one is None or other is None or one.rank() != other.rank():
        return None
    return ir.Shape([size if size == also else None for size, also in zip(one, other)])


class Canonical:
    """The structure of a list of nodes as a text that does not hold the names of its values."""

    def __init__(self, inputs: Sequence[ir.Value]):
        self.labels = {value: f"i{position}" for position, value in enumerate(inputs)}

    def text(self, nodes: Iterable[ir.Node], outputs: Sequence[ir.Value]) -> str:
        """Operators, attributes and how values flow."""
        lines = []
        for node in nodes:
            read = [self.label(value) for value in node.inputs]
            attributes = [f"{name}={self.attribute(item)}" for name, item in sorted(node.attributes.items())]
            for value in node.outputs:
                self.labels[value] = f"v{len(self.labels)}"
            lines.append(f"{node.domain}::{node.op_type}({read}){attributes}->{len(node.outputs)}")
        return "\n".join([*lines, str([self.label(value) for value in outputs])])

    def label(self, value: ir.Value | None) -> str:
        """The number of a value, or the content of a constant."""
        if value is None:
            return "-"
        if value not in self.labels:
            tensor = value.const_value
            return f"{tensor.dtype}{tensor.shape}{tensor.tobytes()!r}"
        return self.labels[value]

    def attribute(self, attribute: ir.Attr) -> str:
        """The content of an attribute."""
        if attribute.type == ir.AttributeType.GRAPH:
            graph = attribute.as_graph()
            self.labels |= {value: f"g{len(self.labels)}_{k}" for k, value in enumerate(graph.inputs)}
            return "{" + self.text(graph, graph.outputs) + "}"
        if attribute.type == ir.AttributeType.TENSOR:
            return f"{attribute.value.dtype}{attribute.value.shape}{attribute.value.tobytes()!r}"
        return str(attribute.value)


def call_at(node: ir.Node, depth: int) -> Call | None:
    """The call of a module that a node comes from at one depth."""
    calls = node.meta.get(MODULES, ())
    return calls[depth] if depth < len(calls) else None


def graphs_of(node: ir.Node) -> list[ir.Graph]:
    """The subgraphs of a node."""
    attributes = [item for _, item in sorted(node.attributes.items())]
    return [item.as_graph() for item in attributes if item.type == ir.AttributeType.GRAPH]


def bound(nodes: Iterable[ir.Node]) -> Iterable[ir.Value]:
    """The values that nodes and their subgraphs make, and the inputs of the subgraphs, in order."""
    for node in with_subgraphs(nodes):
        yield from node.outputs
        yield from (value for graph in graphs_of(node) for value in graph.inputs)


def with_subgraphs(nodes: Iterable[ir.Node]) -> Iterable[ir.Node]:
    """The nodes and those of their subgraphs, all levels."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from with_subgraphs(graph)


def captured(node: ir.Node) -> Iterable[ir.Value]:
    """The values that a node and its subgraphs read, in order; those of the subgraphs themselves included."""
    for item in with_subgraphs([node]):
        yield from (value for value in item.inputs if value is not None)
    for item in with_subgraphs([node]):
        for graph in graphs_of(item):
            yield from graph.outputs


def read_from_outside(nodes: Sequence[ir.Node], context: Context) -> tuple[list[ir.Value], list[ir.Value]]:
    """What nodes read that is not theirs, in order: values, and the small constants of the model."""
    inside = set(bound(nodes))
    used = dict.fromkeys(value for node in nodes for value in captured(node) if value not in inside)
    shared = context.shared
    return [value for value in used if value not in shared], [value for value in used if value in shared]


def forget_inputs(nodes: Iterable[ir.Node]) -> None:
    """Let nodes that left the model read nothing: what they read may be unused now."""
    for node in with_subgraphs(nodes):
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)


def is_read_outside(value: ir.Value, inside: set[ir.Node]) -> bool:
    """Whether another node than these reads a value, or the caller does."""
    return value.is_graph_output() or any(user not in inside for user, _ in value.uses())
