"""Sizes in texts that a model makes."""

import logging
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

TEXTS = []


class Logs(torch.nn.Module):
    """Says how many rows there are, and what a third of them is."""

    def forward(self, x):
        rows = x.shape[0]
        TEXTS[:] = f"{rows:4d} rows", f"{rows}", f"{rows / 3:.2f}"
        logging.getLogger(__name__).debug("%s", TEXTS[0])
        return x * rows


class LogsNumbers(torch.nn.Module):
    """Says what the mean and the largest element are."""

    def forward(self, x):
        most = x.max().item()
        TEXTS[:] = f"{x.mean():.3f} {most:.3f}", f"{most:>8}".strip()[:4]
        return x * most


class TestTexts(ExporterTestCase):
    X, SHAPES = torch.randn(4, 2), {"x": {0: "rows"}}

    def test_formatted(self):
        others = [(torch.randn(7, 2),)]
        self.export_and_compare(Logs(), (self.X,), others=others, dynamic_shapes=self.SHAPES)
        self.assertEqual(["   7 rows", "7", "2.33"], TEXTS)
        to_onnx(Logs(), (self.X,), dynamic_shapes=self.SHAPES)
        self.assertRegex(TEXTS[0], r"^s\d+ rows$")
        self.assertEqual(TEXTS[1], TEXTS[0].removesuffix(" rows"))

    def test_numbers_of_the_data(self):
        others = [(torch.full((3, 2), 1.25),)]
        self.export_and_compare(LogsNumbers(), (self.X,), others=others, dynamic_shapes=self.SHAPES)
        self.assertEqual(["1.250 1.250", "1.25"], TEXTS)
        with self.assertRaisesRegex(CaptureError, "unsupported format string passed to FakeTensor"):
            options = ExportOptions(patches=False)
            to_onnx(LogsNumbers(), (self.X,), export_options=options)
        with self.assertRaisesRegex(CaptureError, "unsupported format string"):
            to_onnx(lambda x: (f"{x:.3f}", x)[1], (self.X,))

    def test_refused_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "unsupported format string"):
            options = ExportOptions(patches=False)
            to_onnx(Logs(), (self.X,), dynamic_shapes=self.SHAPES, export_options=options)


if __name__ == "__main__":
    unittest.main()
