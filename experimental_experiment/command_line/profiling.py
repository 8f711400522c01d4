"""``profile model.onnx``: the time that onnxruntime spends in each operator and in each module."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os

from experimental_experiment.command_line import feeds
from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.command_line.model_file import session, sound, writable
from experimental_experiment.command_line.running import executed
from experimental_experiment.investigate.profiling import profile
from experimental_experiment.plotting.drawing import PACKAGE
from experimental_experiment.whole import whole


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser("profile", help="the time of each operator and module", description=__doc__)
    command.add_argument("model", metavar="model.onnx", help="the model")
    feeds.add_arguments(command)
    command.add_argument(
        "--runs", type=int, default=20, metavar="N", help="runs to take the median of; 20 if not given"
    )
    command.add_argument(
        "--threads", type=int, metavar="N", help="threads of an operator; onnxruntime's choice if not given"
    )
    command.add_argument("--plot", metavar="FILE", help="also draw bars into a .png, .svg or .pdf file")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the tables."""
    if given.runs < 1:
        raise CommandError("--runs takes a positive number")
    if given.plot:
        writable(given.plot)
        if importlib.util.find_spec("matplotlib") is None:
            raise CommandError(f"--plot {given.plot}: {PACKAGE.format(name='matplotlib')}")
        figure = importlib.import_module("matplotlib.figure").Figure()
        formats = figure.canvas.get_supported_filetypes()
        if os.path.splitext(given.plot)[1][1:].lower() not in formats:
            raise CommandError(f"--plot {given.plot}: a bar chart is a file of {', '.join(formats)}")
    runner = session(sound(given.model), given.model)
    arrays = feeds.feeds_of(given, runner)
    executed(runner, arrays)  # says in one sentence what is wrong with the arrays
    found = profile(given.model, arrays, runs=given.runs, threads=given.threads)
    print(found)
    if given.plot:
        with whole(given.plot) as written:
            found.plot()[0].figure.savefig(written)
    return 0
