"""Rules of tables of which a model reads the first rows."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.xoptim import optimize

NUMBERS = """
table = Constant <value=float[3,4]{1,2,3,4,5,6,7,8,9,10,11,12}> ()
zero = Constant <value=int64[1]{0}> () one = Constant <value=int64[1]{1}> () two = Constant <value=int64[1]{2}> ()
back = Constant <value=int64[1]{-1}> () ends = Constant <value=int64[2]{0,2}> () size = Shape <end=1> (x)
"""
ROWS = "rows = Slice (table, zero, size, zero)"


class TestTables(RuleTestCase):
    def graph(self, nodes: str, result: str = "float[N,4] y", rows: str = ROWS) -> str:
        """What is made of the first N rows of a table."""
        return f"agraph (float[N] x) => ({result}) {{ {NUMBERS} {rows} {nodes} }}"

    CASES = {
        "the opposite": ("NegOfRows", "y = Neg (rows)", "float[N,4] y"),
        "an axis in front": ("UnsqueezeOfRows", "y = Unsqueeze (rows, zero)", "float[1,N,4] y"),
        "axes on both sides": ("UnsqueezeOfRows", "y = Unsqueeze (rows, ends)", "float[1,N,1,4] y"),
        "a last axis": ("UnsqueezeOfRows", "y = Unsqueeze (rows, back)", "float[N,4,1] y"),
        "a part of each row": ("SliceOfRows", "y = Slice (rows, one, two, back)", "float[N,1] y"),
        "every second of each row": ("SliceOfRows", "y = Slice (rows, zero, back, one, two)", "float[N,2] y"),
    }

    def test_what_moves(self):
        for promise, (rule, nodes, result) in self.CASES.items():
            with self.subTest(promise):
                self.assert_becomes(self.graph(nodes, result), ["Shape", "Slice"], rule=rule)

    def test_an_axis_less(self):
        flat = NUMBERS.replace("float[3,4]", "float[3,1,4]")
        for axis in (1, -2):
            with self.subTest(axis):
                nodes = f"middle = Constant <value=int64[1]{{{axis}}}> () y = Squeeze (rows, middle)"
                text = self.graph(nodes).replace(NUMBERS, flat)
                self.assert_becomes(text, ["Shape", "Slice"], rule="SqueezeOfRows")

    def test_masks(self):
        """Of the first rows, or of the first columns of these too."""
        corner = "r = Slice (table, zero, size, zero) rows = Slice (r, zero, size, one)"
        for rows, slices, shape in ((ROWS, ["Slice"], "N,4"), (corner, ["Slice", "Slice"], "N,N")):
            for nodes in (
                "y = Equal (rows, five)",
                "y = Equal (five, rows)",
                "y = Less (rows, five)",
                "y = GreaterOrEqual (rows, five)",
            ):
                with self.subTest(nodes, rows=rows):
                    number = "five = Constant <value_float=5.0> ()"
                    text = self.graph(f"{number} {nodes}", f"bool[{shape}] y", rows)
                    self.assert_becomes(text, ["Shape", *slices], rule="MaskOfRows")
        booleans = NUMBERS.replace("table = Constant", "all = Constant") + "table = Cast <to=9> (all)"
        text = self.graph("y = Not (rows)", "bool[N,4] y").replace(NUMBERS, booleans)
        self.assertEqual(["Shape", "Slice"], operators(optimize(parsed(text))))

    def test_large_tables(self):
        """They are computed when all rules have been applied."""
        large = "".join(
            [
                NUMBERS.replace("table =", "few ="),
                "shape = Constant <value=int64[2]{300,4}> () table = Expand (one, shape)",
            ]
        )
        nodes = "u = Unsqueeze (rows, ends) p = Slice (u, zero, two, three) f = Cast <to=1> (p) y = Neg (f)"
        large += " three = Constant <value=int64[1]{3}> ()"
        model = optimize(parsed(self.graph(nodes, "float[1,N,1,2] y").replace(NUMBERS, large)))
        self.assertEqual(["Shape", "Slice", "Cast", "Neg"], operators(model))

    def test_what_stays(self):
        cases = {
            "others read the rows": (
                "NegOfRows",
                self.graph("y = Neg (rows) z = Abs (rows)", "float[N,4] y, float[N,4] z"),
            ),
            "a table that is computed": (
                "NegOfRows",
                self.graph("y = Neg (rows)", rows="c = Cos (t) rows = Slice (c, zero, size, zero)").replace(
                    "float[N] x", "float[N] x, float[3,4] t"
                ),
            ),
            "a number for each column": (
                "MaskOfRows",
                self.graph(
                    "line = Slice (table, zero, one, zero) y = Less (rows, row)", "bool[N,4] y"
                ).replace(
                    "line = Slice (table, zero, one, zero)", "row = Constant <value=float[4]{1,2,3,4}> ()"
                ),
            ),
            "a number that is computed": (
                "MaskOfRows",
                self.graph("n = ReduceSum <keepdims=0> (x) y = Less (rows, n)", "bool[N,4] y"),
            ),
            "the rows themselves": ("SliceOfRows", self.graph("y = Slice (rows, zero, one, zero)")),
            "the axis of the rows goes": (
                "SqueezeOfRows",
                self.graph("y = Squeeze (rows, zero)", "float[4] y").replace("float[N]", "float[1]"),
            ),
        }
        for promise, (rule, text) in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, rule=rule)


if __name__ == "__main__":
    unittest.main()
