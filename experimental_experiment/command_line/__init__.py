"""The command line, a file for each command; ``python -m experimental_experiment --help`` lists them.

Exit status: 0; 1 when an export stops, results differ, or the system fails (a full disk); 2 when the command itself is wrong, a
file it names or an argument; 130 when it is interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import traceback
from collections.abc import Iterator, Sequence

from experimental_experiment import __version__
from experimental_experiment.command_line import (
    check,
    differences,
    draw,
    export,
    investigate,
    operators,
    optimize,
    profiling,
    running,
    search,
    show,
    weights,
)
from experimental_experiment.command_line.errors import CommandError
from experimental_experiment.logs import logger


def parser() -> argparse.ArgumentParser:
    """The arguments of all commands."""
    result = argparse.ArgumentParser(
        prog="python -m experimental_experiment",
        description="Exports PyTorch models to ONNX.",
        epilog="exit status: 0; 1 when an export stops, results differ or the system fails; 2 for a wrong command or a file that "
        "is no sound model; 130 when interrupted",
    )
    result.add_argument("--version", action="version", version=__version__)
    commands = result.add_subparsers(title="commands", required=True, metavar="COMMAND")
    order = (
        export,
        check,
        investigate,
        optimize,
        running,
        profiling,
        differences,
        search,
        show,
        draw,
        weights,
        operators,
    )
    for command in order:
        command.add_to(commands)
    for command in commands.choices.values():
        command.set_defaults(command=command)
        amount = command.add_mutually_exclusive_group()
        amount.add_argument(
            "-q",
            "--quiet",
            action="store_true",
            help="no progress, no warnings, no summary of what was written",
        )
        amount.add_argument(
            "-v", "--verbose", action="store_true", help="log each stage, and the traceback of an error"
        )
    return result


@contextlib.contextmanager
def logged(given: argparse.Namespace) -> Iterator[None]:
    """Let the package log as much as the command says, to the terminal: warnings and errors if it says nothing."""
    level, handler = logger.level, logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.setLevel(logging.INFO if given.verbose else logging.ERROR if given.quiet else logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


MAY_BE_EMPTY = frozenset({"--patterns"})
"""The options for which an empty text says something: no rule."""


def refuse_empty(given: argparse.Namespace) -> None:
    """Raise CommandError for an empty argument, as a variable of the shell that is not set leaves it: it would count as not given."""
    for action in given.command._actions:
        value = getattr(given, action.dest, None)
        is_empty = value == "" or (isinstance(value, list) and "" in value)
        if is_empty and MAY_BE_EMPTY.isdisjoint(action.option_strings):
            name = "/".join(action.option_strings) or action.metavar or action.dest
            raise CommandError(f"{name} '': a text that is not empty is needed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    given = parser().parse_args(arguments)
    try:
        with logged(given):
            refuse_empty(given)
            return given.run(given)
    except CommandError as error:
        if given.verbose:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # print ... | head
        sys.stderr.close()
        return 0
    except OSError as error:  # a full disk, a folder that may not be written, a file that may not be read
        if given.verbose:
            traceback.print_exc()
        where = f": {error.filename!r}" if error.filename else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
