"""The rule that finds attention written by hand."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

HEADS = "float[B,4,S,8] q, float[B,4,T,8] k, float[B,4,T,8] v"
CONSTANTS = """
half = Constant <value=float {0.5}> () two = Constant <value=float {2.0}> () least = Constant <value=float {-inf}> ()
low = Constant <value=float {-3.4e38}> () some = Constant <value=float {-10000.0}> () nothing = Constant <value=float {0.0}> ()
first = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () along = Constant <value=int64[1]{0}> ()
across = Constant <value=int64[1]{1}> () t = Transpose <perm=[0,1,3,2]> (k)
"""
CAUSAL = """
rows = Shape <start=2, end=3> (q) n = Squeeze (rows) c = Range (first, n, one)
cq = Unsqueeze (c, across) ck = Unsqueeze (c, along) m = LessOrEqual (ck, cq)
"""
SELF = HEADS.replace("T", "S")
END = "w = Softmax (s) y = MatMul (w, v)"
COUNTING = ["Shape", "Squeeze", "Range", "Unsqueeze", "Unsqueeze", "LessOrEqual"]


def graph(nodes: str, heads: str = HEADS, result: str = "float[B,4,S,8] y", known: str = "") -> str:
    """The text of a model of queries, keys and values."""
    return f"agraph ({heads}) => ({result}) {known} {{ {CONSTANTS} {nodes} }}"


class TestAttentionOfProducts(RuleTestCase):
    RULE = "AttentionOfProducts"

    def test_scales(self):
        cases = {
            "none": "s = MatMul (q, t)",
            "of the queries": "h = Mul (q, half) s = MatMul (h, t)",
            "of the scores": "h = MatMul (q, t) s = Mul (half, h)",
            "a divisor": "h = MatMul (q, t) s = Div (h, two)",
            "of both": "g = Mul (q, half) h = MatMul (g, t) s = Mul (h, half)",
        }
        for promise, nodes in cases.items():
            with self.subTest(promise):
                self.assert_becomes(graph(f"{nodes} {END}"), ["Attention"], opset=23)

    def test_a_vector_that_scales_stays_before(self):
        nodes = "g = Constant <value=float[8]{1,2,3,4,5,6,7,8}> () h = Mul (q, g) s = MatMul (h, t)"
        nodes = nodes.replace("{1,2,3,4,5,6,7,8}", "{1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0}")
        self.assert_becomes(graph(f"{nodes} {END}"), ["Mul", "Attention"], opset=23)

    def test_a_number_that_adds_an_axis_stays(self):
        """Heads of another rank are no heads: a Reshape that keeps a size at its place means another one."""
        five = (
            "five = Constant <value=float[1,1,1,1,1]{0.5}> () places = Constant <value=int64[4]{0,4,-1,8}> ()"
        )
        for nodes in ("h = Mul (q, five) s = MatMul (h, t)", "h = MatMul (q, t) s = Mul (h, five)"):
            text = graph(
                f"{five} {nodes} w = Softmax (s) a = MatMul (w, v) y = Reshape (a, places)",
                result="float[K,4,L,8] y",
            )
            self.assert_stays(text, opset=23)

    def test_keys_that_are_transposed_once(self):
        nodes = f"t2 = Transpose <perm=[0,2,3,1]> (k) s = MatMul (q, t2) {END}"
        text = graph(nodes, HEADS.replace("[B,4,T,8] k", "[B,T,4,8] k")).replace(
            "t = Transpose <perm=[0,1,3,2]> (k)", ""
        )
        self.assert_becomes(text, ["Transpose", "Attention"], opset=23)

    def test_masks(self):
        masks = {
            "added": "p = MatMul (q, t) a = Where (m, nothing, least) s = Add (p, a)",
            "added, of low numbers": "p = MatMul (q, t) a = Where (m, nothing, low) s = Add (a, p)",
            "chosen": "p = MatMul (q, t) h = Mul (p, half) s = Where (m, h, least)",
        }
        for promise, nodes in masks.items():
            with self.subTest(promise):
                text = graph(f"{CAUSAL} {nodes} {END}", SELF, known="<int64[S] c>")
                self.assert_becomes(text, [*COUNTING, "Attention"], opset=23)

    def test_grouped_heads(self):
        """As the rules of grouped heads write them."""
        nodes = """by_group = Constant <value=int64[4]{0,2,-1,0}> () by_head = Constant <value=int64[4]{0,4,-1,0}> ()
            g = Reshape (q, by_group) p = MatMul (g, t) s = Reshape (p, by_head) w = Softmax (s) r = Reshape (w, by_group)
            a = MatMul (r, v) y = Reshape (a, by_head)"""
        text = graph(nodes, HEADS.replace("[B,4,T", "[B,2,T"))
        self.assert_becomes(text, ["Attention"], opset=23)

    def test_what_it_declines(self):
        masked = "p = MatMul (q, t) s = Where (m, p, least)"
        three = HEADS.replace("B,4,", "B,")
        cases = {
            "a row that may let nothing through": graph(
                f"{masked} {END}",
                f"{HEADS}, bool[3,3] m".replace("S", "3").replace("T", "3"),
                "float[B,4,3,8] y",
            ),
            "a mask that broadcasts": graph(f"m = Constant <value=bool[1,1]{{1}}> () {masked} {END}"),
            "numbers that are not so low": graph(
                f"{CAUSAL} p = MatMul (q, t) s = Where (m, p, some) {END}", SELF, known="<int64[S] c>"
            ),
            "weights of another axis": graph("s = MatMul (q, t) w = Softmax <axis=2> (s) y = MatMul (w, v)"),
            "a batch that broadcasts": graph(f"s = MatMul (q, t) {END}", HEADS.replace("[B,4,T", "[1,4,T")),
            "a negative scale": graph(f"h = MatMul (q, t) s = Mul (h, some) {END}"),
            "float64": graph(
                f"s = MatMul (q, t) {END}", HEADS.replace("float", "double"), "double[B,4,S,8] y"
            ),
            "matrices": graph(
                f"t2 = Transpose <perm=[0,2,1]> (k) s = MatMul (q, t2) {END}", three, "float[B,S,8] y"
            ).replace("t = Transpose <perm=[0,1,3,2]> (k)", ""),
            "weights that are a result": graph(
                f"s = MatMul (q, t) {END}", result="float[B,4,S,8] y, float[B,4,S,T] w"
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, opset=23)

    def test_before_opset_23(self):
        self.assert_stays(graph(f"s = MatMul (q, t) {END}"), opset=22)


if __name__ == "__main__":
    unittest.main()
