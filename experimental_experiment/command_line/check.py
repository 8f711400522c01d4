"""``check model.onnx MODULE:FUNCTION``: run the model in onnxruntime and in eager PyTorch, compare every output."""

from __future__ import annotations

import argparse

from onnxruntime.capi import onnxruntime_pybind11_state as runtime
from tabulate import tabulate

from experimental_experiment.command_line import source
from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.command_line.model_file import sound
from experimental_experiment.comparison import Difference, compare, session
from experimental_experiment.refusals import REFUSALS
from experimental_experiment.torch_interpreter import ExportError
from experimental_experiment.torch_interpreter.dynamic_shapes import fitted_shapes


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser("check", help="compare a model with eager PyTorch", description=__doc__)
    command.add_argument("model", metavar="model.onnx", help="the model, as export wrote it")
    command.add_argument("source", metavar="MODULE:FUNCTION", help=source.HELP)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Compare; 1 when an output differs beyond the tolerance of its dtype."""
    sound(given.model)
    return report(given.model, source.load(given.source), given.source)


def report(path: str, example: source.Example, name: str) -> int:
    """Print the table of differences, and what tells more when there are any; the exit status. *name*: MODULE:FUNCTION."""
    module, args, kwargs = source.called(example)
    try:
        fitted_shapes(module, args, kwargs, None)  # refuses what export refuses
        differences = compare(example.model, session(path), example.args, example.kwargs)
    except ExportError as error:
        raise CommandError(str(error), status=1) from error
    except runtime.InvalidProtobuf as error:
        raise CommandError(f"{path!r} is not an ONNX model") from error
    except (ValueError, runtime.InvalidArgument) as error:
        raise CommandError(f"the model does not take these arguments: {error}") from error
    except REFUSALS as error:
        raise CommandError(f"onnxruntime refuses the model: {error}", status=1) from error
    rows = [[item.name, item.expected, item.absolute, item.relative, verdict(item)] for item in differences]
    headers = ["output", "eager", "absolute", "relative", ""]
    print(tabulate(rows, headers, floatfmt=".1e", disable_numparse=[0, 1]))
    wrong = sum(not item.within for item in differences)
    print(f"{wrong} of {len(rows)} outputs differ" if wrong else f"{len(rows)} of {len(rows)} outputs agree")
    if wrong:
        print(
            f"which result is wrong first: python -m experimental_experiment investigate {name} --onnx {path}"
        )
    return 1 if wrong else 0


def verdict(item: Difference) -> str:
    """The last cell of a row."""
    if item.within:
        return "ok"
    return "DIFFERS" if item.expected == item.got else f"DIFFERS: got {item.got}"
