"""``where OPERATOR``, and the tables of the documents: ``operators``, ``runtime``, ``patterns``, ``patches``."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.torch_interpreter import catalog
from experimental_experiment.torch_interpreter.patches import patch
from experimental_experiment.torch_interpreter.runtime import table
from experimental_experiment.xoptim import rules

TABLES = {
    "operators": (catalog.markdown, "operators"),
    "runtime": (table.markdown, "what onnxruntime needs"),
    "patterns": (rules.markdown, "the optimizer's rules"),
    "patches": (patch.markdown, "what gets refused models captured"),
}
"""What writes each table, and what it is a table of."""


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of these commands."""
    command = commands.add_parser("where", help="file and line of a translation")
    command.add_argument("operator", help="aten.add.Tensor, aten.add, aten.add_, higher_order.cond, ...")
    command.set_defaults(run=show_place)
    for name, (markdown, help) in TABLES.items():
        command = commands.add_parser(name, help=f"the table of {help}, in markdown")
        command.set_defaults(run=functools.partial(show_table, markdown))


def show_place(given: argparse.Namespace) -> int:
    """Print one line a translation: its name, then file and line."""
    try:
        rows = catalog.where(given.operator)
    except LookupError as error:
        raise CommandError(str(error)) from error
    width = max(len(name) for name, _ in rows)
    for name, place in rows:
        print(f"{name:{width}}  {place}")
    return 0


def show_table(markdown: Callable[[], str], given: argparse.Namespace) -> int:
    """Print a table of ``docs``; it depends on no argument."""
    print(markdown(), end="")
    return 0
