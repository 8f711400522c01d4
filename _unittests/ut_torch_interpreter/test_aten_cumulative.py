"""Cumulative operators, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
CUBE = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
BYTES = torch.tensor([[200, 100, 0], [255, 255, 7]], dtype=torch.uint8)
INTS = torch.tensor([[2**62, 2**53 + 1, -3], [7, 7, 2**53]])


class TestCumulative(ExporterTestCase):
    SUMS = {
        "along an axis": (aten.cumsum.default, CUBE, 1),
        "bytes sum to int64": (aten.cumsum.default, BYTES, -1),
        "bytes wrap": (aten.cumsum.default, BYTES, 1, {"dtype": torch.uint8}),
        "int64 is exact": (aten.cumsum.default, INTS, 1),
        "booleans": (aten.cumsum.default, BYTES > 100, 0),
        "a 0-d tensor": (aten.cumsum.default, torch.tensor(3.0), 0, {"dtype": torch.float64}),
        "nothing": (aten.cumsum.default, torch.zeros(2, 0), 1),
        "halves": (aten.cumsum.default, CUBE.half(), -1),
    }

    def check(self, cases):
        for promise, (target, *args) in cases.items():
            with self.subTest(promise):
                kwargs = args.pop() if isinstance(args[-1], dict) else {}
                self.assert_same_as_eager(target, *args, kwargs=kwargs)

    def test_sums(self):
        self.check(self.SUMS)


if __name__ == "__main__":
    unittest.main()
