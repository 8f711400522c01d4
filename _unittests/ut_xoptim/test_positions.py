"""Rules of positions of tokens."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize

CONSTANTS = """
zero = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () two = Constant <value=int64 {2}> ()
at0 = Constant <value=int64[1]{0}> () at1 = Constant <value=int64[1]{1}> () end = Constant <value=int64[1]{-1}> ()
at13 = Constant <value=int64[2]{1,3}> () at12 = Constant <value=int64[2]{1,2}> () batch = Shape <start=0, end=1> (x)
sizes = Concat <axis=0> (batch, at1)
"""
COPIES = "p = Expand (n, sizes)"
COPY = "int64[1,S] n, float[B] x"
DIFFERENCE = """
first = Slice (p, at0, at1, at1, at1) before = Sub (first, one) joined = Concat <axis=-1> (before, p)
shifted = Slice (joined, at0, end, end) step = Sub (p, shifted) same = Equal (step, one)
"""
PACKED = f"""
{DIFFERENCE} new = Not (same) c = Cast <to=7> (new) text = CumSum (c, one) t = Unsqueeze (text, at13) u = Unsqueeze (text, at12)
mask = Equal (t, u)
"""
COUNTED = "s = Shape (v) n = Squeeze (s) range = Range (zero, n, one) r = Unsqueeze (range, at0) p = Expand (r, sizes)"


class TestCopies(RuleTestCase):
    BECOME = {
        "UnsqueezeExpanded": [
            (
                COPY,
                "int64[B,1,S,1]",
                f"{CONSTANTS} {COPIES} y = Unsqueeze (p, at13)",
                ["Shape", "Concat", "Unsqueeze", "Expand"],
            ),
        ],
        "ExpandedPositions": [
            (
                f"{COPY}, int64[1,S] m",
                "bool[B,S]",
                f"{CONSTANTS} {COPIES} q = Expand (m, sizes) y = Less (p, q)",
                ["Shape", "Concat", "Less", "Expand"],
            ),
            (
                f"{COPY}, int64[1,1] m",
                "int64[B,S]",
                f"{CONSTANTS} {COPIES} q = Expand (m, sizes) y = Sub (q, p)",
                ["Shape", "Concat", "Sub", "Expand"],
            ),
        ],
        "ExpandedBesidePositions": [
            (
                f"{COPY}, int64[1,S] m",
                "bool[B,S]",
                f"{CONSTANTS} {COPIES} y = {comparison}",
                ["Shape", "Concat", "Less", "Expand"],
            )
            for comparison in ("Less (p, m)", "Less (m, p)", "Less (p, two)")
        ],
    }
    STAY = {
        "RangeOfVectors": [
            (
                "int64 n",
                "int64[N]",
                "zero = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () y = Range (zero, n, one)",
            ),
        ],
        "UnsqueezeExpanded": [
            (
                "float[1,S] n, float[B] x",
                "float[B,1,S,1]",
                f"{CONSTANTS} {COPIES} y = Unsqueeze (p, at13)",
            ),
            ("int64[S] n, float[B] x", "int64[B,1,S,1]", f"{CONSTANTS} {COPIES} y = Unsqueeze (p, at13)"),
            (
                "int64[1,S] n, float[B,1] x",
                "int64[B,1,S,1]",
                "at13 = Constant <value=int64[2]{1,3}> () both = Shape (x) p = Expand (n, both) y = Unsqueeze (p, at13)",
            ),
        ],
        "ExpandedPositions": [
            (
                "float[1,S] n, float[1,S] m, float[B] x",
                "bool[B,S]",
                f"{CONSTANTS} {COPIES} q = Expand (m, sizes) y = Less (p, q)",
            ),
        ],
        "ExpandedBesidePositions": [
            (f"{COPY}, int64[B,1] m", "bool[B,S]", f"{CONSTANTS} {COPIES} y = Less (p, m)"),
            (
                "float[1,S] n, float[1,S] m, float[B] x",
                "bool[B,S]",
                f"{CONSTANTS} {COPIES} y = Less (p, m)",
            ),
        ],
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)


class TestRanges(unittest.TestCase):
    def test_bounds_of_one_element(self):
        """A branch gives a vector of one element, which onnxruntime takes as long as it does not know so."""
        nodes = """
        yes = Constant <value=bool {1}> ()
        count = If (yes) <then_branch = then () => (then_count) { at = Constant <value=int64[1]{0}> () then_count = Gather (sizes, at) },
            else_branch = otherwise () => (other_count) { one = Constant <value=int64 {1}> () other_count = Identity (one) }>
        zero = Constant <value=int64 {0}> () step = Constant <value=int64 {1}> () r = Range (zero, count, step) y = Mul (r, r)
        """
        model = parsed(f"agraph (int64[2] sizes) => (int64[N] y) {{ {nodes} }}")
        optimized = optimize(model, OptimizationOptions(["IfOfKnownCondition", "RangeOfVectors"]))
        self.assertEqual(["Gather", "Squeeze", "Range", "Mul"], operators(optimized))
        feeds = {"sizes": np.array([5, 3])}
        for expected, got in zip(session(model).run(None, feeds), session(optimized).run(None, feeds)):
            np.testing.assert_array_equal(expected, got)


class TestPackedTexts(unittest.TestCase):
    """``find_packed_sequence_indices`` of transformers: And(same text, x) is x where the positions follow one another."""

    def assert_packed(self, nodes: str, packed: str, stays: bool, size: int = 5):
        """Whether the And of these positions stays, and the same results."""
        text = (
            f"agraph (float[B] x, float[{size}] v, int64[B,{size}] given, bool[B,1,{size},{size}] o)"
            f" => (bool[B,1,{size},{size}] y) {{ {CONSTANTS} {nodes} {packed} y = And (mask, o) }}"
        )
        model = parsed(text)
        optimized = optimize(model, OptimizationOptions(["NeutralCondition"], constant_folding=False))
        self.assertEqual(stays, "And" in operators(optimized))
        for seed in range(3):
            feeds = drawn(model, seed)
            wanted, got = (session(item).run(None, feeds)[0] for item in (model, optimized))
            np.testing.assert_array_equal(got, wanted)

    def test_positions_that_follow_one_another(self):
        constant = "row = Constant <value=int64[1,5]{3,4,5,6,7}> () p = Expand (row, sizes)"
        cases = {
            "counted": COUNTED,
            "after a past": COUNTED.replace(
                "r = Unsqueeze (range, at0)", "a = Add (range, n) r = Unsqueeze (a, at0)"
            ),
            "of a known number": constant,
        }
        for promise, nodes in cases.items():
            with self.subTest(promise):
                self.assert_packed(nodes, PACKED, stays=False)

    def test_others(self):
        cases = {
            "given": ("p = Identity (given)", PACKED),
            "every second one": (COUNTED.replace("(zero, n, one)", "(n, m, two)").replace("range =", "f = Mul (n, two) m = Add (f, n) range ="), PACKED),
            "constants that begin again": ("row = Constant <value=int64[1,5]{0,1,2,0,1}> () p = Expand (row, sizes)", PACKED),
            "the same for all tokens": ("row = Constant <value=int64[1,1]{2}> () s = Shape (v) fives = Concat <axis=0> (batch, s) p = Expand (row, fives)", PACKED),
            "floats, whose steps are rounded": (
                "low = Constant <value=float{0.1}> () unit = Constant <value=float{1.0}> () "
                + COUNTED.replace("range = Range (zero, n, one)", "m = Cast <to=1> (n) range = Range (low, m, unit)"),
                PACKED.replace("(first, one)", "(first, unit)").replace("(step, one)", "(step, unit)"),
            ),
            "another first one": (COUNTED, PACKED.replace("before = Sub (first, one)", "before = Sub (first, two)")),
            "compared with 2": (COUNTED, PACKED.replace("same = Equal (step, one)", "same = Equal (step, two)")),
            "from behind": (COUNTED, PACKED.replace("joined = Concat <axis=-1> (before, p)", "joined = Concat <axis=-1> (p, before)")),
            "the second one": (COUNTED, PACKED.replace("first = Slice (p, at0, at1, at1, at1)", "first = Slice (p, at1, at2, at1, at1)").replace("first =", "at2 = Constant <value=int64[1]{2}> () first =", 1)),
        }  # fmt: skip
        for promise, (nodes, packed) in cases.items():
            with self.subTest(promise):
                self.assert_packed(nodes, packed, stays=True)


if __name__ == "__main__":
    unittest.main()
