"""Rules of arithmetic."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import optimize


def pairs(keepdims: int, axis: int = -1) -> str:
    """The length c of what lies along an axis of x, taken in float64."""
    return (
        f"i = Constant<value=int64[1]{{{axis}}}>() d = Cast<to=11>(x) "
        f"n = ReduceL2<keepdims={keepdims}>(d, i) c = Cast<to=1>(n) "
    )


class TestArithmetic(RuleTestCase):
    BECOME = {
        "MulReciprocal": [
            ("float[N,3] x, float[3] w", "r = Reciprocal(w) y = Mul(r, x)", ["Div"]),
            ("float[3] x, float[3] w", "a = Abs(x) r = Reciprocal(a) y = Mul(w, r)", ["Abs", "Div"]),
        ],
        "DivOne": [("float[3] x", "one = Constant <value_float=1.0> () y = Div(one, x)", ["Reciprocal"])],
        "ZeroMinus": [
            ("float[3] x", "zero = Constant <value_float=0.0> () m = Sub(zero, x) y = Exp(m)", ["Neg", "Exp"])
        ],
        "NegNeg": [("float[3] x", "a = Neg(x) b = Neg(a) y = Relu(b)", ["Relu"])],
        "NotNot": [("bool[3] x", "a = Not(x) b = Not(a) y = Cast<to=1>(b)", ["Cast"])],
        "AddNeg": [("float[3] x, float[3] w", "n = Neg(w) y = Add(n, x)", ["Sub"])],
        "SubNeg": [("float[3] x, float[3] w", "n = Neg(w) y = Sub(x, n)", ["Add"])],
        "NotWhere": [
            ("bool[3] c, float[3] x", "n = Not(c) z = Neg(x) y = Where(n, x, z)", ["Neg", "Where"]),
            (
                "bool[3] c, float[3] x",
                "n = Not(c) z = Neg(x) w = Where(n, x, z) y = Where(n, z, w)",
                ["Neg", "Where", "Where"],
            ),
        ],
        "FactorOne": [
            ("float[N,3] x", "one = Constant <value_float=1.0> () m = Mul(one, x) y = Relu(m)", ["Relu"]),
            ("float[N,3] x", "one = Constant <value_float=1.0> () m = Div(x, one) y = Relu(m)", ["Relu"]),
        ],
        "TermZero": [
            ("float[N,3] x", "zero = Constant <value_float=0.0> () m = Sub(x, zero) y = Relu(m)", ["Relu"]),
            ("float[N,3] x", "zero = Constant <value_float=0.0> () m = Add(zero, x) y = Relu(m)", ["Relu"]),
        ],
    }
    STAY = {
        "SquareOfLength": [
            ("float[N,3] x", pairs(1) + "y = Mul(c, c)", "float[N,1]"),  # not two parts
            (
                "float[N,2] x",
                pairs(1) + "m = Mul(c, c) y = Add(m, c)",
                "float[N,1]",
            ),  # the length is read, too
            ("float16[N,2] x", pairs(1) + "y = Mul(c, c)", "float[N,1]"),
            ("float[3,N] x", pairs(1, axis=0) + "y = Mul(c, c)", "float[1,N]"),
        ],
        "MulReciprocal": [
            (
                "float[3] x",
                "r = Reciprocal(x) m = Mul(r, x) y = Add(m, r)",
            ),  # another one reads the reciprocal
            ("float[3] x, float[3] w", "r = Reciprocal(w) m = Mul(x, r) y = Round(m)"),  # it may be a tie
            (
                "float[3] x, float[3] w",
                "r = Reciprocal(w) m = Mul(x, r) n = Mul(m, x) c = Relu(n) i = Cast<to=2>(c) y = Cast<to=1>(i)",
            ),  # it may be just below a whole number
        ],
        "DivOne": [("float[3] x", "two = Constant <value_float=2.0> () y = Div(two, x)")],
        "NegNeg": [("float[3] x", "a = Neg(x) b = Abs(a) y = Neg(b)")],
        "FactorOne": [
            ("float[3] x", "one = Constant <value_float=1.0> () y = Div(one, x)"),
            ("float[3] x", "two = Constant <value_float=2.0> () y = Mul(two, x)"),
            ("float[N] x", "ones = Constant <value = float[1,3] {1,1,1}> () y = Mul(ones, x)", "float[1,3]"),
        ],
        "TermZero": [("float[3] x", "zero = Constant <value_float=0.0> () y = Sub(zero, x)")],
        # the sign of zero decides which infinity it is
        "ZeroMinus": [("float[3] x", "zero = Constant <value_float=0.0> () m = Sub(zero, x) y = Div(x, m)")],
    }

    def test_they_fire(self):
        for rule, cases in self.BECOME.items():
            for inputs, nodes, expected in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    shape = "[N,3]" if "[N,3]" in inputs else "[3]"
                    self.assert_becomes(
                        f"agraph ({inputs}) => (float{shape} y) {{ {nodes} }}", expected, rule=rule
                    )

    def test_constants_of_several_elements(self):
        cases = {
            "FactorOnes": ("1,1,1,1", "Mul(x, c)", "Mul(c, x)", "Div(x, c)"),
            "TermZeros": ("0,0,0,0", "Add(x, c)", "Add(c, x)", "Sub(x, c)"),
        }
        for rule, (elements, *results) in cases.items():
            number = elements[0]
            other = {"FactorOnes": "y = Div(c, x)", "TermZeros": "y = Sub(c, x)"}[rule]
            for result in results:
                text = f"agraph (float[N,2,2] x) => (float[N,2,2] y) {{ c = Constant<value=float[2,2] {{{elements}}}>() s = {result} y = Neg(s) }}"
                self.assert_becomes(text, ["Neg"], rule=rule)
                self.assert_stays(text.replace(elements, f"{elements[:-1]}2"), rule=rule)
                self.assert_stays(text.replace("[N,2,2]", "[1,2]", 1).replace("[N,2,2]", "[2,2]"), rule=rule)
                self.assert_stays(text.replace("s = " + result + " y = Neg(s)", other), rule=rule)
                vector = text.replace(elements, elements[:3]).replace("float[2,2]", "float[2]")
                self.assert_stays(vector, rule=rule)
                self.assert_becomes(vector.replace("[N,2,2]", "[2]"), ["Neg"], rule=rule)
                shown = f"agraph (float[N] x) => (float[N] y, float[N] z) {{ f = Constant<value=float {{{number}}}>() n = Shape(x) c = Expand(f, n) y = {result} z = Sin(c) }}"
                self.assert_optimized(shown, ["Shape", "Expand", "Identity", "Sin"], fires=True, rule=rule)
                self.assert_stays(
                    shown.replace("n = Shape(x)", "n = Constant<value=int64[1] {3}>()").replace(
                        "float[N] y, float[N]", "float[3] y, float[3]"
                    ),
                    rule=rule,
                )

    def test_axes_of_the_constant_are_added(self):
        cases = {
            "FactorOne": "ones = Constant <value = float[1,1] {1}> () m = Mul(ones, x) y = Relu(m)",
            "TermZero": "zeros = Constant <value = float[1,1] {0}> () m = Add(x, zeros) y = Relu(m)",
        }
        for rule, nodes in cases.items():
            with self.subTest(rule):
                text = f"agraph (float[N] x) => (float[1,N] y) {{ {nodes} }}"
                self.assert_becomes(text, ["Unsqueeze", "Relu"], rule=rule)

    def test_squares_of_lengths(self):
        for inputs, keepdims, axis, result, expected in (
            ("float[N,3,2] x", 0, -1, "float[N,3]", ["Split", "Mul", "Mul", "Add", "Squeeze"]),
            ("float[N,2] x", 1, -1, "float[N,1]", ["Split", "Mul", "Mul", "Add"]),
            ("float[N,2,3] x", 0, -2, "float[N,3]", ["Mul", "ReduceSum"]),
            ("float[2,N] x", 1, 0, "float[1,N]", ["Mul", "ReduceSum"]),
        ):
            with self.subTest(keepdims=keepdims, axis=axis):
                text = f"agraph ({inputs}) => ({result} y) {{ {pairs(keepdims, axis)} y = Mul(c, c) }}"
                self.assert_becomes(text, expected, rule="SquareOfLength")

    def test_reciprocals_that_may_be_infinite_stay(self):
        model = parsed("agraph (float[2] x, float[2] w) => (float[2] y) { r = Reciprocal(w) y = Mul(r, x) }")
        feeds = {"x": np.array([0, 1], np.float32), "w": np.array([1e-40, 4], np.float32)}
        for special_values, first in (True, np.nan), (False, 0):
            (y,) = session(optimize(model, special_values=special_values)).run(None, feeds)
            np.testing.assert_array_equal([first, 0.25], y)

    def test_they_do_not_fire(self):
        for rule, cases in self.STAY.items():
            for inputs, nodes, *result in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    self.assert_stays(
                        f"agraph ({inputs}) => ({(result or ['float[3]'])[0]} y) {{ {nodes} }}", rule=rule
                    )


def number(name, value, kind="float"):
    """A node that holds a number; the text of a float16 is its bits."""
    if kind == "float16":
        value = np.float16(value).view(np.uint16)
    return f"{name} = Constant<value={kind} {{{value}}}>() "


class TestNumbers(RuleTestCase):
    """Rules of constants: nodes from x to y, of one dtype."""

    BECOME = {
        "SumOfConstants": [
            ("int64", number("a", 5, "int64") + number("b", 3, "int64") + "t = Add(x, a) y = Sub(t, b)", ["Add"]),
            ("int64", "a = Constant<value=int64[4]{1,2,3,4}>() " + number("b", 3, "int64") + "t = Sub(x, a) y = Add(b, t)", ["Add"]),
            ("uint8", number("a", 5, "uint8") + number("b", 3, "uint8") + "t = Sub(x, a) y = Sub(t, b)", ["Add"]),
        ],
        "ProductOfConstants": [
            ("float", number("a", 0.3) + number("b", 0.5) + "t = Mul(x, a) y = Mul(b, t)", ["Mul"]),
            ("float", number("a", 3.0) + number("b", 5.0) + "t = Mul(x, a) y = Mul(t, b)", ["Mul"]),
            ("int64", number("a", 3, "int64") + number("b", 5, "int64") + "t = Mul(x, a) y = Mul(t, b)", ["Mul"]),
            ("int32", number("a", 65537, "int32") + number("b", 65537, "int32") + "t = Mul(x, a) y = Mul(t, b)", ["Mul"]),  # it wraps as they do
            ("float16", number("a", 0.25, "float16") + number("b", 3.0, "float16") + "t = Mul(x, a) y = Mul(t, b)", ["Mul"]),
        ],
        "QuotientOfConstants": [("float", number("a", 0.3) + number("b", 8.0) + "t = Mul(x, a) y = Div(t, b)", ["Mul"])],
        "FactorOfQuotient": [("float", number("a", 8.0) + number("b", 0.3) + "t = Div(x, a) y = Mul(t, b)", ["Mul"])],
        "DivisorOfQuotient": [
            ("float", number("a", 3.0) + number("b", 5.0) + "t = Div(x, a) y = Div(t, b)", ["Div"]),
            ("int8", number("a", -16, "int8") + number("b", 8, "int8") + "t = Div(x, a) y = Div(t, b)", ["Div"]),
        ],
        "FactorsOfMatmul": [
            ("float", number("a", -1.0) + number("b", 0.25) + "s = Mul(x, a) w = Transpose(x) t = Mul(w, b) y = MatMul(s, t)", ["Transpose", "Mul", "MatMul"], "[N,N]"),
            ("float", number("a", 0.3) + number("b", 0.7) + "s = Mul(x, a) w = Transpose(x) t = Mul(w, b) y = MatMul(s, t)", ["Transpose", "Mul", "MatMul"], "[N,N]"),
        ],
        "MulMinusOne": [("float", number("a", -1.0) + "y = Mul(a, x)", ["Neg"])],
        "ZeroMinus": [("int64", number("a", 0, "int64") + "y = Sub(a, x)", ["Neg"])],
        "NegSub": [("float", number("a", 2.0) + "t = Sub(x, a) y = Neg(t)", ["Sub"])],
        "NegMul": [
            ("float", number("a", 2.0) + "t = Mul(x, a) y = Neg(t)", ["Mul"]),
            ("float", number("a", 2.0) + "t = Neg(x) y = Mul(a, t)", ["Mul"]),
        ],
        "PowTwo": [("float", number("a", 2.0) + "y = Pow(x, a)", ["Mul"])],
        "PowOne": [("float", number("a", 1.0) + "t = Pow(x, a) y = Neg(t)", ["Neg"])],
        "PowMinusOne": [("float", number("a", -1.0) + "y = Pow(x, a)", ["Reciprocal"])],
        "PowHalf": [
            ("float", number("a", 0.5) + number("e", 0.1) + "s = Mul(x, x) t = Add(s, e) y = Pow(t, a)", ["Mul", "Add", "Sqrt"]),
            ("float", number("a", 0.5) + number("e", 0.1) + "s = Exp(x) t = Transpose(s) u = Transpose(t) y = Pow(u, a)", ["Exp", "Transpose", "Transpose", "Sqrt"]),
        ],
        "MinMax": [
            ("float", number("a", -0.5) + number("b", 0.5) + "t = Max(x, a) y = Min(b, t)", ["Clip"]),
            ("float", number("a", -0.5) + number("b", 0.5) + "t = Min(x, b) y = Max(t, a)", ["Clip"]),
            ("int64", "a = Constant<value=int64[1]{-1}>() " + number("b", 2, "int64") + "t = Min(x, b) y = Max(t, a)", ["Clip"]),
        ],
        "MaxZero": [("float", number("a", 0.0) + "y = Max(x, a)", ["Relu"])],
        "OneLimit": [
            ("float", number("a", 0.5) + "y = Max(x, a)", ["Clip"]),
            ("float", number("a", 0.5) + "y = Min(a, x)", ["Clip"]),
            ("float", "a = Constant<value=float[1]{-0.5}>() y = Max(x, a)", ["Clip"]),
        ],
        "MinRelu": [
            ("float", number("b", 0.5) + "t = Relu(x) y = Min(b, t)", ["Clip"]),
            ("float", number("b", 0.5) + "t = Min(b, x) y = Relu(t)", ["Clip"]),
        ],
        "ReluOfClip": [
            ("float", number("a", -0.5) + number("b", 0.5) + "t = Clip(x, a, b) y = Relu(t)", ["Clip"]),
            ("float", number("a", 0.1) + number("b", 0.5) + "t = Clip(x, a, b) y = Relu(t)", ["Clip"]),
            ("float", number("a", -0.5) + number("b", 0.5) + "t = Relu(x) y = Clip(t, a, b)", ["Clip"]),
        ],
        "ClipOfClip": [
            ("float", number("a", -0.5) + number("b", 0.5) + number("c", 0.1) + number("d", 0.9) + "t = Clip(x, a, b) y = Clip(t, c, d)", ["Clip"]),
        ],
        "DoneBefore": [
            ("float", "t = Relu(x) u = Abs(t) y = Neg(u)", ["Relu", "Neg"]),
            ("float", "t = Abs(x) u = Relu(t) y = Neg(u)", ["Abs", "Neg"]),
            ("int32", "t = Relu(x) u = Abs(t) y = Neg(u)", ["Relu", "Neg"]),
            ("float", "t = Floor(x) u = Round(t) v = Ceil(u) y = Neg(v)", ["Floor", "Neg"]),
        ],
    }  # fmt: skip
    STAY = {
        "SumOfConstants": [
            ("float", number("a", 5) + number("b", 3) + "t = Add(x, a) y = Sub(t, b)"),
            ("int64", number("a", 5, "int64") + number("b", 3, "int64") + "t = Sub(a, x) y = Sub(t, b)"),
            ("int64", "a = Constant<value=int64[4]{1,2,3,4}>() b = Constant<value=int64[3,1]{1,2,3}>() t = Add(x, a) y = Add(t, b)", "[3,4]"),
        ],
        "ProductOfConstants": [
            ("float16", number("a", 3.0, "float16") + number("b", 0.25, "float16") + "t = Mul(x, a) y = Mul(t, b)"),  # overflows in between
            ("float", number("a", 0.3) + number("b", 0.7) + "t = Mul(x, a) y = Mul(t, b)"),
            ("double", number("a", 3, "double") + number("b", 5, "double") + "t = Mul(x, a) y = Mul(t, b)"),
            ("float", number("a", 1e30) + number("b", 1.2676506002282294e30) + "t = Mul(x, a) y = Mul(t, b)"),
            ("float", number("a", 0.0) + number("b", 0.5) + "t = Mul(x, a) y = Mul(t, b)"),
        ],
        "QuotientOfConstants": [
            ("float", number("a", 1.0) + number("b", 3.0) + "t = Mul(x, a) y = Div(t, b)"),
            ("int64", number("a", 4, "int64") + number("b", 2, "int64") + "t = Mul(x, a) y = Div(t, b)"),
        ],
        "DivisorOfQuotient": [
            ("int64", number("a", 3, "int64") + number("b", 5, "int64") + "t = Mul(x, a) y = Div(t, b)"),
            ("int8", number("a", 16, "int8") + number("b", 8, "int8") + "t = Div(x, a) y = Div(t, b)"),  # 128 is -128
            ("int32", number("a", 65536, "int32") + number("b", 65536, "int32") + "t = Div(x, a) y = Div(t, b)"),
        ],
        "FactorsOfMatmul": [
            ("float16", number("a", 0.3, "float16") + number("b", 0.7, "float16") + "s = Mul(x, a) w = Transpose(x) t = Mul(w, b) y = MatMul(s, t)", "[N,N]"),
            *(
                ("float", number("a", first) + number("b", second) + "s = Mul(x, a) w = Transpose(x) t = Mul(w, b) y = MatMul(s, t)", "[N,N]")
                for first, second in ((3.0, 0.25), (0.25, 3.0), (3.0, 5.0), (2.0**-11, 2.0**-11))  # of large numbers, or of tiny ones
            ),
            ("float", "a = Constant<value=float[1,1,1]{0.3}>() " + number("b", 0.7) + "s = Mul(x, a) w = Transpose(x) t = Mul(w, b) y = MatMul(s, t)", "[1,N,N]"),
        ],
        "MulMinusOne": [("float", "a = Constant<value=float[1,1,1]{-1.0}>() y = Mul(x, a)", "[1,N,4]")],
        "PowTwo": [
            ("float", number("a", 2.0) + "i = Constant<value=int64[1]{-1}>() t = Pow(x, a) y = ReduceMean(t, i)", "[N,1]"),
            ("int64", number("a", 2, "int64") + "y = Pow(x, a)"),
        ],
        "PowHalf": [
            ("float", number("a", 0.5) + "y = Pow(x, a)"),
            ("float", number("a", 0.5) + number("e", -0.1) + "s = Mul(x, x) t = Add(s, e) y = Pow(t, a)"),
        ],
        "MinMax": [
            ("float", number("a", 0.5) + number("b", -0.5) + "t = Max(x, a) y = Min(b, t)"),
            ("float", "a = Constant<value=float[4]{1.0,2.0,3.0,4.0}>() " + number("b", 9.0) + "t = Max(x, a) y = Min(b, t)"),
        ],
        "MaxZero": [("float", number("a", 0.5) + "y = Max(x, a)")],
        "OneLimit": [
            ("float", number("a", 0.0) + "y = Max(x, a)"),
            ("double", number("a", 0.5, "double") + "y = Max(x, a)"),
            ("float", "a = Constant<value=float[4]{1.0,2.0,3.0,4.0}>() y = Max(x, a)"),
            ("float", "a = Constant<value=float {-inf}>() y = Max(x, a)"),
            ("float", number("a", 0.5) + number("b", 0.6) + "y = Max(x, a, b)"),
        ],
        "MinRelu": [
            ("float", number("b", -0.5) + "t = Relu(x) y = Min(b, t)"),
            ("float", number("b", 0.5) + "t = Relu(x) u = Min(b, t) y = Add(u, t)"),
            ("float", number("b", -0.5) + "t = Min(b, x) y = Relu(t)"),
        ],
        "ReluOfClip": [
            ("float", number("a", -0.5) + number("b", -0.1) + "t = Clip(x, a, b) y = Relu(t)"),
            ("float", number("a", 0.5) + "t = Relu(x) y = Clip(t, a)"),
        ],
        "ClipOfClip": [
            ("float", number("a", -0.5) + number("b", 0.5) + number("c", 0.6) + number("d", 0.9) + "t = Clip(x, a, b) y = Clip(t, c, d)"),
        ],
        "DivOne": [("int32", number("a", 1, "int32") + number("b", 2, "int32") + "t = Max(x, b) y = Div(a, t)")],
        "DoneBefore": [
            ("float", "t = Abs(x) y = Round(t)"),
            ("int32", "t = Abs(x) y = Relu(t)"),
        ],
    }  # fmt: skip

    def test_they_fire(self):
        for rule, cases in self.BECOME.items():
            for dtype, nodes, expected, *shape in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    text = f"agraph ({dtype}[N,4] x) => ({dtype}{(shape or ['[N,4]'])[0]} y) {{ {nodes} }}"
                    self.assert_becomes(text, expected, rule=rule)

    def test_they_do_not_fire(self):
        for rule, cases in self.STAY.items():
            for dtype, nodes, *shape in cases:
                with self.subTest(f"{rule}: {nodes}"):
                    text = f"agraph ({dtype}[N,4] x) => ({dtype}{(shape or ['[N,4]'])[0]} y) {{ {nodes} }}"
                    self.assert_stays(text, rule=rule)

    def test_one_limit_for_another_runtime(self):
        text = "agraph (float[N] x) => (float[N] y) { a = Constant<value_float=0.5>() y = Max(x, a) }"
        (node,) = optimize(parsed(text), runtime="onnx").graph.node
        self.assertEqual("Max", node.op_type)

    def test_what_is_cut_is_rounded_at_each_step(self):
        """floor(days * 24 * 60) and the like; a power of two rounds nothing."""
        days = (np.arange(1440, dtype=np.float32) / 1440).reshape(-1, 4)
        for first, a, second, b in (
            ("Mul", 24, "Mul", 60),
            ("Mul", 180, "Div", 60),
            ("Div", 7, "Mul", 7),
            ("Div", 3, "Div", 5),
        ):
            with self.subTest(f"{first} {a} {second} {b}"):
                steps = f"{number('a', a)} {number('b', b)} t = {first}(x, a) u = {second}(t, b)"
                cut = parsed(
                    f"agraph (float[N,4] x) => (float[N,4] y) {{ {steps} s = Add(u, a) y = Floor(s) }}"
                )
                feeds = {"x": days * 300}
                (expected,), (got,) = (session(model).run(None, feeds) for model in (cut, optimize(cut)))
                np.testing.assert_array_equal(expected, got)
        halves = f"{number('a', 0.5)} {number('b', 3)} t = Mul(x, a) u = Mul(t, b) y = Floor(u)"
        self.assert_becomes(
            f"agraph (float[N,4] x) => (float[N,4] y) {{ {halves} }}",
            ["Mul", "Floor"],
            rule="ProductOfConstants",
        )

    def test_infinity_and_nan(self):
        """Clip and Relu keep what Min and Max make of them."""
        special = np.array([[np.nan, np.inf, -np.inf, 0.0]], np.float32)
        for nodes in ("t = Max(x, a) y = Min(t, b)", "y = Max(x, c)", "t = Relu(x) y = Clip(t, a, b)"):
            with self.subTest(nodes):
                limits = number("a", -0.5) + number("b", 0.5) + number("c", 0.0)
                model = parsed(f"agraph (float[N,4] x) => (float[N,4] y) {{ {limits} {nodes} }}")
                before, after = (session(item).run(None, {"x": special}) for item in (model, optimize(model)))
                np.testing.assert_array_equal(before, after)


if __name__ == "__main__":
    unittest.main()
