"""Cumulative operators, as eager."""

import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

aten = torch.ops.aten
CUBE = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
BYTES = torch.tensor([[200, 100, 0], [255, 255, 7]], dtype=torch.uint8)
INTS = torch.tensor([[2**62, 2**53 + 1, -3], [7, 7, 2**53]])
TIES = torch.tensor([[1, 5, 5, 2, 5], [4, 4, 4, 3, 3]])
SPECIAL = torch.tensor([[-float("inf"), 1.0, 1.0, float("inf")], [2.0, float("nan"), 5.0, float("nan")]])
PLACES = torch.tensor([0.0, 1.0, 3.0])
LONG = torch.randint(0, 5, (3, 96), generator=torch.Generator().manual_seed(1))


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

    EXTREMA = {
        "the last of equal maxima": (aten.cummax.default, TIES, -1),
        "the last of equal minima": (aten.cummin.default, TIES, 1),
        "NaN stays": (aten.cummax.default, SPECIAL, 1),
        "NaN stays in minima": (aten.cummin.default, SPECIAL.double(), 0),
        "booleans": (aten.cummax.default, BYTES > 100, 1),
        "bytes": (aten.cummin.default, BYTES, 0),
        "a 0-d tensor": (aten.cummax.default, torch.tensor(3.0), 0),
        "nothing": (aten.cummin.default, torch.zeros(2, 0), 1),
        "no row": (aten.cummax.default, torch.zeros(0, 3), 1),
    }
    PRODUCTS = {
        "along an axis": (aten.cumprod.default, CUBE, 1),
        "int64 is exact": (aten.cumprod.default, INTS, 1),
        "bytes multiply to int64": (aten.cumprod.default, BYTES, 0),
        "another dtype": (aten.cumprod.default, BYTES, -1, {"dtype": torch.float64}),
        "a 0-d tensor": (aten.cumprod.default, torch.tensor(3.0), 0),
        "logarithms": (aten.logcumsumexp.default, CUBE * 100, 2),
        "logarithms of special values": (aten.logcumsumexp.default, SPECIAL, 1),
        "logarithms of halves": (aten.logcumsumexp.default, CUBE.half(), 0),
        "logarithms of a 0-d tensor": (aten.logcumsumexp.default, torch.tensor(3.0), 0),
    }
    IN_PARTS = {
        "ties": (aten.cummax.default, LONG, 1),
        "along the first axis": (aten.cummin.default, LONG.mT, 0),
        "NaN stays": (aten.cummax.default, torch.where(LONG == 0, torch.nan, LONG.float()), 1),
        "booleans": (aten.cummin.default, LONG > 0, -1),
        "no row": (aten.cummax.default, LONG[:0], 1),
        "logarithms": (aten.logcumsumexp.default, LONG.float() * 30, 1),
        "logarithms of infinities": (aten.logcumsumexp.default, (LONG.float() - 1).log(), 1),
        "products": (aten.cumprod.default, LONG.float() / 2, 1),
        "nothing like equal parts": (aten.cummax.default, LONG[:, :67], 1),
    }
    DIFFERENCES = {
        "differences": (aten.diff.default, CUBE, 1, 1),
        "twice, with more": (aten.diff.default, CUBE, 2, -1, CUBE[:, :, :1], CUBE[:, :, 1:]),
        "of booleans": (aten.diff.default, BYTES > 100),
        "not once, whatever stands beside it": (aten.diff.default, CUBE, 0, -1, CUBE, CUBE[:, :, 1:]),
        "of nothing": (aten.diff.default, torch.zeros(3, 0)),
        "more often than there are": (aten.diff.default, CUBE, 3, 0),
        "gradients": (aten.gradient.scalarint, CUBE),
        "gradients of order 2": (aten.gradient.scalarint, CUBE, {"spacing": 0.5, "dim": 1, "edge_order": 2}),
        "gradients, one spacing": (aten.gradient.scalararray, CUBE, {"spacing": 2.0, "dim": [0, 2]}),
        "gradients, spacings": (aten.gradient.scalarrayarray, CUBE, {"spacing": [2.0, 0.5], "dim": [0, 2]}),
        "gradients, spacings of all": (aten.gradient.scalarrayint, CUBE, {"spacing": [2.0, 0.5, 1.0]}),
        "gradients, axes": (aten.gradient.array, CUBE, {"dim": [1]}),
        "gradients, coordinates": (aten.gradient.tensorarray, CUBE, {"spacing": [PLACES], "dim": [1]}),
        "gradients, coordinates of one": (
            aten.gradient.tensorarrayint,
            CUBE,
            {"spacing": [PLACES], "dim": 1},
        ),
        "integrals": (aten.trapezoid.dx, CUBE, {"dx": 0.5, "dim": 1}),
        "integrals at places": (aten.trapezoid.x, CUBE, PLACES, {"dim": 1}),
        "integrals, by another name": (aten.trapz.dx, CUBE),
        "integrals at places, by another name": (aten.trapz.x, CUBE, PLACES, {"dim": 1}),
        "running integrals": (aten.cumulative_trapezoid.dx, CUBE, {"dim": 0}),
        "running integrals at places": (aten.cumulative_trapezoid.x, CUBE, PLACES, {"dim": 1}),
    }

    def test_long_axes(self):
        """They run in equal parts side by side, where their size is known."""
        self.assert_cases(self.IN_PARTS)
        for size, expected in ((96, 2), (67, 1)):
            model = self.assert_same_as_eager(aten.cummax.default, LONG[:, :size], 1, dynamic=False)
            self.assertEqual(expected, [node.op_type for node in model.graph.node].count("Scan"))

    def test_sums(self):
        self.assert_cases(self.SUMS)

    def test_extrema(self):
        self.assert_cases(self.EXTREMA)

    def test_products(self):
        self.assert_cases(self.PRODUCTS)

    def test_what_is_small_beside_a_sum(self):
        """It is carried in float64: float32 would lose all of it."""
        x = torch.zeros(1, 20_000)
        x[0, 0] = 15.0
        for shapes in (None, ({1: "length"},)):
            model = to_onnx(lambda x: x.logcumsumexp(1), (x,), dynamic_shapes=shapes)
            (got,) = run(session(model), [x])
            torch.testing.assert_close(got, x.double().logcumsumexp(1).float(), rtol=1e-7, atol=1e-6)

    def test_differences(self):
        self.assert_cases(self.DIFFERENCES)

    def test_other_sizes(self):
        others = [(torch.randn(3, 7),), (torch.randn(1, 1),), (torch.zeros(2, 0),)]
        others += [(torch.zeros(0, 3),), (torch.zeros(0, 0),), (torch.randn(4, 1),)]
        for target in (aten.cummax.default, aten.logcumsumexp.default, aten.cumprod.default):
            self.assert_same_as_eager(target, CUBE[0], 1, others=others)
        self.assert_same_as_eager(aten.cummin.default, CUBE[0], 0, others=others)


if __name__ == "__main__":
    unittest.main()
