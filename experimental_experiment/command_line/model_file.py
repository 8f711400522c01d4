"""Reading a model that a command names: what is wrong with the file is said in one sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator

import onnx
import onnx_ir as ir
import onnxruntime

from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.command_line.soundness import problems, text_problems
from experimental_experiment.comparison import session_options
from experimental_experiment.helpers import subgraphs
from experimental_experiment.protos import from_proto
from experimental_experiment.reading import read
from experimental_experiment.refusals import UNLOADED
from experimental_experiment.torch_interpreter.files import lost_weights
from experimental_experiment.whole import refuse_devices


def loaded(path: str) -> onnx.ModelProto:
    """The model of a file, its external data left where it is.

    Raises CommandError when there is no such file, or when it is not an ONNX model.
    """
    if not os.path.exists(path):
        raise CommandError(f"the file {path!r} does not exist")
    if os.path.isdir(path):
        raise CommandError(f"{path!r} is a folder, not an ONNX model")
    try:
        model = read(path)
    except ValueError as error:
        raise CommandError(str(error)) from error
    refuse_first(text_problems(model), path)
    return model


def sound(path: str, reads_weights: bool = True) -> onnx.ModelProto:
    """The model of a file, see `loaded`, with nothing in it that nobody can make sense of; CommandError says what otherwise."""
    model = loaded(path)
    refuse_first(problems(model, path, reads_weights), path)
    return model


def refuse_first(problems: Iterator[str], path: str) -> None:
    """Raise CommandError for the first problem, if there is one."""
    problem = next(problems, None)
    if problem is not None:
        raise CommandError(f"{path!r} is malformed: {problem}")


def to_ir(model: onnx.ModelProto, path: str) -> ir.Model:
    """A model for onnx-ir, its external data where the file is: with a folder, onnx-ir refuses what is outside of it.

    Raises CommandError when onnx-ir does not read a part of it.
    """
    try:
        result = from_proto(model)
    except ValueError as error:
        raise CommandError(f"{path!r}: {error}") from error
    ir.external_data.set_base_dir(result.graph, os.path.dirname(os.path.abspath(path)))
    return result


def writable(path: str) -> str:
    """The path of a file to write. Raises CommandError when its folder does not exist or when it is a folder or a device itself."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise CommandError(f"the folder {folder!r} does not exist")
    try:
        refuse_devices(path)
    except OSError as error:
        raise CommandError(str(error)) from error
    return path


def refuse_lost_weights(source: str, model: onnx.ModelProto, output: str) -> None:
    """Raise CommandError when the *model* of the file *source* reads weights that are replaced or removed when *output* is written."""
    weights = lost_weights(source, model, output)
    if weights is not None:
        raise CommandError(
            f"{source!r} reads its weights from {weights!r}, which belongs to {output!r}: write to another file"
        )


def session(model: onnx.ModelProto, path: str) -> onnxruntime.InferenceSession:
    """onnxruntime's session of a model that was read from *path*, where its external data is.

    Raises CommandError when onnxruntime refuses it.
    """
    options = session_options(folder=os.path.dirname(os.path.abspath(path)), severity=4)
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except UNLOADED as error:
        raise CommandError(f"onnxruntime refuses {path!r}: {error}", status=1) from error


def all_graphs(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.GraphProto | onnx.FunctionProto]]:
    """Every graph of a model with the way to it: ``""`` for the main one, ``If then_branch``, ``function local.twice``."""
    pending: list[tuple[str, onnx.GraphProto | onnx.FunctionProto]] = [("", model.graph)]
    pending += [(f"function {function.domain}.{function.name}", function) for function in model.functions]
    while pending:
        way, graph = pending.pop(0)
        yield way, graph
        for node in graph.node:
            for attribute in node.attribute:
                for label, body in subgraphs(attribute):
                    step = f"{node.op_type} {node.name} {label}".replace("  ", " ")
                    pending.append((f"{way} / {step}" if way else step, body))
