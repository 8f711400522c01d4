"""`to_onnx`: capture, walk, optimize, write."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
import torch

from experimental_experiment.progress import Progress, silent
from experimental_experiment.torch_interpreter.arguments import (
    explains_foreign_arguments,
    refuse_foreign_arguments,
    refuse_misfits,
    refuse_no_names,
)
from experimental_experiment.torch_interpreter.export_options import CapturedOnce, ExportOptions
from experimental_experiment.whole import refuse_devices

if TYPE_CHECKING:
    from experimental_experiment.xoptim.options import OptimizationOptions


@explains_foreign_arguments
def to_onnx(
    mod: torch.nn.Module | Callable | torch.export.ExportedProgram | torch.fx.GraphModule,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    target_opset: int | Mapping[str, int] | None = None,
    export_options: ExportOptions | None = None,
    optimize: bool | OptimizationOptions = True,
    translations: Mapping[Any, Callable] | None = None,
    mutated_buffers: str = "drop",
    modules_as_functions: bool | Collection[type] = False,
    inline: bool | None = None,
    runtime: str = "onnxruntime",
    special_values: bool = False,
    weights: Mapping[str, torch.Tensor] | str | os.PathLike | None = None,
    filename: str | os.PathLike | None = None,
    verify: bool = False,
    report: str | os.PathLike | None = None,
    progress: Progress = silent,
) -> onnx.ModelProto:
    """Convert a model into ONNX.

    Args:
        mod: an ``nn.Module``, a function, an ExportedProgram, or a GraphModule whose nodes carry ``meta["val"]``.
        args: positional arguments of an example call; inputs of the model are the tensors among their leaves.
        kwargs: keyword arguments of that call.
        dynamic_shapes: as ``torch.export.export`` takes it; a string names a dynamic dimension. A tuple has the order of
            ``forward``; one is refused where keyword arguments in another order would make it ambiguous.
        input_names: names of the inputs, instead of those of forward's parameters.
        output_names: names of the outputs, instead of the path of each leaf of the result.
        target_opset: version of ai.onnx, 13 to 26, 20 by default; or versions by domain, ``{"": 20, "com.microsoft": 1}``.
        export_options: how torch.export is called.
        optimize: True applies the standard rules of `xoptim`, and those of onnxruntime when *target_opset* has com.microsoft;
            False writes the nodes as they were translated; or `OptimizationOptions`.
        translations: ``{operator: function}`` used for this call before those of the registry, see `translates`.
        mutated_buffers: ``"drop"`` leaves the new values of written buffers and inputs out, with one logged warning;
            ``"outputs"`` makes the written buffers, and tensors that are attributes, inputs under their names (``name_1`` beside
            an argument of that name), and every new value an output ``name_out`` (``name_out_1`` beside a result called so), after the others.
        modules_as_functions: True makes every submodule a local function named by its class, in a domain named
            by its package, equal modules sharing one whose inputs are the weights; a set of classes chooses.
        inline: True leaves no local function, for the optimizer's sake; False and None keep them.
        runtime: ``"onnxruntime"`` repairs what onnxruntime's CPU provider computes wrongly or has no kernel for, see
            ``docs/runtime.md``; ``"onnx"`` writes the plain standard, for other runtimes and providers.
        special_values: exact also for NaN in orders and extrema, the mean of no element, the sign of zero (of one operator), int64 beyond
            2 ** 53, ties of rounding. By default these are what the plain operator makes of them, see ``docs/runtime.md``, and with
            ``runtime="onnx"`` always: only the rules of the optimizer heed it then.
        weights: the values of a model made on the meta device or under FakeTensorMode, or others than a model has: a
            ``state_dict``, a safetensors file, or a folder of them. They are never all in memory; what a file beside or
            below *filename* holds in the model's dtype is not copied: the model refers to that file.
        filename: write the model there; weights of more than 16 MB in all go to ``filename + ".data"``, straight
            from torch's memory, and the returned model refers to that file.
        verify: then run the example in eager and in onnxruntime, and raise when an output differs: *filename* stays as it was.
        report: a file for what was done, what differs from eager and where: one page that needs nothing else when its name
            ends with ``.html``, Markdown when it ends with ``.md``.
        progress: called with a stage and its number of steps, returns a function to call at each step.

    Returns:
        The model. Dynamic dimensions carry the user's names.

    Raises:
        CaptureError: torch.export refused the model.
        ExportError: a node cannot be translated; it names the node and the user's line.
        VerificationError: *verify* found an output that differs; it names the first one.
        EagerError: *verify* ran the example in eager, where it fails.
        ValueError, TypeError: an argument of this function is wrong.
    """
    refuse_foreign_arguments(kwargs, export_options)
    refuse_misfits(filename, report, verify, progress)
    refuse_no_names(input_names=input_names, output_names=output_names)
    if filename is not None and not os.path.isdir(os.path.dirname(os.path.abspath(filename))):
        raise FileNotFoundError(f"the folder of {os.fspath(filename)!r} does not exist")
    if filename is not None:
        refuse_devices(filename)
    given = export_options or ExportOptions()
    options: ExportOptions | CapturedOnce = given
    is_tried = verify or report is not None
    if is_tried:
        # brings onnxruntime
        follow_up = importlib.import_module("experimental_experiment.investigate.follow_up")
        follow_up.refuse_unknown_format(report)
        if verify:
            follow_up.refuse_no_values(mod, args, kwargs, weights is not None)
        options = CapturedOnce(given)
    # brings every translation, and onnx_ir with sympy: what an import need not load
    conversion = importlib.import_module("experimental_experiment.torch_interpreter.conversion")
    journal = conversion.Journal(progress)
    with contextlib.ExitStack() as files:  # they take their places in the end, when nothing differs
        with journal.kept():
            model = conversion.to_ir(
                mod,
                args,
                kwargs,
                dynamic_shapes=dynamic_shapes,
                input_names=input_names,
                output_names=output_names,
                target_opset=target_opset,
                export_options=options,
                optimize=optimize,
                translations=translations,
                mutated_buffers=mutated_buffers,
                modules_as_functions=modules_as_functions,
                inline=inline,
                runtime=runtime,
                special_values=special_values,
                weights=weights,
                journal=journal,
            )
            journal.progress("write", 1)
            proto, readable = files.enter_context(conversion.written(model, filename, is_tried))
        if is_tried:
            follow_up.follow_up(journal, mod, args, dict(kwargs or {}), readable, verify, report, filename)
    return proto
