"""`optimize`: rules over a model, its control-flow bodies and its local functions."""

from __future__ import annotations

import time
from collections.abc import Iterable

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    LiftConstantsToInitializersPass,
    RemoveUnusedFunctionsPass,
    RemoveUnusedNodesPass,
    RemoveUnusedOpsetsPass,
    ShapeInferencePass,
)

from experimental_experiment.torch_interpreter.emitter import Context
from experimental_experiment.torch_interpreter.inference import fold
from experimental_experiment.xoptim.engine import Engine
from experimental_experiment.xoptim.options import OptimizationOptions
from experimental_experiment.xoptim.report import Report
from experimental_experiment.xoptim.rules import Rule


def optimize(
    model: ir.Model | onnx.ModelProto,
    options: OptimizationOptions | None = None,
    *,
    rules: Iterable[Rule] = (),
    report: Report | None = None,
    runtime: str = "onnxruntime",
) -> ir.Model | onnx.ModelProto:
    """Rewrite a model by rules until none applies.

    Args:
        model: an ``onnx_ir.Model``, changed in place, or a ModelProto, which is left as it is.
        options: see `OptimizationOptions`.
        rules: rules of the caller, tried before those of *options*.
        report: filled with what was done.
        runtime: what the model is written for, as in `to_onnx`.

    Returns the optimized model, of the type that was given.
    Raises OptimizationError when a rule does not end or changes a type.
    """
    options = options or OptimizationOptions()
    report = Report() if report is None else report
    is_proto = isinstance(model, onnx.ModelProto)
    target = ir.from_proto(model) if is_proto else model
    start = time.perf_counter()
    report.nodes_before = count(target)
    everything = [*rules, *options.rules]
    if everything or options.constant_folding:
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(target)
        if any(value.shape is None for node in target.graph for value in node.outputs):
            ShapeInferencePass()(target)
    if everything:
        for root in (target.graph, *target.functions.values()):
            context = context_of(target, root, runtime)
            engine = Engine(root, context, everything, report)
            engine.run(options.stop_after)
    if options.constant_folding:
        fold_constants(target)
    if options.remove_unused:
        remove_unused(target)
    report.nodes_after = count(target)
    report.seconds += time.perf_counter() - start
    return ir.to_proto(target) if is_proto else target


def count(model: ir.Model) -> int:
    """Number of nodes, in bodies and functions too."""
    return sum(1 for graph in (model.graph, *model.functions.values()) for _ in graph.all_nodes())


def context_of(model: ir.Model, root: ir.Graph | ir.Function, runtime: str) -> Context:
    """What the emitters of one graph share: its operator sets, the names that are taken."""
    domains = root.opset_imports
    context = Context(root, domains.get("", 1), domains=domains, runtime=runtime)
    taken = context.names.count
    for graph in (root, *root.subgraphs()):
        taken.update(dict.fromkeys((value.name for value in graph.inputs), 0))
        if isinstance(graph, ir.Graph):
            taken.update(dict.fromkeys(graph.initializers, 0))
    for node in root.all_nodes():
        taken[node.name] = 0
        taken.update(dict.fromkeys((value.name for value in node.outputs), 0))
    return context


def fold_constants(model: ir.Model) -> None:
    """Compute the nodes of the main graph whose inputs are small constants."""
    opset = model.graph.opset_imports.get("", 1)
    context = None
    for node in list(model.graph):
        if (
            node.domain
            or any(value is None or value.const_value is None for value in node.inputs)
            or not node.inputs
        ):
            continue
        if any(value.is_graph_input() for value in node.inputs) or any(
            out.is_graph_output() for out in node.outputs
        ):
            continue
        arrays = fold(node, opset)
        if arrays is None:
            continue
        context = context or context_of(model, model.graph, "onnx")
        for value, array in zip(node.outputs, arrays):
            name = context.names.unique(f"{value.name}_folded")
            constant = ir.Value(name=name, const_value=ir.tensor(array, name=name))
            constant.type, constant.shape = value.type, value.shape
            model.graph.register_initializer(constant)
            value.replace_all_uses_with(constant)
        model.graph.remove(node, safe=True)


def remove_unused(model: ir.Model) -> None:
    """Remove what stands twice and what no output needs."""
    for step in (
        DeduplicateInitializersPass(),
        CommonSubexpressionEliminationPass(),
        RemoveUnusedNodesPass(),
        RemoveUnusedFunctionsPass(),
        RemoveUnusedOpsetsPass(),
    ):
        step(model)
