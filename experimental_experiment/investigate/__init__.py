"""Why an export fails, where numbers drift: `coverage`, `discrepancies`, `piece_by_piece`."""

from experimental_experiment.investigate.coverage import coverage

__all__ = ["coverage"]
