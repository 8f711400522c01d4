"""Rules of pairs that turn: rotary embeddings of halves, of neighbours, of every two elements."""

import re
import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

NUMBERS = """
zero = Constant <value=int64[1]{0}> () one = Constant <value=int64[1]{1}> () two = Constant <value=int64[1]{2}> ()
four = Constant <value=int64[1]{4}> () five = Constant <value=int64[1]{5}> () end = Constant <value=int64[1]{9}> () last = Constant <value=int64[1]{3}> ()
behind = Constant <value=int64[1]{4}> () none = Constant <value=int64{0}> () single = Constant <value=int64{1}> ()
pairs = Constant <value=int64[5]{0,0,0,4,2}> () joined = Constant <value=int64[4]{0,0,0,8}> ()
heads = Constant <value=int64[4]{0,0,3,8}> () parted = Constant <value=int64[4]{0,0,6,4}> ()
"""
TURNED = """
ac = Mul (a, c) bs = Mul (b, s) bc = Mul (b, c) as = Mul (a, s)
u = Sub (ac, bs) v = Add (bc, as)
"""
HALVES = "a = Slice (x, zero, four, last) b = Slice (x, four, end, last)"
SPLIT = "a, b = Split <axis=-1, num_outputs=2> (x)"
EVERY_TWO = "a = Slice (x, zero, end, last, two) b = Slice (x, one, end, last, two)"
ELEMENTS = "z = Reshape (x, pairs) a = Gather <axis=4> (z, none) b = Gather <axis=4> (z, single)"
COMPLEX = "z = Reshape (x, pairs) a, b = Split <axis=-1, num_outputs=2> (z)"
STACKED = (
    "p = Unsqueeze (u, behind) q = Unsqueeze (v, behind) w = Concat <axis=-1> (p, q) y = Reshape (w, joined)"
)
TOGETHER = "w = Concat <axis=-1> (u, v) y = Reshape (w, joined)"
TABLES = "float[1,T,1,4] c, float[1,T,1,4] s"
CONCAT = "y = Concat <axis=-1> (u, v)"
NEGATIVE = "n = Neg (b) p = Unsqueeze (n, behind) q = Unsqueeze (a, behind) w = Concat <axis=-1> (p, q) r = Reshape (w, joined)"
ROTATED = "xc = Mul (x, c) rs = Mul (r, s) y = Add (xc, rs)"
WIDE = "float[1,T,1,8] c, float[1,T,1,8] s"
COLUMNS = "float[1,T,1,4,1] c, float[1,T,1,4,1] s"

SUM = "u = Sub (ac, bs) v = Add (bc, as)"
OTHER_WAYS = {
    "the sum first": TURNED.replace(SUM, "u = Add (ac, bs) v = Sub (bc, as)"),
    "the opposite of the sine second": "n = Neg (s)"
    + TURNED.replace(SUM, "u = Add (ac, bs) v = Add (bc, as)").replace("as = Mul (a, s)", "as = Mul (n, a)"),
    "the opposite of the sine first": "n = Neg (s)"
    + TURNED.replace(SUM, "u = Add (bs, ac) v = Add (as, bc)").replace("bs = Mul (b, s)", "bs = Mul (b, n)"),
}
PRODUCTS = ("Mul", "Mul", "Add")


class TestRotations(RuleTestCase):
    """x, heads of eight in tokens, turned by the angles of tables."""

    def graph(self, parts: str, turned: str, whole: str, tables: str = TABLES, more: str = "") -> str:
        """Parts of x, what is made of them, and how it is put together."""
        inputs, results = f"float[B,T,3,8] x, {tables}", f"float[B,T,3,8] y{more}"
        return f"agraph ({inputs}) => ({results}) {{ {NUMBERS} {parts} {turned} {whole} }}"

    def test_halves(self):
        expected = ["Concat", "Mul", "Concat", "Split", "Concat", *PRODUCTS]
        for parts in (HALVES, SPLIT):
            for turned in (TURNED, *OTHER_WAYS.values()):
                with self.subTest(parts=parts, turned=turned):
                    self.assert_becomes(self.graph(parts, turned, CONCAT), expected, rule="RotationOfHalves")

    def test_pairs(self):
        cases = {
            "complex numbers": (COMPLEX, TOGETHER, COLUMNS, [], ["Reshape", "Reshape"]),
            "two elements": (ELEMENTS, STACKED, TABLES, ["Unsqueeze"], ["Reshape", "Reshape"]),
            "every two elements": (EVERY_TWO, STACKED, TABLES, ["Unsqueeze"], ["Reshape"]),
        }
        for promise, (parts, whole, tables, columns, shown) in cases.items():
            for turned in (TURNED, *OTHER_WAYS.values()):
                with self.subTest(promise, turned=turned):
                    made = [*columns, "Concat", "Reshape"]
                    self.assert_becomes(
                        self.graph(parts, turned, whole, tables),
                        [*made, "Mul", *made, *shown, "Split", "Concat", "Reshape", *PRODUCTS],
                        rule="RotationOfPairs",
                    )

    def test_a_complex_table(self):
        """Its numbers are pairs, too: what is turned is the one that no heads share."""
        table = "c, s = Split <axis=-1, num_outputs=2> (t)"
        made, shown = ["Concat", "Reshape"], ["Reshape", "Reshape", "Split", "Concat", "Reshape"]
        for turned in (TURNED, TURNED.replace("ac = Mul (a, c)", "ac = Mul (c, a)")):
            with self.subTest(turned=turned):
                self.assert_becomes(
                    self.graph(f"{table} {COMPLEX}", turned, TOGETHER, "float[1,T,1,4,2] t"),
                    ["Split", *made, "Mul", *made, *shown, *PRODUCTS],
                    rule="RotationOfPairs",
                )

    def test_every_two(self):
        column = "a = Slice (z, zero, one, behind)"
        cases = {
            "every two elements": (EVERY_TWO, NEGATIVE, ["Mul", "Mul", "Reshape"]),
            "unbound": (ELEMENTS, NEGATIVE, ["Mul", "Reshape", "Mul"]),
            "unbound, one of them with its axis": (
                ELEMENTS.replace("a = Gather <axis=4> (z, none)", column),
                NEGATIVE.replace("q = Unsqueeze (a, behind)", "").replace("(p, q)", "(p, a)"),
                ["Mul", "Reshape", "Mul"],
            ),
        }
        for promise, (parts, negative, before) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(
                    self.graph(parts, negative, ROTATED, WIDE),
                    [*before, "Split", "Concat", "Reshape", "Mul", "Add"],
                    rule="RotationOfEveryTwo",
                )

    def test_tables_are_made_once(self):
        """For queries and keys, and for all layers."""
        again = re.sub(r"\b(ac|bs|bc|as|[abuvy])\b", r"\g<1>2", f" {HALVES} {TURNED} {CONCAT}").replace(
            "(x,", "(k,"
        )
        text = self.graph(
            HALVES, TURNED, CONCAT + again, TABLES + ", float[B,T,3,8] k", ", float[B,T,3,8] y2"
        )
        turned = ["Split", "Concat", *PRODUCTS]
        self.assert_becomes(text, ["Concat", "Mul", "Concat", *turned, *turned], rule="RotationOfHalves")

    def test_what_is_no_rotation(self):
        """Members that are factors of each other, tables that have more axes or pairs, a single pair."""
        x, width = "float[B,T,3,8] x", "float[B,T,3,8] y"
        axis = "m = Constant <value=int64[1]{-1}> () i = Constant <value=int64[2]{1,2}> ()"
        columns = "p = Unsqueeze (u, m) q = Unsqueeze (v, m) w = Concat <axis=-1> (p, q)"
        cases = {
            "squares and a product": (
                "RotationOfHalves", x, width,
                f"{SPLIT} aa = Mul (a, a) bb = Mul (b, b) ab = Mul (a, b) u = Sub (aa, bb) v = Add (aa, ab) {CONCAT}",
            ),
            "a table and a product": (
                "RotationOfHalves", f"{x}, float[4] c", width,
                f"{SPLIT} aa = Mul (a, a) bb = Mul (b, b) ab = Mul (a, b) ac = Mul (a, c) u = Add (ac, ab) v = Sub (bb, aa) {CONCAT}",
            ),
            "joined along an axis that is not the last one of the tables": (
                "RotationOfHalves", "float[3,8] x, float[2,3,4] c, float[2,3,4] s", "float[2,6,4] y",
                f"{SPLIT} {TURNED} y = Concat <axis=1> (u, v)",
            ),
            "one pair for all of the tables": (
                "RotationOfPairs", "float[N,K,2] x, float[3] c, float[3] s", "float[N,6] y",
                f"a = Gather <axis=2> (x, none) b = Gather <axis=2> (x, single) {TURNED} {columns} t = Constant <value=int64[2]{{0,6}}> () "
                "y = Reshape (w, t)",
            ),
            "a single pair": (
                "RotationOfEveryTwo", "float[2] x, float[1,2] s", "float[1,2] y",
                "a = Gather (x, none) b = Gather (x, single) n = Neg (b) p = Unsqueeze (n, m) q = Unsqueeze (a, m) "
                "w = Concat <axis=-1> (p, q) r = Reshape (w, i) y = Mul (r, s)",
            ),
        }  # fmt: skip
        for promise, (rule, inputs, result, nodes) in cases.items():
            with self.subTest(promise):
                self.assert_stays(
                    f"agraph ({inputs}) => ({result}) {{ {NUMBERS} {axis} {nodes} }}", rule=rule
                )

    def test_what_stays(self):
        halves, pairs = "RotationOfHalves", "RotationOfPairs"
        wider = TURNED.replace("Mul (b, c)", "Mul (b, d)")
        parted = STACKED.replace("y = Reshape (w, joined)", "t = Reshape (w, parted) y = Reshape (t, heads)")
        cases = {
            "the second half first": (halves, self.graph(HALVES, TURNED, "y = Concat <axis=-1> (v, u)")),
            "two sums": (halves, self.graph(HALVES, TURNED.replace("Sub", "Add"), CONCAT)),
            "two differences": (halves, self.graph(HALVES, TURNED.replace("Add", "Sub"), CONCAT)),
            "the table less the product": (
                halves,
                self.graph(HALVES, TURNED.replace("ac, bs", "bs, ac"), CONCAT),
            ),
            "another cosine": (halves, self.graph(HALVES, wider, CONCAT, f"{TABLES}, float[1,T,1,4] d")),
            "one angle": (halves, self.graph(HALVES, TURNED, CONCAT, TABLES.replace("1,4]", "1,1]"))),
            "a sum is a result": (halves, self.graph(HALVES, TURNED, CONCAT, more=", float[B,T,3,4] u")),
            "other slices": (
                halves,
                self.graph(HALVES.replace("x, zero, four", "x, one, five"), TURNED, CONCAT),
            ),
            "halves along another axis": (
                halves,
                self.graph(HALVES, TURNED, "w = Concat <axis=2> (u, v) y = Reshape (w, heads)"),
            ),
            "halves that are stacked": (pairs, self.graph(HALVES, TURNED, STACKED)),
            "every two side by side": (halves, self.graph(EVERY_TWO, TURNED, CONCAT)),
            "pairs with tables of complex numbers": (
                pairs,
                self.graph(COMPLEX, TURNED, TOGETHER, TABLES.replace("4]", "1]")),
            ),
            "stacked elsewhere": (
                pairs,
                self.graph(ELEMENTS, TURNED, STACKED.replace("behind", "last").replace("axis=-1", "axis=3")),
            ),
            "pairs that stay apart": (pairs, self.graph(ELEMENTS, TURNED, parted)),
            "the odd ones first": (
                "RotationOfEveryTwo",
                self.graph(
                    EVERY_TWO,
                    NEGATIVE.replace("Neg (b)", "Neg (a)").replace("(a, behind)", "(b, behind)"),
                    ROTATED,
                    WIDE,
                ),
            ),
            "unbound, the odd ones first": (
                "RotationOfEveryTwo",
                self.graph(
                    ELEMENTS,
                    NEGATIVE.replace("Neg (b)", "Neg (a)").replace("(a, behind)", "(b, behind)"),
                    ROTATED,
                    WIDE,
                ),
            ),
            "unbound and stacked elsewhere": (
                "RotationOfEveryTwo",
                self.graph(
                    ELEMENTS,
                    NEGATIVE.replace("behind", "last").replace("axis=-1", "axis=3"),
                    ROTATED,
                    WIDE,
                ),
            ),
            "a column of every two": (
                "RotationOfEveryTwo",
                self.graph(
                    "b = Slice (x, one, end, last, two) z = Reshape (x, pairs) d = Slice (z, zero, one, behind)",
                    NEGATIVE.replace("q = Unsqueeze (a, behind)", "").replace("(p, q)", "(p, d)"),
                    ROTATED,
                    WIDE,
                ),
            ),
            "halves with a sign": ("RotationOfEveryTwo", self.graph(HALVES, NEGATIVE, ROTATED, WIDE)),
            "one sine": (
                "RotationOfEveryTwo",
                self.graph(EVERY_TWO, NEGATIVE, ROTATED, WIDE.replace("8] s", "1] s")),
            ),
        }
        for promise, (rule, text) in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, rule=rule)


if __name__ == "__main__":
    unittest.main()
