"""Incomplete gamma functions: same values, shapes and dtypes as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each

aten = torch.ops.aten
BOTH = each(aten.igamma.default, aten.igammac.default)
ENDS = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-30, 1e30, 2.5])


class TestIncompleteGamma(ExporterTestCase):
    CASES = {
        "both small": (BOTH, torch.rand(300) * 3, torch.rand(300) * 4),
        "tiny numbers": (BOTH, 10 ** (-20 * torch.rand(300)), 10 ** (1 - 20 * torch.rand(300))),
        "numbers below 300": (BOTH, torch.rand(500) * 300, torch.rand(500) * 300),
        "very different sizes": (BOTH, 10 ** (16 * torch.rand(300) - 8), 10 ** (16 * torch.rand(300) - 8)),
        "limits, NaN below zero": (BOTH, *torch.cartesian_prod(ENDS, ENDS).T.unbind()),
        "0-d": (BOTH, torch.tensor(1.5), torch.tensor(2.0)),
        "broadcast, of two dtypes": (BOTH, torch.rand(3, 1) * 9, torch.rand(4).double() * 9),
        "empty": (BOTH, torch.rand(0, 3), torch.rand(3)),
        "float16": (BOTH, (torch.rand(50) * 30).half(), (torch.rand(50) * 30).half()),
        "bfloat16": (BOTH, (torch.rand(50) * 300).bfloat16(), (torch.rand(50) * 300).bfloat16()),
        "the names in special": (
            each(aten.special_gammainc.default, aten.special_gammaincc.default),
            torch.arange(12.0).reshape(4, 3),
            torch.arange(12.0).reshape(4, 3) + 0.5,
        ),
    }

    def test_same_as_eager(self):
        for promise, (target, *args) in self.CASES.items():
            with self.subTest(promise):
                self.assert_same_as_eager(target, *args, dynamic=False)

    def test_float64(self):
        for promise, (target, *args) in self.CASES.items():
            with self.subTest(promise):
                self.assert_same_as_eager(target, *(x.double() for x in args), dynamic=False)

    def test_a_large_number_beside_a_near_one(self):
        a = 10 ** (2 + 8 * torch.rand(500, dtype=torch.float64))
        # further away eager sums 2000 terms of a series that needs more of them
        distance = (3 * torch.randn(500, dtype=torch.float64)).clamp(-4.4, 4.4)
        x = a * (1 + distance / a.sqrt()).clamp(min=0)
        self.assert_same_as_eager(BOTH, a, x, dynamic=False)

    def test_dynamic_sizes_and_operator_sets(self):
        a, x = torch.rand(2, 3) * 5, torch.rand(2, 3) * 5
        for opset in (18, 20, 23, 26):
            with self.subTest(opset):
                self.assert_same_as_eager(
                    BOTH, a, x, others=[(a.repeat(2, 2), x.repeat(2, 2))], target_opset=opset
                )


if __name__ == "__main__":
    unittest.main()
