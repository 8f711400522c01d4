"""Rows of Col2Im."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

COLUMNS = torch.randn(2, 12, 20)


def folded(x: torch.Tensor) -> torch.Tensor:
    """Windows of 2 x 2 added into an image of 7 x 3, padded."""
    return torch.nn.functional.fold(x, (2, 3), (2, 2), padding=(1, 1), dilation=1, stride=1)


ROWS = {
    "Col2Im.added": (folded, COLUMNS[..., :12]),
    "Col2Im.scattered": (folded, COLUMNS[..., :12].double() * 1e300),
}


class TestFolds(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)


if __name__ == "__main__":
    unittest.main()
