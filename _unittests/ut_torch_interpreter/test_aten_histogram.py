"""Histograms and counts, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
FLOATS = torch.tensor([0.0, 1.0, 2.5, -1.0, 4.0, float("nan"), float("inf"), 4.0, 3.999])


class TestHistogram(ExporterTestCase):
    CASES = {
        "the last bin is closed": (aten.histc.default, FLOATS, 4, 0, 4),
        "bounds from the data": (aten.histc.default, FLOATS[:5], 5),
        "equal elements": (aten.histc.default, torch.full((3, 2), 2.0), 4),
        "experts are counted": (aten.histc.default, torch.tensor([[0.0, 3.0], [7.0, 3.0]]), 8, 0, 7),
        "float64": (aten.histc.default, FLOATS.double(), 7, -1, 4),
        "integers": (aten.bincount.default, torch.tensor([1, 5, 1, 0])),
        "at least so many": (aten.bincount.default, torch.tensor([1, 3], dtype=torch.int32), None, 6),
        "float weights": (aten.bincount.default, torch.tensor([1, 3, 1]), torch.tensor([0.5, 1.0, 2.0])),
        "int weights": (aten.bincount.default, torch.tensor([1, 3, 1], dtype=torch.uint8), torch.tensor([5, 1, 2])),
    }  # fmt: skip

    def test_same_as_eager(self):
        for promise, (target, *args) in self.CASES.items():
            with self.subTest(promise):
                self.assert_same_as_eager(target, *args)


if __name__ == "__main__":
    unittest.main()
