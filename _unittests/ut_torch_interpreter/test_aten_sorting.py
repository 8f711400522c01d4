"""Sorting: ties, NaN, infinities, every dtype, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

torch.manual_seed(0)

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
FLOATS = torch.tensor([[1.0, NAN, 3.0, INF, 1.0, NAN], [-INF, 3.4028234663852886e38, INF, -0.0, 0.0, NAN]])
INTS = torch.tensor([[2**53 + 1, 2**53, 2**62, 2**62 + 1], [3, 3, -1, 3]])
NUMBERS = torch.tensor([[1.0, 3.0, INF, 1.0], [-INF, 3.4028234663852886e38, 5.0, 0.0]])
BOOLS = torch.tensor([True, False, True, False])


class TestSorting(ExporterTestCase):
    CASES = {
        "infinities": (aten.sort.default, NUMBERS, 1, True),
        "float64": (aten.sort.default, torch.tensor([1.0 + 2**-52, 1.0, INF], dtype=torch.float64)),
        "float16": (aten.sort.default, NUMBERS.half()),
        "bfloat16 numbers": (aten.sort.default, NUMBERS.bfloat16(), 0),
        "argsort of numbers": (aten.argsort.default, NUMBERS, 0),
        "equal elements stay in order": (aten.sort.stable, INTS, {"stable": True, "descending": True}),
        "sort along the first axis": (aten.sort.stable, INTS, {"stable": False, "dim": 0}),
        "booleans": (aten.sort.stable, BOOLS, {"stable": True}),
        "a 0-d tensor": (aten.sort.default, torch.tensor(3.0)),
        "nothing": (aten.sort.default, torch.zeros(2, 0)),
        "argsort, stable": (aten.argsort.stable, INTS, {"stable": True, "dim": -1, "descending": True}),
        "the smallest": (aten.topk.default, torch.tensor([[3, 1, 2], [9, 8, 7]]), 2, 1, False),
        "the largest of an axis": (aten.topk.default, torch.tensor([[3, 1], [9, 8], [4, 5]]), 2, 0),
        "the largest of a 0-d tensor": (aten.topk.default, torch.tensor(3.0), 1),
    }  # fmt: skip

    WITH_NAN = {
        "NaN is the largest": (aten.sort.default, FLOATS),
        "NaN comes first when descending": (aten.sort.default, FLOATS, -1, True),
        "float64 keeps its digits": (aten.sort.default, torch.tensor([1.0, 1.0 + 2**-52, NAN, INF], dtype=torch.float64)),
        "halves": (aten.sort.default, FLOATS.half()),
        "bfloat16": (aten.sort.default, FLOATS.bfloat16(), 0),
        "the first axis": (aten.msort.default, FLOATS.t()),
        "argsort": (aten.argsort.default, FLOATS, 1),
        "the largest": (aten.topk.default, torch.tensor([[3.0, 1.0, NAN, INF], [5.0, 7.0, -INF, 0.0]]), 2),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_with_nan(self):
        self.assert_cases(self.WITH_NAN, special_values=True)

    def test_k_is_a_size(self):
        self.assert_same_as_eager(
            lambda x, y: torch.topk(x, y.shape[0], dim=0), torch.randn(7, 2), torch.randn(3)
        )


if __name__ == "__main__":
    unittest.main()
