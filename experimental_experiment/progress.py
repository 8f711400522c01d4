"""A progress bar over the stages of an export and their steps, when a terminal is attached.

``to_onnx(progress=...)`` takes any function ``progress(stage, steps) -> step`` where ``step()`` says that one step is done.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

Progress = Callable[[str, int], Callable[[], object]]


@contextlib.contextmanager
def terminal_progress(quiet: bool = False) -> Iterator[Progress]:
    """A bar on the terminal, cleared at the end; nothing when *quiet*, without a terminal or without the package tqdm."""
    if quiet or not sys.stderr.isatty() or importlib.util.find_spec("tqdm") is None:
        yield silent
        return
    tqdm = importlib.import_module("tqdm")
    bars: list[Any] = []

    def progress(stage: str, steps: int) -> Callable[[], object]:
        for bar in bars:
            bar.close()
        bars[:] = [tqdm.tqdm(total=steps, desc=stage, leave=False, file=sys.stderr, mininterval=0.2)]
        return bars[0].update

    try:
        yield progress
    finally:
        for bar in bars:
            bar.close()


def silent(stage: str, steps: int) -> Callable[[], object]:
    """The progress that shows nothing."""
    return nothing


def nothing() -> None:
    """A step of the progress that shows nothing."""
