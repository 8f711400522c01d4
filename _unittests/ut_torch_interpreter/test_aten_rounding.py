"""Rounding: ties, signs of zeros, decimals, as eager."""

import itertools
import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase, each, of_each_float
from experimental_experiment.torch_interpreter import to_onnx

aten = torch.ops.aten
EDGES = torch.tensor([0.5, 1.5, 2.5, -0.5, -2.5, -0.0, 3.7, -3.7, 1e10, float("nan"), float("-inf"), 12.345])
INTS = torch.tensor([15, -25, 7])
FAMILY = each(
    aten.ceil.default,
    aten.floor.default,
    aten.round.default,
    aten.trunc.default,
    aten.fix.default,
)


def decimals(x):
    """round to several numbers of decimals."""
    return [aten.round.decimals(x, decimals=k) for k in (0, 1, 2, -1)]


class TestRounding(ExporterTestCase):
    CASES = {
        **of_each_float(FAMILY, EDGES, of="ties to even of"),
        "integers are round": (FAMILY, INTS),
        "the fraction has the sign": (aten.frac.default, EDGES),
        **of_each_float(decimals, EDGES, of="decimals of"),
        "empty": (FAMILY, EDGES[:0]),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_decimals_of_halves(self):
        """To the last bit: the scaled number is rounded in float32, to an integer only."""
        for dtype, runtime in itertools.product((torch.float16, torch.bfloat16), ("onnxruntime", "onnx")):
            with self.subTest(dtype=dtype, runtime=runtime):
                x = (torch.linspace(-40, 40, 801) + 0.3).to(dtype)
                model = to_onnx(lambda x: decimals(x)[1:], (x,), runtime=runtime, special_values=True)
                for got, expected in zip(run(session(model), [x]), decimals(x)[1:]):
                    self.assertTrue(torch.equal(got, expected))

    def test_truncation_keeps_the_sign_of_zero(self):
        self.assert_same_as_eager(lambda x: aten.reciprocal(aten.trunc(x)), torch.tensor([-0.5, 0.5]))


if __name__ == "__main__":
    unittest.main()
