"""The command line, a file for each command; ``python -m experimental_experiment --help`` lists them.

Exit status: 0, 1 when an export stops or results differ, 2 when the command itself is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

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


def parser() -> argparse.ArgumentParser:
    """The arguments of all commands."""
    result = argparse.ArgumentParser(
        prog="python -m experimental_experiment", description="Exports PyTorch models to ONNX."
    )
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
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    given = parser().parse_args(arguments)
    try:
        return given.run(given)
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # print ... | head
        sys.stderr.close()
        return 0
