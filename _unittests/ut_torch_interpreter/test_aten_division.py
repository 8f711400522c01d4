"""Division: rounded quotients and remainders of negative, large and tiny numbers, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each
from experimental_experiment.torch_interpreter import to_onnx

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([NAN, INF, 1.0, -0.0, 0.0, 1.5, -1.5, 100.0, 7.0, -7.0, 3.0, -2.0])
OTHERS = torch.tensor([1.0, NAN, 0.1, 0.0, -0.0, -INF, 0.3, -0.3, 2.0, 2.0, -3.0, INF])
INTS = torch.tensor([7, -7, 7, -7, 0, -128])
DIVISORS = torch.tensor([2, 2, -2, -2, 3, 3])
FINITE = torch.tensor(
    [1.0, -0.0, 0.0, 1.5, -1.5, 100.0, 7.0, -7.0, 3.0, -2.0, 0.3, 1e-3, -1e-30, 16777217.0, -3e30, 0.7]
)
CONSTANT = torch.tensor([0.3, -0.3, 2.0, -0.0])
LARGE = torch.tensor([2**53 + 1, -(2**62) - 1, 10**18, -(2**63) + 1])
REMAINDERS = each(aten.remainder.Tensor, aten.fmod.Tensor, aten.floor_divide.default)


class TestDivision(ExporterTestCase):
    CASES = {
        "floats": (REMAINDERS, EDGES, OTHERS),
        "float64": (REMAINDERS, EDGES.double(), OTHERS.double()),
        "float16": (REMAINDERS, EDGES.half(), OTHERS.half()),
        "bfloat16": (REMAINDERS, EDGES.bfloat16(), OTHERS.bfloat16()),
        "negative integers": (REMAINDERS, INTS, DIVISORS),
        "int8 does not overflow inside": (REMAINDERS, INTS.to(torch.int8), DIVISORS.to(torch.int8)),
        "bytes": (REMAINDERS, INTS.abs().to(torch.uint8), DIVISORS.abs().to(torch.uint8)),
        "large integers": (REMAINDERS, LARGE // 2**10, torch.tensor([7, 1000003, -3, 7])),
        "the ends of small integers": (
            each(aten.floor_divide.default, aten.remainder.Tensor),
            torch.tensor([-128, 127, -127, -128], dtype=torch.int8),
            torch.tensor([3, -3, 127, 5], dtype=torch.int8),
        ),
        "the ends of int32": (
            each(aten.floor_divide.default, aten.remainder.Tensor),
            torch.tensor([-(2**31), 2**31 - 1, -(2**31)], dtype=torch.int32),
            torch.tensor([3, -3, 2**31 - 1], dtype=torch.int32),
        ),
        **{
            f"{name} by {number}": (
                each(aten.remainder.Scalar, aten.fmod.Scalar, aten.floor_divide.default),
                x,
                number,
            )
            for number in (4.0, 0.5, -2.0, 3.0, -0.1, 1.0, 1024.0)
            for name, x in (
                ("floats", FINITE),
                ("float64", FINITE.double()),
                ("float16", FINITE[:12].half()),
            )
        },
        "floats by a constant of both signs": (
            each(lambda x: x % CONSTANT, lambda x: x // CONSTANT),
            FINITE[:3].reshape(3, 1),
        ),
        "numbers": (
            each(
                aten.remainder.Scalar, aten.fmod.Scalar, aten.floor_divide.Scalar, aten.floor_divide.default
            ),
            INTS,
            -3,
        ),
        "an integer and a float number": (each(aten.remainder.Scalar, aten.fmod.Scalar), INTS, 0.3),
        "a number beside float16": (
            each(aten.remainder.Scalar, aten.fmod.Scalar, aten.floor_divide.default),
            EDGES.half(),
            0.1,
        ),
        "the remainder of a number": (aten.remainder.Scalar_Tensor, 17, DIVISORS),
        "the quotient 1 // 0.1 is 9": (aten.floor_divide.default, torch.tensor([1.0, 0.3]), 0.1),
    }
    SPECIAL_VALUES = {
        "large integers are exact": (REMAINDERS, LARGE, torch.tensor([7, 1000003, -3, 7])),
        "infinities by a power of two": (each(aten.floor_divide.default, aten.remainder.Scalar), EDGES, 4.0),
        "the smallest numbers by a power of two": (
            aten.floor_divide.default,
            torch.tensor([-1e-45, 1e-45]),
            4.0,
        ),
    }
    MODES = {
        f"{mode} of {name}": (
            each(aten.div.Tensor_mode, aten.divide.Tensor_mode),
            a,
            b,
            {"rounding_mode": mode},
        )
        for mode in ("floor", "trunc", None)
        for name, a, b in (
            ("floats", EDGES, OTHERS),
            ("float16", EDGES.half(), OTHERS.half()),
            ("integers", INTS, DIVISORS),
            ("a number", INTS, 0.3),
        )
    }
    DIVISORS_AND_MULTIPLES = {
        "integers": (each(aten.gcd.default, aten.lcm.default), INTS, torch.tensor([14, 21, 0, -49, 0, 6])),
        "bytes": (
            each(aten.gcd.default, aten.lcm.default),
            INTS.abs().to(torch.uint8),
            DIVISORS.abs().to(torch.uint8),
        ),
        "a multiple that wraps": (
            aten.lcm.default,
            torch.tensor([100], dtype=torch.int8),
            torch.tensor([7], dtype=torch.int8),
        ),
        "broadcast": (aten.gcd.default, torch.tensor([[12], [18]]), torch.tensor([8, 27])),
        "empty": (aten.gcd.default, INTS[:0], INTS[:0]),
    }

    def test_remainders(self):
        self.assert_cases(self.CASES)

    def test_special_values(self):
        self.assert_cases(self.SPECIAL_VALUES, special_values=True)

    def test_the_operators_of_a_constant_divisor(self):
        x, count = torch.ones(3), torch.arange(3)
        for function, given, written in (
            (lambda n: n // 3, count, ["Mod", "Sub", "Div"]),
            (lambda n: n % 3, count, ["Mod"]),
            (lambda x: x % 3.0, x, ["Mod", "Less", "Add", "Where"]),
            (lambda x: x % -3.0, x, ["Mod", "Greater", "Add", "Where"]),
            (lambda x: x % -8.0, x, ["Div", "Floor", "Mul", "Sub"]),
            (lambda x: x % 1.0, x, ["Floor", "Sub"]),
            (lambda x: x % 0.5, x, ["Mod", "Less", "Add", "Where"]),
            (lambda x: x // 0.25, x, ["Div", "Floor"]),
        ):
            self.assertEqual(written, [node.op_type for node in to_onnx(function, (given,)).graph.node])

    def test_rounding_modes(self):
        self.assert_cases(self.MODES, dynamic=False)

    def test_scalar_modes(self):
        family = each(aten.div.Scalar_mode, aten.divide.Scalar_mode)
        for mode in ("floor", "trunc"):
            self.assert_same_as_eager(family, INTS, 3, kwargs={"rounding_mode": mode})

    def test_common_divisors(self):
        self.assert_cases(self.DIVISORS_AND_MULTIPLES)


if __name__ == "__main__":
    unittest.main()
