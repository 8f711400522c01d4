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
KNOWN = "<float[J,M,8] a, float[J,M,8] b, float[J,8,M] c, float[J,M,M] d, float[J,M,8] p>"
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
            "a matrix for all heads": graph(
                "p = MatMul(a, i) y = Reshape(p, heads)", "float[N,4,M,8] y", "float[N,4,M,8] q, float[1,8,8] i"
            ),
        }  # fmt: skip
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


if __name__ == "__main__":
    unittest.main()
