"""Histograms and counts, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError

aten = torch.ops.aten
FLOATS = torch.tensor([0.0, 1.0, 2.5, -1.0, 4.0, float("nan"), float("inf"), 4.0, 3.999])
POINTS = torch.rand(4, 5, 2, generator=torch.Generator().manual_seed(0))
EDGES = torch.tensor([0.0, 0.3, 0.5, 1.0])


class TestHistogram(ExporterTestCase):
    CASES = {
        "the last bin is closed": (aten.histc.default, FLOATS, 4, 0, 4),
        "halves on the edges": (aten.histc.default, torch.arange(-9, 120).half() / 11, 100, 0, 10),
        "bounds from the data": (aten.histc.default, FLOATS[:5], 5),
        "equal elements": (aten.histc.default, torch.full((3, 2), 2.0), 4),
        "experts are counted": (aten.histc.default, torch.tensor([[0.0, 3.0], [7.0, 3.0]]), 8, 0, 7),
        "float64": (aten.histc.default, FLOATS.double(), 7, -1, 4),
        "integers": (aten.bincount.default, torch.tensor([1, 5, 1, 0])),
        "at least so many": (aten.bincount.default, torch.tensor([1, 3], dtype=torch.int32), None, 6),
        "float weights": (aten.bincount.default, torch.tensor([1, 3, 1]), torch.tensor([0.5, 1.0, 2.0])),
        "nothing": (aten.bincount.default, torch.zeros(0, dtype=torch.int64), None, 3),
        "int weights": (aten.bincount.default, torch.tensor([1, 3, 1], dtype=torch.uint8), torch.tensor([5, 1, 2])),
    }  # fmt: skip
    STATIC = {
        "equal bins": (aten.histogram.bin_ct, FLOATS, 4, {"range": [0.0, 4.0]}),
        "bins from the data": (aten.histogram.bin_ct, FLOATS[:5], 7),
        "bins around one value": (aten.histogram.bin_ct, torch.full((3,), 2.0), 4),
        "weights and density": (aten.histogram.bin_ct, FLOATS[:5], 3, {"weight": torch.rand(5), "density": True}),
        "given edges": (aten.histogram.bins_tensor, FLOATS, torch.tensor([0.0, 1.0, 3.0, 4.0])),
        "a grid": (aten.histogramdd.default, POINTS, [2, 3]),
        "a grid with bounds": (aten.histogramdd.default, POINTS, [2, 5], [0.0, 0.8, 0.1, 1.0], None, True),
        "a cubic grid": (aten.histogramdd.int_bins, POINTS.double(), 3),
        "the edges of a grid": (aten._histogramdd_bin_edges.default, POINTS, [2, 3], {"range": [0.0, 0.8, 0.1, 1.0]}),
        "the counts of a grid": (aten._histogramdd_from_bin_cts.default, POINTS, [2, 5], {"density": True}),
        "the counts between edges": (aten._histogramdd_from_bin_tensors.default, POINTS, [EDGES, EDGES[1:]]),
        "a grid of given edges": (aten.histogramdd.TensorList_bins, POINTS, [EDGES, EDGES[1:]], None, torch.rand(4, 5)),
    }  # fmt: skip

    def test_weights_of_nothing_have_a_dtype_that_torch_contradicts(self):
        with self.assertRaisesRegex(ExportError, "weights of no integer"):
            self.assert_same_as_eager(aten.bincount.default, torch.zeros(0, dtype=torch.int64), FLOATS[:0])

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_halves_are_as_near_as_eager(self):
        x = (torch.arange(-9, 120) / 11).bfloat16()
        self.assert_as_near_as_eager(aten.histc.default, x, 100, 0, 10)

    def test_static_sizes(self):
        """torch.export knows no symbolic sizes for these."""
        self.assert_cases(self.STATIC, dynamic=False)


if __name__ == "__main__":
    unittest.main()
