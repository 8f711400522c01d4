"""Rules that write GroupQueryAttention: after a past, which `decoding.in_place` asks for, and for a prompt."""

import unittest

import numpy as np
import onnx

from _unittests.ut_xoptim.cases import operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize
from experimental_experiment.xoptim.patterns_ort.cache import (
    group_query_attention,
    group_query_attention_of_attention,
    group_query_attention_of_prompt,
)

INPUTS = "float[B,S,32] q, float[B,S,16] k, float[B,S,16] v, float[B,2,P,8] past_k, float[B,2,P,8] past_v, int64[B,T] mask"
OUTPUTS = "float[B,S,32] y, float[B,2,T,8] keys, float[B,2,T,8] values"
APART = """
of_four = Constant <value=int64[4]{0,0,4,8}> () of_two = Constant <value=int64[4]{0,0,2,8}> ()
qs = Reshape (q, of_four) qh = Transpose <perm=[0,2,1,3]> (qs) ks = Reshape (k, of_two) kh = Transpose <perm=[0,2,1,3]> (ks)
vs = Reshape (v, of_two) vh = Transpose <perm=[0,2,1,3]> (vs)
keys = Concat <axis=2> (past_k, kh) values = Concat <axis=2> (past_v, vh)
"""
MASK = """
zero = Constant <value=int64 {0}> () one = Constant <value=int64 {1}> () first = Constant <value=int64[1]{0}> ()
closed = Constant <value=float {-inf}> () open = Constant <value=float {0.0}> () last = Constant <value=int64[1]{3}> ()
of_keys = Constant <value=int64[3]{0,1,2}> () of_queries = Constant <value=int64[3]{0,1,3}> () of_mask = Constant <value=int64[2]{1,2}> ()
past = Shape <start=2, end=3> (past_k) before = Squeeze (past, first) new = Shape <start=1, end=2> (q) count = Squeeze (new, first)
total = Add (before, count) t = Range (zero, total, one) numbers = Range (zero, count, one) s = Add (numbers, before)
tt = Unsqueeze (t, of_keys) ss = Unsqueeze (s, of_queries) causal = LessOrEqual (tt, ss)
kept = Cast <to=9> (mask) wide = Unsqueeze (kept, of_mask) both = And (causal, wide) bias = Where (both, open, closed)
"""
SCORES = """
scale = Constant <value=float {0.25}> () scaled = Mul (qh, scale) kt = Transpose <perm=[0,1,3,2]> (keys)
by_group = Constant <value=int64[4]{0,2,-1,8}> () by_head = Constant <value=int64[4]{0,4,-1,0}> ()
qg = Reshape (scaled, by_group) pg = MatMul (qg, kt) p = Reshape (pg, by_head) r = Add (p, bias) w = Softmax <axis=-1> (r)
weights_by_group = Constant <value=int64[4]{0,2,-1,0}> () wg = Reshape (w, weights_by_group) ag = MatMul (wg, values)
heads = Constant <value=int64[4]{0,4,-1,8}> () a = Reshape (ag, heads)
"""
GUARD = (
    "largest = ReduceMax <keepdims=1> (bias, last) none = Equal (largest, closed) g = Where (none, open, a)"
)
BACK = "rows = Constant <value=int64[3]{0,0,32}> () b = Transpose <perm=[0,2,1,3]> (g) y = Reshape (b, rows)"
SHAPES = """<float[B,4,S,8] qh, float[B,2,S,8] kh, float[B,2,S,8] vh, int64[1,1,S,1] ss, int64[1,1,1,T] tt, bool[1,1,S,T] causal, float[B,1,S,T] bias,
float[B,4,S,8] a>"""
TEXT = f"agraph ({INPUTS}) => ({OUTPUTS}) {SHAPES} {{ {APART} {MASK} {SCORES} {GUARD} {BACK} }}"


SCALED = "ps = Mul (p, scale)"
DIVIDED = "pd = Div (ps, divisor)"
BEHIND = TEXT.replace("scaled = Mul (qh, scale)", "").replace("(scaled, ", "(qh, ")
CAPPED = BEHIND.replace(
    "r = Add (p, bias)",
    "divisor = Constant <value=float {0.5}> () cap = Constant <value=float {0.7}> () "
    f"{SCALED} {DIVIDED} pt = Tanh (pd) pc = Mul (pt, cap) r = Add (pc, bias)",
)
"""Scores that are scaled behind the product, then capped."""
SINKS = "sinks = Constant <value=float[1,4,1,1] {0.5,-1.0,2.0,0.1}> ()"
CUT = "w = Slice (wc, first, end, last)"
SUNK = TEXT.replace("a>", "a, float[B,4,S,1] se>").replace(
    "w = Softmax <axis=-1> (r)",
    f"{SINKS} queries = Shape <start=0, end=3> (qh) alone = Constant <value=int64[1] {{1}}> () end = Constant <value=int64[1] {{-1}}> () "
    "sizes = Concat <axis=0> (queries, alone) se = Expand (sinks, sizes) rc = Concat <axis=-1> (r, se) "
    f"wc = Softmax <axis=-1> (rc) {CUT}",
)
"""A number of each head that takes its share of the weights."""
SMALLEST = TEXT.replace(GUARD, "").replace("(g)", "(a)").replace("{-inf}", "{-3.4028234663852886e+38}")
"""Keys that the smallest number closes."""


def of_masks(nodes: str, text: str = SMALLEST) -> str:
    """The text with masked scores that these nodes make, of scores *p* and numbers of heads *added*."""
    text = text.replace("int64[B,T] mask", "float[B,4,1,T] added, int64[B,T] mask")
    text = text.replace("<float[B,4,S,8] qh", "<float[B,4,S,T] p, float[B,4,S,T] sum, float[B,4,S,8] qh")
    return text.replace(
        "r = Add (p, bias)", f"low = Constant <value=float {{-3.4028234663852886e+38}}> () {nodes}"
    )


SUM = "sum = Add (p, added)"
QUOTIENT = "rm = Add (p, bias) divisor = Constant <value=float {2.0}> () r = Div (rm, divisor)"
CHOSEN = "two = Constant <value=int64 {2}> () far = Sub (ss, two) near = Greater (tt, far) chosen = Where (near, p, low) r = Add (chosen, bias)"
REPLACED = f"{SUM} is_closed = Cast <to=9> (bias) r = Where (is_closed, low, sum)"
MASKS = {
    "numbers of heads are added, as in Bloom": f"{SUM} r = Add (bias, sum)",
    "a mask in place of scores, numbers of heads are added, as in MPT": REPLACED,
    "a mask in place of scores": REPLACED.replace("low, sum", "low, p"),
    "a window in place of scores, as in GPT-Neo": CHOSEN,
    "masked scores are divided, as in CodeGen": QUOTIENT,
    "masked scores are clipped, as in XGLM": "rm = Add (p, bias) most = Constant <value=float {inf}> () r = Clip (rm, low, most)",
}
"""Masks of eager attention in transformers."""


def of_one_token() -> str:
    """The text for one token of each sample, whose heads no Transpose moves."""
    one = TEXT.replace(",S,", ",1,").replace("{0,0,4,8}> ()", "{0,4,1,8}> ()", 1)
    one = one.replace(
        "qs = Reshape (q, of_four) qh = Transpose <perm=[0,2,1,3]> (qs)", "qh = Reshape (q, of_four)"
    )
    one = one.replace("b = Transpose <perm=[0,2,1,3]> (g) y = Reshape (b, rows)", "y = Reshape (g, joined)")
    return one.replace(
        "rows = Constant <value=int64[3]{0,0,32}>", "joined = Constant <value=int64[3]{0,1,32}>"
    )


class TestGroupQueryAttention(unittest.TestCase):
    RULE, OPSET = group_query_attention, 20

    def optimized(
        self, text: str, opset: int | None = None
    ) -> tuple[onnx.ModelProto, onnx.ModelProto, Report]:
        """A model, the same after the rule, and the report."""
        model, report = parsed(text, opset or self.OPSET), Report()
        options = OptimizationOptions(None, constant_folding=False)
        return model, optimize(model, options, rules=[self.RULE], report=report), report

    def assert_same(self, text: str, batch: int, new: int, past: int, padding: int = 0) -> None:
        """The rule fires and the results are the same; *padding* columns of the first row are masked."""
        self.assert_same_results(*self.optimized(text), batch, new, past, padding)

    def assert_same_results(
        self, model, result, report: Report, batch: int, new: int, past: int, padding: int
    ) -> None:
        """The rule has made *result* of a model, and both compute the same."""
        self.assertEqual([self.RULE.name], [name for name, _ in report.applications], report)
        self.assertIn("GroupQueryAttention", operators(result))
        self.assertNotIn("Softmax", operators(result))
        generator = np.random.default_rng(0)
        sizes = {"B": batch, "S": new, "P": past, "T": past + new}
        feeds = {}
        for item in model.graph.input:
            shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in item.type.tensor_type.shape.dim]
            feeds[item.name] = generator.normal(size=shape).astype(np.float32)
        feeds["mask"] = np.ones((batch, past + new), np.int64)
        feeds["mask"][0, :padding] = 0
        for a, b in zip(session(model).run(None, feeds), session(result).run(None, feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    def test_prompts_and_tokens(self):
        """Rows that are padded on the left, queries without a key among them."""
        for batch, new, past, padding in (
            (1, 4, 0, 0),
            (3, 5, 0, 2),
            (2, 1, 6, 3),
            (1, 3, 4, 0),
            (1, 3, 4, 5),
        ):
            with self.subTest(f"{batch} rows of {new} tokens after {past}, {padding} masked"):
                self.assert_same(TEXT, batch, new, past, padding)

    def test_forms(self):
        one = of_one_token()
        same = TEXT.replace("B,S,16", "B,S,32").replace("B,2,", "B,4,").replace("{0,0,2,8}", "{0,0,4,8}")
        same = same.replace(
            "qg = Reshape (scaled, by_group) pg = MatMul (qg, kt) p = Reshape (pg, by_head)",
            "p = MatMul (scaled, kt)",
        )
        same = same.replace(
            "wg = Reshape (w, weights_by_group) ag = MatMul (wg, values)", "a = MatMul (w, values)"
        )
        same = same.replace("a = Reshape (ag, heads)", "")
        cases = {
            "one token, without Transposes": (one, 2, 1),
            "as many heads of keys as of queries": (same, 2, 3),
            "no scale": (TEXT.replace("scaled = Mul (qh, scale)", "").replace("(scaled, ", "(qh, "), 1, 2),
            "a scale that the operator lacks": (TEXT.replace("{0.25}", "{-0.25}"), 1, 2),
            "a scale behind the product": (BEHIND.replace("r = Add (p,", f"{SCALED} r = Add (ps,"), 1, 2),
            "capped scores": (CAPPED, 1, 2),
            "scores that are capped at once": (CAPPED.replace(SCALED, "").replace("(ps, ", "(p, "), 2, 3),
            "capped scores without a quotient": (CAPPED.replace(DIVIDED, "").replace("(pd)", "(ps)"), 1, 2),
            "keys that the smallest number closes": (SMALLEST, 1, 3),
            "sinks": (SUNK, 2, 4),
            "sinks, after a past": (SUNK, 1, 1),
            "sinks, cut along the last axis": (
                SUNK.replace(CUT, "w = Slice (wc, first, end, end, alone)"),
                2,
                3,
            ),
            "no guard": (TEXT.replace(GUARD, "").replace("(g)", "(a)"), 1, 2),
            "rows of all samples": (
                TEXT.replace("int64[3]{0,0,32}", "int64[2]{-1,32}").replace("B,S,32] y", "R,32] y"),
                2,
                2,
            ),
        }
        for promise, (text, batch, new) in cases.items():
            with self.subTest(promise):
                self.assert_same(text, batch, new, 0 if new > 1 else 5)

    def test_masks(self):
        for promise, nodes in MASKS.items():
            for batch, new, past in ((2, 5, 0), (1, 3, 4), (2, 1, 6)):
                with self.subTest(promise, new=new, past=past):
                    self.assert_same(of_masks(nodes), batch, new, past)

    def test_masks_of_padding(self):
        """Where a query sees a key, what padding on the left gives is nothing."""
        for promise, nodes in MASKS.items():
            with self.subTest(promise):
                self.assert_same(of_masks(nodes), 2, 1, 6, 3)

    def test_masks_that_it_declines(self):
        reason = "scores are replaced, added to or divided otherwise than by a mask"
        cases = {
            "another number in place of scores": of_masks(REPLACED.replace("low, sum", "half, sum")).replace(
                "low = ", "half = Constant <value=float {-0.5}> () low = "
            ),
            "one as a condition": of_masks(REPLACED).replace(
                "open = Constant <value=float {0.0}>", "open = Constant <value=float {1.0}>"
            ),
            "a sum that is divided": of_masks(
                f"{SUM} {QUOTIENT}".replace("Add (p, bias)", "Add (sum, bias)")
            ),
            "capped scores that are divided": of_masks(
                QUOTIENT.replace(
                    "rm = Add (p,",
                    "cap = Constant <value=float {0.7}> () pt = Tanh (p) pc = Mul (pt, cap) rm = Add (pc,",
                )
            ),
            "a quotient below zero": of_masks(QUOTIENT.replace("{2.0}", "{-2.0}")),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                report = self.optimized(text)[-1]
                self.assertEqual([], report.applications)
                self.assertIn(("GroupQueryAttention", reason), report.declined)

    def test_after_the_rules_of_onnxruntime(self):
        """One token: the heads of groups stay together, and the product with the keys scales and transposes itself."""
        model, report = parsed(of_one_token()), Report()
        before = optimize(model, OptimizationOptions("default+onnxruntime"))
        self.assertIn("FusedMatMul", operators(before))
        self.assertEqual(1, operators(before).count("Softmax"))
        result = optimize(before, OptimizationOptions(None), rules=[group_query_attention], report=report)
        for past, padding in ((5, 0), (5, 6), (1, 1)):
            with self.subTest(past=past, padding=padding):
                self.assert_same_results(model, result, report, 2, 1, past, padding)

    def test_queries_that_see_no_key(self):
        """Where the smallest number closes their keys, padding is something else; what sees a key is the same."""
        model, result, _ = self.optimized(SMALLEST)
        self.assertIn("GroupQueryAttention", operators(result))
        generator = np.random.default_rng(0)
        sizes = {"B": 2, "S": 5, "P": 0, "T": 5}
        feeds = {"mask": np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])}
        for item in model.graph.input[:-1]:
            shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in item.type.tensor_type.shape.dim]
            feeds[item.name] = generator.normal(size=shape).astype(np.float32)
        expected, got = (session(each).run(None, feeds) for each in (model, result))
        for a, b in zip(expected[1:], got[1:], strict=True):
            np.testing.assert_array_equal(a, b)
        seeing = feeds["mask"] == 1
        np.testing.assert_allclose(expected[0][seeing], got[0][seeing], rtol=1e-5, atol=1e-6)
        self.assertTrue(np.isfinite(got[0]).all())

    def test_what_it_declines(self):
        mask = "the mask may let a query see later keys"
        cases = {
            "a mask without order": (
                TEXT.replace("And (causal, wide)", "Identity (wide)"),
                "the mask is not of queries and keys",
            ),
            "a mask that lets the next key through": (
                TEXT.replace("s = Add (numbers, before)", "sa = Add (numbers, before) s = Add (sa, one)"),
                mask,
            ),
            "positions without the past": (
                TEXT.replace("s = Add (numbers, before)", "s = Identity (numbers)"),
                mask,
            ),
            "one mask or the other": (TEXT.replace("And (causal", "Or (causal"), mask),
            "a cap below zero": (
                CAPPED.replace("{0.5}", "{-0.5}").replace("{0.7}", "{-0.7}"),
                "the scores are capped by a negative number",
            ),
            "a cap of each key": (
                CAPPED.replace("<value=float {0.7}>", "<value=float[1,4,1,1] {0.7,0.8,0.9,1.0}>"),
                "the scale is no positive number",
            ),
            "two numbers of each head behind the scores": (
                SUNK.replace("S,1] se", "S,2] se").replace("int64[1] {1}", "int64[1] {2}"),
                "what stands beside the scores is not one number of each head",
            ),
            "sinks of which every second one is kept": (
                SUNK.replace(
                    CUT, "two = Constant <value=int64[1] {2}> () w = Slice (wc, first, end, last, two)"
                ),
                "what stands beside the scores is not one number of each head",
            ),
            "one sink of all heads": (
                SUNK.replace("float[1,4,1,1] {0.5,-1.0,2.0,0.1}", "float[1,1,1,1] {0.5}"),
                "what stands beside the scores is not one number of each head",
            ),
            "sinks before the scores": (SUNK.replace("(r, se)", "(se, r)"), None),
            "scores over zero": (CAPPED.replace("{0.5}", "{0.0}"), "the scale is no positive number"),
            "masked scores that are large": (TEXT.replace("{-inf}", "{-10000.0}"), mask),
            "another reader of the keys": (
                TEXT.replace("=> (", "=> (float[B,2,T,8] z, ").replace("kt =", "z = Neg (keys) kt ="),
                "something else reads the cache",
            ),
            "a cache that grows at its front": (
                TEXT.replace("Concat <axis=2> (past_k, kh)", "Concat <axis=0> (past_k, kh)"),
                None,
            ),
            "heads that are grouped otherwise": (
                TEXT.replace(
                    "by_group = Constant <value=int64[4]{0,2,-1,8}>",
                    "by_group = Constant <value=int64[4]{-1,2,6,8}>",
                ),
                "the heads are grouped otherwise",
            ),
            "a size of heads that is no multiple of 8": (
                TEXT.replace("8}", "4}")
                .replace("B,S,32", "B,S,16")
                .replace("B,S,16] k", "B,S,8] k")
                .replace("B,S,16] v", "B,S,8] v")
                .replace(",8]", ",4]")
                .replace("0,32}", "0,16}"),
                "the size of heads is no multiple of 8, or keys and values differ",
            ),
            "a Softmax over queries": (
                TEXT.replace("Softmax <axis=-1>", "Softmax <axis=2>"),
                "the mask is not of queries and keys",
            ),
            "a guard of each number": (
                TEXT.replace(
                    "g = Where (none,",
                    "eight = Constant <value=int64[4]{1,1,1,8}> () each = Expand (none, eight) g = Where (each,",
                ),
                "the guard differs between or within heads",
            ),
            "float64": (TEXT.replace("float", "double"), "no heads of one size in float32"),
        }
        for promise, (text, reason) in cases.items():
            with self.subTest(promise):
                _, result, report = self.optimized(text)
                self.assertEqual([], report.applications)
                if reason is not None:
                    self.assertIn(("GroupQueryAttention", reason), report.declined)
                self.assertIn("Softmax", operators(result))

    def test_opset_23(self):
        """Chains that are no Attention, as of capped scores."""
        model, result, report = self.optimized(CAPPED, 23)
        self.assert_same_results(model, result, report, 1, 3, 4, 0)


PAST = "float[B,2,P,8] past_k, float[B,2,P,8] past_v"
PRESENT = "float[B,2,T,8] keys, float[B,2,T,8] values"
ATTENDED = "y, keys, values = Attention <scale=0.25> (q, k, v, both, past_k, past_v)"
APART_23 = f"""agraph (float[B,4,S,8] q, float[B,2,S,8] k, float[B,2,S,8] v, {PAST}, int64[B,T] mask) => (float[B,4,S,8] y, {PRESENT})
<int64[1,1,S,1] ss, int64[1,1,1,T] tt, bool[1,1,S,T] causal, bool[B,1,S,T] both>
{{ {MASK.replace("bias = Where (both, open, closed)", "").replace("new = Shape <start=1, end=2>", "new = Shape <start=2, end=3>")} {ATTENDED} }}"""
ROWS_23 = (
    APART_23.replace("float[B,4,S,8]", "float[B,S,32]")
    .replace("float[B,2,S,8]", "float[B,S,16]")
    .replace("new = Shape <start=2, end=3>", "new = Shape <start=1, end=2>")
    .replace("<scale=0.25>", "<q_num_heads=4, kv_num_heads=2>")
)


class TestGroupQueryAttentionOfAttention(TestGroupQueryAttention):
    """The rule for opset 23, which `decoding.in_place` asks for too."""

    RULE, OPSET = group_query_attention_of_attention, 23
    test_forms = test_after_the_rules_of_onnxruntime = test_queries_that_see_no_key = test_opset_23 = None
    test_masks = test_masks_of_padding = test_masks_that_it_declines = None

    def test_prompts_and_tokens(self):
        """Rows that are padded on the left, queries without a key among them, whose result is 0."""
        sizes = (1, 4, 0, 0), (3, 5, 0, 2), (2, 1, 6, 3), (2, 1, 6, 7), (1, 3, 4, 5)
        given = APART_23.replace("Attention <scale=0.25>", "Attention <is_causal=1>")
        for text in (APART_23, ROWS_23, given):
            for batch, new, past, padding in sizes:
                with self.subTest(f"{batch} rows of {new} tokens after {past}, {padding} masked: {text}"):
                    self.assert_same(text, batch, new, past, padding)

    def test_one_token_sees_all_keys(self):
        text = APART_23.replace(",S,", ",1,").replace("And (causal, wide)", "Identity (wide)")
        text = text.replace("bool[B,1,1,T] both", "bool[B,1,1,T] wide")
        for past, padding in ((5, 0), (5, 6)):
            with self.subTest(past=past, padding=padding):
                self.assert_same(text, 2, 1, past, padding)

    def test_what_it_declines(self):
        added = APART_23.replace(ATTENDED, f"bias = Where (both, open, closed) {ATTENDED}")
        cases = {
            "a mask without order": (
                APART_23.replace("And (causal, wide)", "Or (causal, wide)"),
                "the mask may let a query see later keys",
            ),
            "a mask that is added": (
                added.replace("both, past_k", "bias, past_k"),
                "not in float32, or scores that a number is added to",
            ),
            "a softcap": (
                APART_23.replace("scale=0.25", "softcap=2.0"),
                "a softcap, or a Softmax in another dtype",
            ),
            "heads of 4": (
                APART_23.replace(",8]", ",4]"),
                "the size of heads is no multiple of 8, or keys and values differ",
            ),
            "a mask of other keys": (
                APART_23.replace("(q, k, v, both", "(q, k, v, kept"),
                "the mask is not of queries and keys",
            ),
        }
        for promise, (text, reason) in cases.items():
            with self.subTest(promise):
                _, result, report = self.optimized(text)
                self.assertEqual([], report.applications)
                self.assertIn(("GroupQueryAttentionOfAttention", reason), report.declined)
                self.assertIn("Attention", operators(result))


PROMPT = (
    TEXT.replace("float[B,2,P,8] past_k, float[B,2,P,8] past_v, int64[B,T]", "int64[B,S]")
    .replace("keys = Concat <axis=2> (past_k, kh) values = Concat <axis=2> (past_v, vh)", "")
    .replace("past = Shape <start=2, end=3> (past_k) before = Squeeze (past, first)", "")
    .replace("total = Add (before, count) t = Range (zero, total, one)", "t = Range (zero, count, one)")
    .replace("numbers = Range (zero, count, one) s = Add (numbers, before)", "s = Range (zero, count, one)")
    .replace("kh = Transpose", "keys = Transpose")
    .replace("vh = Transpose", "values = Transpose")
    .replace("float[B,2,S,8] kh, float[B,2,S,8] vh, ", "")
    .replace("T,8]", "S,8]")
    .replace(",T]", ",S]")
)
"""A prompt: no past, and as many keys as queries."""
TURNED_PROMPT = (
    PROMPT.replace("int64[B,S] mask", "int64[B,S] mask, float[S,4] cos, float[S,4] sin")
    .replace("keys = Transpose", "kh = Transpose")
    .replace("qh = Transpose", "qa = Transpose")
    .replace(
        "zero = Constant",
        "start = Constant <value=int64[1]{0}> () qh = com.microsoft.RotaryEmbedding (qa, start, cos, sin) keys = com.microsoft.RotaryEmbedding (kh, start, cos, sin) zero = Constant",
        1,
    )
)


class TestGroupQueryAttentionOfPrompt(TestGroupQueryAttention):
    """The rule for a prompt, whose keys and values are results."""

    RULE = group_query_attention_of_prompt
    test_forms = test_after_the_rules_of_onnxruntime = test_queries_that_see_no_key = None
    test_masks = test_masks_of_padding = test_masks_that_it_declines = None

    def test_prompts_and_tokens(self):
        normed = TURNED_PROMPT.replace(
            "kh = Transpose <perm=[0,2,1,3]> (ks)", "kn = Relu (ks) kh = Transpose <perm=[0,2,1,3]> (kn)"
        )
        self.assertIn("Relu", normed)
        for text in (PROMPT, TURNED_PROMPT, normed):
            for batch, new, padding in ((1, 4, 0), (3, 5, 2), (2, 1, 0), (2, 3, 3)):
                with self.subTest(f"{batch} rows of {new} tokens, {padding} masked: {text}"):
                    self.assert_same(text, batch, new, 0, padding)

    def test_rotated_keys_are_rows(self):
        _, result, _ = self.optimized(TURNED_PROMPT)
        self.assertEqual(2, operators(result).count("RotaryEmbedding"))
        self.assertNotIn("Transpose", operators(result))

    def test_what_it_declines(self):
        no_results = PROMPT.replace(", float[B,2,S,8] keys, float[B,2,S,8] values", "")
        cases = {
            "keys that are no results": (no_results, "keys and values are no results"),
            "a mask without order": (
                PROMPT.replace("And (causal, wide)", "Or (causal, wide)"),
                "the mask may let a query see later keys",
            ),
            "keys that the smallest number closes": (
                PROMPT.replace(GUARD, "")
                .replace("(g)", "(a)")
                .replace("{-inf}", "{-3.4028234663852886e+38}"),
                "the mask may let a query see later keys",
            ),
            "keys that are computed": (
                PROMPT.replace("keys = Transpose", "kn = Transpose").replace(
                    "scale =", "keys = Neg (kn) scale ="
                ),
                "queries, keys or values are no heads of rows",
            ),
            "another reader of the keys": (
                PROMPT.replace("=> (", "=> (float[B,2,S,8] z, ").replace("kt =", "z = Neg (keys) kt ="),
                "something else reads the cache",
            ),
        }
        for promise, (text, reason) in cases.items():
            with self.subTest(promise):
                _, result, report = self.optimized(text)
                self.assertEqual([], report.applications)
                self.assertIn(("GroupQueryAttentionOfPrompt", reason), report.declined)
                self.assertIn("Softmax", operators(result))

    def test_opset_23(self):
        self.assertEqual([], self.optimized(PROMPT, 23)[2].applications)


ONE = """agraph (float[B,1,96] x, float[B,2,P,16] past_k, float[B,2,P,16] past_v, float[1,8] cos, float[1,8] sin, int32[B] last, int32 total,
float[B,1,1,T] bias) => (float[B,1,64] y, float[B,2,T,16] keys, float[B,2,T,16] values)"""
HEADS = """
all = Constant <value=int64[4]{0,6,1,16}> () counts = Constant <value=int64[3]{2,2,2}> () first = Constant <value=int64[1]{0}> ()
h = Reshape (x, all) qh, kh, vh = Split <axis=1> (h, counts)
"""
TURNED = """
qt = com.microsoft.RotaryEmbedding (qh, first, cos, sin) kt = com.microsoft.RotaryEmbedding (kh, first, cos, sin)
"""
ROWS = """
row = Constant <value=int64[3]{0,1,32}> () q = Reshape (qt, row) k = Reshape (kt, row) v = Reshape (vh, row)
"""
ATTENTION = """
y, keys, values = com.microsoft.GroupQueryAttention <num_heads=2, kv_num_heads=2, scale=0.5>
(q, k, v, past_k, past_v, last, total, , , , bias)
"""


class TestInputsOfGroupQueryAttention(unittest.TestCase):
    """One token: rotary embeddings, and the parts of a row, that the operator takes itself."""

    def assert_rewritten(self, text: str, rules: list[str], expected: list[str], **sizes: int) -> None:
        """These rules make these operators, and the results are the same."""
        model, report = parsed(text.replace("float[B,1,64] y", "float[B,1,32] y")), Report()
        result = optimize(model, OptimizationOptions(rules, constant_folding=False), report=report)
        onnx.checker.check_model(result)
        self.assertEqual(expected, operators(result), report)
        generator = np.random.default_rng(0)
        for batch, past in ((1, 3), (3, 0), (2, 6)):
            known = {"B": batch, "P": past, "T": past + 1, "S": 1, **sizes}
            feeds = {}
            for item in model.graph.input:
                shape = [known.get(dim.dim_param, dim.dim_value) for dim in item.type.tensor_type.shape.dim]
                feeds[item.name] = generator.normal(size=shape).astype(np.float32)
            feeds["last"] = np.full(batch, past, np.int32)
            feeds["total"] = np.array(past + 1, np.int32)
            for a, b in zip(session(model).run(None, feeds), session(result).run(None, feeds), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        again = Report()
        optimize(result, OptimizationOptions(rules, constant_folding=False), report=again)
        self.assertEqual([], again.applications)

    def test_rotary(self):
        text = f"{ONE} {{ {HEADS} {TURNED} {ROWS} {ATTENTION} }}"
        table = "Cast Reshape Concat Expand Expand".split()
        rotary, packed = "RotaryOfGroupQueryAttention", "PackedGroupQueryAttention"
        parts = "Reshape Split Reshape".split()
        self.assert_rewritten(
            text, [rotary], [*parts, *table[:2], *table[2:], "Reshape", "Reshape", "GroupQueryAttention"]
        )
        self.assert_rewritten(text, [rotary, packed], [*table, "GroupQueryAttention"])
        sunk = text.replace(", bias)", ", bias, sinks)").replace(
            "y, keys", "sinks = Constant <value=float[2] {0.5,2.0}> () y, keys"
        )
        self.assert_rewritten(sunk, [rotary, packed], [*table, "GroupQueryAttention"])
        for node in ("qt", "kt"):
            text = text.replace(
                f"{node} = com.microsoft.RotaryEmbedding",
                f"{node} = com.microsoft.RotaryEmbedding <interleaved=1>",
            )
        self.assert_rewritten(text, [rotary, packed], [*table, "GroupQueryAttention"])

    def test_packed_rows(self):
        """Without rotary embeddings the heads are never apart."""
        split = "sizes = Constant <value=int64[3]{32,32,32}> () q, k, v = Split <axis=-1> (x, sizes)"
        self.assert_rewritten(
            f"{ONE} {{ {split} {ATTENTION} }}", ["PackedGroupQueryAttention"], ["GroupQueryAttention"]
        )

    def test_what_stays(self):
        text = f"{ONE} {{ {HEADS} {TURNED} {ROWS} {ATTENTION} }}"
        split = "sizes = Constant <value=int64[3]{32,32,32}> () q, k, v = Split <axis=-1> (x, sizes)"
        packed = f"{ONE} {{ {split} {ATTENTION} }}"
        both = "RotaryEmbedding RotaryEmbedding".split()
        heads = ["Reshape", "Split", *both, *["Reshape"] * 3, "GroupQueryAttention"]
        rotary = [
            (
                "queries and keys at other positions",
                text.replace("(kh, first, cos, sin)", "(kh, first, sin, cos)"),
            ),
            (
                "one of both interleaved",
                text.replace(
                    "kt = com.microsoft.RotaryEmbedding", "kt = com.microsoft.RotaryEmbedding <interleaved=1>"
                ),
            ),
        ]
        for promise, item in rotary:
            with self.subTest(promise):
                self.assert_rewritten(item, ["RotaryOfGroupQueryAttention"], heads)
        with self.subTest("positions of each sample"):
            each = text.replace("float[1,8] cos, float[1,8] sin", "float[B,8] cos, float[B,8] sin")
            each = each.replace("int32[B] last", "int64[B,1] numbers, int32[B] last").replace(
                "first, cos", "numbers, cos"
            )
            result = optimize(parsed(each), OptimizationOptions(["RotaryOfGroupQueryAttention"]))
            self.assertEqual(2, operators(result).count("RotaryEmbedding"))
        others = [
            ("another order", packed.replace("q, k, v = Split", "k, q, v = Split")),
            ("values from elsewhere", packed.replace("(q, k, v, past", "(q, k, k, past")),
        ]
        for promise, item in others:
            with self.subTest(promise):
                self.assert_rewritten(item, ["PackedGroupQueryAttention"], ["Split", "GroupQueryAttention"])


if __name__ == "__main__":
    unittest.main()
