"""Reductions: NaN, empty and 0-d tensors, every dtype, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
FLOATS = torch.tensor([[1.5, -2.0, 3.25], [NAN, 7.0, -INF], [INF, 4.0, NAN], [-0.0, 0.0, -0.0]])
NUMBERS = torch.tensor([[1.5, -2.0, 3.25, 3.25], [0.0, 7.0, -8.5, 7.0]])
HALVES = torch.full((3, 4096), 100.25, dtype=torch.float16)
INTS = torch.tensor([[2**62, 2**53 + 1, -3], [7, 7, 2**53]])
BYTES = torch.tensor([[200, 100, 0], [255, 255, 0]], dtype=torch.uint8)
BOOLS = torch.tensor([[True, False, False], [True, True, False]])
EMPTY = torch.zeros(3, 0)
ZERO = torch.tensor(-2.5)
CUBE = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))


class TestReduction(ExporterTestCase):
    SUMS = {
        "a sum of everything": (aten.sum.default, CUBE),
        "booleans sum to int64": (aten.sum.default, BOOLS),
        "bytes sum to int64": (aten.sum.dim_IntList, BYTES, [0]),
        "a sum is cast before": (aten.sum.dim_IntList, BYTES, [0], {"dtype": torch.float64}),
        "a sum in bytes wraps": (aten.sum.dim_IntList, BYTES, [0], {"dtype": torch.uint8}),
        "no axes are all axes": (aten.sum.dim_IntList, CUBE, []),
        "None is all axes": (aten.sum.dim_IntList, CUBE, None, True),
        "negative axes": (aten.sum.dim_IntList, CUBE, [-1, 0], True),
        "an empty sum is 0": (aten.sum.dim_IntList, EMPTY, [1]),
        "a 0-d sum": (aten.sum.dim_IntList, ZERO, [-1]),
        "halves sum wide": (aten.sum.dim_IntList, HALVES / 64, [1]),
        "NaN is left out": (aten.nansum.default, FLOATS, [1], True),
        "integers have no NaN": (aten.nansum.default, BYTES),
        "sizes are given back": (aten.sum_to_size.default, CUBE, [3, 1]),
        "sizes that stay": (aten.sum_to_size.default, CUBE, [2, 3, 4]),
        "a product of everything": (aten.prod.default, CUBE),
        "a product of integers": (aten.prod.dim_int, BYTES, 0, True),
        "a product of all integers": (aten.prod.default, INTS[1]),
        "an empty product of integers": (aten.prod.dim_int, EMPTY.long(), 1),
        "an empty product is 1": (aten.prod.dim_int, EMPTY, -1),
        "a 0-d product of integers": (aten.prod.default, INTS[0, 0]),
        "a 0-d product": (aten.prod.dim_int, ZERO, -1, {"dtype": torch.float64}),
        "nonzeros are counted": (aten.count_nonzero.default, FLOATS),
        "nonzeros of axes": (aten.count_nonzero.dim_IntList, FLOATS, [0]),
    }
    MEANS = {
        "a mean of everything": (aten.mean.default, CUBE),
        "a mean in another dtype": (aten.mean.dim, BYTES, [0], {"dtype": torch.float32}),
        "a mean over axes": (aten.mean.dim, CUBE, [-1, 0], True),
        "an empty mean is NaN": (aten.mean.dim, EMPTY, [1]),
        "an empty mean of all": (aten.mean.default, EMPTY),
        "a 0-d mean": (aten.mean.dim, ZERO, [0]),
        "halves do not overflow": (aten.mean.dim, HALVES, [1]),
        "NaN has no mean": (aten.mean.dim, FLOATS, [1]),
        "NaN is left out": (aten.nanmean.default, FLOATS, [1]),
        "logsumexp is stable": (aten.logsumexp.default, CUBE * 1000, [0, 2], True),
        "logsumexp of infinities": (aten.logsumexp.default, FLOATS, [1]),
        "logsumexp of integers": (aten.logsumexp.default, BYTES, [1]),
    }
    EXTREMA = {
        "amax of all": (aten.amax.default, INTS, []),
        "amin of booleans": (aten.amin.default, BOOLS, [0]),
        "amin and amax of all": (aten.aminmax.default, CUBE),
        "max of bytes": (aten.max.default, BYTES),
        "min of halves": (aten.min.default, HALVES),
        "min of all": (aten.min.default, INTS),
        "the first maximum": (aten.max.dim, NUMBERS, 1),
        "the first minimum": (aten.min.dim, NUMBERS, 0, True),
        "max of booleans": (aten.max.dim, BOOLS, 0),
        "max of a 0-d tensor": (aten.max.dim, ZERO, -1),
        "argmax of everything keeps the rank": (aten.argmax.default, CUBE, None, True),
        "argmax of no row": (aten.argmax.default, EMPTY.reshape(0, 2), -1),
        "argmax of infinities and large numbers": (
            aten.argmax.default,
            torch.tensor([torch.finfo(torch.float32).max, INF, 1.0]),
        ),
        "argmax is exact for int64": (aten.argmax.default, INTS, 1),
        "argmax of a 0-d tensor": (aten.argmax.default, ZERO, -1),
        "argmax beside an empty axis": (aten.argmax.default, torch.zeros(3, 0, 2), -1),
        "argmin beside an empty axis keeps the rank": (aten.argmin.default, torch.zeros(2, 0), 0, True),
        "max beside an empty axis": (aten.max.dim, torch.zeros(0, 2, dtype=torch.uint8), 1),
        "min beside an empty axis": (aten.min.dim, torch.zeros(2, 0), 0, True),
        "argmin of halves": (aten.argmin.default, CUBE.half(), 1),
    }
    TRUTHS = {
        "any of all": (aten.any.default, BOOLS),
        "any of nothing": (aten.any.dim, EMPTY, 1),
        "NaN is true": (aten.any.dim, FLOATS, -1, True),
        "uint8 stays": (aten.any.dims, BYTES, [0]),
        "no axes": (aten.any.dims, FLOATS, []),
        "all of all": (aten.all.default, FLOATS),
        "all, any of booleans": (
            lambda x: [aten._is_all_true.default(x > 0), aten._is_any_true.default(x > 0)],
            FLOATS,
        ),
        "all of nothing": (aten.all.dim, EMPTY, -1),
        "all of axes": (aten.all.dims, CUBE, [0, -1], True),
        "all of None": (aten.all.dims, BOOLS, None),
        "all of a 0-d tensor": (aten.all.dim, ZERO, 0),
    }

    SPECIAL_VALUES = {
        "int64 sums are exact": (aten.sum.dim_IntList, INTS, [-1]),
        "int64 products are exact and wrap": (aten.prod.dim_int, INTS, 1, True),
        "int64 sums wrap": (aten.sum.default, INTS * 3),
        "NaN wins over infinity": (aten.amax.default, FLOATS, [1]),
        "NaN wins in a minimum": (aten.amin.default, FLOATS, [-1], True),
        "amin and amax": (aten.aminmax.default, FLOATS, {"dim": 1, "keepdim": True}),
        "max of all": (aten.max.default, FLOATS),
        "the first NaN": (aten.max.dim, FLOATS, -1, True),
        "the first NaN in a minimum": (aten.min.dim, FLOATS, 1),
        "argmax of everything": (aten.argmax.default, FLOATS),
        "argmax finds the first NaN": (aten.argmax.default, FLOATS, 0),
        "argmin finds the first NaN": (aten.argmin.default, FLOATS.double(), -1, True),
    }

    def test_special_values(self):
        self.assert_cases(self.SPECIAL_VALUES, special_values=True)

    def test_sums(self):
        self.assert_cases(self.SUMS)

    def test_an_empty_list_of_axes_that_torch_contradicts(self):
        with self.assertRaisesRegex(ExportError, "along no axis"):
            self.assert_same_as_eager(aten.nansum.default, FLOATS, [])

    def test_means(self):
        self.assert_cases(self.MEANS)

    def test_extrema(self):
        self.assert_cases(self.EXTREMA)

    def test_truths(self):
        self.assert_cases(self.TRUTHS)

    def test_other_sizes(self):
        ragged = torch.zeros(3, 4)
        others = [(torch.zeros(5, 0),), (ragged,)]
        self.assert_same_as_eager(aten.mean.dim, CUBE[0], [1], others=others, special_values=True)
        self.assert_same_as_eager(aten.any.dim, CUBE[0], 1, others=[(torch.zeros(5, 0),), (ragged,)])


if __name__ == "__main__":
    unittest.main()
