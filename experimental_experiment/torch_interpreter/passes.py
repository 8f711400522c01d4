"""What happens to a model after it was written: the optimizer, or only the removal of what nothing uses; local functions.

onnx-ir's identity elimination is not used: it renames a value that two outputs copy, and joins the output of
a subgraph with a value of the outer graph. The emitter writes an Identity only where one is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir
from onnx_ir.passes import PassManager
from onnx_ir.passes.common import RemoveUnusedNodesPass, RemoveUnusedOpsetsPass

from experimental_experiment.inlining import inline_functions
from experimental_experiment.logs import logger
from experimental_experiment.progress import Progress, silent
from experimental_experiment.protos import MICROSOFT, write_for
from experimental_experiment.torch_interpreter.emitter import Context
from experimental_experiment.torch_interpreter.functions import extract
from experimental_experiment.torch_interpreter.marks import SELECTED
from experimental_experiment.xoptim.optimizer import optimize
from experimental_experiment.xoptim.options import OptimizationOptions
from experimental_experiment.xoptim.report import Report


def options_of(choice: bool | OptimizationOptions, domains: Mapping[str, int]) -> OptimizationOptions | None:
    """What ``to_onnx(optimize=...)`` means, None for no optimization.

    True is the set of standard rules, and those of onnxruntime when the target allows the domain com.microsoft.
    Raises TypeError for anything else than a bool or options, ValueError for rules that write a domain which the target excludes.
    """
    if isinstance(choice, bool):
        patterns = "default+onnxruntime" if MICROSOFT in domains else "default"
        return OptimizationOptions(patterns) if choice else None
    if not isinstance(choice, OptimizationOptions):
        raise TypeError(f"optimize is True, False or OptimizationOptions, not {choice!r}")
    foreign = [member.name for member in choice.rules if member.set == "onnxruntime"]
    if foreign and MICROSOFT not in domains:
        raise ValueError(
            f"the rule {foreign[0]} writes operators of com.microsoft: give target_opset={{'': ..., 'com.microsoft': 1}}"
        )
    return choice


def finish(
    model: ir.Model,
    context: Context,
    options: OptimizationOptions | None,
    inline: bool,
    classes: Collection[str] | None,
    progress: Progress = silent,
) -> list[Report]:
    """Inline the local functions or extract those of *classes*, and optimize; without options only what nothing uses is removed.

    Returns what the optimizer did, each time that it ran.
    """
    write_for(model, context.runtime)
    if inline:
        inline_functions(model)
    if context.keeps_modules:
        improve(model, None, context)  # not more: what calls of equal modules share would make them differ
        extract(model, context, classes)
    return improve(model, options, context, progress)


def improve(
    model: ir.Model,
    options: OptimizationOptions | None,
    context: Context,
    progress: Progress = silent,
) -> list[Report]:
    """Optimize, or remove what nothing uses; what the optimizer did."""
    if options is None:
        progress("optimize", 1)
        PassManager([RemoveUnusedNodesPass(), RemoveUnusedOpsetsPass()])(model)
        return []
    report = Report()
    model.graph.meta[SELECTED] = context.dimensions.of_selections
    optimize(
        model,
        options,
        report=report,
        runtime=context.runtime,
        special_values=context.special_values,
        progress=progress,
    )
    logger.info("optimized: %s", report)
    return [report]
