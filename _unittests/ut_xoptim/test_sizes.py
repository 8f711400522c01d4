"""Rules of arithmetic on sizes."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.xoptim import optimize

X = "float[N,M] x"
HEIGHT = "n = Shape<end=1>(x) o = Constant<value=int64[1]{0}>() one = Constant<value_int=1>() two = Constant<value_int=2>() h = Squeeze(n, o)"
BOTH = f"{HEIGHT} m = Shape<start=1>(x) w = Squeeze(m, o)"


class TestSizes(RuleTestCase):
    BECOME = {
        "ArithmeticOnVectors": [
            (X, "int64[1]", "n = Shape(x) one = Constant<value_int=1>() t = Constant<value=int64[1]{-1}>() h = Gather(n, one) a = Sub(one, h) y = Reshape(a, t)", ["Shape", "Gather", "Sub", "Squeeze", "Reshape"]),
            (X, "int64[1]", "n = Shape<end=1>(x) one = Constant<value_int=1>() t = Constant<value=int64[1]{1}>() h = Squeeze(n) a = Mul(h, one) y = Reshape(a, t)", ["Shape", "Mul", "Squeeze", "Reshape"]),
            (X, "int64[1]", f"{HEIGHT} a = Add(h, one) y = Unsqueeze(a, o)", ["Shape", "Add", "Squeeze", "Unsqueeze"]),
            (X, "int64[1]", f"{BOTH} a = Neg(h) b = Sub(w, a) y = Unsqueeze(b, o)", ["Shape", "Shape", "Neg", "Sub", "Squeeze", "Unsqueeze"]),
            (X, "int64[1]", f"{HEIGHT} b = Constant<value=int64[1]{{2}}>() a = Mul(h, two) y = Unsqueeze(a, o) z = Mul(n, b)", ["Shape", "Mul", "Squeeze", "Unsqueeze", "Identity"], "int64[1] z"),
            (X, "int64[1]", f"{BOTH} a = Div(h, two) b = Mod(two, w) c = Max(a, b) y = Unsqueeze(c, o) z = Unsqueeze(a, o)", ["Shape", "Shape", "Div", "Squeeze", "Mod", "Max", "Squeeze", "Unsqueeze", "Unsqueeze"], "int64[1] z"),
        ],
        "PaddingToAMultiple": [
            (X, "int64", f"{HEIGHT} a = Add(h, one) b = Div(a, two) c = Mul(b, two) y = Sub(c, h)", ["Shape", "Squeeze", "Neg", "Mod"]),
            (X, "int64[1]", "n = Shape<end=1>(x) four = Constant<value_int=4>() three = Constant<value_int=3>() a = Add(n, three) b = Div(a, four) c = Mul(b, four) y = Sub(c, n)", ["Shape", "Neg", "Mod"]),
        ],
    }  # fmt: skip
    STAY = {
        "ArithmeticOnVectors": [
            (X, "int64[1]", f"{HEIGHT} a = Add(h, one) b = Range(one, a, one) y = Unsqueeze(a, o)", "int64[K] b"),
            (X, "int64[1]", f"{HEIGHT} a = Add(h, one) y = Unsqueeze(a, o)", "int64 a"),
            (X, "int64[1,1]", "n = Shape(x) one = Constant<value_int=1>() t = Constant<value=int64[2]{1,1}>() h = Gather(n, one) a = Sub(one, h) y = Reshape(a, t)"),
            (f"{X}, int64 k", "int64[1]", f"{HEIGHT} a = Add(h, k) y = Unsqueeze(a, o)"),
            (f"{X}, int64[2] k", "int64[2]", f"{HEIGHT} y = Add(h, k)"),
            (X, "float", f"{HEIGHT} a = Cast<to=1>(h) b = Neg(a) y = Mul(b, b)"),
        ],
        "PaddingToAMultiple": [
            (X, "int64[1]", f"{HEIGHT} most = Constant<value=int64[1]{{1}}>() a = Add(h, most) b = Div(a, two) c = Mul(b, two) y = Sub(c, h)"),
            ("int64 x", "int64", "one = Constant<value_int=1>() two = Constant<value_int=2>() a = Add(x, one) b = Div(a, two) c = Mul(b, two) y = Sub(c, x)"),
            (X, "int64", f"{HEIGHT} a = Add(h, two) b = Div(a, two) c = Mul(b, two) y = Sub(c, h)"),
            (X, "int64", f"{BOTH} a = Add(h, one) b = Div(a, two) c = Mul(b, two) y = Sub(c, w)"),
        ],
    }  # fmt: skip

    def test_the_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_sizes_that_are_not_negative(self):
        constants = "m = Constant <value=int64[3]{-1,-1,-1}> () o = Constant <value=int64[3]{1,1,1}> () f = Constant <value=int64[1]{0}> () t = Constant <value=int64[1]{2}> ()"
        sizes = (
            "s = Shape (x) p = Slice (s, f, t) l = Constant <value=int64[1]{4}> () c = Concat <axis=0> (p, l)"
        )
        text = f"agraph (float[A,B] x, float[1,1,4] k) => (float[A,B,4] y) {{ {constants} {sizes} e = Equal (c, m) w = Where (e, o, c) y = Expand (k, w) }}"
        rule = "WhereSizeIsNegative"
        self.assert_becomes(text, ["Shape", "Slice", "Concat", "Expand"], rule=rule)
        self.assert_becomes(
            text.replace("(c, m)", "(m, c)"), ["Shape", "Slice", "Concat", "Expand"], rule=rule
        )
        self.assert_stays(text.replace("{-1,-1,-1}", "{-1,4,-1}"), rule=rule)
        self.assert_stays(text.replace("Where (e, o, c)", "Where (e, c, o)"), rule=rule)
        shifted = text.replace(
            "s = Shape (x)", "h = Shape (x) d = Constant <value=int64[2]{-1,0}> () s = Add (h, d)"
        )
        self.assert_stays(shifted.replace("=> (float[A,B,4] y)", "=> (float[C,B,4] y)"), rule=rule)

    def test_sizes_that_are_not_negative_beside_numbers(self):
        """``mask.expand(x.shape[0], -1, x.shape[1])``: what is -1 is the other number at its place, here and there 1."""

        def text(others, marks, number, result, sizes="t = Shape <start=1> (x)"):
            constants = f"m = Constant <value={marks}> () o = Constant <value={others}> () l = Constant <value=int64[1]{{{number}}}> ()"
            return (
                f"agraph (float[A,B] x, float[A,1,1] k) => (float[{result}] y) {{ {constants} s = Shape <end=1> (x) {sizes} "
                "c = Concat <axis=0> (s, l, t) e = Equal (c, m) w = Where (e, o, c) y = Expand (k, w) }"
            )

        rule, ones, negative = "WhereSizeIsNegative", "int64[3]{1,1,1}", "int64[3]{-1,-1,-1}"
        for case in (
            (ones, negative, -1, "A,1,B"),
            ("int64[1]{1}", "int64[1]{-1}", -1, "A,1,B"),
            ("int64[3]{1,5,1}", "int64[3]{-2,-1,-1}", -1, "A,5,B"),
            (ones, negative, 5, "A,5,B"),
        ):
            with self.subTest(case):
                self.assert_becomes(text(*case), ["Shape", "Shape", "Concat", "Expand"], rule=rule)
        less = "h = Shape <start=1> (x) one = Constant <value_int=1> () t = Sub (h, one)"
        self.assert_stays(text(ones, negative, -1, "A,1,C", less), rule=rule)
        self.assert_stays(text(ones, "int64[3]{-1,5,-1}", 5, "A,1,B"), rule=rule)

    def test_nothing_is_left_between_a_shape_and_the_vectors(self):
        model = parsed(
            f"agraph ({X}) => (float[A,B] y) {{ {BOTH} a = Add(h, one) b = Div(a, two) c = Sub(b, w) d = Sub(c, h) "
            "e = Unsqueeze(b, o) f = Unsqueeze(d, o) s = Concat<axis=0>(e, f) z = Constant<value_float=0.0>() y = Expand(z, s) }"
        )
        self.assertEqual(
            ["Shape", "Shape", "Add", "Div", "Sub", "Sub", "Concat", "Expand"], operators(optimize(model))
        )


if __name__ == "__main__":
    unittest.main()
