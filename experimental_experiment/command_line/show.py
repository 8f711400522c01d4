"""``print model.onnx``: the model as text."""

from __future__ import annotations

import argparse

from experimental_experiment.command_line.model_file import loaded
from experimental_experiment.helpers import pretty_onnx


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser("print", help="print a model as text", description=__doc__)
    command.add_argument("model", metavar="model.onnx", help="the model; external data is not read")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the model."""
    print(pretty_onnx(loaded(given.model)))
    return 0
