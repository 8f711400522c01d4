"""``investigate MODULE:FUNCTION``: which submodules fail, which node is wrong first, which operators have no translation."""

from __future__ import annotations

import argparse
import sys

from experimental_experiment.command_line import source
from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.command_line.model_file import sound, writable
from experimental_experiment.investigate import coverage, discrepancies, piece_by_piece
from experimental_experiment.investigate.pieces import calls_of
from experimental_experiment.investigate.recording import Call, inferred_shapes
from experimental_experiment.progress import Timed, terminal_progress
from experimental_experiment.refusals import FAILURES
from experimental_experiment.torch_interpreter import ExportError


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser(
        "investigate",
        help="find what fails in a model, or where its numbers differ",
        description="Exports a model and, where that fails, its submodules down to the smallest ones that fail. "
        "Dimensions are dynamic that differ between several calls, see --calls.",
    )
    command.add_argument("source", metavar="MODULE:FUNCTION", help=source.HELP)
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--onnx", metavar="model.onnx", help="compare every named result of this model with eager instead"
    )
    what.add_argument(
        "--discrepancies",
        action="store_true",
        help="export, then compare every named result with eager instead",
    )
    what.add_argument("--coverage", action="store_true", help="list the operators of the model instead")
    command.add_argument(
        "--calls",
        action="store_true",
        help="args is a list of several calls, each a tuple, a dict of keyword arguments, or a pair of both",
    )
    command.add_argument(
        "--folder",
        metavar="FOLDER",
        help="write a script for each smallest failure, that reproduces it alone",
    )
    command.add_argument("--html", metavar="FILE", help="also write the tree of modules as a page")
    command.add_argument(
        "--at-once",
        type=int,
        metavar="N",
        help="results to hold at once when they do not fit in memory: the first difference is found by bisection",
    )
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Investigate; 1 when something fails or differs."""
    compares = given.onnx is not None or given.discrepancies
    if (compares or given.coverage) and (given.folder or given.html):
        raise CommandError("--folder and --html belong to the tree of modules")
    if given.at_once is not None and not compares:
        raise CommandError("--at-once belongs to --onnx and --discrepancies")
    if given.html:
        writable(given.html)
    if given.onnx is not None:
        sound(given.onnx)
    example = source.load(given.source)
    try:
        if given.calls and (compares or given.coverage):
            example = first_call(example)
        if compares:
            return compare(given, example)
        return list_operators(given, example) if given.coverage else take_apart(given, example)
    except ExportError as error:
        raise CommandError(str(error), status=1) from error
    except FAILURES as error:
        raise CommandError(f"onnxruntime refuses the model or the arguments: {error}", status=1) from error
    except (TypeError, ValueError) as error:  # what the tools say about their arguments
        raise CommandError(str(error)) from error


def first_call(example: source.Example) -> source.Example:
    """The first one of several calls, with the dimensions dynamic in which the others differ."""
    calls = [Call(*call) for call in calls_of(list(example.args), example.kwargs)]
    shapes = example.dynamic_shapes if example.dynamic_shapes is not None else inferred_shapes(calls)
    return source.Example(example.model, calls[0].args, calls[0].kwargs, shapes)


def compare(given: argparse.Namespace, example: source.Example) -> int:
    """Print what `discrepancies` finds."""
    with terminal_progress(given.quiet) as shown, Timed(shown) as progress:
        found = discrepancies(
            example.model,
            example.args,
            example.kwargs,
            onnx=given.onnx,
            dynamic_shapes=example.dynamic_shapes,
            at_once=given.at_once,
            progress=progress,
        )
    print(found)
    return 0 if found.agrees else 1


def list_operators(given: argparse.Namespace, example: source.Example) -> int:
    """Print what `coverage` finds."""
    with terminal_progress(given.quiet) as shown, Timed(shown) as progress:
        found = coverage(
            example.model,
            example.args,
            example.kwargs,
            dynamic_shapes=example.dynamic_shapes,
            progress=progress,
        )
    print(found)
    return 1 if found.missing else 0


def take_apart(given: argparse.Namespace, example: source.Example) -> int:
    """Print what `piece_by_piece` finds."""
    calls = list(example.args) if given.calls else example.args
    with terminal_progress(given.quiet) as shown, Timed(shown) as progress:
        found = piece_by_piece(example.model, calls, example.kwargs, folder=given.folder, progress=progress)
    print(found.to_text(color=sys.stdout.isatty()))
    if given.html:
        found.to_html(given.html)
    return 1 if found.failures else 0
