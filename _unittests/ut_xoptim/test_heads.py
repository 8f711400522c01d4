"""Rules of grouped heads."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.xoptim import optimize

REPEATED = """
axes = Constant <value=int64[1]{2}> ()
spread = Constant <value=int64[5]{1,1,AGAIN,1,1}> ()
heads = Constant <value=int64[4]{0,HEADS,-1,8}> ()
u = Unsqueeze (k, axes) e = Expand (u, spread) r = Reshape (e, heads)
"""


def repeated(again=3, heads=6):
    """Each head of k several times in a row, as ``r``."""
    return REPEATED.replace("AGAIN", str(again)).replace("HEADS", str(heads))


class TestGroupedHeads(RuleTestCase):
    def test_scores(self):
        self.assert_becomes(
            f"""agraph (float[B,6,S,8] q, float[B,2,3,8] k) => (float[B,6,S,3] y)
            {{ {repeated()} t = Transpose <perm=[0,1,3,2]> (r) y = MatMul (q, t) }}""",
            ["Transpose", "Reshape", "MatMul", "Reshape"],
            rule="ScoresOfGroupedHeads",
        )

    def test_values(self):
        for axis in (2, -3):
            with self.subTest(axis=axis):
                text = repeated().replace("int64[1]{2}", f"int64[1]{{{axis}}}")
                self.assert_becomes(
                    f"""agraph (float[B,6,S,3] q, float[B,2,3,8] k) => (float[B,6,S,8] y)
                    {{ {text} y = MatMul (q, r) }}""",
                    ["Reshape", "MatMul", "Reshape"],
                    rule="ValuesOfGroupedHeads",
                )

    def test_heads_in_half_precision(self):
        """Attention of halves converts keys and values: before they are repeated would do, and they are repeated no more."""
        cast = f"{repeated()} c = Cast <to=1> (r)"
        self.assert_becomes(
            f"""agraph (float[B,6,S,8] q, float16[B,2,3,8] k) => (float[B,6,S,3] y)
            {{ {cast} t = Transpose <perm=[0,1,3,2]> (c) y = MatMul (q, t) }}""",
            ["Cast", "Transpose", "Reshape", "MatMul", "Reshape"],
            rule="ScoresOfGroupedHeads",
        )
        self.assert_becomes(
            f"""agraph (float[B,6,S,3] q, float16[B,2,3,8] k) => (float[B,6,S,8] y)
            {{ {cast} y = MatMul (q, c) }}""",
            ["Cast", "Reshape", "MatMul", "Reshape"],
            rule="ValuesOfGroupedHeads",
        )

    def test_heads_converted_before_they_are_repeated(self):
        """Expand has no kernel for bfloat16."""
        cast = repeated().replace("e = Expand (u, spread)", "c = Cast <to=1> (u) e = Expand (c, spread)")
        self.assert_becomes(
            f"""agraph (float[B,6,S,8] q, float16[B,2,3,8] k) => (float[B,6,S,3] y)
            {{ {cast} t = Transpose <perm=[0,1,3,2]> (r) y = MatMul (q, t) }}""",
            ["Cast", "Transpose", "Reshape", "MatMul", "Reshape"],
            rule="ScoresOfGroupedHeads",
        )
        self.assert_becomes(
            f"""agraph (float[B,6,S,3] q, float16[B,2,3,8] k) => (float[B,6,S,8] y)
            {{ {cast} y = MatMul (q, r) }}""",
            ["Cast", "Reshape", "MatMul", "Reshape"],
            rule="ValuesOfGroupedHeads",
        )
        self.assert_stays(
            f"""agraph (float[B,6,S,3] q, float16[B,2,3,8] k) => (float[B,6,S,8] y, float[B,2,1,3,8] z)
            {{ {cast} y = MatMul (q, r) z = Neg(c) }}""",
            rule="ValuesOfGroupedHeads",
        )

    def test_converted_heads_that_are_used_otherwise(self):
        self.assert_stays(
            f"""agraph (float[B,6,S,3] q, float16[B,2,3,8] k) => (float[B,6,S,8] y, float[B,6,3,8] z)
            {{ {repeated()} c = Cast <to=1> (r) y = MatMul (q, c) z = Neg(c) }}""",
            rule="ValuesOfGroupedHeads",
        )

    def test_a_batch_that_broadcasts(self):
        for one, many in ((1, 4), (4, 1), (1, 1)):
            with self.subTest(queries=one, values=many):
                inputs = f"float[{one},6,S,3] q, float[{many},2,3,8] k"
                self.assert_becomes(
                    f"agraph ({inputs}) => (float[N,6,S,8] y) {{ {repeated()} y = MatMul (q, r) }}",
                    ["Reshape", "MatMul", "Reshape"],
                    rule="ValuesOfGroupedHeads",
                )

    def test_a_number_of_positions_that_is_not_known(self):
        self.assert_becomes(
            f"agraph (float[B,6,S,P] q, float[B,2,P,8] k) => (float[B,6,S,8] y) {{ {repeated()} y = MatMul (q, r) }}",
            ["Reshape", "MatMul", "Reshape"],
            rule="ValuesOfGroupedHeads",
        )

    def test_heads_that_go_round(self):
        """k of heads a, b as a, b, a, b: another order than a, a, b, b."""
        text = repeated().replace("int64[1]{2}", "int64[1]{1}").replace("{1,1,3,1,1}", "{1,3,1,1,1}")
        self.assert_stays(
            f"agraph (float[B,6,S,3] q, float[B,2,3,8] k) => (float[B,6,S,8] y) {{ {text} y = MatMul (q, r) }}",
            rule="ValuesOfGroupedHeads",
        )

    def test_another_user_of_the_repeated_heads(self):
        self.assert_stays(
            f"""agraph (float[B,6,S,3] q, float[B,2,3,8] k) => (float[B,6,S,8] y, float[B,6,3,8] z)
            {{ {repeated()} y = MatMul (q, r) z = Neg(r) }}""",
            rule="ValuesOfGroupedHeads",
        )

    def test_another_transposition(self):
        self.assert_stays(
            f"""agraph (float[B,3,S,8] q, float[B,2,3,8] k) => (float[B,3,S,6] y)
            {{ {repeated()} t = Transpose <perm=[0,2,3,1]> (r) y = MatMul (q, t) }}""",
            rule="ScoresOfGroupedHeads",
        )


class TestHeadsRepeatedInTokens(RuleTestCase):
    """k, [batch, tokens, heads, size], each head three times in a row, as in Llama's own code."""

    RULE = "HeadsRepeatedInTokens"
    NODES = """
    axes = Constant <value=int64[1]{3}> () spread = Constant <value=int64[5]{1,1,1,3,1}> () heads = Constant <value=int64[4]{0,0,6,8}> ()
    u = Unsqueeze (k, axes) e = Expand (u, spread) r = Reshape (e, heads) t = Transpose <perm=[0,2,3,1]> (r) y = MatMul (q, t)
    """
    KEYS = "float[B,6,S,8] q, float[B,T,2,8] k"
    VALUES = "float[B,6,S,3] q, float[B,3,2,8] k"
    TURNED = ("Unsqueeze", "Squeeze", "Transpose", "Unsqueeze", "Expand", "Reshape")

    def product(self, nodes: str = NODES, inputs: str = KEYS, result: str = "float[B,6,S,T] y") -> str:
        """A product of queries and keys, or of weights and values."""
        return f"agraph ({inputs}) => ({result}) {{ {nodes} }}"

    def values(self) -> str:
        """The product of weights and values."""
        nodes = self.NODES.replace("perm=[0,2,3,1]", "perm=[0,2,1,3]")
        return self.product(nodes, self.VALUES, "float[B,6,S,8] y")

    def test_keys_and_values(self):
        self.assert_becomes(self.product(), [*self.TURNED, "Transpose", "MatMul"])
        self.assert_becomes(self.values(), [*self.TURNED, "MatMul"])

    def test_no_copy_is_left(self):
        """With all rules, also where a Reshape sets the heads apart."""
        apart = self.NODES.replace("int64[1]{3}", "int64[5]{0,0,2,1,8}").replace("Unsqueeze", "Reshape")
        flat = self.product(apart, self.KEYS.replace("T,2,8", "T,16"))
        for text, expected in (
            (self.product(), ["Transpose", "Reshape", "MatMul", "Reshape"]),
            (self.values(), ["Transpose", "Reshape", "MatMul", "Reshape"]),
            (flat, ["Reshape", "Transpose", "Reshape", "MatMul", "Reshape"]),
        ):
            with self.subTest(text):
                self.assertEqual(expected, operators(optimize(parsed(text))))

    def test_heads_that_stay(self):
        nodes, keys, result = self.NODES, self.KEYS, "float[B,6,S,T] y"
        cases = {
            "another order": (
                nodes.replace("[0,2,3,1]", "[0,3,2,1]"),
                "float[B,8,S,6] q, float[B,T,2,8] k",
                "float[B,8,S,T] y",
            ),
            "no product": (nodes.replace("MatMul (q, t)", "Neg (t)"), keys, "float[B,6,8,T] y"),
            "the repeated heads are a result": (nodes, keys, f"{result}, float[B,T,6,8] r"),
            "the turned heads are a result": (nodes, keys, f"{result}, float[B,6,8,T] t"),
            "heads that go round": (
                nodes.replace("{3}", "{2}").replace("1,1,1,3,1", "1,1,3,1,1"),
                keys,
                result,
            ),
            "a batch is repeated too": (nodes.replace("{1,1", "{3,1"), keys.replace("B,T", "1,T"), result),
            "tokens are parted": (
                nodes.replace("{0,0,6,8}", "{-1,2,6,8}"),
                "float[N,6,S,8] q, float[3,4,2,8] k",
                "float[N,6,S,2] y",
            ),
            "an unknown size": (
                nodes.replace("{0,0,6,8}", "{0,0,6,-1}"),
                "float[B,6,S,D] q, float[B,T,2,D] k",
                result,
            ),
        }
        for promise, given in cases.items():
            with self.subTest(promise):
                self.assert_stays(self.product(*given), sizes=6 if promise == "tokens are parted" else 3)


class TestHeadsOfOneToken(RuleTestCase):
    """Heads of groups, and of queries, keys and values side by side."""

    WEIGHTS = """
    by_head = Constant <value=int64[4]{0,6,-1,0}> () by_group = Constant <value=int64[4]{0,2,-1,0}> ()
    h = Reshape (x, by_head) s = Add (m, h) w = Softmax <axis=-1> (s) y = Reshape (w, by_group)
    """

    def weights(
        self, mask: str = "float[B,1,1,T] m", nodes: str = WEIGHTS, x: str = "float[B,2,3,T] x"
    ) -> str:
        """The weights of two groups of three heads."""
        return f"agraph ({x}, {mask}) => (float[B,2,3,T] y) {{ {nodes} }}"

    def test_weights(self):
        many = self.weights("float[1,1,1,T] m", x="float[B,2,12,T] x").replace("[B,2,3,T] y", "[B,2,12,T] y")
        unmasked = self.WEIGHTS.replace("s = Add (m, h)", "").replace("(s)", "(h)")
        cases = {
            "a mask": (self.weights(), ["Add", "Softmax"]),
            "a mask of all rows": (self.weights("float[1,1,1,T] m"), ["Add", "Softmax"]),
            "several queries": (many, ["Add", "Softmax"]),
            "no mask": (self.weights(nodes=unmasked), ["Softmax"]),
            "no mask, any number of rows": (
                self.weights(nodes=unmasked, x="float[B,2,R,T] x").replace("[B,2,3,T] y", "[B,2,R,T] y"),
                ["Softmax"],
            ),
        }
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, expected, rule="WeightsOfGroupedHeads")

    def test_weights_that_stay(self):
        queries = self.weights("float[B,1,4,T] m", x="float[B,2,12,T] x").replace(
            "[B,2,3,T] y", "[B,2,12,T] y"
        )
        cases = {
            "a mask of each head": (self.weights("float[B,6,1,T] m"), 20),
            "a mask of each query": (queries, 20),
            "a mask of more rows": (
                self.weights("float[B,1,1,T] m", x="float[1,2,3,T] x"),
                20,
            ),
            "another axis": (self.weights(nodes=self.WEIGHTS.replace("axis=-1", "axis=1")), 20),
            "another group": (
                self.weights(nodes=self.WEIGHTS.replace("{0,2,-1,0}", "{0,3,-1,0}")).replace(
                    "[B,2,3,T] y", "[B,3,2,T] y"
                ),
                20,
            ),
            "opset 23": (self.weights(), 23),
        }
        for promise, (text, opset) in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, rule="WeightsOfGroupedHeads", opset=opset)

    GUARD = """
    zero = Constant <value=float {0.0}> () by_head = Constant <value=int64[4]{0,6,1,8}> () rows = Constant <value=int64[3]{-1,1,48}> ()
    h = Reshape (x, by_head) g = Where (c, zero, h) y = Reshape (g, rows)
    """

    def test_guard(self):
        for shape in ("B,1,1,1", "1,1,1,1"):
            with self.subTest(shape):
                text = f"agraph (float[B,2,3,8] x, bool[{shape}] c) => (float[B,1,48] y) {{ {self.GUARD} }}"
                self.assert_becomes(text, ["Where", "Reshape"], rule="GuardOfGroupedHeads")
        for signature in ("float[B,2,3,8] x, bool[B,6,1,1] c", "float[1,2,3,8] x, bool[B,1,1,1] c"):
            with self.subTest(signature):
                text = f"agraph ({signature}) => (float[B,1,48] y) {{ {self.GUARD} }}"
                self.assert_stays(text, rule="GuardOfGroupedHeads")

    PARTS = """
    sizes = Constant <value=int64[3]{32,16,16}> () four = Constant <value=int64[4]{0,4,1,8}> () two = Constant <value=int64[4]{0,2,1,8}> ()
    a, b, c = Split <axis=-1> (x, sizes) q = Reshape (a, four) k = Reshape (b, two) v = Reshape (c, two)
    y = Neg (q) z = Abs (k) w = Relu (v)
    """
    ROW = "agraph (float[B,1,64] x) => (float[B,4,1,8] y, float[B,2,1,8] z, float[B,2,1,8] w) {"

    def test_parts_of_a_row(self):
        self.assert_becomes(
            f"{self.ROW} {self.PARTS} }}", ["Reshape", "Split", "Neg", "Abs", "Relu"], rule="HeadsOfOneRow"
        )

    def test_parts_that_stay(self):
        cases = {
            "several tokens": f"{self.ROW} {self.PARTS} }}".replace(",1,", ",3,"),
            "another reader of a part": f"{self.ROW.replace('z,', 'z, float[B,1,16] u,')} {self.PARTS} u = Neg (b) }}",
            "a part that is no heads": f"{self.ROW} {self.PARTS} }}".replace(
                "v = Reshape (c, two)", "v = Identity (c)"
            ).replace("float[B,2,1,8] w", "float[B,1,16] w"),
            "heads of other sizes": f"{self.ROW} {self.PARTS} }}".replace(
                "v = Reshape (c, two)", "v = Reshape (c, four)"
            )
            .replace("two = Constant", "other = Constant <value=int64[4]{0,1,1,16}> () two = Constant")
            .replace("(c, four)", "(c, other)")
            .replace("float[B,2,1,8] w", "float[B,1,1,16] w"),
            "opset 23": f"{self.ROW} {self.PARTS} }}",
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, rule="HeadsOfOneRow", opset=23 if promise == "opset 23" else 20)


if __name__ == "__main__":
    unittest.main()
