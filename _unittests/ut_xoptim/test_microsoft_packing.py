"""The rule that makes one product of queries, keys and values whose attention is no operator of onnxruntime."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.xoptim import OptimizationOptions, optimize


def numbers(name: str, *shape: int) -> str:
    """A constant of random numbers."""
    values = np.random.default_rng(len(name) + ord(name[0])).normal(size=shape).ravel().round(3)
    return f"{name} = Constant <value=float{list(shape)}{{{','.join(map(str, values))}}}> ()"


WEIGHTS = " ".join(
    [*(numbers(name, 6, 8) for name in "wut"), *(numbers(name, 8) for name in "bc"), numbers("g", 6, 4)]
)
SHAPES = """
heads = Constant <value=int64[4]{0,0,2,4}> () joined = Constant <value=int64[3]{0,0,8}> () low = Constant <value=float{-3e38}> ()
zero = Constant <value=float{0}> ()
"""
QUERIES = "q = MatMul (n, w) qb = Add (q, b) qs = Reshape (qb, heads) qh = Transpose <perm=[0,2,1,3]> (qs)"
KEYS = "k = MatMul (n, u) ks = Reshape (k, heads) kh = Transpose <perm=[0,2,3,1]> (ks)"
VALUES = "v = MatMul (n, t) vb = Add (c, v) vs = Reshape (vb, heads) vh = Transpose <perm=[0,2,1,3]> (vs)"
MASKED = "s = MatMul (qh, kh) m = Where (open, s, low) p = Softmax <axis=-1> (m) a = MatMul (p, vh)"
BACK = "r = Transpose <perm=[0,2,1,3]> (a) y = Reshape (r, joined)"
AFTER = ["Neg", "MatMul", "Add", "Reshape", "Transpose", "Split", "Transpose"]


def graph(
    queries: str = QUERIES,
    keys: str = KEYS,
    values: str = VALUES,
    masked: str = MASKED,
    back: str = BACK,
    results: str = "",
    x: str = "float[B,S,6] x",
) -> str:
    """Attention with a mask that replaces scores."""
    return (
        f"agraph ({x}, bool[S,S] open) => (float[B,S,8] y{results}) "
        f"{{ {WEIGHTS} {SHAPES} n = Neg (x) {queries} {keys} {values} {masked} {back} }}"
    )


class TestHeadsOfOneValue(RuleTestCase):
    RULE = "HeadsOfOneValue"

    def test_forms(self):
        attended = ["MatMul", "Where", "Softmax", "MatMul", "Transpose", "Reshape"]
        swapped = (
            f"{KEYS.replace('0,2,3,1', '0,2,1,3').replace('kh', 'kt')} kh = Transpose <perm=[0,1,3,2]> (kt)"
        )
        plain = [text.replace("(qb,", "(q,").replace("(vb,", "(v,") for text in (QUERIES, VALUES)]
        plain = [text.replace("qb = Add (q, b)", "").replace("vb = Add (c, v)", "") for text in plain]
        guard = (
            "none = Less (s, zero) e = ReduceMin <keepdims=1> (s) o = Less (e, low) z = Where (o, zero, a)"
        )
        cases = {
            "keys transposed once": (graph(), [*AFTER, *attended]),
            "keys transposed twice": (graph(keys=swapped), [*AFTER, *attended]),
            "no biases": (
                graph(plain[0], KEYS, plain[1]),
                [name for name in AFTER if name != "Add"] + attended,
            ),
            "a guard": (
                graph(masked=f"{MASKED} {guard.partition(') ')[2]}", back=BACK.replace("(a)", "(z)")),
                [*AFTER, *attended[:4], "ReduceMin", "Less", "Where", *attended[4:]],
            ),
            "queries of another value": (
                graph(QUERIES.replace("q = MatMul (n, w)", "o = Abs (n) q = MatMul (o, w)")),
                ["Neg", "Abs", "MatMul", "Add", "Reshape", "Transpose"],
            ),
            "values that are a result": (
                graph(results=", float[B,2,S,4] vh"),
                [*AFTER, *attended],
            ),
            "keys that are a result": (
                graph(keys=f"{KEYS} kk = Transpose <perm=[0,2,1,3]> (ks)", results=", float[B,2,S,4] kk"),
                [*AFTER, *attended],
            ),
            "keys that something else reads": (
                graph(f"{QUERIES}", results=", float[B,2,4,S] z", back=f"{BACK} z = Neg (kh)"),
                [*AFTER, *attended, "Neg"],
            ),
        }
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                if promise == "queries of another value":
                    expected = [*expected[:1], *AFTER[1:], *expected[1:], *attended]
                self.assert_becomes(text, expected)

    def test_what_it_declines(self):
        narrow = "shown = Constant <value=int64[4]{0,0,4,2}> ()"
        cases = {
            "an input": graph().replace("n = Neg (x)", "").replace("(n, ", "(x, "),
            "one row": graph(x="float[B,1,6] x").replace("[B,S,8]", "[B,1,8]").replace("S,S", "1,1"),
            "a weight that is computed": graph(
                keys=KEYS.replace("(n, u)", "(n, i)"), values=VALUES.replace("(n, t)", "(n, j)")
            ).replace("bool[S,S]", "float[6,8] i, float[6,8] j, bool[S,S]"),
            "values that are read in two ways": graph(
                back=f"{BACK} z = Neg (vb)", results=", float[B,S,8] z"
            ),
            "values before they are transposed": graph(results=", float[B,S,2,4] vs"),
            "keys in another order": graph(
                QUERIES.replace("q = MatMul (n, w)", "i = Abs (n) q = MatMul (i, w)"),
                f"{KEYS} z = Transpose <perm=[0,3,2,1]> (ks)",
                results=", float[B,4,2,S] z",
            ),
            "values in another order": graph(values=VALUES.replace("0,2,1,3", "0,2,1,3")).replace(
                "vh = Transpose <perm=[0,2,1,3]> (vs)",
                "vt = Transpose <perm=[0,2,3,1]> (vs) vh = Transpose <perm=[0,1,3,2]> (vt)",
            ),
            "heads of another size": graph(
                f"{narrow} {QUERIES.replace('heads', 'shown')}",
                f"{KEYS.replace('heads', 'shown')}",
                masked=MASKED.replace("(p, vh)", "(i, vh)").replace(
                    "p = Softmax <axis=-1> (m)",
                    "p = Softmax <axis=-1> (m) i = ReduceMean <keepdims=1> (p, one)",
                ),
            ).replace("zero =", "one = Constant <value=int64[1]{1}> () zero ="),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)

    def test_rows_of_unknown_rank(self):
        """Two axes, or heads that stand apart from the samples."""
        flat = graph(x="float[S,6] x").replace("{0,0,2,4}", "{1,-1,2,4}").replace("{0,0,8}", "{1,-1,8}")
        self.assert_stays(flat.replace("float[B,S,8] y", "float[1,S,8] y"))

    def test_an_operator_of_onnxruntime_comes_first(self):
        text = graph(masked=MASKED.replace("(m)", "(s)").replace("m = Where (open, s, low)", ""))
        for patterns in (["MultiHeadAttention", self.RULE], "default+onnxruntime"):
            optimized = optimize(parsed(text), OptimizationOptions(patterns))
            self.assertIn("MultiHeadAttention", operators(optimized))
            self.assertNotIn("Split", operators(optimized))

    def test_layers_share_a_product(self):
        """Keys and values of two layers that attend to one value."""
        second = " ".join(
            [numbers("i", 6, 8), numbers("j", 6, 8), "kk = MatMul (n, i) kks = Reshape (kk, heads)"]
            + ["kkh = Transpose <perm=[0,2,3,1]> (kks) vv = MatMul (n, j) vvs = Reshape (vv, heads)"]
            + ["vvh = Transpose <perm=[0,2,1,3]> (vvs) ss = MatMul (qh, kkh) pp = Softmax <axis=-1> (ss)"]
            + ["aa = MatMul (pp, vvh) rr = Transpose <perm=[0,2,1,3]> (aa) z = Reshape (rr, joined)"]
        )
        text = graph(back=f"{BACK} {second}", results=", float[B,S,8] z")
        kinds = operators(optimize(parsed(text), OptimizationOptions([self.RULE])))
        self.assertEqual((1, 2), (kinds.count("Split"), kinds.count("Softmax")))
        self.assertEqual(5, kinds.count("MatMul"))
        self.assert_optimized(text, kinds, fires=True)


if __name__ == "__main__":
    unittest.main()
