"""Rows of scatters."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

IMAGE = torch.randn(2, 3, 6, 6).half()
INDICES = torch.nn.functional.max_pool2d(IMAGE, 2, return_indices=True)[1]

ROWS = {
    "ScatterElements.reduced_in_float32": (
        lambda grad, x, where: torch.ops.aten.max_pool2d_with_indices_backward.default(
            grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, where
        ),
        torch.randn(2, 3, 3, 3).half(),
        IMAGE,
        INDICES,
    ),
}


class TestScatters(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)


if __name__ == "__main__":
    unittest.main()
