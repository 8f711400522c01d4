"""Parts of floats: signs of zeros, mantissas, exponents, neighbours, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.0, -1.0, 0.5, 3.7, -1e-40, 3e38, 2.0**-126, 1e-45])
GOALS = torch.tensor([1.0, 0.0, 0.0, -1.0, 1.0, 0.0, 2.0, 0.5, NAN, 0.0, INF, 0.0, 0.0])
SIGNED = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF])


class TestFloatingPoint(ExporterTestCase):
    CASES = {
        "the sign of zeros": (aten.signbit.default, SIGNED),
        "the sign of integers": (aten.signbit.default, torch.tensor([1, 0, -1])),
        "bytes have no sign": (aten.signbit.default, torch.tensor([1, 0], dtype=torch.uint8)),
        "a sign is copied": (aten.copysign.Tensor, EDGES[:, None], SIGNED[None]),
        "a sign is copied to a zero": (
            lambda x, y: torch.reciprocal(aten.copysign.Tensor(x, y)),
            SIGNED[:2, None],
            SIGNED[None],
        ),
        "the sign of a number": (aten.copysign.Scalar, EDGES, -0.0),
        "the sign of integers is copied": (aten.copysign.Tensor, torch.tensor([1, 2]), torch.tensor([-1, 0])),
        "mantissa and exponent": (aten.frexp.Tensor, EDGES),
        "mantissa and exponent of float64": (aten.frexp.Tensor, EDGES.double()),
        "mantissa and exponent of float16": (aten.frexp.Tensor, EDGES.half()),
        "a multiple of a power of two": (aten.ldexp.Tensor, EDGES, torch.arange(-6, 7)),
        "a float16 multiple of a power that it does not hold": (
            aten.ldexp.Tensor,
            torch.tensor([1e-4, 1.5], dtype=torch.float16),
            torch.tensor([20, -3]),
        ),
        "a float64 number times powers of two": (
            aten.ldexp.Tensor,
            torch.tensor(0.1, dtype=torch.float64),
            torch.arange(-6, 7),
        ),
        "a power that float32 does not hold": (
            aten.ldexp.Tensor,
            torch.tensor([0.0, 0.88, 2.0**-100, -(2.0**-149), 2.0**100]),
            torch.tensor([[128], [150], [-140], [2000]]),
        ),
        "a multiple of a float power": (aten.ldexp.Tensor, EDGES, GOALS),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_the_next_number_is_exact(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            with self.subTest(dtype=dtype):
                x, goal = EDGES.to(dtype), GOALS.to(dtype)
                # the distance in units of the last place is what must agree
                self.assert_same_as_eager(
                    lambda x, goal: (aten.nextafter.default(x, goal) - x) / x.abs(), x, goal, dynamic=False
                )
                self.assert_same_as_eager(aten.nextafter.default, x, goal)

    def test_family(self):
        family = each(aten.signbit.default, aten.frexp.Tensor)
        self.assert_same_as_eager(family, EDGES)


if __name__ == "__main__":
    unittest.main()
