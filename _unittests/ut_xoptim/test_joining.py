"""The rule of products whose leading axes are one."""

import re
import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

LINES = {
    "n": "Shape<end=1>(q)",
    "m": "Shape<start=2, end=3>(q)",
    "four": "Constant<value=int64[1]{4}>()",
    "eight": "Constant<value=int64[1]{8}>()",
    "any": "Constant<value=int64[1]{-1}>()",
    "two": "Constant<value_float=2.0>()",
    "flat": "Concat<axis=0>(any, m, eight)",
    "scores": "Concat<axis=0>(n, four, m, m)",
    "heads": "Concat<axis=0>(n, four, m, eight)",
    "moved": "Concat<axis=0>(four, n, m, m)",
    "a": "Reshape(q, flat)",
    "b": "Reshape(k, flat)",
    "c": "Transpose<perm=[0,2,1]>(b)",
    "d": "MatMul(a, c)",
}
"""What the graphs are made of, as far as they read it."""
KNOWN = "<float[J,M,8] a, float[J,M,8] b, float[J,8,M] c, float[J,M,M] d, float[J,M,8] p, float[J,M,M] e, float[J,M,M] s, float[J,1,M] r>"
HEADS = "float[N,4,M,8] q, float[N,4,M,8] k"


def graph(nodes: str, result: str = "float[N,4,M,M] y", heads: str = HEADS) -> str:
    """The text of a model: *nodes* and what they read."""
    for name, line in reversed(LINES.items()):
        if re.search(rf"[(\s,]{name}[,)\s]", nodes) and not re.search(rf"\b{name} =", nodes):
            nodes = f"{name} = {line} {nodes}"
    written = " ".join(
        re.findall(r"float\[\w+,\w+,\w+\] (?:" + "|".join(re.findall(r"(\w+) = ", nodes)) + ")\\b", KNOWN)
    ).replace(" float", ", float")
    return f"agraph ({heads}) => ({result}) {f'<{written}>' if written else ''} {{ {nodes} }}"


class TestProductOfJoinedAxes(RuleTestCase):
    RULE = "ProductOfJoinedAxes"

    def test_scores(self):
        for sizes in (1, 3, 5):
            self.assert_becomes(graph("y = Reshape(d, scores)"), ["Transpose", "MatMul"], sizes=sizes)

    def test_scaled_keys(self):
        text = graph("e = Div(c, two) d = MatMul(a, e) y = Reshape(d, scores)")
        self.assert_becomes(text, ["Transpose", "Div", "MatMul"])

    def test_weights_between_two_products(self):
        """As torch.bmm of heads is written where the scores stay joined."""
        text = graph(
            "e = Mul(two, d) w = Softmax<axis=2>(e) p = MatMul(w, b) y = Reshape(p, heads)",
            "float[N,4,M,8] y",
        )
        self.assert_becomes(text, ["Transpose", "MatMul", "Mul", "Softmax", "MatMul"])

    def test_scaled_and_added_to(self):
        """As torch.baddbmm adds a row of each head to the scaled scores of Bloom."""
        row = "one = Constant<value=int64[1]{1}>() row = Concat<axis=0>(any, one, m) r = Reshape(t, row)"
        heads = f"{HEADS}, float[N,4,M] t"
        cases = {
            "scaled": ("e = Mul(d, two) y = Reshape(e, scores)", HEADS, ["Transpose", "MatMul", "Mul"]),
            "divided": ("e = Div(d, two) y = Reshape(e, scores)", HEADS, ["Transpose", "MatMul", "Div"]),
            "added to": (
                f"{row} e = Mul(d, two) s = Add(r, e) y = Reshape(s, scores)",
                heads,
                ["Unsqueeze", "Transpose", "MatMul", "Mul", "Add"],
            ),
            "not scaled": (
                f"{row} s = Add(d, r) y = Reshape(s, scores)",
                heads,
                ["Transpose", "MatMul", "Unsqueeze", "Add"],
            ),
        }
        for promise, (nodes, given, expected) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(graph(nodes, heads=given), expected)

    def test_three_leading_axes(self):
        nodes = """s = Constant<value=int64[3]{-1,5,8}>() t = Constant<value=int64[5]{-1,2,3,5,5}>()
        i = Reshape(q, s) j = Reshape(k, s) o = Transpose<perm=[0,2,1]>(j) u = MatMul(i, o) y = Reshape(u, t)"""
        text = graph(nodes, "float[N,2,3,5,5] y", "float[N,2,3,5,8] q, float[N,2,3,5,8] k")
        self.assert_becomes(text, ["Transpose", "MatMul"])

    def test_another_reader_of_what_is_joined(self):
        """The Reshape stays for it; the product reads what was before."""
        text = graph("z = Neg(a) y = Reshape(d, scores)", "float[N,4,M,M] y, float[P,M,8] z")
        self.assert_becomes(text, ["Shape", "Concat", "Reshape", "Neg", "Transpose", "MatMul"])

    def test_what_it_declines(self):
        cases = {
            "the product is read": graph(
                "z = Neg(d) y = Reshape(d, scores)", "float[N,4,M,M] y, float[J,M,M] z"
            ),
            "the transposed keys are read": graph(
                "z = Neg(c) y = Reshape(d, scores)", "float[N,4,M,M] y, float[J,8,M] z"
            ),
            "a Softmax of another axis": graph(
                "w = Softmax<axis=1>(d) p = MatMul(w, b) y = Reshape(p, heads)", "float[N,4,M,8] y"
            ),
            "heads and positions change places": graph(
                "s = Constant<value=int64[3]{-1,3,8}>() i = Reshape(q, s) j = Reshape(k, s) o = Transpose<perm=[1,2,0]>(j) "
                "e = Transpose<perm=[2,1,0]>(o) u = MatMul(i, e) t = Constant<value=int64[4]{-1,3,3,3}>() y = Reshape(u, t)",
                "float[N,3,3,3] y",
                "float[N,3,3,8] q, float[N,3,3,8] k",
            ),
            "other axes part": graph("y = Reshape(d, moved)", "float[4,N,M,M] y"),
            "heads in another order": graph("y = Reshape(d, scores)", heads="float[N,4,M,8] q, float[4,N,M,8] k"),
            "a column of each head": graph(
                "one = Constant<value=int64[1]{1}>() column = Concat<axis=0>(any, m, one) r = Reshape(t, column) s = Add(d, r) "
                "y = Reshape(s, scores)",
                heads=f"{HEADS}, float[N,4,M] t",
            ),
            "a matrix for all heads": graph(
                "p = MatMul(a, i) y = Reshape(p, heads)", "float[N,4,M,8] y", "float[N,4,M,8] q, float[1,8,8] i"
            ),
        }  # fmt: skip
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


class TestLinearOfJoinedRows(RuleTestCase):
    RULE = "LinearOfJoinedRows"
    CONSTANTS = """
    flat = Constant <value=int64[2]{-1,3}> () b = Constant <value=float[4]{1,2,3,-4}> ()
    w = Constant <value=float[3,4]{1,2,3,4,-5,6,7,8,0,1,0,2}> () t = Constant <value=float[4,3]{1,2,3,4,-5,6,7,8,0,1,0,2}> ()
    """

    def graph(
        self,
        product: str = "g = Gemm (r, w, b)",
        x: str = "B,5,3",
        y: str = "float[B,5,4] y",
        back: str = "back = Constant <value=int64[3]{-1,5,4}> () y = Reshape (g, back)",
        rows: str = "r = Reshape (x, flat)",
        more: str = "",
    ) -> str:
        """A linear layer of rows that stand in one axis."""
        return f"agraph (float[{x}] x{more}) => ({y}) {{ {self.CONSTANTS} {rows} {product} {back} }}"

    def test_forms(self):
        computed = (
            "n = Shape <start=0, end=2> (x) four = Constant <value=int64[1]{4}> () back = Concat <axis=0> (n, four) "
            "y = Reshape <allowzero=1> (g, back)"
        )
        rows = "six = Constant <value=int64[2]{-1,6}> () v = Constant <value=float[6,4]{1,2,3,4,-5,6,7,8,0,1,0,2,1,2,3,4,-5,6,7,8,0,1,0,2}> () r = Reshape (x, six)"
        cases = {
            "a bias": (self.graph(), ["MatMul", "Add"]),
            "no bias": (self.graph("g = Gemm (r, w)"), ["MatMul"]),
            "a product": (self.graph("g = MatMul (r, w)"), ["MatMul"]),
            "a transposed weight": (
                self.graph("g = Gemm <transB=1> (r, t, b)"),
                ["MatMul", "Add"],
            ),
            "sizes that are computed": (
                self.graph(x="B,S,3", y="float[B,S,4] y", back=computed),
                ["MatMul", "Add"],
            ),
            "a bias that is computed": (
                self.graph("g = Gemm (r, w, c)", more=", float[4] c"),
                ["MatMul", "Add"],
            ),
            "rows in two axes": (
                self.graph("g = Gemm (r, v, b)", "B,5,2,3", rows=rows),
                ["Reshape", "MatMul", "Add"],
            ),
            "rows that another reads": (
                self.graph(y="float[B,5,4] y, float[N,3] r"),
                ["Reshape", "MatMul", "Add"],
            ),
        }
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, expected)

    def test_what_it_declines(self):
        vector = "b = Constant <value=float[1]{2}> ()"
        cases = {
            "another split of the rows": self.graph(
                x="4,3,3",
                y="float[3,4,4] y",
                back="back = Constant <value=int64[3]{3,4,4}> () y = Reshape (g, back)",
            ),
            "columns that part": self.graph(
                y="float[B,10,2] y",
                back="back = Constant <value=int64[3]{-1,10,2}> () y = Reshape (g, back)",
            ),
            "one leading axis": self.graph(
                x="B,3",
                y="float[B,4] y",
                back="back = Constant <value=int64[2]{-1,4}> () y = Reshape (g, back)",
            ),
            "a factor": self.graph("g = Gemm <alpha=2.0> (r, w, b)"),
            "a factor of the bias": self.graph("g = Gemm <beta=2.0> (r, w, b)"),
            "a bias of one number": self.graph().replace(
                "b = Constant <value=float[4]{1,2,3,-4}> ()", vector
            ),
            "a result that another reads": self.graph(y="float[B,5,4] y, float[N,4] g"),
            "a vector of weights": self.graph(
                "one = Constant <value=float[3]{1,-2,3}> () g = MatMul (r, one)",
                y="float[B,5,1] y",
                back="back = Constant <value=int64[3]{-1,5,1}> () y = Reshape (g, back)",
            ),
            "a batch of weights": self.graph(
                "one = Constant <value=float[1,3,4]{1,2,3,4,-5,6,7,8,0,1,0,2}> () g = MatMul (r, one)"
            ),
            "a weight that is computed": self.graph("g = Gemm (r, z, b)", more=", float[3,4] z"),
            "rows of no axis": self.graph(
                "g = Gemm (r, one, b)",
                x="B,5",
                rows="column = Constant <value=int64[2]{-1,1}> () one = Constant <value=float[1,4]{1,-2,3,4}> () r = Reshape (x, column)",
            ),
            "rows of another length": self.graph(x="B,5,6", y="float[C,5,4] y").replace(
                "{-1,5,4}", "{-1,5,4}"
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


if __name__ == "__main__":
    unittest.main()
