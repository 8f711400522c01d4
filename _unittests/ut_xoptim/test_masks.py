"""Rules of masks."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, operators, parsed
from _unittests.ut_xoptim.test_guards import CONSTANTS
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize


class TestNumbersOfMasks(RuleTestCase):
    """What torch.onnx.export adds to scores: the lowest number where the mask is false."""

    CLOSED = "agraph (bool[3,4] m, float[3,4] x) => (float[3,4] y) { c = Constant <value=float {-3.4e38}> () n = Not (m) f = Cast <to=1> (n)"

    def test_closed_times_number(self):
        cases = {
            "the lowest number": f"{self.CLOSED} b = Mul (f, c) y = Max (x, b) }}",
            "of one axis": f"{self.CLOSED} b = Mul (c, f) y = Max (x, b) }}".replace(
                "float {-3.4e38}", "float[1] {2}"
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, ["Where", "Max"], rule="ClosedTimesNumber")
        integers = "agraph (bool[3] m) => (int64[3] y) { c = Constant <value=int64 {7}> () n = Not (m) f = Cast <to=7> (n) b = Mul (f, c) y = Neg (b) }"
        self.assert_becomes(integers, ["Where", "Neg"], rule="ClosedTimesNumber")

    def test_factors_that_stay(self):
        text = f"{self.CLOSED} b = Mul (f, c) y = Max (x, b) }}"
        cases = {
            "an infinity, which makes NaN of 0": text.replace("-3.4e38", "-inf").replace(
                "Max (x, b)", "Where (m, x, b)"
            ),
            "several": text.replace("float {-3.4e38}", "float[4] {1,2,3,4}"),
            "with another axis": text.replace("float {-3.4e38}", "float[1,1,1] {1}").replace(
                "(float[3,4] y)", "(float[1,3,4] y)"
            ),
            "the cast is read elsewhere": text.replace("Max (x, b)", "Add (f, b)"),
            "what is not a Not": text.replace("n = Not (m)", "n = Or (m, m)"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, rule="ClosedTimesNumber")


class TestConditions(RuleTestCase):
    TRUE = "c = Constant <value=bool[1,2]{1,1}> ()"

    def test_where_of_true(self):
        self.assert_becomes(
            f"agraph (float[3,2] x, float[1] z) => (float[3,2] y) {{ {self.TRUE} w = Where (c, x, z) y = Neg (w) }}",
            ["Neg"],
            rule="WhereDecided",
        )

    def test_where_of_false(self):
        false = self.TRUE.replace("{1,1}", "{0,0}")
        self.assert_becomes(
            f"agraph (float[1] x, float[3,2] z) => (float[3,2] y) {{ {false} w = Where (c, x, z) y = Neg (w) }}",
            ["Neg"],
            rule="WhereDecided",
        )

    def test_where_whose_size_has_a_name(self):
        """What is declared of the result is a name of a size that the operands tell."""
        false = self.TRUE.replace("{1,1}", "{0,0}")
        self.assert_becomes(
            f"agraph (float[1] x, float[N,2] z) => (float[N,K] y) <float[N,K] w> {{ {false} w = Where (c, x, z) y = Neg (w) }}",
            ["Neg"],
            rule="WhereDecided",
        )
        self.assert_stays(
            f"agraph (float[K] x, float[N,2] z) => (float[N,K] y) <float[N,K] w> {{ {false} w = Where (c, x, z) y = Neg (w) }}",
            rule="WhereDecided",
            sizes=2,
        )

    def test_where_of_equal_branches(self):
        self.assert_becomes(
            "agraph (bool[3,2] c, float[3,2] x) => (float[3,2] y) { w = Where (c, x, x) y = Neg (w) }",
            ["Neg"],
            rule="WhereDecided",
        )

    def test_where_that_widens(self):
        self.assert_stays(
            f"agraph (float[1,2] x, float[3,2] z) => (float[3,2] y) {{ {self.TRUE} y = Where (c, x, z) }}",
            rule="WhereDecided",
        )
        self.assert_stays(
            "agraph (bool[3,2] c, float[2] x) => (float[3,2] y) { y = Where (c, x, x) }", rule="WhereDecided"
        )

    def test_where_that_chooses(self):
        mixed = self.TRUE.replace("{1,1}", "{0,1}")
        self.assert_stays(
            f"agraph (float[3,2] x, float[3,2] z) => (float[3,2] y) {{ {mixed} y = Where (c, x, z) }}",
            rule="WhereDecided",
        )

    def test_and_of_true(self):
        self.assert_becomes(
            f"agraph (bool[3,2] x) => (bool[3,2] y) {{ {self.TRUE} a = And (c, x) y = Not (a) }}",
            ["Not"],
            rule="NeutralCondition",
        )

    def test_and_that_widens(self):
        self.assert_stays(
            f"agraph (bool[3,1] x) => (bool[3,2] y) {{ {self.TRUE} y = And (x, c) }}", rule="NeutralCondition"
        )

    SHOWN = "agraph (float[N,4,2] x, float[2] a) => (float[N,4,2] y) { size = Shape (x) m = Expand (c, size)"

    def test_a_mask_that_is_true_everywhere(self):
        """The Expand holds True for every size; what is added may be anything."""
        text = self.SHOWN.replace("{", f"{{ {self.TRUE}", 1)
        closed = "closed = Constant <value=float {-inf}> () zero = Constant <value=float {0.0}> ()"
        self.assert_becomes(
            f"{text} {closed} w = Where (m, zero, closed) s = Add (w, x) y = Neg (s) }}",
            ["Neg"],
            rule="AddWhereTrue",
        )
        self.assert_becomes(
            f"{text} {closed} w = Where (m, a, closed) y = Add (x, w) }}", ["Add"], rule="AddWhereTrue"
        )

    TOKEN = """
    before = Shape <start=0, end=1> (past) P = Squeeze (before) T = Add (P, {more}) keys = Range (first, T, one)
    {query} k = Unsqueeze (keys, along) le = LessOrEqual (k, q) a = And (le, m) y = Not (a)
    """

    def test_one_token_after_a_past(self):
        """It sees all keys: those of the past and its own."""
        far, other = (
            "far = Add (one, P) q = Unsqueeze (far, both)",
            "at = Shape <end=1> (other) q = Unsqueeze (at, along)",
        )
        twice = "far = Add (before, before) q = Unsqueeze (far, along)"
        at_end = "q = Unsqueeze (before, along)"
        cases = {
            "at the end of the past": (at_end, "one", True),
            "two after the past": (far, "one", True),
            "a key after it": (at_end, "two", False),
            "the position of another past": (other, "one", False),
            "twice the past": (twice, "one", False),
        }
        for promise, (query, more, fires) in cases.items():
            with self.subTest(promise):
                size = {"one": 4, "two": 5}[more]
                text = f"""agraph (float[P,2] past, float[Q,2] other, bool[1,{size}] m) => (bool[1,{size}] y) {{ {CONSTANTS}
                    both = Constant <value=int64[2]{{0,1}}> () {self.TOKEN.format(more=more, query=query)} }}"""
                if fires:
                    self.assert_becomes(text, ["Not"], rule="NeutralCondition")
                else:
                    self.assert_stays(text, rule="NeutralCondition")

    def test_positions_that_are_not_negative(self):
        text = """agraph (float[3,4] x) => (float[3,4] y)
        {{ zero = Constant <value=int64 {{0}}> () bound = Constant <value=int64 {{{bound}}}> () one = Constant <value=int64 {{1}}> ()
           axes = Constant <value=int64[1]{{1}}> () none = Constant <value=float {{0.0}}> () closed = Constant <value=float {{-2.0}}> ()
           rows = Shape <end=1> (x) n = Squeeze (rows) r = Range (zero, n, one) u = Unsqueeze (r, axes)
           m = GreaterOrEqual (u, bound) w = Where (m, none, closed) s = Add (x, w) y = Neg (s) }}"""
        self.assert_becomes(text.format(bound=0), ["Neg"], rule="AddWhereTrue")
        kept = "Shape Squeeze Range Unsqueeze GreaterOrEqual Where Add Neg".split()
        self.assert_optimized(text.format(bound=1), kept, fires=False, rule="AddWhereTrue")

    def test_positions_that_are_not_negative_and_a_mask(self):
        """The mask of padding is left, without the axis of the queries: the scores have it."""
        text = """agraph (float[2,4,Q,K] x, float[2,4,Q,K] other, bool[2,1,1,K] padding) => (float[2,4,Q,K] y, float[2,4,Q,K] z)
        {{ zero = Constant <value=int64 {{0}}> () bound = Constant <value=int64 {{{bound}}}> () one = Constant <value=int64 {{1}}> ()
           axes = Constant <value=int64[3]{{0,1,3}}> () none = Constant <value=float {{0.0}}> () closed = Constant <value=float {{-2.0}}> ()
           rows = Shape <start=2, end=3> (x) n = Squeeze (rows) r = Range (zero, n, one) u = Unsqueeze (r, axes)
           m = GreaterOrEqual (u, bound) a = And (m, padding) w = Where (a, none, closed) y = Add (x, w) z = Add (w, {second}) }}"""
        rule = "AddWherePartlyTrue"
        left = ["Where", "Add", "Add"]
        self.assert_becomes(text.format(bound=0, second="other"), left, rule=rule)
        self.assert_stays(text.format(bound=1, second="other"), rule=rule)
        narrow = text.replace("float[2,4,Q,K] x", "float[2,4,1,K] x").replace("(x) n", "(other) n")
        self.assert_stays(narrow.format(bound=0, second="other"), rule=rule)
        guarded = text.replace("z = Add (w, {second})", "g = ReduceMax (w) z = Add ({second}, g)")
        self.assert_stays(guarded.format(bound=0, second="other"), rule=rule)

    def test_positions_that_are_not_negative_and_a_guard(self):
        """The guard of rows without a key reads the same mask of padding; both rules leave that of all queries to none."""
        text = """agraph (float[2,4,Q,K] x, float[2,4,{v}] v, bool[{padding}] padding) => (float[2,4,Q,K] y, float[2,4,Q,V] z)
        {{ zero = Constant <value=int64 {{0}}> () one = Constant <value=int64 {{1}}> () axis = Constant <value=int64[1]{{{axis}}}> ()
           axes = Constant <value=int64[3]{{0,1,3}}> () none = Constant <value=float {{0.0}}> () closed = Constant <value=float {{-2.0}}> ()
           rows = Shape <start=2, end=3> (x) n = Squeeze (rows) r = Range (zero, n, one) u = Unsqueeze (r, axes)
           m = GreaterOrEqual (u, zero) a = And (m, padding) w = Where (a, none, closed) y = Add (x, w)
           l = ReduceMax (w, axis) t = Less (l, none) z = Where (t, none, v) }}"""
        both = "AddWherePartlyTrue", "GuardWherePartlyTrue"
        given = {"padding": "2,1,1,K", "axis": 3, "v": "Q,8"}
        model = parsed(text.format(**given), 20)
        optimized = optimize(model, OptimizationOptions(both))
        self.assertEqual(["Where", "Add", "ReduceMax", "Less", "Where"], operators(optimized))
        feeds = drawn(model, 0, 3)
        feeds["padding"][0] = False
        for wanted, got in zip(session(model).run(None, feeds), session(optimized).run(None, feeds)):
            np.testing.assert_array_equal(wanted, got)
        self.assert_becomes(
            text.format(**given),
            [
                *"Shape Squeeze Range Unsqueeze GreaterOrEqual And Where Add".split(),
                "Where",
                "ReduceMax",
                "Less",
                "Where",
            ],
            rule="GuardWherePartlyTrue",
        )
        plain = (
            text.replace("{{-2.0}}", "{{-inf}}")
            .replace("Less (l, none)", "Equal (l, closed)")
            .format(**given)
        )
        optimized = optimize(parsed(plain, 20), OptimizationOptions(both))
        self.assertEqual(["Where", "Add", "ReduceMax", "Equal", "Where"], operators(optimized))
        for change in ({"padding": "K"}, {"axis": 2, "v": "Q,K"}, {"v": "1,8"}):
            with self.subTest(change):
                self.assert_stays(text.format(**{**given, **change}), rule="GuardWherePartlyTrue")


if __name__ == "__main__":
    unittest.main()
