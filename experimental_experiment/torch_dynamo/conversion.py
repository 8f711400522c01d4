"""From an ATen graph, as TorchDynamo and aot_autograd hand it over, to an ONNX model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes import PassManager
from onnx_ir.passes.common import RemoveUnusedNodesPass, RemoveUnusedOpsetsPass
from torch.utils._python_dispatch import _disable_current_modes as without_modes

from experimental_experiment.torch_dynamo.aliasing import with_bases
from experimental_experiment.torch_dynamo.interface import (
    CONSTANT,
    DIM,
    NONE,
    TENSOR,
    Entry,
    input_entries,
    output_entries,
)
from experimental_experiment.torch_dynamo.noise import Noise, finished, noises, seed
from experimental_experiment.torch_interpreter.conversion import emitter_for, model_of
from experimental_experiment.torch_interpreter.dtypes import onnx_dtype
from experimental_experiment.torch_interpreter.emitter import Emitter
from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.torch_interpreter.interface import add_input, number_dtype, output
from experimental_experiment.torch_interpreter.interpreter import Walk, as_view, value_of
from experimental_experiment.torch_interpreter.passes import finish, options_of
from experimental_experiment.torch_interpreter.runtime.kernels import see_rounded
from experimental_experiment.torch_interpreter.signature import Input, symbol_of
from experimental_experiment.torch_interpreter.sizes import GivenNumber, declare, remember, vector_of
from experimental_experiment.torch_interpreter.storage import View
from experimental_experiment.torch_interpreter.torch_state import without_autocast
from experimental_experiment.xoptim.options import OptimizationOptions


@dataclasses.dataclass(frozen=True)
class Target:
    """What the models are written for; the arguments of `to_onnx` that have the same names."""

    target_opset: int | Mapping[str, int] | None = None
    optimize: bool | OptimizationOptions = True
    translations: Mapping[Any, Callable] | None = None
    runtime: str = "onnxruntime"


@dataclasses.dataclass
class Converted:
    """An ONNX model and what it takes and returns.

    Attributes:
        model: all inputs and all outputs.
        run: the model to run: without the outputs that Python knows, an input, a constant or None.
        inputs, outputs: those of the graph, in order.
        noises: what torch draws, inputs of the model after the others.
    """

    model: onnx.ModelProto
    run: onnx.ModelProto
    inputs: list[Entry]
    outputs: list[Entry]
    noises: list[Noise]


def is_computed(entry: Entry) -> bool:
    """Whether the model has to compute an output."""
    known = entry.source, entry.twin, entry.base, entry.shows
    return entry.kind not in (CONSTANT, NONE) and all(position is None for position in known)


def convert(module: torch.fx.GraphModule, target: Target, seen: int | None = None) -> Converted:
    """The model of a graph whose nodes carry ``meta["val"]``, of which the user sees the first *seen* outputs, None for all.

    Raises ExportError when a node cannot be translated, ValueError or TypeError when *target* is wrong.
    """
    # in aot_autograd's fake mode constants would be fake
    with without_autocast(), without_modes():
        op = emitter_for("compiled", target.target_opset, target.translations, target.runtime)
        options = options_of(target.optimize, op.context.domains)
        inputs = input_entries(module)
        outputs = with_bases(output_entries(module, inputs), inputs, seen)
        drawn = noises(module, inputs, op.context.translations)
        write(op, module, inputs, outputs, drawn)
        seed(op.graph)
        model = model_of(op)
        finish(model, op.context, options, inline=False, classes=None)
        whole = ir.to_proto(model)
        return Converted(whole, to_run(model, whole, outputs), inputs, outputs, drawn)


def to_run(model: ir.Model, whole: onnx.ModelProto, outputs: Sequence[Entry]) -> onnx.ModelProto:
    """The model without the outputs that Python knows."""
    wanted = {entry.name for entry in outputs if is_computed(entry)}
    if len(wanted) == len(outputs):
        return whole
    kept = [value for value in model.graph.outputs if value.name in wanted]
    model.graph.outputs.clear()
    model.graph.outputs.extend(kept)
    PassManager([RemoveUnusedNodesPass(), RemoveUnusedOpsetsPass()])(model)
    return ir.to_proto(model)


def write(
    op: Emitter,
    module: torch.fx.GraphModule,
    inputs: Sequence[Entry],
    outputs: Sequence[Entry],
    drawn: Sequence[Noise],
) -> None:
    """Write a graph: inputs, nodes, outputs."""
    name_dimensions(op, inputs)
    for entry in [*inputs, *drawn, *outputs]:
        if entry.name:
            op.context.names.reserve(entry.name)
    views = [as_view(operand(op, entry)) for entry in inputs]
    walk = Walk(module, op, op.context.dimensions)
    add_noises(op, walk, drawn)
    for view in views:
        if isinstance(view, View):
            declare(op, view.read(op))
    results = walk.run(views)
    for entry, view in zip(inputs, views):
        if isinstance(view, View) and view.cell.version:
            raise ExportError(
                f"the graph writes its input {entry.node.name}",
                entry.node,
                "functionalize it: aot_autograd(keep_inference_input_mutations=False), the default",
            )
    values = [value_of(op, result) for result in results]
    # what one graph goes on with and what another reads of it are the same numbers
    see_rounded(op, "output", [value for value in values if isinstance(value, ir.Value)])
    for entry, value in zip(outputs, values):
        op.graph.outputs.append(output_value(op, entry, value))


def add_noises(op: Emitter, walk: Walk, drawn: Sequence[Noise]) -> None:
    """Make inputs of what torch draws, and read them where random operators were."""
    parts: dict[torch.fx.Node, ir.Value] = {}
    for noise in drawn:
        value = tensor_input(op, noise.name, noise.fake)
        if noise.is_part:
            parts[noise.node] = value
        else:
            walk.env[noise.node] = as_view(value)
    op.context.translations.update(finished(parts))


def tensor_input(op: Emitter, name: str, fake: torch.Tensor) -> ir.Value:
    """A tensor that the model takes, added to its inputs."""
    dtype, sizes = onnx_dtype(fake.dtype), op.context.dimensions.shape(fake, name)
    value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(sizes))
    op.graph.inputs.append(value)
    return value


def name_dimensions(op: Emitter, inputs: Sequence[Entry]) -> None:
    """Call the symbols of the inputs ``s0``, ``s1``, ... in their order."""
    dimensions = op.context.dimensions
    for entry in inputs:
        fake = entry.fake
        for axis in range(fake.dim()) if entry.kind == TENSOR else [None]:
            symbol = symbol_of(fake, axis)
            if symbol is not None and symbol not in dimensions.names:
                dimensions.name(symbol, f"s{len(dimensions.names)}")


def operand(op: Emitter, entry: Entry) -> Any:
    """The value of an input, added to the graph; the Python value of a constant."""
    if entry.kind == CONSTANT:
        return entry.value
    if entry.kind == TENSOR:
        value = add_input(Input(entry.node, entry.name), op.context.dimensions)
        op.graph.inputs.append(value)
        return value
    dtype = number_dtype(entry.fake)
    value = ir.Value(name=entry.name, type=ir.TensorType(dtype), shape=ir.Shape([1]))
    op.graph.inputs.append(value)
    number = GivenNumber(op, value, op.context.dimensions.label(entry.fake, entry.name))
    remember(op, number)
    return number


def output_value(op: Emitter, entry: Entry, result: Any) -> ir.Value:
    """The value of one output under its name."""
    if entry.kind == TENSOR:
        return output(op, op.context.dimensions, entry.name, result, entry.node)
    if entry.kind == NONE:
        value = op.copy(op.constant(0.0))
    elif entry.kind == CONSTANT:
        value = op.copy(op.constant([entry.value]))
    elif entry.kind == DIM:
        value = op.copy(vector_of(op, result))
    else:
        value = op.copy(op.Unsqueeze(result, [0]))
    value.name = entry.name
    return value
