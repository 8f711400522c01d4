"""A progress bar over the stages of an export and their steps, when a terminal is attached.

``to_onnx(progress=...)`` takes any function ``progress(stage, steps) -> step`` where ``step()`` says that one step is done.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from experimental_experiment.logs import logger

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


class Timed:
    """A progress that is shown by another one, while the time of each stage is noted and logged; the last stage ends with it.

    Attributes:
        stages: name and seconds of each stage that has ended, in order.
    """

    def __init__(self, shown: Progress):
        self.shown = shown
        self.stages: list[tuple[str, float]] = []
        self.begun: tuple[str, float] | None = None

    def __call__(self, stage: str, steps: int) -> Callable[[], object]:
        """Begin a stage."""
        self.end_stage()
        self.begun = stage, time.perf_counter()
        return self.shown(stage, steps)

    def end_stage(self) -> None:
        """Note the time of the stage that is open."""
        if self.begun is not None:
            stage, begin = self.begun
            seconds = time.perf_counter() - begin
            logger.info("%s: %.2f s", stage, seconds)
            self.stages.append((stage, seconds))
            self.begun = None

    def __enter__(self) -> Timed:
        return self

    def __exit__(self, *error: object) -> None:
        self.end_stage()


def silent(stage: str, steps: int) -> Callable[[], object]:
    """The progress that shows nothing."""
    return nothing


def nothing() -> None:
    """A step of the progress that shows nothing."""
