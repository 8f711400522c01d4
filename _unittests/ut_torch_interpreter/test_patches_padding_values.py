"""Paddings with a number that the data, or sizes, decide."""

import unittest

import torch
import torch.nn.functional as F

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X = torch.randn(3, 4)
N = ({0: "n"},)


def least(x):
    return F.pad(x, (1, 2), value=x.min().item())


def mean(x):
    return F.pad(x, (-1, 1, 2, 0), "constant", x.mean())


def rows(x):
    return F.pad(x, (1, 1), value=x.shape[0])


def of_integers(x):
    return F.pad((x * 10).int(), (0, 1), value=x.sum())


class OfABuffer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("value", torch.tensor(3.0))

    def forward(self, x):
        return F.pad(x, (1, 1), mode="constant", value=self.value)


class TestPaddingValues(ExporterTestCase):
    def test_same_as_eager(self):
        for options in (None, ExportOptions(tracing="make_fx")):
            for model in (least, mean, rows, of_integers, OfABuffer()):
                with self.subTest(getattr(model, "__name__", "OfABuffer"), options=options):
                    exported = to_onnx(model, (X,), dynamic_shapes=N, export_options=options)
                    for x in (X, -X, torch.randn(1, 4), torch.randn(5, 4) + 2):
                        self.assert_matches(exported, model, (x,))

    def test_numbers_stay_numbers(self):
        for value in (2.0, torch.tensor(2.0)):
            model = to_onnx(lambda x, value=value: F.pad(x, (1, 1), value=value), (X,))
            self.assertEqual(["Pad"], [node.op_type for node in model.graph.node])

    def test_refused_without_it(self):
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(least, (X,), export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
