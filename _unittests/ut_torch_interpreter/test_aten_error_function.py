"""The error function and its complement: digits in the tail, float64, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each, of_each_float

aten = torch.ops.aten
EDGES = torch.tensor(
    [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 0.3, -0.3, 1.5, -1.5, 4.0, -4.0, 8.5, 30.0]
)
FAMILY = each(aten.erf.default, aten.erfc.default)


class TestErrorFunction(ExporterTestCase):
    CASES = {
        **of_each_float(FAMILY, EDGES),
        "integers give floats": (FAMILY, torch.tensor([0, 1, -2])),
        "empty": (FAMILY, EDGES[:0]),
        "gelu in float64": (
            each(aten.gelu.default, lambda x: aten.gelu_backward.default(x, x)),
            EDGES[3:].double(),
        ),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_the_tail_keeps_its_digits(self):
        for dtype in (torch.float32, torch.float64):
            x = torch.linspace(-3, 9, 25, dtype=dtype)
            self.assert_same_as_eager(lambda x: torch.log(aten.erfc.default(x)), x)


if __name__ == "__main__":
    unittest.main()
