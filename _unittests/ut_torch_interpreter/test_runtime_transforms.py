"""Rows of Fourier transforms."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx

WINDOW = torch.hann_window(1024)

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
    "STFT.of_frames": (
        lambda x: torch.view_as_real(
            torch.stft(x, 1024, window=WINDOW, normalized=True, return_complex=True)
        ),
        torch.randn(2, 3000),
    ),
}

OTHER_ROWS = {"DFT.along_the_last_axis": (lambda x: torch.view_as_real(torch.fft.fft(x, dim=1)), [2, 2048])}
"""Rows for speed: what is computed, and the sizes of the axes before those that follow."""


class TestTransforms(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_elements_far_apart(self):
        """They are brought together, and only they."""
        name = "DFT.along_the_last_axis"
        function, sizes = OTHER_ROWS[name]
        for following, count in ((64, 2), (63, 0)):
            x = torch.randn(*sizes, following, dtype=torch.float64)
            model = self.assert_same_as_eager(function, x, dynamic=False)
            self.assertEqual(count, [node.op_type for node in model.graph.node].count("Transpose"))
        x = torch.randn(*sizes, 64)
        for model in (to_onnx(function, (x,), runtime="onnx"), with_row_left_out(name, function, x)):
            self.assertNotIn("Transpose", [node.op_type for node in model.graph.node])


def with_row_left_out(name, function, x):
    """The model that is written without the row."""
    with without_row(name):
        return to_onnx(function, (x,))


if __name__ == "__main__":
    unittest.main()
