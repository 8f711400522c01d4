"""Special functions: same values, shapes and dtypes as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
LINE = torch.linspace(-12, 12, 97)
EDGES = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 2.0, -1.0, -3.0, 1e-6, -1e-6, 1e6, 30.0])
UNIT = torch.linspace(-1, 1, 81)
TAIL = torch.tensor([1e-30, 1e-9, 0.05, 0.13, 0.14, 0.5, 0.9, 1 - 1e-6, 0.0, 1.0, -0.1, 1.1, math.nan])


class TestSpecial(ExporterTestCase):
    FUNCTIONS = (
        aten.lgamma.default,
        aten.special_gammaln.default,
        aten.digamma.default,
        aten.special_digamma.default,
        aten.special_psi.default,
        aten.erfinv.default,
        aten.special_erfinv.default,
        aten.special_entr.default,
        aten.special_erfcx.default,
        aten.special_log_ndtr.default,
        aten.special_ndtr.default,
        aten.special_ndtri.default,
    )
    CASES = {
        "digamma as polygamma": (aten.polygamma.default, 0, LINE),
        "trigamma": (aten.polygamma.default, 1, LINE + 0.1),
        "the second derivative": (aten.polygamma.default, 2, LINE.abs() + 0.1),
        "the fourth derivative": (aten.special_polygamma.default, 4, LINE.abs() + 0.1),
        "polygamma of integers": (aten.polygamma.default, 2, torch.arange(1, 5)),
        "polygamma in float64": (aten.polygamma.default, 2, LINE.double().abs() + 0.1),
        "polygamma in place": (lambda x: (aten.polygamma_.default(x := x.clone(), 1), x), LINE + 0.1),
        "mvlgamma": (aten.mvlgamma.default, LINE.abs() + 2, 3),
        "multigammaln": (aten.special_multigammaln.default, LINE.abs() + 2, 1),
        "zeta": (aten.special_zeta.default, torch.tensor([[2.0], [3.5], [1.0], [0.5]]), torch.tensor([0.5, 1, 20, -1])),
        "zeta below zero": (aten.special_zeta.default, torch.tensor([2.0, 3.0, 2.5, 2.0]), torch.tensor([-0.5, -30.5, -1.5, -3])),
        "zeta of large numbers": (
            aten.special_zeta.default,
            torch.tensor([[math.inf], [1e30], [88.0], [89.0], [700.0]]),
            torch.tensor([1, 0.5, -1e-30, 1e-30, -2.5, 2]),
        ),
        "zeta with a number": (aten.special_zeta.other_scalar, torch.tensor([2.0, 3.0]), 1.5),
        "zeta of a number": (aten.special_zeta.self_scalar, 3, torch.tensor([2.0, 3.0])),
        "zeta in float64": (aten.special_zeta.default, torch.tensor([2.0, 3.0]).double(), torch.tensor([2, 3])),
    }  # fmt: skip

    def test_functions_of_one_tensor(self):
        for target in self.FUNCTIONS:
            for name, x in (("line", LINE), ("edges", EDGES), ("unit", UNIT), ("tail", TAIL)):
                with self.subTest(target=target, x=name):
                    self.assert_same_as_eager(target, x.double(), dynamic=False)
                    self.assert_same_as_eager(target, x, dynamic=False)

    def test_dtypes(self):
        for x in (torch.arange(1, 6), UNIT[1:-1].half(), UNIT[1:-1].bfloat16(), torch.tensor([True, False])):
            with self.subTest(x.dtype):
                self.assert_same_as_eager(aten.digamma.default, x + (x.dtype == torch.bool), dynamic=False)
                self.assert_same_as_eager(aten.erfinv.default, x, dynamic=False)

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_dynamic_sizes(self):
        self.assert_same_as_eager(
            aten.special_erfcx.default, LINE[:96].reshape(32, 3), others=[(LINE[:6].reshape(2, 3),)]
        )


if __name__ == "__main__":
    unittest.main()
