"""Rules that write norms, activations and products in operators of onnxruntime."""

import unittest

import numpy as np
import onnx

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, executed, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize

CONSTANTS = """
w = Constant <value=float[4]{1,2,3,-4}> () two = Constant <value=float {2.0}> () last = Constant <value=int64[1]{-1}> ()
epsilon = Constant <value=float {0.001}> () ones = Constant <value=float[4]{1,1,1,1}> ()
"""
NORM = (
    "p = Pow (x, two) m = ReduceMean <keepdims=1> (p, last) e = Add (m, epsilon) r = Sqrt (e) d = Div (x, r)"
)


def norm_of(signature: str, nodes: str) -> str:
    """The text of a model with these constants."""
    return f"agraph {signature} {{ {CONSTANTS} {nodes} }}"


class TestSimplifiedLayerNormalization(RuleTestCase):
    RULE = "SimplifiedLayerNormalization"
    X = "(float[B,S,4] x) => (float[B,S,4] y)"

    def test_forms(self):
        cases = {
            "without a scale": (norm_of(self.X, f"{NORM} y = Relu (d)"), ["Relu"]),
            "with one": (norm_of(self.X, f"{NORM} y = Mul (d, w)"), ["Mul"]),
            "x * x": (
                norm_of(self.X, f"{NORM} y = Mul (d, w)".replace("Pow (x, two)", "Mul (x, x)")),
                ["Mul"],
            ),
            "heads": (
                norm_of("(float[B,S,3,4] x) => (float[B,S,3,4] y)", f"{NORM} y = Relu (d)"),
                ["Relu"],
            ),
            "float16": (
                norm_of(
                    "(float16[B,S,4] h) => (float16[B,S,4] y)",
                    f"x = Cast <to=1> (h) {NORM} y = Cast <to=10> (d)",
                ),
                ["Cast"],
            ),
        }
        for promise, (text, after) in cases.items():
            with self.subTest(promise):
                before = ["Cast"] if promise == "float16" else []
                self.assert_becomes(text, [*before, "SimplifiedLayerNormalization", *after])

    def test_with_its_scale(self):
        """With the other rules it is one node, also where the scale is a sum or the heads are apart; optimizing again changes nothing."""
        given = "float[4] g) =>"
        half = "(float16[B,S,4] h, float16[4] g) => (float16[B,S,4] y)"
        cases = {
            "a constant": norm_of(self.X, f"{NORM} y = Mul (d, w)"),
            "one": norm_of(self.X, f"{NORM} y = Mul (ones, d)"),
            "a sum of constants": norm_of(self.X, f"{NORM} s = Add (w, ones) y = Mul (d, s)"),
            "an input": norm_of(self.X.replace(") =>", f", {given}"), f"{NORM} y = Mul (g, d)"),
            "Reciprocal": norm_of(
                self.X,
                f"{NORM} y = Mul (d, w)".replace("d = Div (x, r)", "i = Reciprocal (r) d = Mul (x, i)"),
            ),
            "float16": norm_of(half, f"x = Cast <to=1> (h) {NORM} k = Cast <to=10> (d) y = Mul (g, k)"),
        }
        options = OptimizationOptions("default+onnxruntime")
        for promise, text in cases.items():
            with self.subTest(promise):
                model = parsed(text)
                optimized = optimize(model, options)
                self.assertEqual(["SimplifiedLayerNormalization"], operators(optimized))
                self.assertEqual(optimized, optimize(optimized, options))
                feeds = drawn(model)
                expected, got = (session(item).run(None, feeds)[0] for item in (model, optimized))
                tolerance = 1e-3 if expected.dtype == np.float16 else 1e-6
                np.testing.assert_allclose(expected, got, rtol=tolerance, atol=tolerance)

    def test_what_it_declines(self):
        cases = {
            "float64": norm_of(self.X, f"{NORM} y = Relu (d)").replace("float", "double"),
            "the mean of another axis": norm_of(
                "(float[B,3,4] x) => (float[B,3,4] y)", f"{NORM} y = Relu (d)"
            ).replace("{-1}", "{0}"),
            "rows of unknown size": norm_of("(float[B,S] x) => (float[B,S] y)", f"{NORM} y = Relu (d)"),
            "the root is a result": norm_of(
                "(float[B,4] x) => (float[B,4] y, float[B,1] r)", f"{NORM} y = Relu (d)"
            ),
            "the exponent adds axes": norm_of(
                "(float[4] x) => (float[1,4] y)", f"{NORM} y = Relu (d)"
            ).replace("float {2.0}", "float[1,1] {2.0}"),
            "the norm of another value": norm_of(
                self.X, f"{NORM} y = Relu (d)".replace("Div (x, r)", "Div (p, r)")
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)

    def test_opset_23(self):
        """ONNX has it from then on."""
        self.assert_stays(norm_of(self.X, f"{NORM} y = Relu (d)"), opset=23)


class TestLayerNormalizationOfOnnxruntime(RuleTestCase):
    RULE = "LayerNormalizationOfOnnxruntime"
    X = "(float[B,S,4] x) => (float[B,S,4] y)"
    NORM = """m = ReduceMean <axes=[-1]> (x) c = Sub (x, m) p = Pow (c, two) v = ReduceMean <axes=[-1]> (p)
        e = Add (v, epsilon) r = Sqrt (e) d = Div (c, r)"""
    SCALED = f"{NORM} s = Mul (d, w) y = Add (s, ones)"

    def test_forms(self):
        cases = {
            "without a scale": norm_of(self.X, f"{self.NORM} y = Relu (d)"),
            "c * c": norm_of(self.X, f"{self.NORM} y = Relu (d)".replace("Pow (c, two)", "Mul (c, c)")),
            "float16": norm_of(self.X, f"{self.NORM} y = Relu (d)")
            .replace("float[B", "float16[B")
            .replace("epsilon = Constant <value=float {0.001}>", "epsilon = Constant <value=float16 {5145}>"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, ["LayerNormalization", "Relu"], opset=16)

    def test_with_its_scale_and_bias(self):
        """With the other rules it is one node, as onnxruntime makes of the model; optimizing again changes nothing."""
        model = parsed(norm_of(self.X, self.SCALED), 16)
        self.assertEqual(["LayerNormalization"], executed(model))
        options = OptimizationOptions("default+onnxruntime")
        optimized = optimize(model, options)
        self.assertEqual(["LayerNormalization"], operators(optimized))
        self.assertEqual(["LayerNormalization"], executed(optimized))
        self.assertEqual(optimized, optimize(optimized, options))
        for sizes in (1, 3):
            feeds = drawn(model, sizes=sizes)
            expected, got = (session(item).run(None, feeds)[0] for item in (model, optimized))
            np.testing.assert_allclose(expected, got, rtol=1e-6, atol=1e-6)

    def test_what_it_declines(self):
        cases = {
            "float64": norm_of(self.X, f"{self.NORM} y = Relu (d)").replace("float", "double"),
            "the mean of another axis": norm_of(
                "(float[B,3,4] x) => (float[B,3,4] y)", f"{self.NORM} y = Relu (d)"
            ).replace("[-1]", "[0]"),
            "means of two axes": norm_of(
                "(float[B,4,4] x) => (float[B,4,4] y)", f"{self.NORM} y = Relu (d)"
            ).replace("m = ReduceMean <axes=[-1]>", "m = ReduceMean <axes=[1]>"),
            "rows of unknown size": norm_of("(float[B,S] x) => (float[B,S] y)", f"{self.NORM} y = Relu (d)"),
            "what is centred is a result": norm_of(
                "(float[B,4] x) => (float[B,4] y, float[B,4] c)", f"{self.NORM} y = Relu (d)"
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text, opset=16)

    def test_opset_17(self):
        """ONNX has it from then on; there the means have their axes as attributes too."""
        self.assert_stays(norm_of(self.X, self.SCALED), opset=17)

    def test_in_a_local_function(self):
        """onnxruntime ends the process when it loads one in there."""
        nodes = norm_of("", self.SCALED)
        model = onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : 16, "local" : 1]> agraph {self.X} {{ y = local.f (x) }}
            <domain: "local", opset_import: ["" : 16]> f (x) => (y) {nodes.removeprefix("agraph ")}"""
        )
        optimized = optimize(model, OptimizationOptions("default+onnxruntime"))
        names = {node.op_type for function in optimized.functions for node in function.node}
        self.assertNotIn("LayerNormalization", names)
        self.assertIn("Sqrt", names)


class TestSkipSimplifiedLayerNormalization(RuleTestCase):
    RULE = "SkipSimplifiedLayerNormalization"
    NORM = "s = Add (a, b) n = SimplifiedLayerNormalization <axis=-1, epsilon=0.001> (s, w) y = Relu (n)"
    BECOMES = "SkipSimplifiedLayerNormalization Relu".split()

    def graph(self, nodes: str = NORM, sizes: str = "B,1,4", more: str = "", inputs: str = "") -> str:
        """The norm of a sum."""
        return norm_of(f"(float[{sizes}] a, float[{sizes}] b{inputs}) => (float[{sizes}] y{more})", nodes)

    def test_forms(self):
        read = "z = Neg (s)"
        before = self.NORM.replace("n = Simpl", "z = Neg (s) n = Simpl")
        cases = {
            "a norm": (self.graph(), self.BECOMES),
            "the sum is read after the norm": (
                self.graph(self.NORM + read, more=", float[B,1,4] z"),
                [*self.BECOMES, "Neg"],
            ),
            "the sum is read before the norm": (
                self.graph(before, more=", float[B,1,4] z"),
                ["SkipSimplifiedLayerNormalization", "Neg", "Relu"],
            ),
            "the sum is a result": (self.graph(more=", float[B,1,4] s"), self.BECOMES),
            "a scale that is given": (
                self.graph(self.NORM.replace("(s, w)", "(s, g)"), inputs=", float[4] g"),
                self.BECOMES,
            ),
            "a scale of ones": (self.graph(self.NORM.replace("(s, w)", "(s, ones)")), self.BECOMES),
            "a scale of ones, afterwards too": (
                self.graph(self.NORM.replace("(s, w)", "(s, ones)").replace("Relu (n)", "Mul (n, ones)")),
                ["SkipSimplifiedLayerNormalization", "Mul"],
            ),
        }
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, expected)

    def test_opset_23(self):
        norm = "s = Add (a, b) n = RMSNormalization <axis=-1, epsilon=0.001> (s, g) y = Relu (n)"
        self.assert_becomes(self.graph(norm, inputs=", float[4] g"), self.BECOMES, opset=23)

    def test_written_by_hand(self):
        """With the other rules the scale that follows goes into it, at each opset."""
        text = self.graph(f"x = Add (a, b) {NORM} n = Mul (d, w) y = Relu (n)")
        for opset in (20, 23):
            with self.subTest(opset):
                optimized = optimize(parsed(text, opset), OptimizationOptions("default+onnxruntime"))
                self.assertEqual(self.BECOMES, operators(optimized))

    def test_what_it_declines(self):
        cases = {
            "several rows": self.graph(sizes="B,3,4"),
            "rows whose number is unknown": self.graph(sizes="B,S,4"),
            "two axes": self.graph(sizes="1,4"),
            "a residual that broadcasts": self.graph().replace("float[B,1,4] b", "float[1,1,4] b"),
            "float64": self.graph().replace("float", "double"),
            "the norm of another axis": self.graph(self.NORM.replace("axis=-1", "axis=1")).replace(
                "float[4]", "float[1,4]"
            ),
            "a scale that is computed": self.graph(
                self.NORM.replace("n = Simpl", "v = Exp (g) n = Simpl").replace("(s, w)", "(s, v)"),
                inputs=", float[4] g",
            ),
            "a scale that is multiplied afterwards": self.graph(
                self.NORM.replace("(s, w)", "(s, ones)").replace("Relu (n)", "Mul (n, w)")
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


class TestBiasGelu(RuleTestCase):
    RULE = "BiasGelu"
    ROW = "b = Constant <value=float[3] {0.5,-1.0,2.0}> ()"

    def test_forms(self):
        cases = {
            "exact": ("float[N,3] x", "s = Add (x, b) y = Gelu (s)", "BiasGelu"),
            "in the other order": ("float[2,N,3] x", "s = Add (b, x) y = Gelu <approximate=\"none\"> (s)", "BiasGelu"),
            "by a tanh": ("float[N,3] x", "s = Add (x, b) y = Gelu <approximate=\"tanh\"> (s)", "FastGelu"),
            "both rows": ("float[3] x", "s = Add (x, b) y = Gelu (s)", "BiasGelu"),
            "a row that is given": ("float[N,3] x, float[3] r", "s = Add (x, r) y = Gelu (s)", "BiasGelu"),
        }  # fmt: skip
        for promise, (given, nodes, expected) in cases.items():
            with self.subTest(promise):
                result = given.split(" x")[0] + " y"
                self.assert_becomes(f"agraph ({given}) => ({result}) {{ {self.ROW} {nodes} }}", [expected])

    def test_what_it_declines(self):
        gelu = "s = Add (x, b) y = Gelu (s)"
        cases = {
            "the sum is read elsewhere": f"agraph (float[3] x) => (float[3] y, float[3] z) {{ {self.ROW} {gelu} z = Neg (s) }}",
            "the row spreads": f"agraph (float[N,1] x) => (float[N,3] y) {{ {self.ROW} {gelu} }}",
            "the row may spread": f"agraph (float[2,M] x) => (float[2,M] y) {{ {self.ROW} {gelu} }}",
            "one number": f"agraph (float[N,3] x) => (float[N,3] y) {{ b = Constant <value=float[1] {{2.0}}> () {gelu} }}",
            "float16": f"""agraph (float16[N,3] h) => (float16[N,3] y)
            {{ {self.ROW} c = Cast <to=10> (b) s = Add (h, c) y = Gelu (s) }}""",
            "two tensors": f"agraph (float[N,3] x, float[N,3] b) => (float[N,3] y) {{ {gelu} }}",
            "numbers": f"agraph (float x, float b) => (float y) {{ {gelu} }}",
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


class TestQuickGelu(RuleTestCase):
    RULE = "QuickGelu"

    def test_forms(self):
        cases = {
            "Silu": "s = Sigmoid (x) y = Mul (x, s)",
            "in the other order": "s = Sigmoid (x) y = Mul (s, x)",
            "times a number": "a = Constant <value=float {1.702}> () p = Mul (a, x) s = Sigmoid (p) y = Mul (x, s)",
        }
        for promise, nodes in cases.items():
            with self.subTest(promise):
                self.assert_becomes(f"agraph (float[N,5] x) => (float[N,5] y) {{ {nodes} }}", ["QuickGelu"])

    def test_what_it_declines(self):
        cases = {
            "another value": "agraph (float[3] x, float[3] z) => (float[3] y) { s = Sigmoid (z) y = Mul (x, s) }",
            "the Sigmoid is read elsewhere": "agraph (float[3] x) => (float[3] y, float[3] z) { s = Sigmoid (x) y = Mul (x, s) z = Neg (s) }",
            "float64": "agraph (double[3] x) => (double[3] y) { s = Sigmoid (x) y = Mul (x, s) }",
            "several factors": """agraph (float[2] x) => (float[2] y)
            { a = Constant <value=float[2] {1.0,2.0}> () p = Mul (a, x) s = Sigmoid (p) y = Mul (x, s) }""",
            "a factor with another axis": """agraph (float[2] x) => (float[1,2] y)
            { a = Constant <value=float[1,1] {2.0}> () p = Mul (a, x) s = Sigmoid (p) y = Mul (x, s) }""",
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


class TestFusedMatMul(RuleTestCase):
    RULE = "FusedMatmul"
    SIGNATURE = "agraph (float[B,4,S,8] q, float[B,4,P,8] past, float[B,4,N,8] k) => (float[B,4,S,T] y)"
    PRODUCT = """
    c = Constant <value=float {0.3}> () keys = Concat <axis=2> (past, k) t = Transpose <perm=[0,1,3,2]> (keys) p = Mul (q, c)
    y = MatMul (p, t)
    """

    def test_forms(self):
        grouped = self.PRODUCT.replace(
            "y = MatMul (p, t)",
            "two = Constant <value=int64[4]{0,4,-1,8}> () r = Reshape (p, two) y = MatMul (r, t)",
        )
        plain = self.PRODUCT.replace("p = Mul (q, c)", "").replace("(p, t)", "(q, t)")
        cases = {
            "scaled": (self.SIGNATURE, self.PRODUCT, []),
            "not scaled": (self.SIGNATURE, plain, []),
            "rotated": (
                self.SIGNATURE.replace("float[B,4,N,8] k", "float[N,4] cos, float[N,4] sin"),
                self.PRODUCT.replace(
                    "keys = Concat <axis=2> (past, k)",
                    "zero = Constant <value=int64[1]{0}> () keys = com.microsoft.RotaryEmbedding (past, zero, cos, sin)",
                ),
                [],
            ),
            "scaled before heads are grouped": (
                self.SIGNATURE.replace("4,S,8] q", "8,S,8] q"),
                grouped,
                ["Reshape"],
            ),
        }
        for promise, (signature, nodes, more) in cases.items():
            with self.subTest(promise):
                keys = "RotaryEmbedding" if promise == "rotated" else "Concat"
                self.assert_becomes(f"{signature} {{ {nodes} }}", [keys, *more, "FusedMatMul"])

    def test_factors_that_stay(self):
        text = f"{self.SIGNATURE} {{ {self.PRODUCT} }}"
        cases = {
            "of each element": text.replace("float {0.3}", "float[2] {0.3,0.4}").replace(",8]", ",2]"),
            "with another axis": text.replace("float {0.3}", "float[1,1,1,1,1] {0.3}").replace(
                "[B,4,S,T] y", "[1,B,4,S,T] y"
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, ["Concat", "Mul", "FusedMatMul"])

    def test_what_it_declines(self):
        text = f"{self.SIGNATURE} {{ {self.PRODUCT} }}"
        cases = {
            "keys that are no cache, and not rotated": text.replace(
                "keys = Concat <axis=2> (past, k)", "keys = Neg (past)"
            ),
            "other axes": text.replace("perm=[0,1,3,2]", "perm=[0,3,1,2]")
            .replace("[B,4,P,8] past", "[B,8,P,4] past")
            .replace("[B,4,N,8] k", "[B,8,N,4] k")
            .replace("4,S,T] y", "4,S,T] y"),
            "float64": text.replace("float", "double"),
            "another reader of the keys": text.replace("=> (", "=> (float[B,4,8,T] t, "),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


class TestFusedMatmulOfColumns(RuleTestCase):
    RULE = "FusedMatmulOfColumns"
    WEIGHT = "w = Constant <value=float[3,2]{1,2,-3,4,5,6}> ()"
    TEXT = f"agraph (float[B,N,3,4] x) => (float[B,N,4,2] y) {{ {WEIGHT} t = Transpose <perm=[0,1,3,2]> (x) y = MatMul (t, w) }}"

    def test_forms(self):
        self.assert_becomes(self.TEXT, ["FusedMatMul"])
        matrix = self.TEXT.replace("[B,N,3,4] x", "[3,N] x").replace("[B,N,4,2] y", "[N,2] y")
        self.assert_becomes(matrix.replace("perm=[0,1,3,2]", "perm=[1,0]"), ["FusedMatMul"])

    def test_what_it_declines(self):
        cases = {
            "other axes": self.TEXT.replace("[B,N,3,4] x", "[N,4,B,3] x").replace("0,1,3,2", "2,0,1,3"),
            "float64": self.TEXT.replace("float", "double"),
            "another reader": self.TEXT.replace("y) {", "y, float[B,N,4,3] t) {"),
            "a weight that is computed": self.TEXT.replace("x) =>", "x, float[3,2] w) =>").replace(
                self.WEIGHT, ""
            ),
            "matrices": self.TEXT.replace(self.WEIGHT, "w = Constant <value=float[1,3,2]{1,2,-3,4,5,6}> ()"),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)


if __name__ == "__main__":
    unittest.main()
