"""``print model.onnx``: the model as text."""

from __future__ import annotations

import argparse
import os

import google.protobuf.message

from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.helpers import pretty_onnx


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser("print", help="print a model as text", description=__doc__)
    command.add_argument("model", metavar="model.onnx", help="the model; external data is not read")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the model."""
    if not os.path.isfile(given.model):
        raise CommandError(f"the file {given.model!r} does not exist")
    try:
        print(pretty_onnx(given.model))
    except google.protobuf.message.DecodeError as error:
        raise CommandError(f"{given.model!r} is not an ONNX model") from error
    return 0
