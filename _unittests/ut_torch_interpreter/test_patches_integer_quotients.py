"""Quotients of integers with dynamic sizes are floats."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches.integer_quotients import quotients_of_integers

X = torch.arange(-4, 8).reshape(4, 3)
DYNAMIC = {"dynamic_shapes": ({0: "rows"}, {0: "rows"})}


class Quotients(torch.nn.Module):
    """Quotients of two tensors of one dtype."""

    def forward(self, x, y):
        return (
            x / y,
            torch.true_divide(x, y) + 1,
            (x > 0) / (y > 2),
            x.to(torch.int32) / y,
            x.half() / y.half(),
        )


class TestIntegerQuotients(ExporterTestCase):
    def test_same_as_eager(self):
        self.export_and_compare(Quotients(), (X, X * 2 + 1), **DYNAMIC)

    @unittest.skipIf(quotients_of_integers.reason_to_skip(), "the installed torch does not need it")
    def test_refused_without(self):
        with self.assertRaisesRegex(ExportError, r"div.Tensor was translated to FLOAT.*torch says int64"):
            to_onnx(Quotients(), (X, X * 2 + 1), **DYNAMIC, export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
