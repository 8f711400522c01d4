"""Rules of casts."""

import itertools
import unittest

import numpy as np
import onnx_ir as ir

from _unittests.ut_xoptim.cases import RuleTestCase
from experimental_experiment.xoptim.patterns.casting import DIGITS, INTEGERS, holds


class TestCasting(RuleTestCase):
    def test_a_wider_dtype_between(self):
        self.assert_becomes(
            "agraph (float16[3] x) => (float16[3] y) { a = Cast<to=1>(x) b = Cast<to=10>(a) y = Neg(b) }",
            ["Neg"],
            rule="CastCast",
        )

    def test_digits_that_the_first_one_loses(self):
        for first, second, result in ((10, 1, "float"), (6, 1, "float"), (7, 11, "double")):
            self.assert_stays(
                f"agraph (float[3] x) => ({result}[3] y) {{ a = Cast<to={first}>(x) y = Cast<to={second}>(a) }}",
                rule="CastCast",
            )

    def test_the_first_one_has_other_users(self):
        self.assert_becomes(
            "agraph (float16[3] x) => (double[3] y, float[3] z) { a = Cast<to=1>(x) y = Cast<to=11>(a) z = Neg(a) }",
            ["Cast", "Cast", "Neg"],
            rule="CastCast",
        )

    def test_to_the_dtype_it_has(self):
        self.assert_becomes(
            "agraph (float[3] x) => (float[3] y) { a = Cast<to=1>(x) y = Neg(a) }",
            ["Neg"],
            rule="CastNothing",
        )
        self.assert_stays("agraph (float[3] x) => (double[3] y) { y = Cast<to=11>(x) }", rule="CastNothing")

    def test_what_dtypes_hold_is_what_numpy_keeps(self):
        known = [dtype for dtype in (*INTEGERS, *DIGITS) if dtype != ir.DataType.BFLOAT16]
        for wide, narrow in itertools.product(known, known):
            with self.subTest(f"{wide.name} holds {narrow.name}"):
                self.assertEqual(np.can_cast(narrow.numpy(), wide.numpy(), "safe") or wide == narrow, holds(wide, narrow) or lenient(wide, narrow))  # fmt: skip


def lenient(wide, narrow):
    """Whether numpy calls a cast safe that loses digits: it lets float64 hold int64."""
    return narrow in (ir.DataType.INT64, ir.DataType.UINT64) and wide == ir.DataType.DOUBLE


if __name__ == "__main__":
    unittest.main()
