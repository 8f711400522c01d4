"""Rows of Fourier transforms."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

ROWS = {
    "DFT.in_float64": (lambda x: torch.view_as_real(torch.fft.rfft(x, norm="ortho")), torch.randn(1, 4001)),
    "DFT.divided_in_float64": (
        lambda x: (torch.fft.ifft(torch.fft.fft(x)).real - x) * 1e4,
        torch.randn(2, 1501, dtype=torch.float64),
    ),
    "DFT.along_an_attribute": (
        lambda x: torch.view_as_real(torch.fft.fft(x, norm="ortho")),
        torch.randn(2, 2048),
    ),
}


class TestTransforms(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)


if __name__ == "__main__":
    unittest.main()
