"""Constants as rules want them, initializers, and back where a model cannot have these."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np
import onnx
import onnx_ir as ir

INITIALIZERS_STAND_ALONE = 4
"""The first IR version whose initializers need not be inputs, too."""

NUMBERS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}
"""Attributes of Constant that hold numbers, and the dtype that its result has."""


def given_by(node: ir.Node) -> ir.TensorProtocol | None:
    """What a Constant gives, None when a function's caller decides, or when it holds nothing, or twice."""
    if len(node.attributes) != 1:
        return None
    ((name, attribute),) = node.attributes.items()
    if attribute.is_ref():
        return None
    value = attribute.value
    if name in NUMBERS:
        return ir.Tensor(np.array(value, NUMBERS[name]))
    if name in ("value_string", "value_strings"):
        texts = [value] if name == "value_string" else value
        shape = () if name == "value_string" else (len(texts),)
        return ir.StringTensor([text.encode() for text in texts], shape=ir.Shape(shape))
    return nameable(value)


def nameable(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A tensor for an initializer of another name: that of a ModelProto is copied, as its name is the caller's."""
    if not isinstance(tensor, ir.serde.TensorProtoTensor):
        return tensor
    proto = onnx.TensorProto()
    proto.CopyFrom(tensor.raw)
    return ir.serde.TensorProtoTensor(proto)


def lift_constants(nodes: Iterable[ir.Node]) -> None:
    """Each Constant among the nodes becomes an initializer of its graph; those that are outputs stay.

    onnx-ir's pass does not read every text, and names the tensors of the ModelProto that the model was read from.
    """
    for node in nodes:
        if node.op_type != "Constant" or node.domain:
            continue
        (old,) = node.outputs
        tensor = given_by(node)
        if tensor is None:
            continue
        if old.is_graph_output():
            old.type, old.shape, old.const_value = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape), tensor
            continue
        value = ir.Value(
            name=old.name,
            shape=ir.Shape(tensor.shape),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
            metadata_props=dict(old.metadata_props),
        )
        value.meta.update(old.meta)
        node.graph.register_initializer(value)
        old.replace_all_uses_with(value)
        node.graph.remove(node, safe=True)


@contextlib.contextmanager
def lowered_constants(model: ir.Model) -> Iterator[None]:
    """After this, the initializers that an old IR version did not have before are Constants."""
    is_old = model.ir_version < INITIALIZERS_STAND_ALONE
    before = {value for graph in model.graphs() for value in graph.initializers.values()} if is_old else set()
    yield
    for graph in list(model.graphs()) if is_old else ():
        for name, value in reversed(list(graph.initializers.items())):
            if value in before or value.is_graph_input():
                continue
            del graph.initializers[name]
            node = ir.node("Constant", [], {"value": value.const_value})
            (result,) = node.outputs
            result.name, result.type, result.shape = name, value.type, value.shape
            result.metadata_props.update(value.metadata_props)
            value.replace_all_uses_with(result, replace_graph_outputs=True)
            graph.insert_before(graph[0], node) if len(graph) else graph.append(node)
            node.name = ""  # a graph names what has none by a counter, which another optimization would find elsewhere
