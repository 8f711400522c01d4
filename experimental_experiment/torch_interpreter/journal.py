"""What happened during one export: times of its stages, warnings, patches, rows of the runtime table, the optimizer's work."""

from __future__ import annotations

import collections
import contextlib
import logging
import time
from collections.abc import Callable, Iterator

import torch

from experimental_experiment.logs import logger
from experimental_experiment.progress import Progress
from experimental_experiment.torch_interpreter.signature import Program
from experimental_experiment.xoptim.report import Report


class Journal(logging.Filter):
    """Kept by `to_onnx`; a progress that notes when each stage begins, a filter that notes the warnings and lets them pass.

    Attributes:
        stages: name and seconds of each stage, in order.
        warnings: what was logged as a warning.
        patches: names of the patches that were used.
        rows: how often each row of the runtime table was applied, by name.
        optimized: what the optimizer did, a report for each time that it ran.
        program: what was translated.
        exported: what torch.export gave, when the options of the capture kept it.
    """

    def __init__(self, progress: Progress):
        super().__init__()
        self.shown = progress
        self.begun: tuple[str, float] | None = None
        self.stages: list[tuple[str, float]] = []
        self.warnings: list[str] = []
        self.patches: list[str] = []
        self.rows: collections.Counter[str] = collections.Counter()
        self.optimized: list[Report] = []
        self.program: Program | None = None
        self.exported: torch.export.ExportedProgram | None = None

    def progress(self, stage: str, steps: int) -> Callable[[], object]:
        """The progress that the user gave, while the times are noted."""
        self.close_stage()
        self.begun = stage, time.perf_counter()
        return self.shown(stage, steps)

    def close_stage(self) -> None:
        """Note the time of the stage that is open."""
        if self.begun is not None:
            stage, begin = self.begun
            seconds = time.perf_counter() - begin
            logger.info("%s: %.2f s", stage, seconds)
            self.stages.append((stage, seconds))
            self.begun = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Note a warning. A handler would keep Python from showing it to those who have set up no logging."""
        if record.levelno >= logging.WARNING:
            self.warnings.append(record.getMessage())
        return True

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """While this lasts, warnings are noted; the last stage ends with it."""
        logger.addFilter(self)
        try:
            yield
        finally:
            logger.removeFilter(self)
            self.close_stage()
