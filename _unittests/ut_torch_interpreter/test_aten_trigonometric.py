"""Trigonometric and hyperbolic functions: quadrants, zeros of either sign, float64, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each, of_each_float

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.0, -1.0, 0.99, -0.3, 1e-6, 30.0, -7.5, 1e30, -1e30])
SIGNED = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e30, 3.0])
FUNCTIONS = each(
    aten.cos.default,
    aten.cosh.default,
    aten.deg2rad.default,
    aten.rad2deg.default,
    aten.sin.default,
    aten.sinc.default,
    aten.sinh.default,
    aten.tan.default,
    aten.tanh.default,
)
INVERSES = each(
    aten.acos.default,
    aten.arccos.default,
    aten.acosh.default,
    aten.arccosh.default,
    aten.asin.default,
    aten.arcsin.default,
    aten.asinh.default,
    aten.arcsinh.default,
    aten.atan.default,
    aten.arctan.default,
    aten.atanh.default,
    aten.arctanh.default,
)
OF_TWO = each(aten.atan2.default, aten.arctan2.default)
NUMBERS = SIGNED[~SIGNED.isnan()]
MODERATE = EDGES[3:12]


class TestTrigonometric(ExporterTestCase):
    CASES = {
        **of_each_float(FUNCTIONS, MODERATE, of="functions of"),
        **of_each_float(INVERSES, EDGES, of="inverses of"),
        **of_each_float(OF_TWO, SIGNED[:, None], SIGNED[None], of="every quadrant of"),
        **of_each_float(aten.hypot.default, NUMBERS[:, None], NUMBERS[None], of="lengths of"),
        "lengths beyond the squares": (
            aten.hypot.default,
            torch.tensor([3e38, 3e30, 3e-30, 1e-45]),
            torch.tensor([1e38, 4e30, 4e-30, 0.0]),
        ),
        "lengths beyond the squares in double": (
            aten.hypot.default,
            torch.tensor([1.5e308, 3e200, 3e-200, 5e-324, 3e-320], dtype=torch.float64),
            torch.tensor([2e307, 4e200, 4e-200, 0.0, 4e-320], dtype=torch.float64),
        ),
        "functions of integers": (FUNCTIONS, torch.tensor([0, 1, -3])),
        "functions of infinities": (FUNCTIONS, EDGES[:3]),
        "inverses of integers": (INVERSES, torch.tensor([0, 1, -3])),
        "the angle of integers": (aten.atan2.default, torch.tensor([1, 0, -1]), torch.tensor([-1, 0, 2])),
    }

    SPECIAL_VALUES = of_each_float(aten.hypot.default, SIGNED[:, None], SIGNED[None], of="lengths of")

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_special_values(self):
        self.assert_cases(self.SPECIAL_VALUES, special_values=True)

    def test_the_angle_of_a_sum_of_negative_zeros(self):
        def forward(x, y):
            across, along = (x * y).sum(1), (x * x.abs() * y).mean(1)
            half = (x.half() * y.half()).sum(1)
            return torch.atan2(x.norm(dim=1), across), torch.atan2(along, across), half.signbit()

        negative, zero, some = -torch.ones(2, 3), torch.zeros(2, 3), torch.tensor([[1.0, -2, 3], [-1, 0, 0]])
        others = [(zero, negative), (some, negative)]
        self.export_and_compare(forward, (negative, zero), others=others)


if __name__ == "__main__":
    unittest.main()
