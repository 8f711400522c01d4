"""Between protobuf and onnx-ir: what onnx-ir has no name for is kept beside its model, or refused in one sentence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx_ir as ir

from experimental_experiment.helpers import subgraphs

TYPES = "experimental_experiment.types"
"""Key of ``ir.Model.meta``: the types of inputs and outputs that onnx-ir does not have, by name."""

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
    for owner in (result.graph, *result.functions.values()):
        if STANDARD in owner.opset_imports:  # onnx-ir gives nodes the short name
            owner.opset_imports[""] = owner.opset_imports.pop(STANDARD)
    return result


def load(path: str | os.PathLike) -> ir.Model:
    """The model of a file, see `from_proto`, its external data where the file is."""
    result = from_proto(onnx.load(path, load_external_data=False))
    ir.external_data.set_base_dir(result.graph, os.path.dirname(os.path.abspath(path)))
    return result


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The ModelProto of a model, with the types that `from_proto` kept."""
    result = ir.to_proto(model)
    restore_types(result, model)
    return result


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
        for sparse in graph.sparse_initializer if isinstance(graph, onnx.GraphProto) else ():
            yield f"the initializer {sparse.values.name!r} is sparse"
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
                    yield f"the attribute {attribute.name!r} of a node {node.op_type} is sparse"
                elif attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                    pending += [body for _, body in subgraphs(attribute)]
