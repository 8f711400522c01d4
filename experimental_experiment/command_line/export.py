"""``export MODULE:FUNCTION -o model.onnx``: export, say what the model is, compare it when asked.

``export --transformers FOLDER_OR_MODEL -o FOLDER`` does the same with a model that transformers loads.
"""

from __future__ import annotations

import argparse
import collections
import inspect
import os
import re
import time
from typing import Any

import onnx
import torch

from experimental_experiment.command_line import check, pretrained, source
from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.command_line.model_file import writable
from experimental_experiment.helpers import type_text
from experimental_experiment.progress import terminal_progress
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.dynamic_shapes import Misfit, by_argument, sizes_of


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser("export", help="export a model to ONNX", description=__doc__)
    command.add_argument("source", metavar="MODULE:FUNCTION", nargs="?", help=source.HELP)
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    command.add_argument(
        "--transformers",
        metavar="FOLDER_OR_MODEL",
        help="instead of MODULE:FUNCTION, a model that transformers loads; -o is a folder, which also gets its configuration "
        "and its tokenizer",
    )
    command.add_argument(
        "--task",
        choices=["forward", "generate"],
        help="with --transformers: one graph of its forward, the default, or one for each stage of its generate",
    )
    command.add_argument(
        "--dynamic",
        action="append",
        default=[],
        metavar="ARGUMENT:AXIS=NAME[,AXIS=NAME...]",
        help="a dimension that may change, as in x:0=batch,1=length; may be repeated; adds to the function's own",
    )
    command.add_argument("--opset", type=int, metavar="N", help="version of ai.onnx, 13 to 26, 20 by default")
    command.add_argument(
        "--strict", action="store_true", help="capture with TorchDynamo, as ExportOptions(strict=True) does"
    )
    command.add_argument(
        "--patch",
        metavar="all|none|NAME[,NAME...]",
        help="patches of torch and transformers that get a refused model captured, besides those always applied; "
        "`patches` lists them",
    )
    command.add_argument(
        "--functions", action="store_true", help="make every submodule a local function of the model"
    )
    command.add_argument(
        "--mutated-buffers",
        choices=["drop", "outputs"],
        default="drop",
        help="the new values of buffers that the model writes: left out, or outputs",
    )
    command.add_argument(
        "--input-names",
        metavar="NAME[,NAME...]",
        help="names of the inputs, in order, instead of forward's own",
    )
    command.add_argument(
        "--weights",
        metavar="FILE_OR_FOLDER",
        help="the safetensors with the values of a model that the function makes without, on the meta device",
    )
    command.add_argument(
        "--report",
        metavar="FILE",
        help="write what was done and what differs from eager: a page for .html, Markdown for .md",
    )
    command.add_argument(
        "--check", action="store_true", help="then compare with eager PyTorch in onnxruntime"
    )
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Export; the exit status."""
    if (given.source is None) == (given.transformers is None):
        raise CommandError("export takes either MODULE:FUNCTION or --transformers")
    if given.transformers is not None:
        if given.report is not None:
            raise CommandError("--report goes with MODULE:FUNCTION")
        if given.weights is not None:
            raise CommandError(
                "--weights goes with MODULE:FUNCTION: transformers reads the weights of its models"
            )
        return pretrained.run(given)
    if given.task is not None:
        raise CommandError("--task goes with --transformers")
    if given.weights is not None and given.check:
        raise CommandError(
            "--check compares with the model that the function makes, which has not those weights"
        )
    writable(given.output)
    example = source.load(given.source)
    shapes = with_dynamic(example, given.dynamic)
    begin = time.perf_counter()
    try:
        with terminal_progress(given.quiet) as progress:
            model = to_onnx(
                example.model,
                example.args,
                example.kwargs,
                dynamic_shapes=shapes,
                input_names=given.input_names and given.input_names.split(","),
                target_opset=given.opset,
                export_options=ExportOptions(strict=given.strict, patches=patches(given.patch)),
                mutated_buffers=given.mutated_buffers,
                modules_as_functions=given.functions,
                filename=given.output,
                weights=given.weights,
                report=given.report,
                progress=progress,
            )
    except ExportError as error:
        raise CommandError(str(error), status=1) from error
    except (
        FileNotFoundError,
        TypeError,
        ValueError,
    ) as error:
        # an opset, a name: what to_onnx says about its own arguments
        raise CommandError(str(error)) from error
    if not given.quiet:
        print(summary(model, given.output, time.perf_counter() - begin))
    return check.report(given.output, example, given.source) if given.check else 0


def patches(text: str | None) -> bool | list[str] | None:
    """What ``--patch`` says, as ExportOptions takes it."""
    if text in ("all", "none"):
        return text == "all"
    return text and text.split(",")


def with_dynamic(example: source.Example, entries: list[str]) -> Any:
    """The function's dynamic shapes and those of ``--dynamic``."""
    if not entries:
        return example.dynamic_shapes
    values, shapes = entries_of_arguments(example)
    for entry in entries:
        name, _, axes = entry.partition(":")
        if name not in values:
            raise CommandError(
                f"--dynamic {entry}: the model has no argument {name!r} but {', '.join(values)}"
            )
        if not isinstance(values[name], torch.Tensor):
            raise CommandError(
                f"--dynamic {entry}: {name!r} is not a tensor but {type(values[name]).__name__}"
            )
        try:
            sizes = sizes_of(values[name], shapes[name], name)
        except Misfit as error:
            raise CommandError(f"dynamic_shapes does not fit the arguments: {error}") from error
        shapes[name] = sizes | dict(parsed_axes(entry, axes, values[name].dim()))
    return shapes


def entries_of_arguments(example: source.Example) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments by name, and what the function's dynamic shapes say of each. Raises CommandError when they do not fit forward."""
    module, args, kwargs = source.called(example)
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CommandError(f"the arguments do not fit forward: {error}") from error
    given = {} if example.dynamic_shapes is None else example.dynamic_shapes
    try:
        positional, named = by_argument(signature, args, kwargs, given)
    except Misfit as error:
        raise CommandError(f"dynamic_shapes does not fit the arguments: {error}") from error
    shapes = dict(positional) | named
    return dict(zip(shapes, [*args, *kwargs.values()])), shapes


def parsed_axes(entry: str, axes: str, rank: int) -> list[tuple[int, str]]:
    """``0=batch,1=length`` as pairs."""
    pairs = []
    for item in axes.split(","):
        axis, _, dimension = item.partition("=")
        if (
            not re.fullmatch("-?[0-9]{1,9}", axis)
            or not -rank <= int(axis) < rank
            or not dimension.isidentifier()
        ):
            raise CommandError(f"--dynamic {entry}: {item!r} is not AXIS=NAME with an axis of {rank}")
        pairs.append((int(axis) % rank, dimension))
    return pairs


def summary(model: onnx.ModelProto, path: str, seconds: float) -> str:
    """What was written: size, interface, the most frequent operators."""
    size = sum(os.path.getsize(file) for file in (path, f"{path}.data") if os.path.exists(file))
    counts = collections.Counter(node.op_type for node in model.graph.node)
    frequent = ", ".join(f"{count} {name}" for name, count in counts.most_common(8))
    versions = ", ".join(f"{item.domain or 'ai.onnx'} {item.version}" for item in model.opset_import)
    bytes_text = f"{size / 2**20:.1f} MB" if size > 2**20 else f"{size / 2**10:.1f} kB"
    lines = [f"{path}: {bytes_text}, {len(model.graph.node)} nodes, {versions}, {seconds:.1f} s"]
    lines.append(f"  nodes: {frequent}{', ...' if len(counts) > 8 else ''}")
    for role, values in (("input", model.graph.input), ("output", model.graph.output)):
        lines += [f"  {role}: {value.name} {type_text(value.type)}" for value in values]
    return "\n".join(lines)
