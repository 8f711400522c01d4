"""What is wrong with a model that a file holds: names that nothing gives, circles, unknown dtypes, bytes that are no text, weights that are elsewhere or too short.

onnx.checker is not asked: it refuses models that onnxruntime writes and runs.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator

import onnx
import onnx_ir as ir
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from experimental_experiment.helpers import KNOWN_DTYPES, subgraphs

KNOWN = KNOWN_DTYPES - {onnx.TensorProto.UNDEFINED}
"""The dtypes of tensors."""


def problems(model: onnx.ModelProto, path: str, reads_weights: bool = True) -> Iterator[str]:
    """What nobody can make sense of in the model of a file, a sentence each.

    *reads_weights*: whether the files of the weights are looked at too.
    """
    folder = os.path.dirname(os.path.abspath(path))
    yield from graph_problems(model.graph, set(), folder if reads_weights else None)
    for function in model.functions:
        yield from node_problems(function.node, set(function.input), folder if reads_weights else None)


def text_problems(message: Message) -> Iterator[str]:
    """The texts that are none: protobuf reads bytes that are not UTF-8 without a word, and does not write them."""
    for name, is_text, is_repeated in fields_to_read(message.DESCRIPTOR):
        if is_repeated:
            items = getattr(message, name)
        else:
            items = [getattr(message, name)] if message.HasField(name) else []
        for item in items:
            if not is_text:
                yield from text_problems(item)
            elif isinstance(item, bytes):
                yield f"{item!r} is the {name} of {with_article(message)}, and no text"


@functools.cache
def fields_to_read(kind: Descriptor) -> list[tuple[str, bool, bool]]:
    """The fields of messages of a kind that are texts or hold some: name, whether it is a text, whether it is repeated."""
    messages = FieldDescriptor.CPPTYPE_MESSAGE
    return [
        (field.name, field.cpp_type != messages, not field.has_presence)
        for field in kind.fields
        if field.cpp_type == messages or field.type == FieldDescriptor.TYPE_STRING
    ]


def with_article(message: Message) -> str:
    """The kind of a message: ``a NodeProto``."""
    kind = message.DESCRIPTOR.name
    return f"an {kind}" if kind[0] in "AEIOU" else f"a {kind}"


def graph_problems(graph: onnx.GraphProto, outside: set[str], folder: str | None) -> Iterator[str]:
    """The problems of a graph in which the names *outside* are known."""
    for value in [*graph.input, *graph.output]:
        kind = value.type.tensor_type
        if value.type.HasField("tensor_type") and kind.elem_type not in KNOWN | {onnx.TensorProto.UNDEFINED}:
            yield f"{value.name!r} has the unknown dtype {kind.elem_type}"
    known = outside | {value.name for value in graph.input}
    for tensor in graph.initializer:
        known.add(tensor.name)
        yield from tensor_problems(tensor, folder)
    known.update(tensor.values.name for tensor in graph.sparse_initializer)
    yield from node_problems(graph.node, known, folder)
    for value in graph.output:
        if value.name not in known:
            yield f"nothing gives the output {value.name!r}"


def node_problems(nodes: list[onnx.NodeProto], known: set[str], folder: str | None) -> Iterator[str]:
    """The problems of nodes in their order; *known* is extended by what they give."""
    later = {name for node in nodes for name in node.output}
    for node in nodes:
        title = f"the node {node.name!r} ({node.op_type})"
        for name in node.input:
            if name and name not in known:
                what = "before it is computed" if name in later else "which nothing gives"
                yield f"{title} reads {name!r} {what}"
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield from tensor_problems(attribute.t, folder)
            for _, body in subgraphs(attribute):
                yield from graph_problems(body, set(known), folder)
        for name in node.output:
            if name and name in known:
                yield f"{title} gives {name!r} a second time"
            known.add(name)


def tensor_problems(tensor: onnx.TensorProto, folder: str | None) -> Iterator[str]:
    """The problems of a weight; those of its file in *folder*, when there is one."""
    title = f"the weight {tensor.name!r}"
    if tensor.data_type not in KNOWN:
        yield f"{title} has the unknown dtype {tensor.data_type}"
        return
    if any(size < 0 for size in tensor.dims):
        yield f"{title} has the shape {list(tensor.dims)}"
        return
    if tensor.data_type == onnx.TensorProto.STRING:
        return
    needed = math.ceil(math.prod(tensor.dims) * ir.DataType(tensor.data_type).bitwidth / 8)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        offset, length = entries.get("offset", "0"), entries.get("length", str(needed))
        if not offset.isdecimal() or not length.isdecimal():
            yield f"{title} stands at {offset!r} and has {length!r} bytes, which are no numbers"
        elif folder is not None:
            yield from file_problems(
                title,
                list(tensor.dims),
                folder,
                entries.get("location", ""),
                int(offset),
                int(length),
                needed,
            )
    elif tensor.HasField("raw_data") and len(tensor.raw_data) != needed:
        yield f"{title} holds {len(tensor.raw_data)} bytes, and its shape {list(tensor.dims)} has {needed}"


def file_problems(
    title: str, shape: list[int], folder: str, location: str, offset: int, length: int, needed: int
) -> Iterator[str]:
    """The problems of the file *location* of a weight of so many bytes, *needed* by its shape."""
    file = os.path.realpath(os.path.join(folder, location))
    if os.path.commonpath([file, os.path.realpath(folder)]) != os.path.realpath(folder):
        yield f"{title} is in {location!r}, which is outside of the folder of the model"
    elif not os.path.isfile(file):
        yield f"{title} is in the file {location!r}, which does not exist"
    elif length != needed:
        yield f"{title} has {length} bytes, and its shape {shape} has {needed}"
    elif offset + needed > os.path.getsize(file):
        yield f"{title} is in {location!r} up to the byte {offset + needed}, and the file has {os.path.getsize(file)}"
