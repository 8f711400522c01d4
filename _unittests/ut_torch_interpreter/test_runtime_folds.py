"""Rows of Col2Im."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import onnx_export
from experimental_experiment.torch_interpreter.runtime import table

COLUMNS = torch.randn(2, 12, 20)


def folded(x: torch.Tensor) -> torch.Tensor:
    """Windows of 2 x 2 added into an image of 7 x 3, padded."""
    return torch.nn.functional.fold(x, (2, 3), (2, 2), padding=(1, 1), dilation=1, stride=1)


ROWS = {"Col2Im.scattered": (folded, COLUMNS[..., :12].double() * 1e300)}

OTHER_ROWS = {"Col2Im.added": (folded, COLUMNS[..., :12])}
"""Rows of operator sets that may not be targets yet."""


class TestFolds(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_operator_sets_that_may_be_targets(self):
        for name, (function, *args) in OTHER_ROWS.items():
            row = next(row for row in table.ROWS if row.name == name)
            if row.before - 1 not in onnx_export.OPSETS:
                self.skipTest(f"operator set {row.before - 1} is no target")
            self.assert_rows_needed({name: (function, *args)})


if __name__ == "__main__":
    unittest.main()
