"""Rules that write attention and rotary embeddings in operators of onnxruntime."""

import unittest

from _unittests.ut_xoptim.cases import RuleTestCase
from _unittests.ut_xoptim.test_rotary import DOUBLED, GRAPH, NEIGHBOURS, TABLES, TURN, graph


class TestMicrosoftRotaryEmbedding(RuleTestCase):
    RULE = "MicrosoftRotaryEmbedding"
    ROTARY = "Cos Unsqueeze Squeeze Sin Unsqueeze Squeeze Squeeze Squeeze RotaryEmbedding".split()

    def test_a_batch_shares_the_tables(self):
        self.assert_becomes(graph(), self.ROTARY)

    def test_angles_of_each_sample(self):
        """The tables have a row for each position of each sample, and a matrix of numbers says which."""
        self.assert_becomes(
            graph(inputs=GRAPH.replace("[1,S,2]", "[B,S,2]")),
            "Cos Unsqueeze Squeeze Sin Unsqueeze Squeeze Shape Reshape Reshape ReduceProd Range Reshape RotaryEmbedding".split(),
        )

    def test_after_the_negation_went_to_the_table(self):
        text = TURN.replace("n = Neg (second)", "").replace("(n, first)", "(second, first)")
        text = text.replace("(turned, sin)", "(turned, signed)")
        signs = "g = Constant <value=float[4]{-1,-1,1,1}> () signed = Mul (sin, g)"
        self.assert_becomes(graph(text, TABLES + signs), self.ROTARY)
        opposite = graph(text, TABLES + signs.replace("{-1,-1,1,1}", "{1,1,-1,-1}"))
        self.assert_becomes(opposite, [*self.ROTARY[:5], "Neg", *self.ROTARY[5:]])
        self.assert_stays(graph(text, TABLES + signs.replace("{-1,-1,1,1}", "{1,-1,1,-1}")))

    def test_heads_in_tokens(self):
        tables = TABLES.replace(", one)", ", half)")
        text = graph(tables=tables, inputs=GRAPH.replace("B,2,S,4", "B,S,2,4"))
        self.assert_becomes(text, [*self.ROTARY[:-1], "Reshape", "RotaryEmbedding", "Reshape"])

    def test_axes_that_are_attributes(self):
        """As an Unsqueeze tells them before opset 13, where the rule has no Squeeze to write."""
        tables = TABLES.replace("Unsqueeze (c, one)", "Unsqueeze <axes=[1]> (c)")
        tables = tables.replace("Unsqueeze (s, one)", "Unsqueeze <axes=[1]> (s)")
        self.assert_stays(graph(tables=tables), opset=12)

    def test_neighbours(self):
        expected = ["Unsqueeze", "Squeeze", *self.ROTARY]
        self.assert_becomes(graph(NEIGHBOURS, DOUBLED), expected)

    def test_what_it_declines(self):
        cases = {
            "opset 23": (graph(), 23),
            "float16": (graph(inputs=GRAPH.replace("float", "float16")), 20),
        }
        for promise, (text, opset) in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, opset=opset)


class TestMicrosoftRotaryEmbeddingOfRows(RuleTestCase):
    RULE = "MicrosoftRotaryEmbeddingOfRows"
    TURN = """
    zeros = Constant <value=int64[1]{0}> () apart = Constant <value=int64[4]{0,0,2,8}> () joined = Constant <value=int64[3]{0,0,16}> ()
    r = Reshape (x, apart) h = Transpose <perm=[0,2,1,3]> (r) t = com.microsoft.RotaryEmbedding <interleaved=1> (h, zeros, cos, sin)
    b = Transpose <perm=[0,2,1,3]> (t) y = Reshape (b, joined)
    """
    GRAPH = "agraph (float[B,S,16] x, float[4,4] cos, float[4,4] sin) => (float[B,S,16] y) <float[B,2,S,8] t>"

    def test_forms(self):
        one = self.TURN.replace("{0,0,2,8}", "{0,2,1,8}").replace("{0,0,16}", "{0,1,16}")
        one = one.replace("h = Transpose <perm=[0,2,1,3]> (r)", "").replace("(h, ", "(r, ")
        one = one.replace("b = Transpose <perm=[0,2,1,3]> (t)", "").replace("(b, ", "(t, ")
        for signature, turn in ((self.GRAPH, self.TURN), (self.GRAPH.replace(",S,", ",1,"), one)):
            with self.subTest(signature):
                self.assert_becomes(f"{signature} {{ {turn} }}", ["RotaryEmbedding"])

    def test_what_it_declines(self):
        seen = (
            self.TURN.replace("b = Transpose <perm=[0,2,1,3]> (t)", "")
            .replace("(b, joined)", "(t, joined)")
            .replace("{0,0,16}", "{0,2,-1}")
        )
        cases = {
            "heads that are not joined": (self.GRAPH.replace("[B,S,16] y", "[B,2,N] y"), seen),
            "heads of unknown sizes": (self.GRAPH.replace("<float[B,2,S,8] t>", ""), self.TURN),
            "another user of the heads": (
                self.GRAPH.replace("y)", "y, float[B,2,S,8] z)"),
                self.TURN + "z = Neg (t)",
            ),
        }
        for promise, (signature, turn) in cases.items():
            with self.subTest(promise):
                self.assert_stays(f"{signature} {{ {turn} }}")


class TestMultiHeadAttention(RuleTestCase):
    RULE = "MultiHeadAttention"
    INPUTS = "float[B,S,16] q, float[B,T,16] k, float[B,T,16] v"
    APART = """
    half = Constant <value=float {0.5}> () two = Constant <value=int64[4]{0,0,2,8}> () rows = Constant <value=int64[3]{0,0,16}> ()
    closed = Constant <value=float {-inf}> () zero = Constant <value=float {0.0}> () last = Constant <value=int64[1]{-1}> ()
    qs = Reshape (q, two) qh = Transpose <perm=[0,2,1,3]> (qs) ks = Reshape (k, two) kh = Transpose <perm=[0,2,3,1]> (ks)
    vs = Reshape (v, two) vh = Transpose <perm=[0,2,1,3]> (vs)
    """
    PRODUCT = "p = Mul (qh, half) s = MatMul (p, kh) w = Softmax <axis=-1> (s) a = MatMul (w, vh)"
    BACK = "t = Transpose <perm=[0,2,1,3]> (a) y = Reshape (t, rows)"

    def attention(self, product: str = PRODUCT, more: str = "", back: str = BACK) -> str:
        """Attention of heads that stand side by side."""
        return f"agraph ({self.INPUTS}{more}) => (float[B,S,16] y) {{ {self.APART} {product} {back} }}"

    def test_forms(self):
        keys = "kh = Transpose <perm=[0,2,3,1]> (ks)"
        swapped = "kt = Transpose <perm=[0,2,1,3]> (ks) kh = Transpose <perm=[0,1,3,2]> (kt)"
        cases = {
            "queries times a scale": self.attention(),
            "no scale": self.attention(
                self.PRODUCT.replace("p = Mul (qh, half)", "").replace("(p, kh)", "(qh, kh)")
            ),
            "scores times a scale": self.attention(
                "p = MatMul (qh, kh) s = Mul (half, p) w = Softmax (s) a = MatMul (w, vh)"
            ),
            "scores divided": self.attention(
                "p = MatMul (qh, kh) s = Div (p, half) w = Softmax (s) a = MatMul (w, vh)"
            ),
            "keys transposed twice": self.attention().replace(keys, swapped),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, ["MultiHeadAttention"])

    HALVES = """h = Cast <to=1> (qh) hk = Cast <to=1> (ks) hkt = Transpose <perm=[0,2,3,1]> (hk) hv = Cast <to=1> (vh)
    p = Mul (h, half) s = MatMul (p, hkt) w = Softmax <axis=-1> (s) b = MatMul (w, hv) a = Cast <to=10> (b)"""

    def halves(self, product: str = HALVES, more: str = "") -> str:
        """Attention of float16 that is computed in float32."""
        text = self.attention(product, more).replace("kh = Transpose <perm=[0,2,3,1]> (ks)", "")
        return text.replace("float[B,S,16]", "float16[B,S,16]").replace("float[B,T,16]", "float16[B,T,16]")

    def test_halves(self):
        """onnxruntime's provider for the CPU has the kernel in float32 and casts around it, that for CUDA adds in float32."""
        masked = "z = Where (m, zero, closed) s = Add (sc, z)"
        masked = self.HALVES.replace("s = MatMul (p, hkt)", f"sc = MatMul (p, hkt) {masked}")
        guarded = masked.replace(
            "a = Cast <to=10> (b)",
            "largest = ReduceMax (z, last) none = Less (largest, zero) g = Where (none, zero, b) a = Cast <to=10> (g)",
        )
        late = "hkh = Transpose <perm=[0,2,1,3]> (ks) hk = Cast <to=1> (hkh) hkt = Transpose <perm=[0,1,3,2]> (hk)"
        late = self.HALVES.replace("hk = Cast <to=1> (ks) hkt = Transpose <perm=[0,2,3,1]> (hk)", late)
        mask = ", bool[B,1,S,T] m"
        cases = {
            "no mask": (self.halves(), ["MultiHeadAttention"]),
            "keys cast later": (self.halves(late), ["MultiHeadAttention"]),
            "a mask": (self.halves(masked, mask), ["Where", "Cast", "MultiHeadAttention"]),
            "a guard": (
                self.halves(guarded, mask),
                ["Where", "ReduceMax", "Less", "Cast", "MultiHeadAttention", "Squeeze", "Where"],
            ),
        }
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, expected)

    def test_halves_that_stay(self):
        number = self.HALVES.replace("s = MatMul (p, hkt)", "sc = MatMul (p, hkt) s = Add (sc, m)")
        cases = {
            "a mask of any numbers": self.halves(number, ", float[B,1,S,T] m"),
            "heads that are not of eights": self.halves().replace("{0,0,2,8}", "{0,0,4,4}"),
            "another reader of the values": self.halves(self.HALVES + " u = Neg (vh)").replace(
                "float16[B,S,16] y)", "float16[B,S,16] y, float16[B,2,T,8] u)"
            ),
            "a product in half precision": self.halves(
                self.HALVES.replace(
                    "b = MatMul (w, hv) a = Cast <to=10> (b)", "c = Cast <to=10> (w) a = MatMul (c, vh)"
                ).replace("hv = Cast <to=1> (vh)", "")
            ),
            "a result in float32": self.halves(
                self.HALVES.replace("b = MatMul", "a = MatMul").replace("a = Cast <to=10> (b)", "")
            ).replace("float16[B,S,16] y", "float[B,S,16] y"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)

    def first_of_cache(self, apart: str = "kk = Transpose <perm=[0,2,1,3]> (ks)", more: str = "") -> str:
        """Attention whose keys and values are results, those of a prompt."""
        return (
            self.attention(self.MASKED, ", float[B,1,S,T] m")
            .replace("y) {", f"y, float[B,2,T,8] kk, float[B,2,T,8] vh{more}) {{")
            .replace("kh = Transpose <perm=[0,2,3,1]> (ks)", apart)
        )

    DIRECT = "kk = Transpose <perm=[0,2,1,3]> (ks) kh = Transpose <perm=[0,2,3,1]> (ks)"
    SWAPPED = "kk = Transpose <perm=[0,2,1,3]> (ks) kh = Transpose <perm=[0,1,3,2]> (kk)"

    def test_keys_and_values_that_are_results(self):
        for apart in (self.DIRECT, self.SWAPPED):
            with self.subTest(apart):
                self.assert_becomes(self.first_of_cache(apart), ["MultiHeadAttention"])
        guard = "largest = ReduceMax <keepdims=1> (m, last) none = Equal (largest, closed) g = Where (none, zero, a) t"
        guarded = self.first_of_cache(self.DIRECT).replace("(a)", "(g)").replace(" t =", f" {guard} =")
        self.assert_becomes(
            guarded, ["ReduceMax", "Equal", "MultiHeadAttention", "Squeeze", "Where"], sizes=2
        )

    def test_keys_and_values_that_something_else_reads(self):
        only_values = self.first_of_cache("kh = Transpose <perm=[0,2,3,1]> (ks)")
        cases = {
            "values alone are a result": only_values.replace(", float[B,2,T,8] kk", ""),
            "keys alone are a result": self.first_of_cache(self.DIRECT).replace(", float[B,2,T,8] vh", ""),
            "no results": only_values.replace(
                ", float[B,2,T,8] kk, float[B,2,T,8] vh", ", float[B,2,T,8] z"
            ).replace("t = Trans", "z = Neg (vh) t = Trans"),
            "another reader of the keys": self.first_of_cache(
                f"{self.DIRECT} z = Neg (kk)", ", float[B,2,T,8] z"
            ),
            "another reader of the transposed keys": self.first_of_cache(
                f"{self.SWAPPED} z = Neg (kk)", ", float[B,2,T,8] z"
            ),
            "another reader of the values": self.first_of_cache(self.DIRECT, ", float[B,2,T,8] z").replace(
                "t = Trans", "z = Neg (vh) t = Trans"
            ),
            "two results of the keys": self.first_of_cache(
                f"{self.DIRECT} z = Neg (ks)", ", float[B,T,2,8] z"
            ),
            "keys in another order": self.first_of_cache(
                self.DIRECT.replace("[0,2,1,3]", "[0,3,2,1]", 1)
            ).replace("[B,2,T,8] kk", "[B,8,2,T] kk"),
            "keys before they are transposed": self.first_of_cache(
                "kh = Transpose <perm=[0,2,3,1]> (ks)"
            ).replace("float[B,2,T,8] kk", "float[B,T,2,8] ks"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)

    def windows(self, queries: str = "[B,1,4,16]", keys: str = "[B,1,5,16]") -> str:
        """Attention of heads of windows, which stand apart from the samples."""
        return f"""agraph (float{queries} q, float{keys} k, float{keys} v) => (float[B,1,4,16] y)
        <float[B,2,4,8] qh, float[B,2,8,5] kh, float[B,2,5,8] vh, float[B,2,4,8] a> {{
        half = Constant <value=float {{0.5}}> () two = Constant <value=int64[4]{{-1,4,2,8}}> () three = Constant <value=int64[4]{{-1,5,2,8}}> ()
        qs = Reshape (q, two) qh = Transpose <perm=[0,2,1,3]> (qs) ks = Reshape (k, three) kh = Transpose <perm=[0,2,3,1]> (ks)
        vs = Reshape (v, three) vh = Transpose <perm=[0,2,1,3]> (vs) {self.PRODUCT} t = Transpose <perm=[0,2,1,3]> (a)
        rows = Constant <value=int64[4]{{-1,1,4,16}}> () y = Reshape (t, rows) }}"""

    def test_windows(self):
        """Only what stands apart is reshaped."""
        after = ["Reshape"] * 3 + ["MultiHeadAttention", "Reshape"]
        self.assert_becomes(self.windows(), after)
        self.assert_becomes(self.windows("[B,4,16]"), after[1:])

    MASKED = "p = Mul (qh, half) r = MatMul (p, kh) s = Add (r, m) w = Softmax (s) a = MatMul (w, vh)"

    def test_masks(self):
        for shape in ("B,1,S,T", "1,2,S,T", "B,2,S,T"):
            with self.subTest(shape):
                self.assert_becomes(
                    self.attention(self.MASKED, f", float[{shape}] m"), ["MultiHeadAttention"]
                )

    def test_a_mask_that_all_queries_share(self):
        for shape in ("B,1,1,S", "1,2,1,S", "B,2,1,S"):
            with self.subTest(shape):
                text = self.attention(self.MASKED, f", float[{shape}] m").replace("B,T,16", "B,S,16")
                self.assert_becomes(text, ["Shape", "Concat", "Expand", "MultiHeadAttention"])

    def test_a_guard(self):
        """A row without a key: drawn masks close rows of two or three keys now and then."""
        masked = f"m = Where (open, zero, closed) {self.MASKED}"
        guard = "largest = ReduceMax <keepdims=1> (m, last) none = Equal (largest, closed) g = Where (none, zero, a)"
        back = f"{guard} {self.BACK.replace('(a)', '(g)')}"
        self.assert_becomes(
            self.attention(masked, ", bool[B,1,S,1] open", back).replace("T,16", "1,16"),
            ["Where", "ReduceMax", "Equal", "MultiHeadAttention", "Squeeze", "Where"],
        )

    def test_what_it_declines(self):
        masked = self.attention(self.MASKED, ", float[B,1,S,T] m")
        computed = "n = Shape <start=0,end=1> (q) others = Constant <value=int64[3]{4,2,8}> () two = Concat <axis=0> (n, others)"
        cases = {
            "opset 23": (self.attention(), 23),
            "a mask that broadcasts over keys": (masked.replace("[B,1,S,T] m", "[B,1,S,1] m"), 20),
            "a mask that broadcasts over queries, which are not as many as the keys": (
                masked.replace("[B,1,S,T] m", "[B,1,1,T] m"),
                20,
            ),
            "a mask of two axes": (masked.replace("[B,1,S,T] m", "[S,T] m"), 20),
            "a negative scale": (self.attention().replace("{0.5}", "{-0.5}"), 20),
            "a Softmax over queries": (self.attention().replace("<axis=-1>", "<axis=2>"), 20),
            "a Softmax of heads, queries and keys together, before opset 13": (
                self.attention().replace("<axis=-1>", ""),
                12,
            ),
            "float64": (self.attention().replace("float", "double"), 20),
            "another user of the weights": (
                self.attention().replace("y) {", "y, float[B,2,S,T] w) {"),
                20,
            ),
            "heads joined in another order": (
                self.attention(back="t = Transpose <perm=[0,2,3,1]> (a) y = Reshape (t, rows)"),
                20,
            ),
            "a batch that broadcasts": (self.attention().replace("[B,S,16] q", "[1,S,16] q"), 20),
            "values of one batch": (self.attention().replace("[B,T,16] v", "[1,T,16] v"), 20),
            "a shape of windows that is computed": (
                self.windows().replace("two = Constant <value=int64[4]{-1,4,2,8}> ()", computed),
                20,
            ),
            "a guard of each number": (
                self.attention(f"{self.PRODUCT} g = Where (c, zero, a)", ", bool[B,1,S,8] c").replace(
                    "> (a) y", "> (g) y"
                ),
                20,
            ),
            "a guard of windows": (
                self.windows()
                .replace("(a)\n", "(g)\n")
                .replace(
                    self.PRODUCT, f"{self.PRODUCT} o = ReduceMax (q) c = Less (a, o) g = Where (c, zero, a)"
                )
                .replace("half =", "zero = Constant <value=float{0}> () half ="),
                20,
            ),
        }
        for promise, (text, opset) in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, opset=opset)


class TestBiasesOfAttention(RuleTestCase):
    RULE = "BiasesOfAttention"
    BIASES = """
    b = Constant <value=float[16]{1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> () c = Constant <value=float[16]{1,1,1,1,1,1,1,1,-2,-2,-2,-2,3,3,3,3}> ()
    one = Constant <value=float[1]{1.5}> ()
    """
    SUMS = "qb = Add (q, b) kb = Add (c, k) vb = Add (v, b)"

    def attention(self, sums: str = SUMS, inputs: str = "qb, kb, vb", signature: str = "") -> str:
        """Attention of two heads of queries, keys and values that have biases."""
        rows = "float[B,S,16] q, float[B,T,16] k, float[B,T,16] v"
        node = f"y = com.microsoft.MultiHeadAttention <num_heads=2, scale=0.25> ({inputs})"
        return f"agraph ({rows}{signature}) => (float[B,S,16] y) {{ {self.BIASES} {sums} {node} }}"

    def test_forms(self):
        mask = ", float[B,1,S,T] m"
        cases = {
            "three biases": (self.attention(), []),
            "a mask": (self.attention(inputs="qb, kb, vb, , , m", signature=mask), []),
            "keys without a bias": (self.attention("qb = Add (q, b) vb = Add (v, c)", "qb, k, vb"), []),
            "a number": (self.attention(self.SUMS.replace("(v, b)", "(v, one)")), ["Add"]),
            "another user of the values": (self.attention().replace("y)", "y, float[B,T,16] vb)"), ["Add"]),
        }
        for promise, (text, others) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, [*others, "MultiHeadAttention"])

    def test_keys_and_values_that_are_results(self):
        cache = ", float[B,2,T,8] present_k, float[B,2,T,8] present_v"
        text = (
            self.attention().replace("y)", f"y{cache})").replace("y = com", "y, present_k, present_v = com")
        )
        self.assert_becomes(text, ["MultiHeadAttention"])

    def test_what_it_declines(self):
        cases = {
            "one bias": self.attention("qb = Add (q, b)", "qb, k, v"),
            "a bias that is computed": self.attention(
                self.SUMS.replace("(q, b)", "(q, d)"), signature=", float[16] d"
            )
            .replace("kb = Add (c, k)", "")
            .replace("qb, kb", "qb, k"),
            "a bias of the operator": self.attention(
                f"{self.SUMS} d = Concat <axis=0> (b, b, c)", "qb, kb, vb, d"
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


class TestMaskOfBatch(RuleTestCase):
    RULE = "MaskOfBatch"
    NODES = """
    low = Constant <value_float=-1.0> () zero = Constant <value_float=0.0> () n = Shape <end=1> (q) one = Constant <value=int64[3]{1,1,1}> ()
    s = Concat <axis=0> (n, one) e = Expand (open, s) m = Where (e, zero, low)
    """

    def attention(self, nodes: str = "", results: str = "", mask: str = "bool[1,1,S,S] open") -> str:
        """Attention with a mask that each sample has."""
        rows = "float[B,S,16] q, float[B,S,16] k, float[B,S,16] v"
        node = "y = com.microsoft.MultiHeadAttention <num_heads=2, scale=0.25> (q, k, v, , , m)"
        known = "bool[B,1,S,S] e, float[B,1,S,S] m"
        return f"agraph ({rows}, {mask}) => (float[B,S,16] y{results}) <{known}> {{ {self.NODES} {node} {nodes} }}"

    def test_forms(self):
        self.assert_becomes(self.attention(), ["Where", "MultiHeadAttention"])
        again = "z = com.microsoft.MultiHeadAttention <num_heads=4, scale=0.25> (v, k, q, , , m)"
        self.assert_becomes(
            self.attention(again, ", float[B,S,16] z"), ["Where", "MultiHeadAttention", "MultiHeadAttention"]
        )

    def test_what_it_declines(self):
        cases = {
            "another reader": self.attention("z = Neg (m)", ", float[B,1,S,S] z"),
            "a result": self.attention(results=", float[B,1,S,S] m"),
            "a mask that broadcasts over queries": self.attention(mask="bool[1,1,1,S] open")
            .replace("n = Shape <end=1> (q)", "l = Shape <start=1, end=2> (q) n = Shape <end=1> (q)")
            .replace("Concat <axis=0> (n, one)", "Concat <axis=0> (n, p, l, p)")
            .replace("one = Constant <value=int64[3]{1,1,1}> ()", "p = Constant <value=int64[1]{1}> ()"),
            "a mask without the axis of samples": self.attention(mask="bool[1,S,S] open"),
            "a number that is computed": self.attention(mask="bool[1,1,S,S] open, float low").replace(
                "low = Constant <value_float=-1.0> ()", ""
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


class TestAttentionOfOneValue(RuleTestCase):
    RULE = "AttentionOfOneValue"
    WEIGHTS = """
    w = Constant <value=float[4,8]{1,2,3,4,5,6,7,8,-1,-2,-3,-4,1,1,1,1,2,2,2,2,0,0,0,0,1,0,1,0,1,0,2,0}> ()
    u = Constant <value=float[4,8]{1,0,1,0,0,1,2,0,1,0,1,2,2,0,1,0,2,0,1,1,0,1,1,1,1,0,3,0,0,0,2,1}> ()
    t = Constant <value=float[4,8]{0,0,1,2,0,1,2,0,1,0,1,-2,2,0,1,0,2,0,1,1,0,-1,1,1,1,0,3,0,1,1,2,1}> ()
    b = Constant <value=float[24]{1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> ()
    """
    PRODUCTS = "q = MatMul (x, w) k = MatMul (x, u) v = MatMul (x, t)"

    def attention(
        self, inputs: str = "q, k, v", more: str = "", products: str = PRODUCTS, size: int = 65
    ) -> str:
        """Attention of two heads of products of one value, and of four."""
        node = f"y = com.microsoft.MultiHeadAttention <num_heads=2, scale=0.125> ({inputs})"
        text = f"agraph (float[B,N,4] x{more}) => (float[B,N,8] y) {{ {self.WEIGHTS} {products} {node} }}"
        return text.replace("N", str(size)) if size else text

    def test_forms(self):
        cases = {
            "without a bias": self.attention(),
            "a bias": self.attention("q, k, v, b"),
            "a mask": self.attention("q, k, v, , , m", ", float[B,1,N,N] m"),
            "a bias and a mask of each head": self.attention("q, k, v, b, , m", ", float[1,2,N,N] m"),
            "256 positions": self.attention("q, k, v, b", size=256),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, ["Attention"])

    def test_what_it_declines(self):
        cases = {
            "64 positions": self.attention(size=64),
            "257 positions": self.attention(size=257),
            "unknown positions": self.attention(size=0),
            "another value": self.attention(
                more=", float[B,N,4] z", products=self.PRODUCTS.replace("(x, u)", "(z, u)")
            ),
            "another user of the keys": self.attention().replace("y)", "y, float[B,65,8] k)"),
            "a weight that is read twice": self.attention(
                products=self.PRODUCTS.replace("q = MatMul (x, w)", "f = Abs (x) q = MatMul (f, u)")
            ),
            "another weight that is read elsewhere": self.attention()
            .replace("y) {", "y, float[4,8] o) {")
            .replace("k = MatMul", "o = Neg (t) k = MatMul"),
            "values of other sizes": self.attention()
            .replace("[B,65,8] y", "[B,65,16] y")
            .replace("v = MatMul (x, t)", "s = Concat <axis=1> (t, t) v = MatMul (x, s)"),
            "keys and values that are results": self.attention()
            .replace("y) {", "y, float[B,2,65,4] i, float[B,2,65,4] j) {")
            .replace("y = com", "y, i, j = com"),
            "a mask of padding": self.attention("q, k, v, , p", ", int32[B,N] p"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


if __name__ == "__main__":
    unittest.main()
