"""``where OPERATOR``, and the tables of the documents: ``operators``, ``runtime``, ``patterns``, ``patches``."""

from __future__ import annotations

import argparse

from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.torch_interpreter import catalog
from experimental_experiment.torch_interpreter.patches import patch
from experimental_experiment.torch_interpreter.runtime import table
from experimental_experiment.xoptim import rules


def add_to(commands: argparse._SubParsersAction) -> None:
    """The arguments of these commands."""
    command = commands.add_parser("where", help="file and line of a translation")
    command.add_argument("operator", help="aten.add.Tensor, aten.add, aten.add_, higher_order.cond, ...")
    command.set_defaults(run=show_place)
    command = commands.add_parser("operators", help="the table of operators, in markdown")
    command.set_defaults(run=show_table)
    command = commands.add_parser("runtime", help="the table of what onnxruntime needs, in markdown")
    command.set_defaults(run=show_runtime)
    command = commands.add_parser("patterns", help="the table of the optimizer's rules, in markdown")
    command.set_defaults(run=show_patterns)
    command = commands.add_parser(
        "patches", help="the table of what gets refused models captured, in markdown"
    )
    command.set_defaults(run=show_patches)


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


def show_table(given: argparse.Namespace) -> int:
    """Print ``docs/operators.md``."""
    print(catalog.markdown(), end="")
    return 0


def show_runtime(given: argparse.Namespace) -> int:
    """Print ``docs/runtime.md``."""
    print(table.markdown(), end="")
    return 0


def show_patterns(given: argparse.Namespace) -> int:
    """Print ``docs/patterns.md``."""
    print(rules.markdown(), end="")
    return 0


def show_patches(given: argparse.Namespace) -> int:
    """Print ``docs/patches.md``."""
    print(patch.markdown(), end="")
    return 0
