"""A 0-d tensor of a wider float beside float16 and bfloat16: which operand keeps the digits that a half does not have."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each

aten = torch.ops.aten

HALVES = torch.tensor([2.0, 1.0, 0.3, -3.0, 100.0, 65504.0, 7.0, 1e-3])
NUMBERS = (70001.0, -70001.0, 65519.0, 0.1, 5e-8)
"""More than a float16 holds, what rounds to its largest number, fractions, less than its smallest."""

ARITHMETIC = each(
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.rsub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.floor_divide.default,
    aten.remainder.Tensor,
    aten.fmod.Tensor,
    aten.pow.Tensor_Tensor,
    aten.xlogy.Tensor,
    aten.ldexp.Tensor,
    aten.atan2.default,
    aten.hypot.default,
    aten.logaddexp.default,
    lambda a, b: aten.div.Tensor_mode(a, b, rounding_mode="trunc"),
)

COMPARISONS = each(
    aten.eq.Tensor,
    aten.ne.Tensor,
    aten.lt.Tensor,
    aten.le.Tensor,
    aten.gt.Tensor,
    aten.ge.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    lambda a, b: aten.where.self(b > 1, a, b),
)

THREE = each(
    lambda a, b: aten.addcmul.default(a, b, b.sign()),
    lambda a, b: aten.addcmul.default(b, a, b),
    lambda a, b: aten.addcdiv.default(a, b, b),
    lambda a, b: aten.addcdiv.default(b.sign(), a, b),
    lambda a, b: aten.addcdiv.default(b.sign(), b, a),
)

FLOATS = each(
    lambda x: x * 1.5,
    lambda x: 1.5 - x,
    aten.sin.default,
    aten.sigmoid.default,
    aten.lgamma.default,
    lambda x: x / 2,
    lambda x: aten.atan2.default(x, x),
    lambda x: x.logsumexp(0),
)


class TestZeroDimensions(ExporterTestCase):
    def check(self, function, numbers, both=True):
        """A function of a number and a vector, and of a vector and a number, for each dtype."""
        for half in (torch.float16, torch.bfloat16):
            for wide in (torch.float32, torch.float64):
                vector = HALVES.to(half)
                others = [(torch.tensor(number, dtype=wide), vector) for number in numbers]
                with self.subTest("the first operand", half=half, wide=wide):
                    self.assert_same_as_eager(function, *others[0], others=others)
                if both:
                    with self.subTest("the second operand", half=half, wide=wide):
                        others = [(vector, number) for number, vector in others]
                        self.assert_same_as_eager(function, *others[0], others=others)

    def test_arithmetic(self):
        self.check(ARITHMETIC, NUMBERS)

    def test_comparisons(self):
        self.check(COMPARISONS, NUMBERS)

    def test_three_operands(self):
        self.check(THREE, NUMBERS, both=False)

    def test_integers_beside_two_floats(self):
        """The float64 without axes makes the integers float64, but not beside a tensor of float32, or of float16."""
        integers, number = torch.arange(4), torch.tensor(0.5, dtype=torch.float64)
        for dtype in (torch.float32, torch.float16):
            floats = torch.tensor([1.0, 2.0, 1.5, 2.5], dtype=dtype)
            with self.subTest(dtype):
                self.assert_same_as_eager(
                    each(
                        aten.clamp.Tensor, aten.addcmul.default, lambda a, b, c: aten.addcmul.default(c, a, b)
                    ),
                    *(integers, number, floats),
                )


class TestDefaultDtype(ExporterTestCase):
    """Integers become floats of torch's default dtype, whatever it was before."""

    def test_as_it_is_now(self):
        x = torch.arange(1, 5)
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        for default in (torch.float32, torch.float64, torch.float32):
            with self.subTest(default):
                torch.set_default_dtype(default)
                self.assert_same_as_eager(FLOATS, x)

    def test_large_integers_are_close_as_floats_of_it(self):
        x = torch.tensor([2**24, 2**40])
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        self.assert_same_as_eager(lambda x: torch.isclose(x + 1, x, rtol=0.0, atol=0.5), x)


if __name__ == "__main__":
    unittest.main()
