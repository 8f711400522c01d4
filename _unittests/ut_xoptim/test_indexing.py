"""Rules of indexing."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

SIZES = """
zero = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () last = Constant <value=int64[1]{-1}> ()
bs = Shape <start=0, end=1> (x) b = Squeeze (bs) ks = Shape <start=1, end=2> (x) k = Squeeze (ks)
first = Constant <value=int64[3]{0,1,2}> () behind = Constant <value=int64[3]{1,2,3}> () ones = Constant <value=int64[3]{1,1,1}> ()
"""
ALL_ROWS = "r = Range (zero, b, one) ra = Unsqueeze (r, behind)"
ALL_COLUMNS = "c = Range (zero, k, one) ca = Unsqueeze (c, first)"
SOME_COLUMNS = "ms = Shape (z) m = Squeeze (ms) c = Range (zero, m, one) ca = Unsqueeze (c, first)"
SPREAD = "high = Shape (r) low = Shape (c) wide = Concat <axis=0> (high, ones) re = Expand (ra, low) ce = Expand (ca, wide)"
PAIRS = "ru = Unsqueeze (re, last) cu = Unsqueeze (ce, last) p = Concat <axis=-1> (ru, cu)"


def graph(
    rows=ALL_ROWS,
    columns=ALL_COLUMNS,
    pairs=SPREAD + PAIRS,
    x="float[B,K] x",
    result="float[B,1,1,K]",
    known="int64[B] r, int64[K] c",
    picked="GatherND (x, p)",
):
    """The text of a model that picks ``x[rows, columns]``, along the first and the last of four axes."""
    return f"agraph ({x}, float[M] z) => ({result} y) <{known}> {{ {SIZES} {rows} {columns} {pairs} y = {picked} }}"


class TestGatherOfGrid(RuleTestCase):
    RULE = "GatherOfGrid"

    def test_all_columns(self):
        self.assert_becomes(graph(), ["Unsqueeze"])

    def test_some_columns(self):
        text = graph(columns=SOME_COLUMNS, result="float[B,1,1,M]", known="int64[B] r, int64[M] c")
        self.assert_becomes(text, ["Shape", "Squeeze", "Range", "Gather", "Unsqueeze"])

    def test_columns_in_another_order(self):
        text = graph(
            columns="zs = Sign (z) c = Cast <to=7> (zs) ca = Unsqueeze (c, first)",
            result="float[B,1,1,M]",
            known="int64[B] r, int64[M] c",
        )
        self.assert_becomes(text, ["Sign", "Cast", "Gather", "Unsqueeze"])

    def test_constant_columns(self):
        """All in order, some in another order, and those that vary along two axes."""
        for columns, x, expected in (
            ("0,1,2", "float[B,3] x", ["Unsqueeze"]),
            ("2,0,1", "float[B,3] x", ["Gather", "Unsqueeze"]),
            ("0,1,2", "float[B,7] x", ["Gather", "Unsqueeze"]),
        ):
            with self.subTest(columns=columns, x=x):
                text = graph(
                    columns=f"ca = Constant <value=int64[1,1,1,3]{{{columns}}}> ()",
                    pairs=SPREAD.replace("low = Shape (c) ", "").replace("(ra, low)", "(ra, three)")
                    + " "
                    + PAIRS,
                    x=x,
                    result="float[B,1,1,3]",
                    known="int64[B] r",
                )
                three = "three = Constant <value=int64[1]{3}> ()"
                self.assert_becomes(text.replace("{ \n", f"{{ {three}\n", 1), expected)
        self.assert_stays(
            f"""agraph (float[2,3] x) => (float[2,1,1,3] y) {{ last = Constant <value=int64[1]{{-1}}> ()
            re = Constant <value=int64[2,1,1,3]{{0,0,0,1,1,1}}> () ce = Constant <value=int64[2,1,1,3]{{0,1,2,2,1,0}}> ()
            {PAIRS} y = GatherND (x, p) }}"""
        )

    def test_one_row(self):
        """The number 0 tells the only row of a matrix."""
        text = graph(
            rows="r = Shape <start=0, end=1> (x) ra = Constant <value=int64[1,1,1,1]{0}> ()",
            x="float[1,K] x",
            result="float[1,1,1,K]",
            known="int64[K] c",
        )
        self.assert_becomes(text, ["Unsqueeze"])

    def test_a_matrix(self):
        """The rows along the first of two axes, the columns along the last."""
        rows = "r = Range (zero, b, one) at = Constant <value=int64[1]{1}> () ra = Unsqueeze (r, at)"
        columns = "ms = Shape (z) m = Squeeze (ms) c = Range (zero, m, one) to = Constant <value=int64[1]{0}> () ca = Unsqueeze (c, to)"
        pairs = SPREAD.replace("(high, ones)", "(high, at)") + PAIRS
        text = graph(rows, columns, pairs, result="float[B,M]", known="int64[B] r, int64[M] c")
        self.assert_becomes(text, ["Shape", "Squeeze", "Range", "Gather"])

    def test_some_rows(self):
        """Each has a Gather: a matrix may have more rows than a Range counts."""
        rows = "shape = Shape <start=1, end=2> (w) n = Squeeze (shape) r = Range (zero, n, one) ra = Unsqueeze (r, behind)"
        some = graph(rows, SOME_COLUMNS, result="float[N,1,1,M]", known="int64[N] r, int64[M] c")
        some = some.replace("float[M] z", "float[M] z, float[1,N] w")
        computed = graph(rows="rr = Range (zero, b, one) r = Abs (rr) ra = Unsqueeze (r, behind)")
        second = graph(
            rows="r = Range (one, b, one) ra = Unsqueeze (r, behind)",
            result="float[C,1,1,K]",
            known="int64[C] r, int64[K] c",
        )
        counted = "Shape Squeeze Range".split()
        cases = {
            "as many as another value has": (some, [*counted, *counted, "Gather", "Gather", "Unsqueeze"]),
            "computed": (computed, [*counted, "Abs", "Gather", "Unsqueeze"]),
            "from the second one on": (second, [*counted, "Gather", "Unsqueeze"]),
        }
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, expected)

    def test_what_it_declines(self):
        cases = {
            "columns before rows": graph(
                rows="r = Range (zero, b, one) ra = Unsqueeze (r, first)",
                columns="c = Range (zero, k, one) ca = Unsqueeze (c, behind)",
                pairs=SPREAD.replace("(high, ones)", "(low, ones)")
                .replace("(ra, low)", "(ra, wide)")
                .replace("(ca, wide)", "(ca, high)")
                + PAIRS,
                result="float[K,1,1,B]",
            ),
            "pairs of columns and rows": graph(
                x="float[3,3] x",
                pairs=(SPREAD + PAIRS).replace("(ru, cu)", "(cu, ru)"),
                result="float[3,1,1,3]",
                known="int64[3] r, int64[3] c",
            ),
            "columns that differ between rows": graph(
                columns="c = Range (zero, k, one) cc = Unsqueeze (c, first) zeros = Sub (ra, ra) ca = Add (cc, zeros)",
                pairs="low = Shape (c) re = Expand (ra, low) ce = Identity (ca) " + PAIRS,
            ),
            "vectors in a matrix": graph(x="float[B,K,2] x", result="float[B,1,1,K,2]"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


if __name__ == "__main__":
    unittest.main()
