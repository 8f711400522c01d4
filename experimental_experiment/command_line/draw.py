"""``plot model.onnx -o model.svg``: draw a model with graphviz."""

from __future__ import annotations

import argparse

from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.command_line.model_file import loaded, writable
from experimental_experiment.plotting import plot_dot


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of this command."""
    command = commands.add_parser("plot", help="draw a model with graphviz", description=__doc__)
    command.add_argument("model", metavar="model.onnx", help="the model; external data is not read")
    command.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="a .svg, .png, .pdf file, or .dot for graphviz's text",
    )
    command.add_argument("--fold", action="store_true", help="draw repeated layers once")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Draw the model."""
    model = loaded(given.model)
    try:
        plot_dot(model, filename=writable(given.output), fold=given.fold)
    except (ImportError, RuntimeError, ValueError) as error:
        raise CommandError(str(error)) from error
    return 0
