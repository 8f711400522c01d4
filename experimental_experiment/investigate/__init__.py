"""Why an export fails, where numbers drift: `coverage`, `discrepancies`, `piece_by_piece`; what takes the time: `profile`."""

from experimental_experiment.investigate.coverage import coverage
from experimental_experiment.investigate.discrepancies import discrepancies
from experimental_experiment.investigate.pieces import piece_by_piece
from experimental_experiment.investigate.profiling import profile

__all__ = ["coverage", "discrepancies", "piece_by_piece", "profile"]
