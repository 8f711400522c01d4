"""The ONNX side of a comparison: any of its results made outputs, at a level of onnxruntime's optimization, in onnx.reference."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch

from experimental_experiment.comparison import FOLDER, array_of, run, session_options, tensor_of
from experimental_experiment.helpers import subgraphs
from experimental_experiment.inlining import inline_functions
from experimental_experiment.protos import from_proto, load, to_proto
from experimental_experiment.reference import ExtendedReferenceEvaluator
from experimental_experiment.torch_interpreter.files import PROTOBUF_LIMIT, save, weight_bytes
from experimental_experiment.xoptim.graphs import remove_unused_nodes

Given = onnx.ModelProto | ir.Model | str | os.PathLike

PLAIN = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
FULL = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


UNKNOWN = (
    AttributeError,
    IndexError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What onnx.reference raises for an operator that it lacks, or lacks for a dtype or a shape."""


def loaded(model: Given, inlined: bool = False) -> ir.Model:
    """A model of its own to change; external data stays where it is. Raises ValueError for what onnx-ir reads with a part missing."""
    if isinstance(model, ir.Model):
        result = from_proto(to_proto(model))
    elif isinstance(model, onnx.ModelProto):
        result = from_proto(model)
    else:
        result = load(model)
    if inlined:
        inline_functions(result)
    return result


def session_at(
    model: Given,
    level: onnxruntime.GraphOptimizationLevel,
    disabled: Iterable[str] = (),
    written_to: str = "",
) -> onnxruntime.InferenceSession:
    """A session at a level of optimization, without some optimizers. *written_to*: a file for the optimized model."""
    options = session_options(severity=4)
    options.graph_optimization_level = level
    if written_to:
        options.optimized_model_filepath = written_to
        options.add_session_config_entry(WRITTEN_BESIDE, f"{os.path.basename(written_to)}.data")
    providers, disabled = ["CPUExecutionProvider"], list(disabled)
    if isinstance(model, ir.Model):
        folders, held = external(model)
        if held <= PROTOBUF_LIMIT and len(folders) <= 1:
            for folder in folders:
                options.add_session_config_entry(FOLDER, os.path.abspath(folder))
            model = to_proto(model)
    if isinstance(model, onnx.ModelProto):
        content = model.SerializeToString()
        return onnxruntime.InferenceSession(content, options, providers, disabled_optimizers=disabled)
    if isinstance(model, ir.Model):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            save(model, path)
            return onnxruntime.InferenceSession(path, options, providers, disabled_optimizers=disabled)
    return onnxruntime.InferenceSession(os.fspath(model), options, providers, disabled_optimizers=disabled)


WRITTEN_BESIDE = "session.optimized_model_external_initializers_file_name"
"""Where onnxruntime writes the weights of the model that it has optimized: one file holds 2 GB at most."""


def external(model: ir.Model) -> tuple[set[str], int]:
    """The folders of the weights that lie in files, and how many bytes are in memory."""
    tensors = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    outside = [tensor for tensor in tensors if isinstance(tensor, ir.ExternalTensor)]
    folders = {os.fspath(tensor.base_dir) for tensor in outside}
    return folders, weight_bytes(model) - sum(tensor.nbytes for tensor in outside)


def values_of(model: Given, inputs: Sequence[torch.Tensor], names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The values of these names, as the graph computes them before onnxruntime optimizes it."""
    if not names:  # a graph without outputs is refused
        return {}
    exposed = loaded(model, inlined=True)
    graph = exposed.graph
    wanted = dict.fromkeys(names)
    known = {value.name: value for node in graph for value in node.outputs if value.name in wanted}
    graph.outputs.clear()
    graph.outputs.extend(known[name] for name in wanted)
    remove_unused_nodes(graph, graph.opset_imports.get("", 1))
    return dict(zip(wanted, run(session_at(exposed, PLAIN), inputs)))


def in_reference(model: Given, name: str, known: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """One value of a model computed by onnx.reference from the values that are *known*, None when it cannot.

    Only the nodes between are run.
    """
    inlined = loaded(model, inlined=True)
    proto = ir.to_proto(inlined)
    kept, needed = between(proto.graph, name, known)
    feeds = {key: tensor for key, tensor in known.items() if key in needed and key != name}
    inputs = [onnx.ValueInfoProto(name=key) for key in feeds]
    weights = [
        ir.to_proto(ir.Tensor(value.const_value.numpy(), dtype=value.const_value.dtype, name=key))
        for key, value in inlined.graph.initializers.items()
        if key in needed and key not in feeds
    ]
    part = onnx.helper.make_graph(kept, "part", inputs, [onnx.ValueInfoProto(name=name)], weights)
    try:
        evaluator = ExtendedReferenceEvaluator(onnx.helper.make_model(part, opset_imports=proto.opset_import))
        with np.errstate(all="ignore"):
            (result,) = evaluator.run(None, {key: array_of(tensor) for key, tensor in feeds.items()})
        return tensor_of(result)
    except UNKNOWN:
        return None


def between(
    graph: onnx.GraphProto, name: str, known: Container[str]
) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that compute one value from those that are *known*, in order, and the names of all values that they need."""
    producers = {output: node for node in graph.node for output in node.output}
    needed, pending = set(), [name]
    nodes = set()
    while pending:
        current = pending.pop()
        if current in needed or (current in known and current != name):
            needed.add(current)
            continue
        needed.add(current)
        if current in producers and id(producers[current]) not in nodes:
            nodes.add(id(producers[current]))
            pending += read_by(producers[current])
    return [node for node in graph.node if id(node) in nodes], needed


def read_by(node: onnx.NodeProto) -> list[str]:
    """The names that a node and its bodies read."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for _, graph in subgraphs(attribute):
            own = {value.name for value in [*graph.input, *graph.initializer]}
            own.update(name for inner in graph.node for name in inner.output)
            outer = [name for inner in graph.node for name in read_by(inner)]
            found += [name for name in outer if name not in own]
    return found
