"""The backends: what ``torch.compile(model, backend=...)`` and ``aot_autograd(fw_compiler=...)`` call.

Source of semantics: "Custom Backends" of PyTorch's documentation. TorchDynamo hands over a graph of torch's functions; aot_autograd
makes ATen graphs of it, without mutation, one for the results and one for the gradients, and these are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from experimental_experiment.logs import logger
from experimental_experiment.torch_dynamo.checkpointing import unwrap
from experimental_experiment.torch_dynamo.compiled import CompiledGraph, OrtBackend
from experimental_experiment.torch_dynamo.conversion import Converted, Target, convert
from experimental_experiment.torch_dynamo.debug import DebugBackend
from experimental_experiment.torch_dynamo.decompositions import decomposed, table_of
from experimental_experiment.torch_dynamo.noise import is_drawn, refuse_forgotten_dropout
from experimental_experiment.torch_dynamo.providers import Provider, device_of, providers_for
from experimental_experiment.torch_dynamo.training import Step, keep_inputs, metadata_now
from experimental_experiment.torch_interpreter.arguments import refuse_foreign_arguments
from experimental_experiment.torch_interpreter.export_options import ExportOptions
from experimental_experiment.torch_interpreter.torch_state import one_at_a_time
from experimental_experiment.xoptim.options import OptimizationOptions


def onnx_custom_backend(
    graph_module: torch.fx.GraphModule,
    args: Sequence[Any],
    *,
    target_opset: int | Mapping[str, int] | None = None,
    storage: dict[str, Any] | None = None,
    export_options: ExportOptions | None = None,
    translations: Mapping[Any, Callable] | None = None,
    optimize: bool | OptimizationOptions = True,
    runtime: str = "onnxruntime",
    providers: Sequence[Provider] | None = None,
) -> Callable:
    """Compile a graph of TorchDynamo's, or an ATen graph of aot_autograd's, for onnxruntime.

    Args:
        graph_module: the graph.
        args: its example inputs: fake or real tensors, symbolic ints.
        target_opset: version of ai.onnx, as `to_onnx` takes it.
        storage: receives in its list ``"instance"`` a dict for each compiled graph: ``onnx`` the model, ``providers``,
            ``inputs`` and ``outputs`` their kinds (tensor, dim, float, bool, constant, NONE, noise), ``graph_module`` the ATen graph.
        export_options: of which only ``decomposition_table`` counts: operators that torch decomposes before the conversion.
        translations: ``{operator: function}`` used before those of the registry.
        optimize: True for the standard rules of `xoptim`, False for none, or `OptimizationOptions`.
        runtime: see `to_onnx`.
        providers: execution providers of onnxruntime; by default the one of the device that the tensors are on.

    Returns:
        What computes the graph. Gradients flow through it when *graph_module* comes from TorchDynamo.

    Raises:
        ExportError: a node cannot be translated; nothing falls back to eager.
        ProviderError: the installed onnxruntime lacks a provider.
    """
    target = Target(target_opset, optimize, translations, runtime)

    def make(converted: Converted, device: torch.device, instance: dict[str, Any]) -> OrtBackend:
        backend = OrtBackend(converted, device, outputs_seen(), providers_for(device, providers))
        instance["providers"] = backend.providers
        return backend

    return compiled(graph_module, args, make, target, export_options, storage)


def onnx_debug_backend(
    graph_module: torch.fx.GraphModule,
    args: Sequence[Any],
    *,
    target_opset: int | Mapping[str, int] | None = None,
    storage: dict[str, Any] | None = None,
    export_options: ExportOptions | None = None,
    translations: Mapping[Any, Callable] | None = None,
    optimize: bool | OptimizationOptions = True,
    runtime: str = "onnx",
    verbose: int = 0,
    collect: bool = False,
) -> Callable:
    """`onnx_custom_backend` on onnx's reference evaluator: slow, with every result at hand.

    Args:
        verbose: 1 logs every node and every result, see `ExtendedReferenceEvaluator`.
        collect: keep every result of every call, by name, in the list ``"results"`` of the graph's dict in *storage*.

    The other arguments are those of `onnx_custom_backend`, which says what it returns and raises; models are plain ONNX by default.
    Raises ValueError when *collect* has no *storage*.
    """
    if collect and storage is None:
        raise ValueError("collect=True keeps the results in storage: give storage={}")
    target = Target(target_opset, optimize, translations, runtime)

    def make(converted: Converted, device: torch.device, instance: dict[str, Any]) -> DebugBackend:
        instance["providers"] = ["ReferenceEvaluator"]
        results = instance.setdefault("results", []) if collect else None
        return DebugBackend(converted, device, outputs_seen(), verbose, results)

    return compiled(graph_module, args, make, target, export_options, storage)


def compiled(
    graph_module: torch.fx.GraphModule,
    args: Sequence[Any],
    make: Callable[[Converted, torch.device, dict[str, Any]], CompiledGraph],
    target: Target,
    export_options: ExportOptions | None,
    storage: dict[str, Any] | None,
) -> Callable:
    """Compile an ATen graph, or the ATen graphs that aot_autograd makes of one of TorchDynamo's; *make* is what runs a model."""
    if not isinstance(graph_module, torch.fx.GraphModule):
        kind = type(graph_module).__name__
        raise TypeError(f"a backend compiles a graph of torch.compile(model, backend=...), not {kind}")
    if storage is not None and not isinstance(storage, MutableMapping):
        raise TypeError(f"storage is a dict, which is filled, not {storage!r}")
    refuse_foreign_arguments(None, export_options)
    table = table_of((export_options or ExportOptions()).decomposition_table)

    def compiler(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> CompiledGraph:
        device = device_of(
            [*inputs, *(node.meta.get("val") for node in module.graph.output_node().all_input_nodes)]
        )
        keep_inputs()
        unwrap(module, is_drawn)
        module = decomposed(module, table)
        converted = convert(module, target, outputs_seen())
        instance: dict[str, Any] = {
            "onnx": converted.model,
            "providers": [],
            "inputs": [*(entry.kind for entry in converted.inputs), *("noise" for _ in converted.noises)],
            "outputs": [entry.kind for entry in converted.outputs],
            "graph_module": module,
        }
        backend = make(converted, device, instance)
        if storage is not None:
            storage.setdefault("instance", []).append(instance)
        logger.info(
            "compiled a graph of %d inputs, %d outputs and %d ONNX nodes for %s",
            *(len(instance["inputs"]), len(instance["outputs"]), len(converted.model.graph.node)),
            ", ".join(instance["providers"]),
        )
        return backend

    def in_turn(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> CompiledGraph:
        with (
            one_at_a_time()
        ):  # TorchDynamo has the lock already; the first backward pass, which compiles its graph, has not
            return compiler(module, inputs)

    if is_aten(graph_module):
        return in_turn(graph_module, args)
    refuse_forgotten_dropout(graph_module)
    return Step(graph_module, args, in_turn, table).__call__


def is_aten(module: torch.fx.GraphModule) -> bool:
    """Whether a graph is one of ATen operators with their fake values, not one of torch's functions."""
    nodes = [node for node in module.graph.nodes if node.op in ("placeholder", "call_function")]
    is_empty = not nodes  # as TorchDynamo's are where it only knows constants
    return not (is_empty or module.graph.find_nodes(op="call_module")) and all(
        "val" in node.meta for node in nodes
    )


def outputs_seen() -> int | None:
    """How many of the first outputs aot_autograd shows to the user, the others being kept for the gradients; None: all."""
    metadata = metadata_now()
    return metadata.num_forward if metadata is not None else None
