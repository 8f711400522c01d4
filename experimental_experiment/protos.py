"""Between protobuf and onnx-ir: what onnx-ir has no name for is kept beside its model, or refused in one sentence.

Files written for onnxruntime name the sizes of inputs and outputs only: those of what nodes give each other stand in metadata.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx_ir as ir

from experimental_experiment.helpers import subgraphs
from experimental_experiment.reading import read

TYPES = "experimental_experiment.types"
"""Key of ``ir.Model.meta``: the types of inputs and outputs that onnx-ir does not have, by name."""

SIZES = "experimental_experiment.sizes"
"""Key of the metadata of a value in a file: its sizes, where the type tells numbers only; of ``ir.Model.meta``: whether files are written so."""

PRODUCER = "experimental_experiment"
"""The ``producer_name`` of the models that this package writes: the sizes that they tell are those that they have."""

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""

STANDARD = "ai.onnx"
"""The long name of the domain ``""``."""


def from_proto(model: onnx.ModelProto) -> ir.Model:
    """The model for onnx-ir, which shares its weights; a map among its inputs and outputs (ZipMap) has no type there.

    Raises ValueError for a model that onnx-ir would read with a part missing.
    """
    refusal = next(missing(model), None)
    if refusal is not None:
        raise ValueError(f"{refusal}, which onnx-ir does not read")
    graph = model.graph
    strange = [value for value in (*graph.input, *graph.output, *graph.value_info) if holds_map(value.type)]
    types: dict[str, onnx.TypeProto] = {}
    for value in strange:
        types.setdefault(value.name, onnx.TypeProto()).CopyFrom(value.type)
        value.ClearField("type")
    try:
        result = ir.from_proto(model)
    finally:
        put_types(strange, types)
    if types:
        result.meta[TYPES] = types
    if restore_names(result):
        result.meta[SIZES] = True
    for owner in (result.graph, *result.functions.values()):
        if STANDARD in owner.opset_imports:  # onnx-ir gives nodes the short name
            owner.opset_imports[""] = owner.opset_imports.pop(STANDARD)
    return result


def load(path: str | os.PathLike) -> ir.Model:
    """The model of a file, see `from_proto`, its external data where the file is.

    Raises TypeError for what is no path, ValueError for a file that holds no model.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise no_model(path)
    result = from_proto(read(path))
    ir.external_data.set_base_dir(result.graph, os.path.dirname(os.path.abspath(path)))
    return result


def no_model(given: object) -> TypeError:
    """The error for what is no model in any form."""
    kind = type(given).__name__
    return TypeError(f"a model is an onnx.ModelProto, an onnx_ir.Model or the path of a file, not {kind}")


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The ModelProto of a model, with what onnx-ir leaves out, see `complete`."""
    with as_written(model):
        result = ir.to_proto(model)
    complete(result, model)
    return result


def complete(proto: onnx.ModelProto, model: ir.Model) -> bool:
    """Give *proto*, which onnx-ir wrote of *model*, the types and the results without a name that it left out; whether there are any."""
    has_types, has_ends = restore_types(proto, model), restore_ends(proto, model)
    return has_types or has_ends


def restore_ends(proto: onnx.ModelProto, model: ir.Model) -> bool:
    """Let nodes end with the results without a name that they have in *model*: operators that are not ONNX's, and local functions,
    may want so many. Whether there are any.

    Cost: 0.5 microseconds a node, 0.06 to 0.2 of what onnx-ir takes to write it.
    """
    found = False
    pending: list[tuple[Iterable[ir.Node], onnx.GraphProto | onnx.FunctionProto]]
    pending = [(model.graph, proto.graph), *zip(model.functions.values(), proto.functions, strict=True)]
    while pending:
        nodes, graph = pending.pop()
        for position, node in enumerate(nodes):
            outputs = node.outputs
            if outputs and not outputs[-1].name:
                written = graph.node[position].output
                written.extend([""] * (len(outputs) - len(written)))
                found = True
            for place, attribute in enumerate(node.attributes.values()) if node.attributes else ():
                if (
                    attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
                    and not attribute.is_ref()
                ):
                    is_one = attribute.type is ir.AttributeType.GRAPH
                    bodies = [body for _, body in subgraphs(graph.node[position].attribute[place])]
                    pending += zip([attribute.value] if is_one else attribute.value, bodies, strict=True)
    return found


def write_for(model: ir.Model, runtime: str) -> None:
    """From now on the files of a model are written for a runtime, see `names_apart`."""
    model.meta[SIZES] = runtime == "onnxruntime"


@contextlib.contextmanager
def as_written(model: ir.Model) -> Iterator[None]:
    """While this lasts, onnx-ir writes the values of a model as files have them, see `names_apart` and `weights_told_once`."""
    with names_apart(model), weights_told_once(model):
        yield


@contextlib.contextmanager
def weights_told_once(model: ir.Model) -> Iterator[None]:
    """While this lasts, the type of a weight stands in its tensor alone.

    onnx-ir also tells it among the results of nodes, where the quantization of onnxruntime 1.31 finds another shape than the one that it has
    made of a weight: ``quantize_dynamic`` then refuses the model.
    """
    weights = [
        value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
        and not (
            value.is_graph_input() or value.is_graph_output() or value.metadata_props or value.doc_string
        )
    ]
    told = [(value.type, value.shape) for value in weights]
    for value in weights:
        value.type = value.shape = None
    try:
        yield
    finally:
        for value, (kind, shape) in zip(weights, told):
            value.type, value.shape = kind, shape


@contextlib.contextmanager
def names_apart(model: ir.Model) -> Iterator[None]:
    """While this lasts, if the model is written for onnxruntime, the types of what nodes give each other tell numbers, no names; metadata does.

    onnxruntime puts a result into the buffer of an earlier one whose sizes have the same names, which the cache of the processor has lost
    long ago, and merges an Add and a LayerNormalization of such results into a slower node. Measured with onnxruntime 1.31.1: without
    the names 0.97 to 1.00 of the time, see docs/benchmarks.md.
    """
    named = [value for value in results_of(model.graph) if has_names(value)] if model.meta.get(SIZES) else []
    shapes = [value.shape for value in named]
    apart: dict[tuple, tuple[str, ir.Shape]] = {}  # many have the same sizes
    for value, shape in zip(named, shapes):
        sizes = tuple([size if type(size) is int else size.value for size in shape.dims])
        if sizes not in apart:
            numbers = ir.Shape([size if isinstance(size, int) else None for size in sizes])
            apart[sizes] = json.dumps(sizes), numbers
        value.metadata_props[SIZES], value.shape = apart[sizes]
    try:
        yield
    finally:
        for value, shape in zip(named, shapes):
            value.shape = shape
            del value.metadata_props[SIZES]


def restore_names(model: ir.Model) -> bool:
    """Give results the names of their sizes that `names_apart` wrote, where the file still tells the same numbers; whether there are any."""
    if SIZES in model.meta:  # it knows them already
        return False
    found = False
    for value in results_of(model.graph):
        text = value.metadata_props.pop(SIZES, None)
        if text is None:
            continue
        found = True
        sizes, told = json.loads(text), list(value.shape or ())
        if len(told) == len(sizes) and all(a == b for a, b in zip(told, sizes) if isinstance(a, int)):
            value.shape = ir.Shape(sizes)
    return found


def type_of(value: onnx.ValueInfoProto) -> onnx.TypeProto:
    """The type of a value of a file, with the names of sizes that `names_apart` wrote beside it."""
    text = next((entry.value for entry in value.metadata_props if entry.key == SIZES), None)
    if text is None:
        return value.type
    result = onnx.TypeProto()
    result.CopyFrom(value.type)
    for size, told in zip(result.tensor_type.shape.dim, json.loads(text)):
        if isinstance(told, str) and not size.HasField("dim_value"):
            size.dim_param = told
    return result


def results_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """What the nodes of a graph and of its bodies give each other."""
    for node in graph:
        for value in node.outputs:
            if not value.is_graph_output():
                yield value
        for attribute in node.attributes.data.values():
            if attribute.type is ir.AttributeType.GRAPH:
                yield from results_of(attribute.value)
            elif attribute.type is ir.AttributeType.GRAPHS:
                for body in attribute.value:
                    yield from results_of(body)


def has_names(value: ir.Value) -> bool:
    """Whether a size of a value has a name and no number."""
    return value.shape is not None and any(
        [type(size) is not int and size.value is not None for size in value.shape.dims]
    )


def restore_types(proto: onnx.ModelProto, model: ir.Model) -> bool:
    """Give the inputs and outputs of *proto* the types that `from_proto` kept for *model*; whether there are any."""
    types = model.meta.get(TYPES, {})
    put_types((*proto.graph.input, *proto.graph.output), types)
    return bool(types)


def put_types(values: Iterable[onnx.ValueInfoProto], types: Mapping[str, onnx.TypeProto]) -> None:
    """Give values the types that their names have in *types*."""
    for value in values:
        if value.name in types:
            value.type.CopyFrom(types[value.name])


def holds_map(given: onnx.TypeProto) -> bool:
    """Whether a type is a map, or a sequence or an optional of maps."""
    kind = given.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return holds_map(getattr(given, kind).elem_type)
    return kind == "map_type"


def missing(model: onnx.ModelProto) -> Iterator[str]:
    """What onnx-ir would leave out of a model, or fail on."""
    if model.training_info:
        yield "the model has training_info"
    pending: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while pending:
        graph = pending.pop()
        known = given_names(graph)
        for sparse in graph.sparse_initializer if isinstance(graph, onnx.GraphProto) else ():
            yield f"the initializer {sparse.values.name!r} is sparse"
        for node in graph.node:
            for name in node.output:
                if name and name in known:
                    yield f"the node {(node.name or name)!r} ({node.op_type}) gives {name!r} a second time"
                known.add(name)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.UNDEFINED:
                    yield f"the attribute {attribute.name!r} of a node {node.op_type} has no type"
                elif attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
                    yield f"the attribute {attribute.name!r} of a node {node.op_type} is sparse"
                elif attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                    pending += [body for _, body in subgraphs(attribute)]


def given_names(graph: onnx.GraphProto | onnx.FunctionProto) -> set[str]:
    """The names that a graph has before its first node: of inputs and initializers."""
    if isinstance(graph, onnx.FunctionProto):
        return set(graph.input)
    return {item.name for item in (*graph.input, *graph.initializer)}
