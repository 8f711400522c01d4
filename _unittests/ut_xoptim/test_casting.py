"""Rules of casts."""

import itertools
import unittest

import numpy as np
import onnx
import onnx_ir as ir

from _unittests.ut_xoptim.cases import RuleTestCase, parsed
from experimental_experiment.torch_interpreter.dtypes import DIGITS, INTEGERS, holds
from experimental_experiment.xoptim import optimize

COUNTED = "bool[N,M] x, bool[N,M] w"
COUNTING = """axis = Constant<value=int64{{1}}>() a = Cast<to={first}>(x) c = CumSum(a, axis) d = Cast<to=6>(c) k = Cast<to={kept}>(w)
m = Mul(k, d) y = Cast<to=7>(m)"""


class TestCasting(RuleTestCase):
    def test_a_wider_dtype_between(self):
        self.assert_becomes(
            "agraph (float16[3] x) => (float16[3] y) { a = Cast<to=1>(x) b = Cast<to=10>(a) y = Neg(b) }",
            ["Neg"],
            rule="CastCast",
        )

    def test_how_a_cast_like_rounds(self):
        text = 'agraph (float[3] x, float8e4m3fn[2] w) => (float8e4m3fn[3] y) { y = CastLike<round_mode="down", saturate=0>(x, w) }'
        (node,) = optimize(parsed(text, 24)).graph.node
        self.assertEqual("Cast", node.op_type)
        kept = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        self.assertEqual({"to": 17, "round_mode": b"down", "saturate": 0}, kept)

    def test_digits_that_the_first_one_loses(self):
        for first, second, result in ((10, 1, "float"), (6, 1, "float"), (7, 11, "double")):
            self.assert_stays(
                f"agraph (float[3] x) => ({result}[3] y) {{ a = Cast<to={first}>(x) y = Cast<to={second}>(a) }}",
                rule="CastCast",
            )

    def test_sizes_have_few_digits(self):
        model = "agraph (float[N,3] x) => (float y) <int64[1] zero = {{0}}> {{ s = {size} a = Cast<to=11>(s) y = Cast<to=1>(a) }}"
        sizes = {
            "shape = Shape<end=1>(x) s = Squeeze(shape, zero)": ["Shape", "Squeeze", "Cast"],
            "s = Size(x)": ["Size", "Cast"],
            "total = ReduceSum<keepdims=0>(x) s = Cast<to=7>(total)": None,
        }
        for size, operators in sizes.items():
            text = model.replace("s = {size}", size).format()
            with self.subTest(size):
                if operators is None:
                    self.assert_stays(text, rule="CastCast")
                else:
                    self.assert_becomes(text, operators, rule="CastCast")

    def test_the_first_one_has_other_users(self):
        self.assert_becomes(
            "agraph (float16[3] x) => (double[3] y, float[3] z) { a = Cast<to=1>(x) y = Cast<to=11>(a) z = Neg(a) }",
            ["Cast", "Cast", "Neg"],
            rule="CastCast",
        )

    def test_a_text_of_another_dtype(self):
        text = "agraph (int32[N,M] x) => (string[{sizes}] y) {{ a = Cast<to=11>(x) {moved} }}"
        cases = {
            "CastCast": text.format(sizes="N,M", moved="y = Cast<to=8>(a)"),
            "CastMovementCast": text.format(sizes="M,N", moved="t = Transpose(a) y = Cast<to=8>(t)"),
        }
        for rule, case in cases.items():
            with self.subTest(rule):
                self.assert_stays(case, rule=rule)

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


class TestMovedCasts(RuleTestCase):
    BECOME = {
        "CastMovementCast": [
            ("float16[N,3] x", "float16[3,N]", "a = Cast<to=1>(x) b = Transpose(a) y = Cast<to=10>(b)", ["Transpose"]),
            ("float16[N,3] x", "double[1,3,N]", "i = Constant<value=int64[1]{0}>() a = Cast<to=1>(x) b = Transpose(a) c = Unsqueeze(b, i) y = Cast<to=11>(c)", ["Transpose", "Unsqueeze", "Cast"]),
            ("bool[N,3] x", "bool[N,1]", "s = Constant<value=int64[1]{1}>() e = Constant<value=int64[1]{2}>() a = Cast<to=7>(x) b = Slice(a, s, e, s) y = Cast<to=9>(b)", ["Slice"]),
        ],
        "CastLikeKnown": [("float[N] x, double[2] w", "double[N]", "y = CastLike(x, w)", ["Cast"])],
        "EqualTrue": [("bool[N] x", "bool[N]", "t = Constant<value=bool{1}>() a = Equal(t, x) y = Not(a)", ["Not"])],
        "EqualFalse": [("bool[N] x", "bool[N]", "t = Constant<value=bool{0}>() y = Equal(x, t)", ["Not"])],
        "NotOfNumber": [
            ("int64[N] x", "bool[N]", "a = Cast<to=9>(x) y = Not(a)", ["Equal"]),
            ("float[N] x", "bool[N]", "h = Mul(x, x) n = Log(x) b = Sub(n, h) a = Cast<to=9>(b) y = Not(a)", ["Mul", "Log", "Sub", "Equal"]),
        ],
        "CountedConditions": [
            (COUNTED, "int64[N,M]", COUNTING.format(first=7, kept=6), ["Cast", "CumSum", "Cast", "Mul"]),
            (COUNTED, "int64[N,M]", "e = Cast<to=6>(x) " + COUNTING.format(first=7, kept=6).replace("Cast<to=7>(x)", "Cast<to=7>(e)"), ["Cast", "CumSum", "Cast", "Mul"]),
        ],
        "ComparedCasts": [
            ("int32[N] x, int32[N] w", "bool[N]", "a = Cast<to=7>(x) b = Cast<to=7>(w) y = Less(b, a)", ["Less"]),
            ("bool[N] x, bool[N] w", "bool[N]", "a = Cast<to=1>(x) b = Cast<to=1>(w) y = Equal(b, a)", ["Equal"]),
        ],
        "ComparedCastAndConstant": [
            ("int32[N] x", "bool[N]", "k = Constant<value=int64{2}>() a = Cast<to=7>(x) y = Greater(a, k)", ["Greater"]),
            ("bool[N] x", "bool[N]", "k = Constant<value=float{1.0}>() a = Cast<to=1>(x) y = Equal(k, a)", ["Equal"]),
            ("int32[N] x", "bool[N]", "k = Constant<value=int64{2}>() a = Cast<to=7>(x) y = Greater(k, a)", ["Greater"]),
        ],
    }  # fmt: skip
    STAY = {
        "CastMovementCast": [
            ("float[N,3] x", "float[3,N]", "a = Cast<to=10>(x) b = Transpose(a) y = Cast<to=1>(b)"),
            ("float16[N,3] x", "float16[3,N]", "a = Cast<to=1>(x) b = Transpose(a) y = Cast<to=10>(b) z = Neg(b)", "float[3,N] z"),
            ("int16[1,4,2,2] x", "int16[1,1,4,4]", "a = Cast<to=1>(x) b = DepthToSpace<blocksize=2>(a) y = Cast<to=5>(b)"),
        ],
        "EqualTrue": [("int64[N] x", "bool[N]", "t = Constant<value=int64{1}>() y = Equal(x, t)")],
        "NotOfNumber": [
            ("int64[N] x", "bool[N]", "a = Cast<to=9>(x) y = Not(a) z = Cast<to=1>(a)", "float[N] z"),
            ("int64[N] x", "bool[N]", "t = Cast<to=8>(x) a = Cast<to=9>(t) y = Not(a)"),
        ],
        "CountedConditions": [
            ("int64[N,M] x, bool[N,M] w", "int64[N,M]", COUNTING.format(first=7, kept=6).replace("a = Cast<to=7>(x)", "a = Neg(x)")),
            ("int32[N,M] x, bool[N,M] w", "int64[N,M]", COUNTING.format(first=7, kept=6)),
            ("bool[N,M] x, int64[N,M] w", "int64[N,M]", COUNTING.format(first=7, kept=6)),
            ("bool[N,M] x, bool[N,M] w", "int64[N,M]", COUNTING.format(first=1, kept=6)),
        ],
        "EqualFalse": [("bool[N] x", "bool[1,N]", "t = Constant<value=bool[1,1]{0}>() y = Equal(x, t)")],
        "ComparedCasts": [
            ("float[N] x, float[N] w", "bool[N]", "a = Cast<to=7>(x) b = Cast<to=7>(w) y = Less(b, a)"),
            ("int32[N] x, bool[N] w", "bool[N]", "a = Cast<to=7>(x) b = Cast<to=7>(w) y = Less(b, a)"),
        ],
        "ComparedCastAndConstant": [
            ("int32[N] x", "bool[N]", "k = Constant<value=int64{5000000000}>() a = Cast<to=7>(x) y = Greater(a, k)"),
            ("bool[N] x", "bool[N]", "k = Constant<value=int64{2}>() a = Cast<to=7>(x) y = Equal(a, k)"),
            ("float[N] x", "bool[N]", "k = Constant<value=int64{2}>() a = Cast<to=7>(x) y = Equal(a, k)"),
        ],
    }  # fmt: skip

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)


def lenient(wide, narrow):
    """Whether numpy calls a cast safe that loses digits: it lets float64 hold int64."""
    return narrow in (ir.DataType.INT64, ir.DataType.UINT64) and wide == ir.DataType.DOUBLE


if __name__ == "__main__":
    unittest.main()
