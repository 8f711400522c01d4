"""Order statistics: NaN, ties, interpolations, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
FLOATS = torch.tensor(
    [[1.0, NAN, 3.0, INF], [-INF, 2.0, 5.0, -0.5], [NAN, NAN, NAN, NAN], [4.0, 2.0, 8.0, 6.0]]
)
NUMBERS = torch.tensor([[1.0, INF, 3.0, 0.0], [-INF, 2.0, 5.0, -0.5], [4.0, 2.0, 8.0, 6.0]])
INTS = torch.tensor([[2**53 + 1, 2**53, 5], [7, -1, 3]])
CUBE = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
LEVELS = torch.tensor([0.0, 0.3, 1.0])


class TestQuantile(ExporterTestCase):
    MIDDLES = {
        "median of all": (aten.median.default, CUBE),
        "median of infinities": (aten.median.default, NUMBERS),
        "median of nothing": (aten.median.default, torch.zeros(0)),
        "median with equal ones": (aten.median.default, torch.tensor([2.0, 7.0, 2.0, 2.0])),
        "median along an axis": (aten.median.dim, NUMBERS, 1),
        "median of integers": (aten.median.dim, INTS, -1, True),
        "median of halves": (aten.median.dim, CUBE.half(), 1, True),
        "median of a 0-d tensor": (aten.median.dim, torch.tensor(3.0), -1),
        "nanmedian of all": (aten.nanmedian.default, FLOATS),
        "nanmedian along an axis": (aten.nanmedian.dim, FLOATS[[0, 1, 3]], 1),
        "nanmedian of integers": (aten.nanmedian.dim, INTS, 0),
        "kthvalue": (aten.kthvalue.default, NUMBERS, 3, 1),
        "kthvalue of integers": (aten.kthvalue.default, INTS, 2, 0, True),
        "kthvalue of a 0-d tensor": (aten.kthvalue.default, torch.tensor(3.0), 1),
        "mode": (aten.mode.default, torch.tensor([[3, 1, 3, 1, 2], [5, 4, 4, 5, 4]]), 1),
        "mode along the first axis": (aten.mode.default, torch.tensor([[2.0, 5.0], [1.0, 5.0], [2.0, 1.0]]), 0, True),
        "mode beside an empty axis": (aten.mode.default, torch.zeros(3, 0), 0, True),
        "mode of a 0-d tensor": (aten.mode.default, torch.tensor(3.0)),
    }  # fmt: skip
    QUANTILES = (
        {
            "of all": (aten.quantile.scalar, CUBE, 0.3),
            "of all, keeping the rank": (aten.quantile.default, CUBE, LEVELS, None, True),
            "along an axis": (aten.quantile.default, NUMBERS, LEVELS, 1),
            "along the first axis": (aten.quantile.default, NUMBERS[1:], LEVELS, 0),
            "one level along the first axis": (aten.quantile.scalar, CUBE, 0.6, 0),
            "one level": (aten.quantile.default, CUBE, torch.tensor(0.7), -2, True),
            "of float64": (aten.quantile.scalar, CUBE.double(), 0.25, 2, True),
            "of a 0-d tensor": (aten.quantile.default, torch.tensor(2.0), LEVELS),
            "without NaN": (aten.nanquantile.default, FLOATS, LEVELS, 1, True),
            "without NaN, one level": (aten.nanquantile.scalar, FLOATS, 0.4, 0),
            "without NaN, in infinities": (
                aten.nanquantile.scalar,
                torch.tensor([[INF, -INF, NAN], [INF, 2.0, 1.0]]),
                0.4,
                1,
            ),
        }
        | {
            f"{how} without NaN": (aten.nanquantile.default, FLOATS, LEVELS, 1, {"interpolation": how})
            for how in ("lower", "higher", "nearest", "midpoint")
        }
        | {
            how: (aten.quantile.default, CUBE, torch.tensor([0.1, 0.5, 0.75]), 2, {"interpolation": how})
            for how in ("lower", "higher", "nearest", "midpoint")
        }
    )

    WITH_NAN = {
        "median with NaN": (aten.median.default, FLOATS),
        "the first NaN is the median": (aten.median.dim, FLOATS, 1),
        "kthvalue with NaN": (aten.kthvalue.default, FLOATS, 3, 1),
        "quantiles with NaN": (aten.quantile.default, FLOATS, LEVELS, 1),
        "one quantile with NaN": (aten.quantile.scalar, FLOATS, 0.3, 0, True),
        "no NaN": (aten.median.default, CUBE),
    }

    def test_middles(self):
        self.assert_cases(self.MIDDLES)

    def test_nan_is_the_largest(self):
        self.assert_cases(self.WITH_NAN, special_values=True)

    def test_sizes_that_are_one_and_none(self):
        others = [(torch.randn(1, 1),), (torch.randn(2, 5),), (torch.tensor([[3.0, INF, -INF, 3.0]]),)]
        for function in (
            lambda x: x.median(1),
            lambda x: x.quantile(0.3, 1),
            lambda x: x.quantile(LEVELS, 1, keepdim=True),
            lambda x: x.quantile(0.5),
            lambda x: x.median(),
        ):
            self.assert_same_as_eager(function, CUBE[0], others=others)

    def test_the_size_of_another_axis_is_read_once(self):
        others = [(torch.randn(2, 7, 4),), (torch.randn(5, 1, 2),)]
        for function in (
            lambda x: x.quantile(0.75, 1) - x.quantile(0.25, 1),
            lambda x: x.nanquantile(0.3, 0),
        ):
            model = self.assert_same_as_eager(function, CUBE, others=others)
            self.assertEqual(sum(node.op_type == "Shape" for node in model.graph.node), 1)

    def test_middle_of_nothing(self):
        others = [(torch.zeros(0, 3),), (NUMBERS,)]
        for target in (aten.median.default, aten.nanmedian.default):
            self.assert_same_as_eager(target, CUBE[0], others=others)

    def test_quantiles(self):
        self.assert_cases(self.QUANTILES)


if __name__ == "__main__":
    unittest.main()
