"""`discrepancies`: the first node whose result in ONNX is not torch's, and why.

Every result that both sides name is compared twice: with eager, and with what torch gives on ONNX's own results of the nodes before,
which tells a node that is wrong from one that follows another. A difference there is a tie, rounding (no further from float64 than
eager, by `ROUNDING`), or an error.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from experimental_experiment.investigate.onnx_side import Given
from experimental_experiment.investigate.replay import ordered_leaves
from experimental_experiment.investigate.results import Discrepancies
from experimental_experiment.investigate.side_by_side import Comparison
from experimental_experiment.investigate.written import written
from experimental_experiment.progress import Progress, silent
from experimental_experiment.torch_interpreter.arguments import (
    refuse_foreign_arguments,
    refuse_no_count,
    refuse_no_progress,
)
from experimental_experiment.torch_interpreter.capture import capture, carries_values
from experimental_experiment.torch_interpreter.conversion import opsets
from experimental_experiment.torch_interpreter.export_options import CapturedOnce, ExportOptions
from experimental_experiment.torch_interpreter.passes import options_of
from experimental_experiment.torch_interpreter.torch_state import one_at_a_time
from experimental_experiment.xoptim.bisection import bisect


def discrepancies(
    model: Any,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
    onnx: Given | None = None,
    *,
    dynamic_shapes: Any = None,
    export_options: ExportOptions | None = None,
    at_once: int | None = None,
    scale: float = 1.0,
    progress: Progress = silent,
    **options: Any,
) -> Discrepancies:
    """Compare every named result of an ONNX model with torch, and say which one is wrong first.

    Args:
        model: what `to_onnx` takes.
        args: positional arguments of the call to compare.
        kwargs: its keyword arguments.
        onnx: the ONNX model of it, or its file; None exports it now.
        dynamic_shapes: as for `to_onnx`.
        export_options: as for `to_onnx`.
        at_once: how many results are held at once, when all do not fit in memory: the first difference is then found by
            bisection, and only the results around it are told.
        scale: multiplies the tolerances of the dtypes.
        progress: as for `to_onnx`.
        options: other arguments of `to_onnx`, for ``onnx=None``.

    Raises:
        ValueError: the arguments are not those of the program, or of the model.
        ExportError: the model cannot be exported.
        EagerError: PyTorch itself fails on the example.
    """
    refuse_foreign_arguments(kwargs, export_options)
    refuse_no_progress(progress)
    if at_once is not None:
        refuse_no_count(2, at_once=at_once)
    if not isinstance(scale, (int, float)) or not scale > 0:
        raise ValueError(f"scale is a positive number, not {scale!r}")
    if onnx is not None and options:
        raise TypeError(f"discrepancies() takes no {next(iter(options))!r} for a model that is given")
    if isinstance(args, torch.Tensor):
        args = (args,)
    kwargs = dict(kwargs or {})
    once = CapturedOnce(export_options or ExportOptions())
    is_program = isinstance(model, torch.export.ExportedProgram) or (
        isinstance(model, torch.fx.GraphModule) and carries_values(model)
    )
    call = ((), {}) if is_program else (args, kwargs)
    progress("capture", 1)
    with one_at_a_time(), once.patched() as converted:
        positional, named = converted(call)
        program = capture(model, positional, named, dynamic_shapes, once)
        args, kwargs = converted((args, kwargs))
    exported = model if isinstance(model, torch.export.ExportedProgram) else once.program
    leaves = ordered_leaves(exported, args, kwargs)
    if onnx is not None:
        return Comparison(program, onnx, leaves, scale, progress).told(at_once)

    with tempfile.TemporaryDirectory() as folder:

        def exported(**others: Any) -> Given:
            others |= {"dynamic_shapes": dynamic_shapes, "export_options": once, "progress": progress}
            return written(model, *call, folder, **options | others)[1]

        report = Comparison(program, exported(), leaves, scale, progress).told(at_once)
        if report.first is None or options.get("optimize") is False:
            return report
        plain = Comparison(program, exported(optimize=False), leaves, scale, progress)
        return before_optimization(plain, report, at_once, options)


def before_optimization(
    plain: Comparison, optimized: Discrepancies, at_once: int | None, options: Mapping[str, Any]
) -> Discrepancies:
    """What is wrong before the optimizer, where more results have their names; or the rule that makes the difference."""
    report = plain.told(at_once)
    if report.first is not None:
        return report
    plain.progress("bisect", 1)
    feeds = {name: tensor.numpy() for name, tensor in zip(plain.input_names, plain.inputs)}
    rules = options_of(options.get("optimize", True), opsets(options.get("target_opset"))[1])
    found = bisect(plain.onnx, feeds, tolerance=1e-3, options=rules)
    if found is not None and optimized.first is not None:
        optimized.first.note = (
            f"right before optimization: the rule {found.rule} of the optimizer is wrong, at {found.node}"
        )
    return optimized
