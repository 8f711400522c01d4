"""Rules of the operator Attention."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase

REPEAT = """
axes = Constant <value=int64[1]{2}> () spread = Constant <value=int64[5]{1,1,3,1,1}> () heads = Constant <value=int64[4]{0,6,-1,8}> ()
ku = Unsqueeze (k, axes) ke = Expand (ku, spread) kr = Reshape (ke, heads)
vu = Unsqueeze (v, axes) ve = Expand (vu, spread) vr = Reshape (ve, heads)
"""


class TestGroupedHeads(RuleTestCase):
    RULE = "AttentionOfGroupedHeads"
    INPUTS = "float[B,6,S,8] q, float[B,2,T,8] k, float[B,2,T,8] v"

    def assert_grouped(self, text: str, expected: list[str] | None = None):
        """Nothing is left but the Attention, or the graph is left as it is."""
        if expected is None:
            self.assert_stays(text, opset=23)
        else:
            self.assert_becomes(text, expected, opset=23)

    def test_grouped_heads(self):
        self.assert_grouped(
            f"agraph ({self.INPUTS}) => (float[B,6,S,8] y) {{ {REPEAT} y = Attention <scale=0.5> (q, kr, vr) }}",
            ["Attention"],
        )

    def test_a_mask(self):
        self.assert_grouped(
            f"agraph ({self.INPUTS}, bool[B,1,S,T] m) => (float[B,6,S,8] y) {{ {REPEAT} y = Attention (q, kr, vr, m) }}",
            ["Attention"],
        )

    def test_a_past(self):
        past = "float[B,6,P,8] pk, float[B,6,P,8] pv"
        text = f"agraph ({self.INPUTS}, {past}) => (float[B,6,S,8] y, float[B,6,U,8] nk, float[B,6,U,8] nv)"
        self.assert_grouped(f"{text} {{ {REPEAT} y, nk, nv = Attention (q, kr, vr, , pk, pv) }}")

    def test_other_results(self):
        """Keys and values of repeated heads, and scores."""
        results = {
            "y, nk, nv": "float[B,6,T,8] nk, float[B,6,T,8] nv",
            "y, , , w": "float[B,6,S,T] w",
        }
        for names, more in results.items():
            with self.subTest(names):
                self.assert_grouped(
                    f"agraph ({self.INPUTS}) => (float[B,6,S,8] y, {more}) {{ {REPEAT} {names} = Attention (q, kr, vr) }}"
                )

    def test_heads_that_go_round(self):
        text = REPEAT.replace("int64[1]{2}", "int64[1]{1}").replace("{1,1,3,1,1}", "{1,3,1,1,1}")
        self.assert_grouped(
            f"agraph ({self.INPUTS}) => (float[B,6,S,8] y) {{ {text} y = Attention (q, kr, vr) }}"
        )

    def test_repeated_keys_only(self):
        inputs = self.INPUTS.replace("float[B,2,T,8] v", "float[B,6,T,8] v")
        text = REPEAT.partition("vu =")[0]
        self.assert_grouped(f"agraph ({inputs}) => (float[B,6,S,8] y) {{ {text} y = Attention (q, kr, v) }}")


class TestPast(RuleTestCase):
    RULE = "AttentionWithPast"
    INPUTS = "float[B,4,S,8] q, float[B,2,S,8] k, float[B,2,S,8] v, float[B,2,P,8] pk, float[B,2,P,8] pv"
    RESULTS = "float[B,4,S,8] y, float[B,2,T,8] nk, float[B,2,T,8] nv"
    JOINED = "nk = Concat <axis=2> (pk, k) nv = Concat <axis=-2> (pv, v)"

    def test_joined_keys_and_values_are_results(self):
        text = f"agraph ({self.INPUTS}, bool[S,T] m) => ({self.RESULTS}) {{ {self.JOINED} y = Attention (q, nk, nv, m) }}"
        text = text.replace("[S,T] m", "[3,6] m")
        self.assert_becomes(text, ["Attention"], opset=23)

    def test_what_it_declines(self):
        result = f"agraph ({self.INPUTS}) => ({self.RESULTS})"
        cases = {
            "positions from the first key": f"{result} {{ {self.JOINED} y = Attention <is_causal=1> (q, nk, nv) }}",
            "joined heads": """agraph (float[B,4,S,8] q, float[B,2,S,8] k, float[B,2,S,8] v) => (float[B,4,S,8] y)
                { nk = Concat <axis=1> (k, k) nv = Concat <axis=1> (v, v) y = Attention (q, nk, nv) }""",
            "joined keys that are no results": f"""agraph ({self.INPUTS}) => (float[B,4,S,8] y)
                {{ {self.JOINED} y = Attention (q, nk, nv) }}""",
            "another user": f"""agraph ({self.INPUTS}) => ({self.RESULTS}, float[B,2,T,8] z)
                {{ {self.JOINED} y = Attention (q, nk, nv) z = Neg (nk) }}""",
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, opset=23)

    def test_joined_outside_of_a_body(self):
        inputs = self.INPUTS.replace("B,", "2,")
        text = f"""agraph ({inputs}, bool c) => (float[2,4,S,8] y, float[2,2,T,8] nk, float[2,2,T,8] nv) {{ {self.JOINED}
            y = If (c) <then_branch = one () => (float[2,4,S,8] a) {{ a = Attention (q, nk, nv) }},
                        else_branch = two () => (float[2,4,S,8] b) {{ b = Attention <scale=2.0> (q, nk, nv) }}> }}"""
        self.assert_stays(text, opset=23)


class TestRows(RuleTestCase):
    RULE = "AttentionOfRows"
    INPUTS = "float[B,S,32] q, float[B,S,16] k, float[B,S,16] v"
    APART = """
    four = Constant <value=int64[4]{0,0,4,8}> () two = Constant <value=int64[4]{0,0,2,8}> () rows = Constant <value=int64[3]{0,0,32}> ()
    qs = Reshape (q, four) qh = Transpose <perm=[0,2,1,3]> (qs) ks = Reshape (k, two) kh = Transpose <perm=[0,2,1,3]> (ks)
    vs = Reshape (v, two) vh = Transpose <perm=[0,2,1,3]> (vs)
    """
    BACK = "t = Transpose <perm=[0,2,1,3]> (a) y = Reshape (t, rows)"

    def test_rows(self):
        text = f"agraph ({self.INPUTS}) => (float[B,S,32] y) {{ {self.APART} a = Attention (qh, kh, vh) {self.BACK} }}"
        self.assert_becomes(text, ["Attention"], opset=23)

    def test_rows_beside_a_past(self):
        inputs = f"{self.INPUTS}, float[B,2,P,8] pk, float[B,2,P,8] pv, bool[3,6] m"
        results = "float[B,S,32] y, float[B,2,T,8] nk, float[B,2,T,8] nv"
        text = f"agraph ({inputs}) => ({results}) {{ {self.APART} a, nk, nv = Attention (qh, kh, vh, m, pk, pv) {self.BACK} }}"
        self.assert_becomes(text, ["Attention"], opset=23)

    def test_rotated_rows(self):
        inputs = f"{self.INPUTS}, float[B,S,4] cos, float[B,S,4] sin"
        rotated = "qr = RotaryEmbedding (qh, cos, sin) kr = RotaryEmbedding <interleaved=1> (kh, cos, sin)"
        text = f"agraph ({inputs}) => (float[B,S,32] y) {{ {self.APART} {rotated} a = Attention (qr, kr, vh) {self.BACK} }}"
        self.assert_becomes(text, ["RotaryEmbedding", "RotaryEmbedding", "Attention"], opset=23)

    def test_what_it_declines(self):
        text = f"agraph ({self.INPUTS}) => (float[B,S,32] y) {{ {self.APART} a = Attention (qh, kh, vh) {self.BACK} }}"
        cases = {
            "other axes": text.replace("<perm=[0,2,1,3]> (a) y", "<perm=[0,1,2,3]> (a) y").replace(
                "[B,S", "[B,4"
            ),
            "heads that are not joined": text.replace(self.BACK, "y = Identity (a)").replace(
                "float[B,S,32] y", "float[B,4,S,8] y"
            ),
            "another user": text.replace("=> (float[B,S,32] y)", "=> (float[B,S,32] y, float[B,4,S,8] a)"),
            "heads of the keys as a result": text.replace(
                "=> (float[B,S,32] y)", "=> (float[B,S,32] y, float[B,2,S,8] kh)"
            ),
            "positions and heads mixed": text.replace("ks) vs", "ks) vs").replace(
                "kh = Transpose <perm=[0,2,1,3]> (ks)",
                "kt = Transpose <perm=[0,2,3,1]> (ks) kh = Transpose <perm=[0,1,3,2]> (kt)",
            ),
        }
        for promise, case in cases.items():
            with self.subTest(promise):
                self.assert_stays(case, opset=23)


class TestCausal(RuleTestCase):
    RULE = "CausalAttention"
    COUNTED = """
    zero = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () along = Constant <value=int64[1]{0}> ()
    across = Constant <value=int64[1]{1}> () two = Constant <value=int64[1]{2}> ()
    rows = Shape <start=2, end=3> (q) n = Squeeze (rows) counted = Range (zero, n, one)
    """
    PAST = """
    before = Shape <start=2, end=3> (pk) p = Squeeze (before) total = Add (n, p) keys = Range (zero, total, one)
    at = Add (counted, p) a = Unsqueeze (at, across) b = Unsqueeze (keys, along) m = LessOrEqual (b, a)
    """
    INPUTS = "float[B,4,S,8] q, float[B,2,S,8] k, float[B,2,S,8] v"

    def test_without_a_past(self):
        mask = "a = Unsqueeze (counted, across) b = Unsqueeze (counted, along) m = GreaterOrEqual (a, b)"
        text = f"agraph ({self.INPUTS}) => (float[B,4,S,8] y) {{ {self.COUNTED} {mask} y = Attention (q, k, v, m) }}"
        self.assert_becomes(text, ["Attention"], opset=23)

    def test_after_a_past(self):
        self.assert_becomes(self.after(self.PAST), ["Attention"], opset=23)

    def after(self, mask: str) -> str:
        """Attention with a past, which may have another length than the new keys."""
        inputs = f"{self.INPUTS}, float[B,2,5,8] pk, float[B,2,5,8] pv"
        results = "float[B,4,S,8] y, float[B,2,T,8] nk, float[B,2,T,8] nv"
        return f"agraph ({inputs}) => ({results}) {{ {self.COUNTED} {mask} y, nk, nv = Attention (q, k, v, m, pk, pv) }}"

    def test_what_it_declines(self):
        cases = {
            "queries at the first positions": self.PAST.replace(
                "at = Add (counted, p)", "at = Add (counted, zero)"
            ),
            "queries after other positions": self.PAST.replace(
                "at = Add (counted, p)", "at = Add (counted, one)"
            ),
            "keys before the query": self.PAST.replace("LessOrEqual", "Less"),
            "keys that start at one": self.PAST.replace(
                "Range (zero, total, one)", "Range (one, e, one)"
            ).replace("keys =", "e = Add (total, one) keys ="),
        }
        for promise, mask in cases.items():
            with self.subTest(promise):
                self.assert_stays(self.after(mask), opset=23)

    def test_positions_that_are_not_those_of_the_queries(self):
        text = """agraph (float[B,H,Q,8] q, float[B,H,K,8] k, float[B,H,K,8] v) => (float[B,H,Q,8] y)
            <int64 zero = {0}, int64 one = {1}, int64[AXES] axes = {LIST}> {
            of_keys = Shape <start=2, end=3> (k) n = Squeeze (of_keys) keys = Range (zero, n, one)
            others = Shape <start=AXIS, end=NEXT> (q) m = Squeeze (others) counted = Range (zero, m, one)
            across = Unsqueeze (counted, axes) mask = LessOrEqual (keys, across)
            sizes = Shape <end=3> (q) all = Concat <axis=0> (sizes, of_keys) expanded = Expand (mask, all)
            y = Attention (q, k, v, expanded) }"""

        def along(axis: int, *axes: int) -> str:
            """With the size of an axis of the queries, counted and unsqueezed."""
            taken = text.replace("AXIS", str(axis)).replace("NEXT", str(axis + 1))
            return taken.replace("AXES", str(len(axes))).replace("LIST", ",".join(map(str, axes)))

        self.assert_stays(along(1, 1, 2), opset=23)
        self.assert_stays(along(0, 1, 2, 3), opset=23)
        self.assert_becomes(along(2, 1), ["Attention"], opset=23)
        self.assert_stays(along(1, 1), opset=23)
        of_batch = "few = Shape <end=1> (k) n = Squeeze (few)"  # a batch of one opens all keys
        self.assert_stays(along(2, 1).replace("n = Squeeze (of_keys)", of_batch), opset=23, sizes=1)


if __name__ == "__main__":
    unittest.main()
