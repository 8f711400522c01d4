"""What happened during one export: times of its stages, warnings, patches, rows of the runtime table, the optimizer's work."""

from __future__ import annotations

import collections
import contextlib
import logging
from collections.abc import Iterator

import torch

from experimental_experiment.logs import logger
from experimental_experiment.progress import Progress, Timed
from experimental_experiment.torch_interpreter.signature import Program
from experimental_experiment.xoptim.report import Report


class Journal(logging.Filter):
    """Kept by `to_onnx`; a filter of the logger that notes the warnings and lets them pass.

    Attributes:
        progress: the progress that the user gave, which notes the time of each stage.
        warnings: what was logged as a warning.
        patches: names of the patches that were used.
        rows: how often each row of the runtime table was applied, by name.
        optimized: what the optimizer did, a report for each time that it ran.
        program: what was translated.
        exported: what torch.export gave, when the options of the capture kept it.
    """

    def __init__(self, progress: Progress):
        super().__init__()
        # each stage is logged once
        self.progress = progress if isinstance(progress, Timed) else Timed(progress)
        self.warnings: list[str] = []
        self.patches: list[str] = []
        self.rows: collections.Counter[str] = collections.Counter()
        self.optimized: list[Report] = []
        self.program: Program | None = None
        self.exported: torch.export.ExportedProgram | None = None

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
            with self.progress:
                yield
        finally:
            logger.removeFilter(self)
