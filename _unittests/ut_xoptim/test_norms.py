"""Rules of norms written by hand."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, executed, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import optimize

CONSTANTS = """
two = Constant <value_float=2.0> () half = Constant <value_float=0.5> () minus_half = Constant <value_float=-0.5> ()
epsilon = Constant <value_float=1e-5> () last = Constant <value_ints=[-1]> () second = Constant <value_ints=[1]> ()
third = Constant <value_ints=[2]> ()
both = Constant <value_ints=[2,1]> ()
"""
SCALE = "w = Constant <value = float[4] {1.5,-2,0.25,3}> ()"
VECTOR = "float[1,4] y", "float[4] x"
BIAS = "b = Constant <value = float[4] {1,-2,0,0.5}> ()"
ONES = "o = Constant <value = float[4] {1,1,1,1}> ()"
MEAN = "m = ReduceMean(x, last) c = Sub(x, m)"
ROOT = "v = ReduceMean(p, last) e = Add(v, epsilon) s = Sqrt(e)"
LAYER = f"{MEAN} p = Pow(c, two) {ROOT} n = Div(c, s)"
SQUARES = f"p = Mul(x, x) {ROOT} n = Div(x, s)"


def graph(nodes, result="float[N,3,4] y", inputs="float[N,3,4] x"):
    """The text of a model."""
    return f"agraph ({inputs}) => ({result}) {{ {CONSTANTS} {nodes} }}"


def exponent(number):
    """A number of two axes."""
    return f"wide = Constant <value = float[1,1] {{{number}}}> ()"


class NormTestCase(RuleTestCase):
    """Tables of cases: nodes, then the operators they become, or nothing when they stay; the opset, 20 by default."""

    def assert_table(self, rule, cases):
        for promise, (text, expected, *opset) in cases.items():
            opset = opset[0] if opset else 20
            with self.subTest(promise):
                if expected is None:
                    self.assert_stays(text, rule=rule, opset=opset)
                else:
                    self.assert_becomes(text, expected, rule=rule, opset=opset)


class TestLayers(NormTestCase):
    def test_layer_normalization(self):
        self.assert_table(
            "LayerNormalization",
            {
                "Pow, Sqrt, Div": (graph(f"{LAYER} y = Abs(n)"), ["LayerNormalization", "Abs"]),
                "Mul and a power of one half, epsilon first": (
                    graph(
                        f"{MEAN} p = Mul(c, c) v = ReduceMean(p, last) e = Add(epsilon, v) s = Pow(e, half) y = Div(c, s)"
                    ),
                    ["LayerNormalization"],
                ),
                "the distance computed twice": (
                    graph(
                        f"{MEAN} k = ReduceMean(x, last) d = Sub(x, k) p = Pow(d, two) {ROOT} y = Div(c, s)"
                    ),
                    ["LayerNormalization"],
                ),
                "two axes": (
                    graph(f"{LAYER} y = Abs(n)".replace("last", "both")),
                    ["LayerNormalization", "Abs"],
                ),
                "the axes as attributes": (
                    graph(f"{LAYER} y = Abs(n)")
                    .replace("ReduceMean(", "ReduceMean<axes=[2]>(")
                    .replace(", last)", ")"),
                    ["LayerNormalization", "Abs"],
                    17,
                ),
                "axes from the first and from the last one": (
                    graph(f"{LAYER} y = Abs(n)".replace("ReduceMean(x, last)", "ReduceMean(x, third)")),
                    ["LayerNormalization", "Abs"],
                ),
                "axes that one mean is told": (
                    graph(
                        f"{LAYER} y = Abs(n)".replace("ReduceMean(x, last)", "ReduceMean(x)"),
                        "float[4] y",
                        "float[4] x",
                    ),
                    ["LayerNormalization", "Abs"],
                ),
                "of all axes": (
                    graph(f"{LAYER} y = Abs(n)".replace(", last)", ")"), "float[2,3,4] y", "float[2,3,4] x"),
                    ["LayerNormalization", "Abs"],
                ),
                "before opset 17": (
                    graph(f"{LAYER} y = Abs(n)")
                    .replace("ReduceMean(", "ReduceMean<axes=[2]>(")
                    .replace(", last)", ")"),
                    None,
                    16,
                ),
                "another axis": (graph(f"{LAYER} y = Abs(n)".replace("last", "second")), None),
                "a mean over other axes": (
                    graph(f"{LAYER} y = Abs(n)".replace("ReduceMean(x, last)", "ReduceMean(x, both)")),
                    None,
                ),
                "another square": (graph(f"{MEAN} p = Pow(x, two) {ROOT} y = Div(c, s)"), None),
                "another power": (graph(f"{LAYER} y = Abs(n)".replace("c, two", "c, half")), None),
                "the deviation is an output": (
                    graph(f"{LAYER} y = Abs(n)", "float[N,3,4] y, float[N,3,1] s"),
                    None,
                ),
                "another reads the distance": (graph(f"{LAYER} y = Add(n, c)"), None),
                "the size of the axis is unknown": (
                    graph(f"{LAYER} y = Abs(n)", "float[N,3,M] y", "float[N,3,M] x"),
                    None,
                ),
                "the rank is unknown": (
                    graph(
                        f"h = Squeeze(g) {LAYER} k = Abs(n) y = ReduceSum<keepdims=0>(k)".replace("(x", "(h"),
                        "float y",
                        "float[1,N,3,4] g",
                    ),
                    None,
                ),
                "an exponent adds axes": (
                    graph(f"{exponent(2)} {LAYER} y = Abs(n)".replace("c, two", "c, wide"), *VECTOR),
                    None,
                ),
                "that of the root adds axes": (
                    graph(f"{exponent(0.5)} {LAYER} y = Abs(n)".replace("Sqrt(e)", "Pow(e, wide)"), *VECTOR),
                    None,
                ),
                "float64": (
                    graph(f"{LAYER} y = Abs(n)", "double[N,3,4] y", "double[N,3,4] x").replace(
                        "Constant <value_float=1e-5> ()", "Constant <value = double {1e-5}> ()"
                    ),
                    None,
                ),
                "epsilon for each row": (
                    f"agraph (float[3,4] x) => (float[3,4] y) {{ {CONSTANTS} "
                    f"r = Constant <value = float[3,1] {{1,2,3}}> () {LAYER} y = Abs(n) }}".replace(
                        "(v, epsilon)", "(v, r)"
                    ),
                    None,
                ),
            },
        )

    def test_rows_without_elements(self):
        """onnxruntime refuses norms of them."""
        model = optimize(parsed(graph(f"{LAYER} y = Abs(n)", "float[N,3,0] y", "float[N,3,0] x")))
        (got,) = session(model).run(None, {"x": np.zeros((2, 3, 0), np.float32)})
        self.assertEqual((2, 3, 0), got.shape)

    def test_scale(self):
        norm = f"{ONES} n = LayerNormalization(x, o)"
        self.assert_table(
            "ScaleOfNorm",
            {
                "a scale of ones": (graph(f"{SCALE} {norm} y = Mul(w, n)"), ["LayerNormalization"]),
                "epsilon and axis stay": (
                    graph(f"{SCALE} {ONES} n = LayerNormalization<axis=2, epsilon=0.5>(x, o) y = Mul(n, w)"),
                    ["LayerNormalization"],
                ),
                "another scale": (graph(f"{SCALE} n = LayerNormalization(x, w) y = Mul(n, w)"), None),
                "a scale for each row": (
                    graph(f"w = Constant <value = float[3,1] {{1,2,3}}> () {norm} y = Mul(w, n)"),
                    None,
                ),
                "a bias before": (
                    graph(f"{SCALE} {BIAS} {ONES} n = LayerNormalization(x, o, b) y = Mul(n, w)"),
                    None,
                ),
                "another reads the norm": (graph(f"{SCALE} {norm} m = Mul(n, w) y = Add(m, n)"), None),
                "the mean is read too": (
                    graph(
                        f"{SCALE} {ONES} n, mean = LayerNormalization(x, o) y = Mul(n, w)",
                        "float[N,3,4] y, float[N,3,1] mean",
                    ),
                    None,
                ),
                "a root of mean squares": (
                    graph(f"{SCALE} {ONES} n = RMSNormalization(x, o) y = Mul(n, w)"),
                    ["RMSNormalization"],
                    23,
                ),
            },
        )

    def test_bias(self):
        norm = f"{SCALE} n = LayerNormalization(x, w)"
        self.assert_table(
            "BiasOfNorm",
            {
                "after": (graph(f"{BIAS} {norm} y = Add(b, n)"), ["LayerNormalization"]),
                "a residual": (graph(f"{norm} y = Add(x, n)"), None),
                "a number": (graph(f"{norm} y = Add(n, two)"), None),
                "two biases": (graph(f"{BIAS} {SCALE} n = LayerNormalization(x, w, b) y = Add(n, b)"), None),
            },
        )

    def test_all_together(self):
        """From the first mean to the bias: one node."""
        text = graph(f"{SCALE} {BIAS} {LAYER} q = Mul(n, w) y = Add(q, b)")
        self.assertEqual(["LayerNormalization"], operators(optimize(parsed(text))))
        older = parsed(text.replace("n = Div(c, s)", "r = Reciprocal(s) n = Mul(c, r)"))
        self.assertEqual(["LayerNormalization"], operators(optimize(older)))


class TestResiduals(NormTestCase):
    def test_sum(self):
        """The graph that onnxruntime runs holds no SkipLayerNormalization, which is slow."""
        text = f"{SCALE} a = Add(x, z) y = LayerNormalization(a, w)"
        shapes = "float[N,3,4] y", "float[N,3,4] x, float[N,3,4] z"
        self.assertEqual(["SkipLayerNormalization"], executed(parsed(graph(text, *shapes))))
        self.assertEqual(["Sum", "LayerNormalization"], executed(optimize(parsed(graph(text, *shapes)))))
        self.assertEqual(
            ["Add", "LayerNormalization"], operators(optimize(parsed(graph(text, *shapes)), runtime="onnx"))
        )
        statistics = "y, mean = LayerNormalization<epsilon=0.5>(a, w, b)"
        self.assert_table(
            "SumBeforeLayerNormalization",
            {
                "a residual": (graph(text, *shapes), ["Sum", "LayerNormalization"]),
                "with bias and mean": (
                    graph(f"{SCALE} {BIAS} a = Add(x, x) {statistics}", "float[N,3,4] y, float[N,3,1] mean"),
                    ["Sum", "LayerNormalization"],
                ),
                "the sum is read again": (
                    graph(f"{SCALE} a = Add(x, x) n = LayerNormalization(a, w) y = Add(n, a)"),
                    None,
                ),
                "a bias": (graph(f"{SCALE} {BIAS} a = Add(x, b) y = LayerNormalization(a, w)"), None),
                "sizes by name": (
                    graph(text, "float[N,S,4] y", "float[N,S,4] x, float[N,S,4] z"),
                    ["Sum", "LayerNormalization"],
                ),
                "two lengths": (
                    graph(text, "float[2,S,4] y", "float[2,S,4] x, float[2,T,4] z"),
                    None,
                ),
                "two axes": (
                    graph(text, "float[3,4] y", "float[3,4] x, float[3,4] z"),
                    None,
                ),
            },
        )

    def test_another_axis_than_the_last(self):
        """onnxruntime 1.31 normalizes the last axis, whatever the axis is, where the scale has one; with as many as torch gives it, it does not."""
        shapes = "float[2,3,4] y", "float[2,3,4] x, float[2,3,4] z"
        scale = np.array([1.5, -2, 0.25, 3], np.float32)
        full = "w = Constant <value = float[3,4] {1.5,-2,0.25,3,1.5,-2,0.25,3,1.5,-2,0.25,3}> ()"
        for text, is_right in ((SCALE, False), (full, True)):
            with self.subTest(text):
                text = f"{text} a = Add(x, z) y = LayerNormalization<axis=1>(a, w)"
                model = parsed(graph(text, *shapes))
                feeds = drawn(model)
                total = sum(feeds.values()).reshape(2, 12).astype(np.float64)
                rows = (total - total.mean(1, keepdims=True)) / np.sqrt(total.var(1, keepdims=True) + 1e-5)
                expected = rows.reshape(2, 3, 4) * scale
                (plain,) = session(model).run(None, feeds)
                self.assertEqual(is_right, np.allclose(plain, expected, rtol=1e-5, atol=1e-6))
                (optimized,) = session(optimize(model)).run(None, feeds)
                np.testing.assert_allclose(optimized, expected, rtol=1e-5, atol=1e-6)


class TestSquares(NormTestCase):
    def test_rms_normalization(self):
        self.assert_table(
            "RmsNormalization",
            {
                "Mul": (graph(f"{SQUARES} y = Abs(n)"), ["RMSNormalization", "Abs"], 23),
                "Pow": (
                    graph(f"p = Pow(x, two) {ROOT} n = Div(x, s) y = Abs(n)"),
                    ["RMSNormalization", "Abs"],
                    23,
                ),
                "before opset 23": (graph(f"{SQUARES} y = Abs(n)"), None, 22),
                "an exponent adds axes": (
                    graph(f"{exponent(2)} p = Pow(x, wide) {ROOT} n = Div(x, s) y = Abs(n)", *VECTOR),
                    None,
                    23,
                ),
                "an exponent gives a number its axes": (
                    graph(
                        f"{exponent(2)} p = Pow(x, wide) {ROOT} n = Div(x, s) y = Abs(n)",
                        "float[1,1] y",
                        "float x",
                    ),
                    None,
                    23,
                ),
                "another numerator": (graph(f"z = Abs(x) p = Mul(x, x) {ROOT} y = Div(z, s)"), None, 23),
                "another axis": (graph(f"{SQUARES} y = Abs(n)".replace("last", "second")), None, 23),
            },
        )

    def test_square_of_norm(self):
        island = f"x = Cast<to=1>(h) {SQUARES} k = Cast<to=10>(n) y = Mul(k, w)"
        halves = "float16[N,3,4] y", "float16[N,3,4] h, float16[4] w"
        brains = "float[N,3,4] y", "float[N,3,4] h, float[4] w"
        of_brains = f"b = Cast<to=16>(h) x = Cast<to=1>(b) {SQUARES} m = Mul(n, w)"
        after = ["Pow", "ReduceMean", "Add", "Sqrt", "Div"]
        self.assert_table(
            "SquareOfNorm",
            {
                "a scale": (graph(f"{SCALE} {SQUARES} y = Mul(w, n)"), [*after, "Mul"]),
                "float16 around": (graph(f"{island}", *halves), ["Cast", *after, "Cast", "Mul"]),
                "a cast of bfloat16 that nothing else reads": (
                    graph(f"{of_brains} y = Neg(m)", *brains),
                    None,
                ),
                "bfloat16 beside a residual": (
                    graph(f"{of_brains} y = Add(x, m)", *brains),
                    ["Cast", "Cast", *after, "Mul", "Add"],
                ),
                "1 + weight": (
                    graph(
                        f"{SQUARES} g = Add(w, epsilon) y = Mul(n, g)", inputs="float[N,3,4] x, float[4] w"
                    ),
                    [*after, "Add", "Mul"],
                ),
                "by a reciprocal": (
                    graph(
                        f"{SCALE} {SQUARES} y = Mul(w, n)".replace(
                            "n = Div(x, s)", "r = Reciprocal(s) n = Mul(x, r)"
                        )
                    ),
                    [*after[:-1], "Reciprocal", "Mul", "Mul"],
                ),
                "another numerator": (
                    graph(
                        f"{SCALE} {SQUARES} y = Mul(w, n)".replace("Div(x, s)", "Div(w, s)"), "float[N,3,4] y"
                    ),
                    None,
                ),
                "the deviation over the value": (
                    graph(f"{SCALE} {SQUARES} y = Mul(w, n)".replace("Div(x, s)", "Div(s, x)")),
                    None,
                ),
                "the deviation is an output": (
                    graph(f"{SCALE} {SQUARES} y = Mul(w, n)", "float[N,3,4] y, float[N,3,1] s"),
                    None,
                ),
                "another axis": (graph(f"{SCALE} {SQUARES} y = Mul(w, n)".replace("last", "second")), None),
                "without a scale": (graph(f"{SQUARES} y = Abs(n)"), None),
                "a factor of another shape": (graph(f"{SQUARES} y = Mul(n, half)"), None),
                "another reads the squares": (
                    graph(f"{SCALE} {SQUARES} q = Mul(n, w) y = Add(q, p)"),
                    None,
                ),
                "opset 23": (graph(f"{SCALE} {SQUARES} y = Mul(w, n)"), None, 23),
            },
        )

    def test_onnxruntime_makes_one_kernel_of_it(self):
        """What `SquareOfNorm` is for: the graph that onnxruntime runs holds the norm as one node."""
        self.assertEqual(["SimplifiedLayerNormalization"], self.run_by_onnxruntime(20))
        self.assertEqual(["RMSNormalization"], self.run_by_onnxruntime(23))

    def run_by_onnxruntime(self, opset):
        """The operators after onnxruntime's own rewriting of an optimized norm."""
        return executed(optimize(parsed(graph(f"{SCALE} {SQUARES} y = Mul(w, n)"), opset)))

    def test_mean_of_vector(self):
        self.assert_table(
            "MeanOfVector",
            {
                "a vector": (graph("y = ReduceMean(x, last)", "float[1] y", "float[N] x"), ["ReduceMean"]),
                "the axis as an attribute": (
                    graph("y = ReduceMean<axes=[0], keepdims=0>(x)", "float y", "float[N] x"),
                    ["ReduceMean"],
                    17,
                ),
                "no axis": (graph("y = ReduceMean(x)", "float[1] y", "float[N] x"), None),
                "no axis, of which the operator makes nothing": (
                    graph("y = ReduceMean<noop_with_empty_axes=1>(x)", "float[N] y", "float[N] x"),
                    None,
                ),
                "rows": (graph("y = ReduceMean(x, last)", "float[N,3,1] y"), None),
                "an axis that is not known": (
                    graph("k = Sub(g, g) y = ReduceMean(x, k)", "float[M] y", "float[N] x, int64[1] g"),
                    None,
                ),
            },
        )

    def test_norms_of_vectors_load(self):
        """onnxruntime 1.31 does not load some of them as they are written, and takes no mean of all axes for that of a norm."""
        vectors = "float[4] y", "float[4] x"
        root = ROOT.replace("s = Sqrt(e)", "")
        cases = {
            "a product": f"p = Mul(x, x) {ROOT} d = Div(x, s) y = Mul(w, d)",
            "a power": f"p = Pow(x, two) {ROOT} d = Div(x, s) y = Mul(w, d)",
            "a reciprocal": f"p = Pow(x, two) {ROOT} r = Reciprocal(s) d = Mul(x, r) y = Mul(w, d)",
            "a power of minus one half": f"p = Pow(x, two) {root} r = Pow(e, minus_half) d = Mul(x, r) y = Mul(w, d)",
        }
        for promise, nodes in cases.items():
            with self.subTest(promise):
                model = optimize(parsed(graph(f"{SCALE} {nodes}", *vectors)))
                x = np.array([1, -2, 0.5, 3], np.float32)
                expected = x / np.sqrt((x * x).mean() + 1e-5) * np.array([1.5, -2, 0.25, 3], np.float32)
                np.testing.assert_allclose(session(model).run(None, {"x": x})[0], expected, rtol=1e-6)

    def test_another_runtime(self):
        """The square stays a product in the plain standard, the mean of a vector that along its axis."""
        model = parsed(graph(f"{SCALE} {SQUARES} y = Mul(w, n)"))
        self.assertNotIn("Pow", operators(optimize(model, runtime="onnx")))
        model = parsed(graph("y = ReduceMean(x, last)", "float[1] y", "float[N] x"))
        for runtime, inputs in ("onnx", 2), ("onnxruntime", 1):
            (mean,) = optimize(model, runtime=runtime).graph.node
            self.assertEqual(inputs, len(mean.input))

    def test_reciprocal_root(self):
        text = graph(
            "q = Add(w, epsilon) r = Pow(q, minus_half) y = Mul(x, r)", inputs="float[N,3,4] x, float[4] w"
        )
        positive = text.replace("q = Add(w, epsilon)", "a = Abs(w) q = Add(a, epsilon)")
        self.assert_becomes(positive, ["Abs", "Add", "Sqrt", "Div"], rule="MulReciprocalRoot")
        self.assert_stays(positive.replace("minus_half)", "half)"), rule="MulReciprocalRoot")
        added = f"{exponent(-0.5)} a = Abs(x) r = Pow(a, wide) y = Mul(x, r)"
        cases = {
            "the exponent adds axes": graph(added, *VECTOR),
            "what may be negative": text,
            "integers": graph("r = Pow(x, minus_half) y = Mul(x, r)", "int32[N] y", "int32[N] x"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, rule="MulReciprocalRoot")

    def test_quotients_that_onnxruntime_misreads(self):
        """It makes a LayerNormalization of two dtypes, which it refuses, where the size of the axis is unknown; of a wide epsilon it loses an axis."""
        inverse = {
            "MulReciprocal": "s = Sqrt(e) r = Reciprocal(s)",
            "MulReciprocalRoot": "r = Pow(e, minus_half)",
        }
        three = "w = Constant <value = float[3] {1.5,-2,0.25}> ()"
        cast = "f = Cast<to=10>(n) u = Cast<to=10>(w) y = Mul(f, u)"
        half = "float16[N,3,D] y", "float[N,3,D] x"
        wide = "epsilon = Constant <value = float[1,1,1,1] {1e-5}> ()"
        for rule, root in inverse.items():
            norm = f"{three} {MEAN} p = Pow(c, two) v = ReduceMean(p, last) e = Add(v, epsilon) {root} n = Mul(c, r)"
            text = graph(f"{norm} {cast}", *half)
            with self.subTest(rule):
                self.assert_stays(text, rule=rule)
                self.assertIn("Div", operators(optimize(parsed(text), runtime="onnx")))
                scaled = graph(f"{norm} y = Mul(n, w)", "float[N,3,D] y", half[1])
                self.assertNotIn("Div", operators(optimize(parsed(scaled))))
                by_known = scaled.replace("n = Mul(c, r)", "n = Mul(c, r) k = Mul(n, c)").replace(
                    "Mul(n, w)", "Mul(k, w)"
                )
                self.assertIn("Div", operators(optimize(parsed(by_known))))
                added = graph(f"{norm} y = Abs(n)", "float[1,N,3,4] y")
                self.assert_stays(added.replace("epsilon = Constant <value_float=1e-5> ()", wide), rule=rule)

    def test_scale_of_more_elements_than_the_axis(self):
        """onnxruntime refuses a norm of rows of one element that a scale repeats: it is no norm for it."""
        for root in ("s = Sqrt(e) r = Reciprocal(s) n = Mul(x, r)", "s = Pow(e, half) n = Div(x, s)"):
            text = graph(
                f"{SCALE} p = Pow(x, two) v = ReduceMean(p, last) e = Add(v, epsilon) {root} y = Mul(n, w)",
                "float[N,3,4] y",
                "float[N,3,D] x",
            )
            with self.subTest(root):
                model, x = parsed(text), np.array([[[2], [-3], [1]]], np.float32)
                wanted = np.broadcast_to(np.sign(x) * np.array([1.5, -2, 0.25, 3], np.float32), (1, 3, 4))
                (got,) = session(optimize(model)).run(None, {"x": x})
                np.testing.assert_allclose(got, wanted, rtol=1e-4)

    def test_epsilon_that_onnxruntime_misreads(self):
        """It takes 1e-5 for what is no constant, of float64, or on the left in a LayerNormalization: such a norm stays what it does not know."""
        roots = {
            "MulReciprocal": "p = Pow(c, two) v = ReduceMean(p, last) {} s = Sqrt(e) r = Reciprocal(s) n = Mul(c, r)",
            "MulReciprocalRoot": "p = Pow(c, two) v = ReduceMean(p, last) {} r = Pow(e, minus_half) n = Mul(c, r)",
            "PowHalf": "p = Pow(c, two) v = ReduceMean(p, last) {} s = Pow(e, half) n = Div(c, s)",
            "SquareOfNorm": "p = Mul(c, c) v = ReduceMean(p, last) {} s = Sqrt(e) n = Div(c, s)",
        }
        constant = "g = Constant <value = float {0.5}> ()"
        cases = {
            "no constant": ("c = Neg(x)", "g = Abs(u) e = Add(v, g)"),
            "two means": ("c = Neg(x)", "i = Mul(u, u) g = ReduceMean(i, last) e = Add(g, v)"),
            "no constant in a layer": (MEAN, "g = Abs(u) e = Add(v, g)"),
            "on the left in a layer": (MEAN, f"{constant} e = Add(g, v)"),
        }
        for rule, root in roots.items():
            for promise, (before, total) in cases.items():
                with self.subTest(f"{rule}: {promise}"):
                    nodes = f"{before} {root.format(total)} q = Mul(n, w) y = Add(q, w)"
                    text = graph(nodes, "float[N,3,4] y", "float[N,3,4] x, float[4] w, float[N,3,1] u")
                    self.assert_stays(text, rule=rule)
                    self.assert_same_numbers(text)
        for rule in ("MulReciprocal", "MulReciprocalRoot", "PowHalf"):
            with self.subTest(f"{rule}: float64"):
                nodes = f"c = Neg(x) {roots[rule].format('e = Add(v, g)')} y = Mul(n, w)"
                text = graph(
                    f"g = Cast<to=11>(half) {nodes}", "double[N,3,4] y", "double[N,3,4] x, double[4] w"
                )
                self.assert_same_numbers(text)

    def assert_same_numbers(self, text):
        """onnxruntime computes the same of what all rules make of a model, after its own rewriting."""
        model = parsed(text)
        feeds = drawn(model)
        wanted, got = (session(item).run(None, feeds) for item in (model, optimize(model)))
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-4, atol=1e-5)

    def test_scalars(self):
        text = "agraph (float x, float w) => (float y) { c = Sub(x, w) a = Abs(w) s = Sqrt(a) r = Reciprocal(s) y = Mul(c, r) }"
        self.assert_becomes(text, ["Sub", "Abs", "Sqrt", "Div"], rule="MulReciprocal")


class TestHalves(NormTestCase):
    """Norms of float32 between casts of float16."""

    def test_casts_around(self):
        halves = "float16[N,3,4] y", "float16[N,3,4] h"
        norm = f"{ONES} x = Cast<to=1>(h) n = LayerNormalization(x, o)"
        self.assert_table(
            "NormOfHalves",
            {
                "layers": (graph(f"{norm} y = Cast<to=10>(n)", *halves), ["LayerNormalization"]),
                "root of mean squares": (
                    graph(f"{norm} y = Cast<to=10>(n)".replace("LayerN", "RMSN"), *halves),
                    ["RMSNormalization"],
                    23,
                ),
                "a scale of float32": (
                    graph(f"{SCALE} {norm} y = Cast<to=10>(n)".replace("(x, o)", "(x, w)"), *halves),
                    None,
                ),
                "a result of float32": (graph(f"{norm} y = Abs(n)", "float[N,3,4] y", halves[1]), None),
            },
        )

    def test_llama_in_float16(self):
        """x in float32, normalized, rounded, times a weight of float16 is one node, equal to the last bit."""
        text = graph(
            f"x = Cast<to=1>(h) {SQUARES} k = Cast<to=10>(n) y = Mul(k, w)",
            "float16[N,3,4] y",
            "float16[N,3,4] h, float16[4] w",
        )
        model = parsed(text, 23)
        optimized = optimize(model)
        self.assertEqual(["RMSNormalization"], operators(optimized))
        generator = np.random.default_rng(0)
        feeds = {"h": generator.normal(size=(5, 3, 4)), "w": generator.normal(size=4)}
        feeds = {name: values.astype(np.float16) for name, values in feeds.items()}
        expected, got = (session(item).run(None, feeds)[0] for item in (model, optimized))
        np.testing.assert_array_equal(expected, got)


if __name__ == "__main__":
    unittest.main()
