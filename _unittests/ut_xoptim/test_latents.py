"""Latent attention as GroupQueryAttention: `decoding.in_place` makes the cache one of keys and values of all heads."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import operators, parsed
from _unittests.ut_xoptim.test_cache import GUARD, MASK
from experimental_experiment.comparison import session
from experimental_experiment.decoding import DecodingError, in_place
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize
from experimental_experiment.xoptim.patterns_ort.latents import group_query_attention_of_latents

HEADS, LATENT, FIRST, TURN = 3, 5, 8, 16
SIZE = FIRST + TURN


def weight_of(own: int) -> np.ndarray:
    """What makes the first numbers of the keys of all heads, and *own* numbers of their values, of latent rows."""
    return np.random.default_rng(1).normal(size=(LATENT, HEADS * (FIRST + own))).astype(np.float32)


def text_of(own: int) -> str:
    """A step of three heads of 24, and values of *own* numbers; the last 16 numbers of the keys are cached beside the latent rows."""
    width = FIRST + own
    weight = ",".join(map(str, weight_of(own).ravel().tolist()))
    inputs = f"float[B,S,{HEADS * SIZE}] q, float[B,1,S,{LATENT}] k, float[B,1,S,{TURN}] v, int64[B,S] ids, int64[B,T] mask"
    past = f"float[B,1,P,{LATENT}] past_k, float[B,1,P,{TURN}] past_v"
    outputs = f"float[B,S,{HEADS * own}] y, float[B,1,T,{LATENT}] keys, float[B,1,T,{TURN}] values"
    shapes = f"""<float[B,{HEADS},S,{SIZE}] qh, float[B,1,T,{HEADS * width}] products, float[B,{HEADS},T,{width}] heads, float[B,{HEADS},T,{SIZE}] kh,
        float[B,{HEADS},T,{FIRST}] kf, float[B,{HEADS},T,{TURN}] kt, float[B,{HEADS},T,{own}] vh, float[B,{HEADS},S,{own}] a, int64[1,1,S,1] ss,
        int64[1,1,1,T] tt, bool[1,1,S,T] causal, float[B,1,S,T] bias>"""
    return f"""agraph ({inputs}, {past}) => ({outputs}) {shapes} {{
        of_queries_apart = Constant <value=int64[4]{{0,0,{HEADS},{SIZE}}}> () of_heads = Constant <value=int64[4]{{0,-1,{HEADS},{width}}}> ()
        qs = Reshape (q, of_queries_apart) qh = Transpose <perm=[0,2,1,3]> (qs)
        keys = Concat <axis=2> (past_k, k) values = Concat <axis=2> (past_v, v)
        weight = Constant <value=float[{LATENT},{HEADS * width}]{{{weight}}}> () products = MatMul (keys, weight)
        apart = Reshape (products, of_heads) heads = Transpose <perm=[0,2,1,3]> (apart)
        sizes = Constant <value=int64[2]{{{FIRST},{own}}}> () kf, vh = Split <axis=3> (heads, sizes)
        times = Constant <value=int64[4]{{1,{HEADS},1,1}}> () kt = Expand (values, times) kh = Concat <axis=-1> (kf, kt)
        {MASK}
        scale = Constant <value=float{{0.25}}> () swapped = Transpose <perm=[0,1,3,2]> (kh) scores = MatMul (qh, swapped)
        scaled = Mul (scores, scale) r = Add (scaled, bias) w = Softmax <axis=-1> (r) a = MatMul (w, vh) {GUARD}
        rows = Constant <value=int64[3]{{0,0,{HEADS * own}}}> () b = Transpose <perm=[0,2,1,3]> (g) y = Reshape (b, rows) }}"""


def text_23_of(own: int) -> str:
    """The same with Attention of opset 23."""
    text = text_of(own).replace(", float[B,1,S,T] bias>", ", bool[B,1,S,T] both>")
    start, end = text.index("scale = Constant"), text.index("rows = Constant")
    return f"{text[:start]} a = Attention <scale=0.25> (qh, kh, vh, both) {text[end:]}".replace(
        "(g)", "(a)"
    ).replace("bias = Where (both, open, closed)", "")


class TestGroupQueryAttentionOfLatents(unittest.TestCase):
    def assert_same(self, own: int, text: str, opset: int = 20) -> None:
        """A prompt, padded on the left or not, then tokens after it: the same results, and the heads of the latent rows in the cache."""
        model = parsed(text, opset)
        placed = in_place(model)
        self.assertIn("GroupQueryAttention", operators(placed))
        self.assertTrue({"Softmax", "Attention"}.isdisjoint(operators(placed)))
        self.assertEqual(0 if own == SIZE else 1, operators(placed).count("Pad"))
        for item in (*placed.graph.input[-2:], *placed.graph.output[-2:]):
            sizes = [dim.dim_param or dim.dim_value for dim in item.type.tensor_type.shape.dim]
            self.assertEqual(["B", HEADS, "capacity", SIZE], sizes)
        generator = np.random.default_rng(0)
        for batch, prompt, padding, news in ((1, 4, 0, (1, 3)), (3, 5, 2, (1, 1)), (2, 1, 0, (1,))):
            pasts = [
                {
                    item.name: np.zeros(
                        [batch, *(dim.dim_value for dim in item.type.tensor_type.shape.dim[1:])], np.float32
                    )
                    for item in each.graph.input[-2:]
                }
                for each in (model, placed)
            ]
            total = 0
            for new in (prompt, *news):
                total += new
                feeds = {
                    "q": generator.normal(size=(batch, new, HEADS * SIZE)).astype(np.float32),
                    "k": generator.normal(size=(batch, 1, new, LATENT)).astype(np.float32),
                    "v": generator.normal(size=(batch, 1, new, TURN)).astype(np.float32),
                    "ids": np.zeros((batch, new), np.int64),
                    "mask": np.ones((batch, total), np.int64),
                }
                feeds["mask"][0, :padding] = 0
                with self.subTest(f"{batch} rows of {new} tokens before {total}, {padding} masked"):
                    expected, got = (
                        session(each).run(None, feeds | past)
                        for each, past in zip((model, placed), pasts, strict=True)
                    )
                    np.testing.assert_allclose(expected[0], got[0], rtol=1e-5, atol=1e-6)
                    heads = (expected[1] @ weight_of(own)).reshape(batch, total, HEADS, -1)
                    first, values = np.split(heads.transpose(0, 2, 1, 3), [FIRST], axis=3)
                    keys = np.concatenate([first, expected[2].repeat(HEADS, axis=1)], axis=3)
                    np.testing.assert_allclose(keys, got[1], rtol=1e-5, atol=1e-6)
                    np.testing.assert_allclose(values, got[2][..., :own], rtol=1e-5, atol=1e-6)
                    self.assertFalse(got[2][..., own:].any())
                    pasts = [dict(zip(("past_k", "past_v"), results[1:])) for results in (expected, got)]

    def test_prompts_and_tokens(self):
        """Values smaller than the keys have zeros behind them in the cache."""
        for own in (8, 9, 24):
            self.assert_same(own, text_of(own))
            self.assert_same(own, text_23_of(own), 23)

    def test_what_is_refused_of_attention(self):
        text = text_23_of(8)
        cases = {
            "an order that does not count the past": (
                text.replace("<scale=0.25>", "<is_causal=1>"),
                "other results, or an order that begins with the first key of the past",
            ),
            "a softcap": (
                text.replace("scale=0.25", "softcap=2.0"),
                "a softcap, or a Softmax in another dtype",
            ),
            "a mask without order": (
                text.replace("And (causal, wide)", "Or (causal, wide)"),
                "the mask may let a query see later keys",
            ),
        }
        for promise, (changed, reason) in cases.items():
            with self.subTest(promise), self.assertRaisesRegex(DecodingError, f"was declined: .*{reason}"):
                in_place(parsed(changed, 23))

    def test_what_is_refused(self):
        """Other heads are left: no attention of the model is then rewritten."""
        text = text_of(8)
        known = "the size of heads is no multiple of 8, or values are larger than keys"
        read = "something else reads the cache"
        cases = {
            "values larger than the keys": (text_of(32), known),
            "keys of 28": (text.replace("16]", "20]").replace("72]", "84]").replace("24", "28"), known),
            "another reader of the latent rows": (
                text.replace("=> (", f"=> (float[B,1,T,{LATENT}] z, ").replace("b =", "z = Neg (keys) b ="),
                read,
            ),
            "another reader of what stands beside them": (
                text.replace("=> (", f"=> (float[B,1,T,{TURN}] z, ").replace("b =", "z = Neg (values) b ="),
                read,
            ),
            "a mask without order": (
                text.replace("And (causal, wide)", "Or (causal, wide)"),
                "the mask may let a query see later keys",
            ),
        }
        for promise, (changed, reason) in cases.items():
            with self.subTest(promise):
                report = Report()
                options = OptimizationOptions(None, constant_folding=False)
                optimize(parsed(changed), options, rules=[group_query_attention_of_latents], report=report)
                self.assertEqual([], report.applications)
                self.assertIn(("GroupQueryAttentionOfLatents", reason), report.declined)
                with self.assertRaisesRegex(DecodingError, f"was declined: .*{reason}"):
                    in_place(parsed(changed))


if __name__ == "__main__":
    unittest.main()
