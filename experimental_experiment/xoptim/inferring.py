"""What onnx's inference tells of the sizes of a model, and which of them stay open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Mapping

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from experimental_experiment.xoptim.graphs import bodies_of, nodes_of, values_read_by
from experimental_experiment.xoptim.hidden import (
    has_type,
    hidden,
    is_hidden,
    is_misread,
    is_mistaken,
    know_hidden,
    shown,
)
from experimental_experiment.xoptim.shapes import is_open

SEQUENCES = frozenset(
    "Optional SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceMap SplitToSequence".split()
)
"""Operators whose results are no tensors: onnx-ir's inference gives them the type of what they hold."""

COPYING = frozenset(("Identity", "OptionalGetElement"))
"""Operators whose results have the type of their input, which may be no tensor."""


def infer_shapes(model: ir.Model, made_up: set[str]) -> bool:
    """Infer the shapes of the main graph and its bodies; whether more is known of sizes now, or that some are the same.

    *made_up*: the names that it makes up.
    """
    nodes = nodes_of(model.graph)
    count = different_sizes(model.graph, nodes)
    forget_names(nodes, made_up)  # it would keep those of another time
    before = size_names(nodes) | size_names(model.graph.inputs)
    made_up.clear()
    given = {value: (value.type, value.shape, untold(value)) for node in nodes for value in node.outputs}
    roots = (model.graph, *model.functions.values())
    everywhere = {node: root.opset_imports.get("", 1) for root in roots for node in nodes_of(root)}
    # dtypes first: they tell what inference may misread
    follows = not any(is_misread(node) and not has_type(node) for node in nodes)
    opset, goes_on = model.graph.opset_imports.get("", 1), True
    initializers = model.graph.initializers
    in_order = list(initializers.values())
    while goes_on:
        with hidden(everywhere, follows) as kept, shown(model.graph, nodes):
            # a node that is refused stays as it is
            ShapeInferencePass(check_type=False, strict_mode=False, data_prop=follows)(model)
        if not follows:
            forget_names(nodes, size_names(nodes) - before)  # those of sizes that are followed say more
        misread = [node for node in nodes if is_mistaken(node) and node not in kept]
        forget_behind(misread, nodes, given)
        goes_on = not follows or bool(misread) or know_hidden(kept, opset)
        goes_on |= any(not is_hidden(node, everywhere[node]) for node in kept)
        follows = True
    for value in in_order:  # onnx-ir leaves the large ones behind the small ones
        initializers.add(initializers.pop(value.name))
    while any([has_restored(node, given) for node in nodes]):
        pass  # until no other reads what has changed
    made_up |= size_names(nodes) - before
    is_clearer = any(untold(value) < many for value, (_, _, many) in given.items())
    return is_clearer or different_sizes(model.graph, nodes) < count


def forget_behind(
    first: Iterable[ir.Node], nodes: Iterable[ir.Node], given: Mapping[ir.Value, tuple]
) -> None:
    """The results of the *first* nodes, and all of *nodes* that is computed of them, have the types that were *given* again."""
    changed = {value for node in first for value in node.outputs}
    for node in nodes if changed else ():
        if not changed.isdisjoint(values_read_by(node)):
            changed.update(node.outputs)
    for value in changed:
        value.type, value.shape, _ = given[value]


def has_restored(node: ir.Node, given: Mapping[ir.Value, tuple]) -> bool:
    """Give sequences the types that they had, also those that bodies carry: onnx-ir reads theirs as tensors. Returns whether a type changed."""
    found: dict[ir.Value, tuple] = {}
    sources = [output for body in bodies_of(node) for output in body.outputs]
    sources += node.inputs if node.op_type in COPYING else ()
    if node.op_type in SEQUENCES or not all(type(value.type) is ir.TensorType for value in sources):
        found.update((value, given[value][:2]) for value in node.outputs)
    for body in bodies_of(node) if node.op_type == "Loop" else ():
        for value, source in zip(body.inputs[2:], node.inputs[2:]):
            if source is not None and type(source.type) is not ir.TensorType:
                found[value] = source.type, None
    changed = {value: told for value, told in found.items() if (value.type, value.shape) != told}
    for value, (kind, shape) in changed.items():
        value.type, value.shape = kind, shape
    return bool(changed)


def has_open_sizes(graph: ir.Graph, new: Container[ir.Node]) -> bool:
    """Whether inference did not find a size of what nodes give: what rules have changed since then may tell it.

    Those of *new* nodes do not count: they were inferred when rules wrote them.
    """
    for node in graph:
        for value in node.outputs if node not in new else ():
            shape = value.shape
            if shape is None or any(type(size) is not int and is_open(size) for size in shape.dims):
                return True
    return False


def untold(value: ir.Value) -> float:
    """How little is known of the sizes of a value: 2 for one without a name, 1 for one without a number; infinity when their number is unknown."""
    if value.shape is None:
        return float("inf")
    return sum(not isinstance(size, int) for size in value.shape) + sum(map(is_open, value.shape))


def different_sizes(graph: ir.Graph, nodes: Iterable[ir.Node]) -> int:
    """How many sizes of inputs and results are open, those of one name counted once."""
    values = itertools.chain(graph.inputs, (value for node in nodes for value in node.outputs))
    shapes = [value.shape for value in values if value.shape is not None]
    names = [size.value for shape in shapes for size in shape if is_open(size)]
    return names.count(None) + len({*names} - {None})


def size_names(holders: Iterable[ir.Node | ir.Value]) -> set[str]:
    """The names of sizes that onnx's inference may have made up: of values, or of the results of nodes."""
    values = (value for item in holders for value in (item.outputs if isinstance(item, ir.Node) else (item,)))
    sizes = (size for value in values if value.shape is not None for size in value.shape if is_open(size))
    return {size.value for size in sizes if not isinstance(size, int) and size.value is not None}


def size_names_of(values: Iterable[ir.Value]) -> set[str]:
    """The names of sizes of some values, but those that onnx's inference makes up."""
    sizes = [size for value in values if value.shape is not None for size in value.shape]
    return {size.value for size in sizes if not isinstance(size, int) and not is_open(size)}


def name_sizes(values: Iterable[ir.Value]) -> set[str]:
    """Give each size of these values that has no name one that onnx's inference might make up; returns these names."""
    made_up: set[str] = set()
    for value in values:
        shape = value.shape
        if shape is not None and not all(isinstance(size, int) or size.value for size in shape):
            sizes = [
                size if isinstance(size, int) or size.value else ir.SymbolicDim(f"unk__{value.name}_{axis}")
                for axis, size in enumerate(shape)
            ]
            made_up.update(size.value for size in sizes if not isinstance(size, int) and is_open(size))
            value.shape = ir.Shape(sizes)
    return made_up


def forget_names(nodes: Iterable[ir.Node], names: Container[str]) -> None:
    """Sizes of these names, which inference made up, have none from now on."""
    if names:
        values = (value for node in nodes for value in node.outputs)
        forget_sizes(values, lambda size: not isinstance(size, int) and size.value in names)


def forget_sizes(values: Iterable[ir.Value], is_forgotten: Callable[[int | ir.SymbolicDim], bool]) -> None:
    """These sizes are unknown from now on: a name may say less than a runtime infers by itself.

    Measured with onnxruntime 1.31: it adds images only where it knows that their sizes are the same.
    """
    for value in values:
        shape = value.shape
        if shape is not None and any(map(is_forgotten, shape)):
            value.shape = ir.Shape([None if is_forgotten(size) else size for size in shape])
