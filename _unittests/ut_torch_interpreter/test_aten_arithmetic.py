"""Arithmetic: promotion, overflow, float16 and powers of integers, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
INTS = torch.tensor([[-7, 3], [0, 5]])
OTHER_INTS = torch.tensor([[2, -3], [4, 0]])
LARGE = torch.tensor([2**53 + 1, -(2**62), 3037000499, 10**18])
BYTES = torch.tensor([200, 100, 0, 255], dtype=torch.uint8)
BOOLS = torch.tensor([True, False, True, False])
FLOATS = torch.tensor([[-1.5, 2.0], [0.0, INF]])
EDGES = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.5, -1.5, 100.0, 1e-6, 3.0])
OTHERS = torch.tensor([1.0, NAN, INF, 0.0, -0.0, -INF, 0.3, -0.3, 2.0, -2.0])
HALVES = EDGES.half()


class TestArithmetic(ExporterTestCase):
    SUMS = {
        "alpha scales the second operand": (
            each(aten.add.Tensor, aten.sub.Tensor, aten.subtract.Tensor, aten.rsub.Tensor),
            FLOATS,
            FLOATS.t(),
            {"alpha": 2},
        ),
        "infinities and NaN": (
            each(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.multiply.Tensor, aten.rsub.Tensor),
            EDGES,
            OTHERS,
        ),
        "an int and a float number make a float": (
            each(
                aten.add.Tensor,
                aten.add.Scalar,
                aten.sub.Scalar,
                aten.subtract.Scalar,
                aten.mul.Scalar,
                aten.multiply.Scalar,
                aten.rsub.Scalar,
            ),
            INTS,
            0.5,
        ),
        "a 0-d tensor does not promote its kind": (
            each(aten.add.Tensor, aten.mul.Tensor),
            torch.ones(3, dtype=torch.float16),
            torch.tensor(2.0, dtype=torch.float64),
        ),
        "bytes wrap": (each(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor), BYTES, 300),
        "booleans add as or, multiply as and": (
            each(aten.add.Tensor, aten.mul.Tensor),
            BOOLS,
            torch.tensor([True, True, False, False]),
        ),
        "alpha 0 leaves a boolean": (aten.add.Tensor, BOOLS, ~BOOLS, {"alpha": 0}),
        "a boolean and an int": (each(aten.add.Tensor, aten.mul.Tensor), BOOLS, torch.arange(4)),
        "float16 overflows in a sum, not beside a factor": (
            each(aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor),
            HALVES,
            1e5,
        ),
        "a float16 factor may be a float32 scalar": (aten.mul.Tensor, HALVES, torch.tensor(1e5)),
        "a scaled float16 rounds once": (aten.add.Tensor, HALVES, OTHERS.half(), {"alpha": 0.1}),
        "bfloat16": (
            each(aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor),
            EDGES.bfloat16(),
            OTHERS.bfloat16(),
        ),
        "an empty sum": (aten.add.Tensor, torch.zeros(0, 3), 1),
        "two 0-d tensors": (aten.add.Tensor, torch.tensor(1), torch.tensor(2.5)),
    }
    QUOTIENTS = {
        "integers divide to a float": (
            each(aten.div.Tensor, aten.divide.Tensor, aten.true_divide.Tensor),
            INTS,
            torch.tensor([[2, -3], [4, 7]]),
        ),
        "a number divides": (
            each(aten.div.Scalar, aten.divide.Scalar, aten.true_divide.Scalar),
            INTS,
            3,
        ),
        "a division by zero": (aten.div.Tensor, EDGES, OTHERS),
        "float16 divides by a number it does not hold": (aten.div.Tensor, HALVES, 1e-8),
        "inverses": (aten.reciprocal.default, EDGES),
        "inverses of integers": (aten.reciprocal.default, torch.tensor([1, -4, 0])),
    }
    PRODUCTS = {
        "addcmul and addcdiv": (
            each(aten.addcmul.default, aten.addcdiv.default),
            EDGES,
            OTHERS,
            EDGES,
            {"value": 0.3},
        ),
        "a float16 product does not overflow inside": (
            aten.addcmul.default,
            torch.ones(2, dtype=torch.float16),
            torch.full((2,), 300.0, dtype=torch.float16),
            torch.full((2,), 300.0, dtype=torch.float16),
            {"value": 0.1},
        ),
        "addcmul of integers": (aten.addcmul.default, INTS, INTS, INTS, {"value": 2}),
        "addcmul of integers truncates a factor": (aten.addcmul.default, INTS, INTS, INTS, {"value": -2.7}),
        "lerp with a number": (aten.lerp.Scalar, EDGES, OTHERS, 0.3),
        "lerp with a number near the end": (aten.lerp.Scalar, EDGES, OTHERS, 0.7),
        "lerp ends exactly": (aten.lerp.Scalar, torch.tensor([1e8]), torch.tensor([1.0]), 1),
        "lerp with a tensor": (aten.lerp.Tensor, EDGES, OTHERS, torch.linspace(-1, 2, 10)),
        "lerp with a weight of each row": (
            aten.lerp.Tensor,
            EDGES,
            OTHERS,
            torch.linspace(-1, 2, 5)[:, None],
        ),
        "lerp with weights that are no numbers": (aten.lerp.Tensor, EDGES, OTHERS, EDGES.flip(0)),
        "lerp ends exactly by a tensor": (
            aten.lerp.Tensor,
            torch.tensor([1e8]),
            torch.tensor([1.0]),
            torch.tensor([0.0, 1.0, 0.5]),
        ),
    }
    SIGNS = {
        "signs of numbers": (each(aten.sign.default, aten.sgn.default), EDGES[1:]),
        "signs of floats": (
            each(
                aten.abs.default,
                aten.absolute.default,
                aten.neg.default,
                aten.negative.default,
                aten.positive.default,
            ),
            EDGES,
        ),
        "signs of integers": (each(aten.abs.default, aten.neg.default, aten.sign.default), INTS),
        "unsigned integers wrap": (each(aten.abs.default, aten.neg.default, aten.sign.default), BYTES),
        "signs of booleans": (aten.sign.default, BOOLS),
    }
    POWERS = {
        "powers of floats": (aten.pow.Tensor_Tensor, EDGES, OTHERS),
        "a square root": (aten.pow.Tensor_Scalar, EDGES, 0.5),
        "an inverse square root": (aten.pow.Tensor_Scalar, EDGES, -0.5),
        "a float16 root is a power": (aten.pow.Tensor_Scalar, HALVES, 0.5),
        "a number to the power of floats": (aten.pow.Scalar, 2, EDGES),
        "large integers are exact, then wrap": (
            lambda x: [aten.pow.Tensor_Scalar(x, k) for k in (0, 1, 2, 3, 7)],
            LARGE,
        ),
        "bytes wrap in a power": (aten.pow.Tensor_Scalar, BYTES, 3),
        "bytes to the power of bytes": (aten.pow.Tensor_Tensor, BYTES, BYTES // 50),
        "int32 wraps in a power": (
            aten.pow.Tensor_Tensor,
            torch.tensor([65537, -7, 3], dtype=torch.int32),
            torch.tensor([2, 3, 19], dtype=torch.int32),
        ),
        "a number to the power of bytes wraps": (
            aten.pow.Scalar,
            3,
            torch.tensor([0, 1, 41, 255], dtype=torch.uint8),
        ),
        "large powers of fewer bits wrap": (
            lambda x, y: [
                x.to(dtype) ** y.to(dtype) for dtype in (torch.int8, torch.int16, torch.int32, torch.uint8)
            ],
            torch.tensor([[3], [-7], [0], [2], [-1], [1], [65537]]),
            torch.tensor([0, 1, 41, 100, -1, -2, -128]),
        ),
        "a tensor without axes has the other's dtype": (
            lambda x, y: (x**y, x.int() ** y, y ** x.int()),
            BYTES,
            torch.tensor(270),
        ),
        "constant powers wrap": (
            lambda x: x + 3 ** torch.arange(50, dtype=torch.int32),
            torch.zeros(50, dtype=torch.int32),
        ),
        "powers of fewer bits that fit": (
            lambda x: (x ** torch.tensor([2, 1], dtype=torch.int8), 2 ** (x & 31)),
            torch.tensor([[7, -128], [100, 3]], dtype=torch.int8),
        ),
        "a first power, an inverse, a square": (lambda x: (x**1, x**-1, x**2, x.half() ** 2), EDGES),
        "integers to the power of integers": (aten.pow.Tensor_Tensor, INTS, OTHER_INTS),
        "a number to the power of integers": (aten.pow.Scalar, 3, OTHER_INTS.abs()),
        "an empty integer power": (aten.pow.Tensor_Tensor, INTS[:0], INTS[:0]),
        "broadcast integer powers": (aten.pow.Tensor_Tensor, INTS, torch.tensor([3, 2])),
        "an integer to a float power": (aten.pow.Tensor_Scalar, INTS, 1.5),
        "squares": (aten.square.default, LARGE),
        "the square of a boolean is an integer": (aten.square.default, BOOLS),
        "float powers are float64": (aten.float_power.Tensor_Tensor, EDGES, OTHERS),
        "float powers of a number": (aten.float_power.Scalar, 2, INTS),
        "float powers with a number": (aten.float_power.Tensor_Scalar, INTS, 2),
        "float powers take roots": (
            lambda x: [aten.float_power.Tensor_Scalar(x, power) for power in (0.5, -0.5)],
            EDGES,
        ),
    }

    SPECIAL_VALUES = {
        "the sign of NaN": (each(aten.sign.default, aten.sgn.default), EDGES),
        "large integers to the power of integers": (
            aten.pow.Tensor_Tensor,
            LARGE,
            torch.tensor([2, 3, 0, -1]),
        ),
        "0 to a negative power": (
            aten.pow.Tensor_Tensor,
            torch.tensor([0, -1, 1, 2]),
            torch.tensor([-1, -3, -2, -5]),
        ),
        "integers to the power of integers": (aten.pow.Tensor_Tensor, INTS, OTHER_INTS),
        "an empty integer power": (aten.pow.Tensor_Tensor, INTS[:0], INTS[:0]),
        "broadcast integer powers": (aten.pow.Tensor_Tensor, INTS, torch.tensor([3, 2])),
        "a sum with 0 of -0.0": (lambda x: torch.reciprocal(x + 0), EDGES),
    }

    def test_special_values(self):
        self.assert_cases(self.SPECIAL_VALUES, special_values=True)

    def test_sums(self):
        self.assert_cases(self.SUMS)

    def test_quotients(self):
        self.assert_cases(self.QUOTIENTS)

    def test_products(self):
        self.assert_cases(self.PRODUCTS)

    def test_signs(self):
        self.assert_cases(self.SIGNS)

    def test_powers(self):
        self.assert_cases(self.POWERS)

    def test_other_sizes(self):
        self.assert_same_as_eager(
            aten.add.Tensor, INTS, OTHER_INTS, others=[(INTS.repeat(2, 3), INTS.repeat(2, 3))]
        )
        self.assert_same_as_eager(
            aten.pow.Tensor_Tensor, INTS, INTS.abs(), others=[(INTS.repeat(2, 3), OTHER_INTS.repeat(2, 3))]
        )

    def test_a_negative_power_of_integers_is_refused_by_torch(self):
        with self.assertRaises(RuntimeError):
            aten.pow.Tensor_Scalar(INTS, -1)


if __name__ == "__main__":
    unittest.main()
