"""Rules of transpositions."""

import os
import tempfile
import unittest

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize


class TestProductOfTurned(RuleTestCase):
    """What is written ends the process, and is compared with numpy."""

    TEXT = """agraph (float[3,4,5] x, double[3,2] w) => (double[4,5,2] y) {
        t = Transpose <perm=[1,2,0]> (x) u = Unsqueeze (t, axes) s = Squeeze (u, axes) c = Cast <to=11> (s) y = MatMul (c, w) }"""
    AXES = "axes = Constant <value=int64[1] {0}> ()"

    def test_the_cast_comes_first(self):
        text = self.TEXT.replace("{\n", f"{{ {self.AXES} ")
        report, again = Report(), Report()
        optimized = optimize(parsed(text), report=report)
        self.assertEqual(["Cast", "Transpose", "MatMul"], operators(optimized))
        self.assertIn("ProductOfTurned", [name for name, _ in report.applications])
        optimize(optimized, report=again)
        self.assertEqual([], again.applications)
        feeds = drawn(parsed(text))
        expected = np.transpose(feeds["x"], (1, 2, 0)).astype(np.float64) @ feeds["w"]
        np.testing.assert_allclose(session(optimized).run(None, feeds)[0], expected)

    def test_it_stays(self):
        text = self.TEXT.replace("{\n", f"{{ {self.AXES} ")
        plain = optimize(parsed(text), runtime="onnx")
        self.assertEqual(["Transpose", "Cast", "MatMul"], operators(plain))
        for equal in (
            text.replace("double[3,2] w", "double[4,3,2] w"),
            text.replace("1,2,0]", "0,2,1]")
            .replace("double[3,2] w", "double[4,2] w")
            .replace("[4,5,2] y", "[3,5,2] y"),
        ):
            report = Report()
            optimize(parsed(equal), report=report)
            self.assertNotIn("ProductOfTurned", [name for name, _ in report.applications])


class TestTransposeTranspose(RuleTestCase):
    RULE = "TransposeTranspose"

    def test_they_undo_each_other(self):
        self.assert_becomes(
            "agraph (float[N,3] x) => (float[N,3] y) { t = Transpose <perm=[1,0]> (x) u = Transpose (t) y = Relu(u) }",
            ["Relu"],
        )

    def test_they_are_one(self):
        self.assert_becomes(
            """agraph (float[2,3,4] x) => (float[3,4,2] y) {
            t = Transpose <perm=[0,2,1]> (x) y = Transpose <perm=[2,1,0]> (t) }""",
            ["Transpose"],
        )

    def test_an_output_keeps_its_name(self):
        self.assert_becomes(
            "agraph (float[2,3] x) => (float[2,3] y) { t = Transpose (x) y = Transpose (t) }", ["Identity"]
        )

    def test_the_first_one_has_other_users(self):
        self.assert_becomes(
            "agraph (float[2,3] x) => (float[2,3] y, float[3,2] z) { t = Transpose (x) u = Transpose (t) z = Relu(t) y = Neg(u) }",
            ["Transpose", "Relu", "Neg"],
        )

    def test_something_between(self):
        self.assert_stays(
            "agraph (float[2,3] x) => (float[2,3] y) { t = Transpose (x) r = Relu(t) y = Transpose (r) }"
        )

    def test_in_a_branch(self):
        self.assert_becomes(
            """agraph (bool c, float[2,3] x) => (float[2,3] y) {
            t = Transpose (x)
            y = If (c) <then_branch = a () => (float[2,3] z) { u = Transpose (t) z = Relu(u) },
                        else_branch = b () => (float[2,3] w) { w = Neg(x) }> }""",
            ["If"],
        )


class TestTransposeNothing(RuleTestCase):
    RULE = "TransposeNothing"

    def test_a_permutation_that_moves_nothing(self):
        self.assert_becomes(
            "agraph (float[2,3] x) => (float[2,3] y) { t = Transpose <perm=[0,1]> (x) y = Relu(t) }", ["Relu"]
        )

    def test_a_permutation_that_moves(self):
        self.assert_stays("agraph (float[2,3] x) => (float[3,2] y) { t = Transpose (x) y = Relu(t) }")


class TestTransposing(RuleTestCase):
    BECOME = {
        "TransposeOnes": [
            ("float[N,1,6] x", "float[1,N,6]", "y = Transpose<perm=[1,0,2]>(x)", ["Reshape"]),
            ("float[2,1,6,1] x", "float[1,2,1,6]", "y = Transpose<perm=[1,0,3,2]>(x)", ["Reshape"]),
        ],
        "TransposeElementwiseTranspose": [
            ("float[N,3,4] x", "float[N,3,4]", "a = Transpose<perm=[0,2,1]>(x) b = Relu(a) y = Transpose<perm=[0,2,1]>(b)", ["Relu"]),
            ("float[N,3,4] x", "float[3,4,N]", "two = Constant<value_float=2.0>() a = Transpose<perm=[0,2,1]>(x) b = Sub(two, a) c = Exp(b) y = Transpose<perm=[2,1,0]>(c)", ["Sub", "Exp", "Transpose"]),
            ("float[N,3,4] x", "float[N,3,4]", "k = Constant<value=float[3]{1.0,2.0,3.0}>() a = Transpose<perm=[0,2,1]>(x) b = Mul(a, k) y = Transpose<perm=[0,2,1]>(b)", ["Mul"]),
            ("float[4,3] x", "float16[4,3]", "a = Transpose(x) b = Cast<to=10>(a) y = Transpose(b)", ["Cast"]),
            ("float[4,3] x", "float[4,3]", "l = Constant<value_float=-0.5>() h = Constant<value_float=0.5>() a = Transpose(x) b = Clip(a, l, h) y = Transpose(b)", ["Clip"]),
        ],
        "TransposeGateTranspose": [
            ("float[N,3,4] x", "float[N,3,4]", "a = Transpose<perm=[0,2,1]>(x) b = Sigmoid(a) c = Mul(a, b) y = Transpose<perm=[0,2,1]>(c)", ["Sigmoid", "Mul"]),
            ("float[N,3,4] x", "float[3,4,N]", "a = Transpose<perm=[0,2,1]>(x) b = Tanh(a) c = Mul(b, a) y = Transpose<perm=[2,1,0]>(c)", ["Tanh", "Mul", "Transpose"]),
        ],
        "TransposePadTranspose": [
            ("float[N,3,4] x", "float[N,4,7]", "p = Constant<value=int64[6]{0,1,0,0,2,1}>() a = Transpose<perm=[0,2,1]>(x) b = Pad(a, p) y = Transpose<perm=[0,2,1]>(b)", ["Pad"]),
            ("float[N,3,4] x", "float[4,5,N]", "p = Constant<value=int64[6]{0,-1,1,0,2,0}>() v = Constant<value_float=2.0>() k = Constant<value=float[3]{1.0,2.0,3.0}>() a = Transpose<perm=[0,2,1]>(x) c = Mul(a, k) b = Pad(c, p, v) y = Transpose<perm=[2,1,0]>(b)", ["Mul", "Pad", "Transpose"]),
            ("float[N,3,4] x", "float[N,5,4]", "p = Constant<value=int64[6]{0,0,1,0,0,1}>() a = Transpose<perm=[0,2,1]>(x) g = Sigmoid(a) c = Mul(g, a) b = Pad<mode=\"reflect\">(c, p) y = Transpose<perm=[0,2,1]>(b)", ["Sigmoid", "Mul", "Pad"]),
        ],
        "TransposeSoftmaxTranspose": [
            ("float[N,3,4] x", "float[N,3,4]", "a = Transpose<perm=[0,2,1]>(x) b = Softmax(a) y = Transpose<perm=[0,2,1]>(b)", ["Softmax"]),
            ("float[N,3,4] x", "float[N,3,4]", "a = Transpose<perm=[1,2,0]>(x) b = LogSoftmax<axis=1>(a) y = Transpose<perm=[2,0,1]>(b)", ["LogSoftmax"]),
        ],
        "TransposedOperands": [
            ("float[N,3,4] x, float[1,3,4] w", "float[3,4,N]", "a = Transpose<perm=[1,2,0]>(x) b = Transpose<perm=[1,2,0]>(w) y = Sub(b, a)", ["Sub", "Transpose"]),
        ],
        "ReducedTranspose": [
            ("float[N,3,4] x", "float[N,3]", "o = Constant<value=int64[1]{1}>() a = Transpose<perm=[0,2,1]>(x) y = ReduceMean<keepdims=0>(a, o)", ["ReduceMean"]),
            ("float[N,3,4,5] x", "float[N,3]", "o = Constant<value=int64[2]{-3,2}>() a = Transpose<perm=[0,2,3,1]>(x) y = ReduceMax<keepdims=0>(a, o)", ["ReduceMax"]),
            ("float[N,3,4,5] x", "float[N,1,1,5]", "o = Constant<value=int64[2]{1,2}>() a = Transpose<perm=[0,2,1,3]>(x) y = ReduceMax(a, o)", ["ReduceMax"]),
            ("float[N,3,4] x", "double[N,3]", "o = Constant<value=int64[1]{1}>() a = Transpose<perm=[0,2,1]>(x) c = Cast<to=11>(a) y = ReduceMean<keepdims=0>(c, o)", ["Cast", "ReduceMean"]),
            ("float[N,2,M] x", "float[N,K]", "o = Constant<value=int64[1]{2}>() s = Constant<value=int64[1]{0}>() e = Constant<value=int64[1]{-1}>() l = Constant<value=int64[1]{1}>() a = Transpose<perm=[0,2,1]>(x) b = Slice(a, s, e, l, l) y = ReduceSum<keepdims=0>(b, o)", ["Slice", "ReduceSum"]),
            ("float[N,2,M] x", "double[N,K]", "o = Constant<value=int64[1]{-1}>() s = Constant<value=int64[1]{1}>() e = Constant<value=int64[1]{4}>() l = Constant<value=int64[1]{-2}>() a = Transpose<perm=[0,2,1]>(x) b = Slice(a, s, e, l) c = Cast<to=11>(b) y = ReduceSum<keepdims=0>(c, o)", ["Slice", "Cast", "ReduceSum"]),
        ],
        "ConcatTransposed": [
            ("float[N,3,4] x, float[N,3,2] w", "float[N,6,3]", "a = Transpose<perm=[0,2,1]>(x) b = Transpose<perm=[0,2,1]>(w) y = Concat<axis=-2>(a, b)", ["Concat", "Transpose"]),
        ],
        "TransposeOfUnsqueezed": [
            ("float[N,4,3,5] x", "float[3,N,4,5]", "o = Constant<value=int64[1]{0}>() p = Constant<value=int64[1]{3}>() a = Unsqueeze(x, o) b = Transpose<perm=[3,1,2,0,4]>(a) y = Squeeze(b, p)", ["Transpose"]),
            ("float[N,4] x", "float[N,4]", "o = Constant<value=int64[2]{0,-1}>() p = Constant<value=int64[2]{1,2}>() a = Unsqueeze(x, o) b = Transpose<perm=[1,0,3,2]>(a) c = Squeeze(b, p) y = Neg(c)", ["Neg"]),
        ],
        "ReshapeAroundTranspose": [
            ("float[S,2,6] x", "float[2,3,S,2]", "p = Constant<value=int64[3]{0,6,2}>() s = Shape<end=1>(x) q = Constant<value=int64[2]{2,3}>() d = Constant<value=int64[1]{2}>() t = Concat<axis=0>(q, s, d) a = Reshape(x, p) b = Transpose<perm=[1,0,2]>(a) y = Reshape(b, t)", ["Reshape", "Transpose"]),
        ],
        "TransposeWithLeadingAxesAsOne": [
            ("float[N,3,M,5] x", "float[N,3,5,M]", "s = Shape(x) m = Shape<start=2,end=3>(x) k = Constant<value=int64[1]{-1}>() f = Constant<value=int64[1]{5}>() p = Concat<axis=0>(k, m, f) h = Shape<end=2>(x) q = Concat<axis=0>(h, f, m) a = Reshape(x, p) b = Transpose<perm=[0,2,1]>(a) y = Reshape(b, q)", ["Transpose"]),
        ],
    }  # fmt: skip
    STAY = {
        "TransposeOfWeight": [
            ("float[N,2] x", "float[N,3]", "w = Constant<value=float[3,2]{1.0,2.0,3.0,4.0,5.0,6.0}>() t = Transpose(w) y = MatMul(x, t) z = Neg(w)", "float[3,2] z"),
            ("float[N,2] x", "float[N,3]", "w = Constant<value=float[3,2]{1.0,2.0,3.0,4.0,5.0,6.0}>() t = Transpose(w) y = MatMul(x, t)", "float[2,3] t"),
            ("float[N,2] x", "float[N,3]", "w = Constant<value=float[3,2]{1.0,2.0,3.0,4.0,5.0,6.0}>() t = Transpose(w) y = Gemm(x, t)"),
        ],
        "TransposeOnes": [
            ("float[N,3,6] x", "float[3,N,6]", "y = Transpose<perm=[1,0,2]>(x)"),
            ("float[N,1,M] x", "float[1,N,M]", "y = Transpose<perm=[1,0,2]>(x)"),
        ],
        "TransposeElementwiseTranspose": [
            ("float[N,3,4] x", "float[N,3,4]", "a = Transpose<perm=[0,2,1]>(x) b = Softmax(a) y = Transpose<perm=[0,2,1]>(b)"),
            ("float[N,3,4] x", "float[N,3,4]", "a = Transpose<perm=[0,2,1]>(x) b = Relu(a) y = Transpose<perm=[0,2,1]>(b) z = Neg(b)", "float[N,4,3] z"),
            ("float[N,3,4] x", "float[N,3,4]", "a = Transpose<perm=[0,2,1]>(x) b = Relu(a) y = Transpose<perm=[0,2,1]>(b)", "float[N,4,3] a"),
            ("float[4] x", "float[4,2]", "k = Constant<value=float[2,1]{1.0,2.0}>() a = Transpose(x) b = Add(a, k) y = Transpose(b)"),
        ],
        "TransposeGateTranspose": [
            ("float[N,3,4] x", "float[N,3,4]", "a = Transpose<perm=[0,2,1]>(x) b = Sigmoid(a) c = Mul(a, b) y = Transpose<perm=[0,2,1]>(c) z = Neg(a)", "float[N,4,3] z"),
            ("float[N,3,4] x", "float[N,3,4]", "a = Transpose<perm=[0,2,1]>(x) b = Sigmoid(a) c = Mul(a, b) y = Transpose<perm=[0,2,1]>(c)", "float[N,4,3] b"),
        ],
        "TransposePadTranspose": [
            ("float[N,3,4] x", "float[N,4,7]", "p = Constant<value=int64[6]{0,1,0,0,2,1}>() a = Transpose<perm=[0,2,1]>(x) b = Pad(a, p) y = Transpose<perm=[0,2,1]>(b)", "float[N,7,4] b"),
            ("float[N,3,4] x", "float[N,4,7]", "p = Constant<value=int64[6]{0,1,0,0,2,1}>() a = Transpose<perm=[0,2,1]>(x) b = Pad(a, p) y = Transpose<perm=[0,2,1]>(b)", "float[N,4,3] a"),
        ],
        "TransposeSoftmaxTranspose": [
            ("float[N,3,4] x", "float[4,N,3]", "a = Transpose<perm=[0,2,1]>(x) b = Softmax(a) y = Transpose<perm=[1,0,2]>(b)"),
        ],
        "TransposedOperands": [
            ("float[3,3,4] x, float[1,3,4] w", "float[3,4,3]", "a = Transpose<perm=[1,2,0]>(x) b = Transpose<perm=[0,2,1]>(w) y = Sub(b, a)"),
            ("float[3,4] x, float[3,4] w", "float[4,3]", "a = Transpose(x) b = Transpose(w) y = Sub(b, a)", "float[4,3] a"),
        ],
        "ReducedTranspose": [
            ("float[N,3,4,5] x", "float[4,N,5]", "o = Constant<value=int64[1]{2}>() a = Transpose<perm=[2,0,1,3]>(x) y = ReduceMean<keepdims=0>(a, o)"),
            ("float[N,3,4] x", "float[N,1,3]", "o = Constant<value=int64[1]{1}>() a = Transpose<perm=[0,2,1]>(x) y = ReduceMean(a, o)"),
            ("float[N,3,4] x", "double[N,3]", "o = Constant<value=int64[1]{1}>() a = Transpose<perm=[0,2,1]>(x) c = Cast<to=11>(a) y = ReduceMean<keepdims=0>(c, o)", "double[N,4,3] c"),
            ("float[N,2,M] x", "float[N,K]", "o = Constant<value=int64[1]{2}>() s = Constant<value=int64[1]{0}>() e = Constant<value=int64[1]{-1}>() l = Constant<value=int64[1]{1}>() a = Transpose<perm=[0,2,1]>(x) b = Slice(a, s, e, l, l) y = ReduceSum<keepdims=0>(b, o)", "float[N,K,2] b"),
        ],
        "ConcatTransposed": [
            ("float[3,3,4] x, float[3,3,4] w", "float[6,4,3]", "a = Transpose<perm=[0,2,1]>(x) b = Transpose<perm=[1,2,0]>(w) y = Concat<axis=0>(a, b)"),
        ],
        "TransposeOfUnsqueezed": [
            ("float[1,4] x", "float[1,4]", "o = Constant<value=int64[1]{0}>() p = Constant<value=int64[1]{0}>() a = Unsqueeze(x, o) b = Transpose<perm=[1,0,2]>(a) y = Squeeze(b, p)"),
        ],
        "ReshapeAroundTranspose": [
            ("float[S,2,6] x", "float[3,4,S]", "p = Constant<value=int64[3]{0,6,2}>() q = Constant<value=int64[3]{3,4,-1}>() a = Reshape(x, p) b = Transpose<perm=[1,2,0]>(a) y = Reshape(b, q)"),
            ("float[S,2,6] x", "float[2,3,S,2]", "p = Constant<value=int64[3]{0,6,2}>() q = Constant<value=int64[4]{2,3,-1,2}>() a = Reshape(x, p) b = Transpose<perm=[1,0,2]>(a) y = Reshape(b, q) z = Neg(b)", "float[6,S,2] z"),
        ],
        "TransposeWithLeadingAxesAsOne": [
            ("float[2,3,4,5] x", "float[3,2,5,4]", "p = Constant<value=int64[3]{6,4,5}>() q = Constant<value=int64[4]{3,2,5,4}>() a = Reshape(x, p) b = Transpose<perm=[0,2,1]>(a) y = Reshape(b, q)"),
            ("float[2,3,4,5] x", "float[5,6,4]", "p = Constant<value=int64[3]{6,4,5}>() q = Constant<value=int64[3]{5,6,4}>() a = Reshape(x, p) b = Transpose<perm=[2,0,1]>(a) y = Reshape(b, q)"),
        ],
    }  # fmt: skip

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_a_constant_without_elements(self):
        text = """agraph (float[N,M,1] x) => (float[N,M,0] y) <float[0,2] k = {}> {
            a = Transpose<perm=[1,2,0]>(x) b = Mul(a, k) y = Transpose<perm=[2,0,1]>(b) }"""
        self.assert_stays(text, rule="TransposeElementwiseTranspose", sizes=2)

    def test_attributes_that_are_inputs_now(self):
        """The rows of the runtime are for the inputs."""
        for rule, opset, result, nodes, expected in (
            ("TransposeElementwiseTranspose", 10, "float[3,B]", "t = Transpose(x) k = Clip<min=-1.0, max=1.0>(t) y = Transpose(k)", ["Clip"]),
            ("TransposeElementwiseTranspose", 11, "float[3,B]", "c = Constant<value=float[3]{1.0,2.0,3.0}>() t = Transpose(x) k = Mul(t, c) y = Transpose(k)", ["Mul"]),
            ("ReducedTranspose", 11, "float[B]", "t = Transpose(x) k = ReduceSum<axes=[1], keepdims=0>(t) y = Neg(k)", ["ReduceSum", "Neg"]),
        ):  # fmt: skip
            with self.subTest(nodes):
                text = f"agraph (float[3,B] x) => ({result} y) {{ {nodes} }}"
                self.assert_becomes(text, expected, rule=rule, opset=opset)


WEIGHT = "w = Constant<value=float[3,2]{1.0,2.0,3.0,4.0,5.0,6.0}>()"


class TestTransposeOfWeight(RuleTestCase):
    RULE = "TransposeOfWeight"

    def test_permutations(self):
        kernel = "w = Constant<value=double[1,3,2]{1.0,2.0,3.0,4.0,5.0,6.0}>()"
        cases = {
            "a matrix": f"agraph (float[N,2] x) => (float[N,3] y) {{ {WEIGHT} t = Transpose(w) y = MatMul(x, t) }}",
            "three axes of float64": f"""agraph (double[N,3,1] x) => (double[N,3,1] y) {{
                {kernel} t = Transpose<perm=[2,1,0]>(w) s = ReduceMax<keepdims=0>(t) y = Mul(x, s) }}""",
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                expected = ["MatMul"] if promise == "a matrix" else ["ReduceMax", "Mul"]
                self.assert_becomes(text, expected)

    def test_a_weight_around_a_branch(self):
        text = f"""agraph (bool c, float[4,2] x) => (float[4,3] y) {{
            {WEIGHT} y = If (c) <then_branch = a () => (float[4,3] z) {{ t = Transpose(w) z = MatMul(x, t) }},
                                 else_branch = b () => (float[4,3] v) {{ s = ReduceMax(x) o = Constant<value=int64[2]{{4,3}}>() v = Expand(s, o) }}> }}"""
        optimized = optimize(parsed(text), OptimizationOptions([self.RULE]))
        branch = optimized.graph.node[0].attribute[0].g
        self.assertEqual(["MatMul"], [node.op_type for node in branch.node])
        feeds = {"c": np.array(True), "x": np.arange(8, dtype=np.float32).reshape(4, 2)}
        wanted, got = (session(model).run(None, feeds)[0] for model in (parsed(text), optimized))
        np.testing.assert_array_equal(wanted, got)

    def test_float8(self):
        def text(kind="float8e4m3fn", to=17, middle=1, result="float[N,3] y", saturate=1):
            nodes = f"f = Cast<to={middle}>(w) t = Transpose(f) c = Cast<to={to}, saturate={saturate}>(t) b = Cast<to=1>(c) y = MatMul(x, b)"
            return f"agraph (float[N,2] x) => ({result}) <{kind}[3,2] w = {{1, 200, 60, 126, 92, 255}}> {{ {nodes} }}"

        rule = "TransposeOfFloat8"
        infinite = text("float8e5m2", 19, saturate=0).replace("255", "124")
        for form in (
            text(),
            text(to=18, kind="float8e4m3fnuz"),
            text(to=20, kind="float8e5m2fnuz"),
            infinite,
        ):
            with self.subTest(form):
                self.assert_becomes(form, ["Cast", "MatMul"], rule=rule)
        stays = {
            "an infinity that becomes finite": infinite.replace("saturate=0", "saturate=1"),
            "another dtype": text(to=19),
            "a half between": text(middle=10),
            "another reader": text(result="float[N,3] y, float[3,2] f"),
            "float32": "agraph (float[N,2] x) => (float[N,3] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}> { f = Cast<to=1>(w) t = Transpose(f) c = Cast<to=1>(t) y = MatMul(x, c) }",
        }
        for promise, form in stays.items():
            with self.subTest(promise):
                self.assert_stays(form, rule=rule)

    def test_a_weight_of_a_file_stays_there(self):
        model = ir.from_proto(
            parsed(
                f"agraph (float[N,2] x) => (float[N,3] y) {{ {WEIGHT} t = Transpose(w) y = MatMul(x, t) }}"
            )
        )
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        with tempfile.TemporaryDirectory() as folder:
            ir.save(model, os.path.join(folder, "model.onnx"), external_data="data", size_threshold_bytes=0)
            report = Report()
            options = OptimizationOptions([self.RULE], constant_folding=False)
            optimize(ir.load(os.path.join(folder, "model.onnx")), options, report=report)
        self.assertEqual({(self.RULE, "the weight stays in its file"): 1}, dict(report.declined))

    def test_elements_of_half_a_byte(self):
        model = ir.from_proto(
            parsed(
                "agraph (int4[2,4] w, float s) => (float[4,2] y) { t = Transpose(w) y = DequantizeLinear(t, s) }",
                21,
            )
        )
        weight = model.graph.inputs.pop(0)
        weight.const_value = ir.PackedTensor(np.zeros(4, np.uint8), ir.DataType.INT4, shape=ir.Shape([2, 4]))
        model.graph.register_initializer(weight)
        report = Report()
        optimize(model, OptimizationOptions([self.RULE], constant_folding=False), report=report)
        self.assertEqual({(self.RULE, "its elements are no whole bytes"): 1}, dict(report.declined))

    def test_the_weight_is_moved_when_it_is_written(self):
        text = f"agraph (float[N,2] x) => (float[N,3] y) {{ {WEIGHT} t = Transpose(w) y = MatMul(x, t) }}"
        model = optimize(
            ir.from_proto(parsed(text)), OptimizationOptions([self.RULE], constant_folding=False)
        )
        (weight,) = model.graph.initializers.values()
        self.assertEqual("w_transposed", weight.name)
        self.assertIsInstance(weight.const_value, ir.LazyTensor)
        np.testing.assert_array_equal([[1, 3, 5], [2, 4, 6]], weight.const_value.numpy())


class TestTransposedLeftOfGemm(RuleTestCase):
    RULE = "TransposedLeftOfGemm"

    def test_the_gemm_transposes(self):
        for flag in (0, 1):
            sizes = "4,3" if flag else "3,4"
            self.assert_becomes(
                f"""agraph (float[{sizes}] x, float[3,5] y, float[5] c) => (float[4,5] z) {{
                t = Transpose <perm=[1,0]> (x) z = Gemm <alpha=0.5, beta=2.0, transA={flag}> (t, y, c) }}""",
                ["Gemm"],
            )

    def test_without_a_bias(self):
        self.assert_becomes(
            "agraph (float[3,4] x, float[3,5] y) => (float[4,5] z) { t = Transpose (x) z = Gemm (t, y) }",
            ["Gemm"],
        )

    def test_others_read_the_transposed_matrix(self):
        self.assert_stays(
            """agraph (float[3,4] x, float[3,5] y) => (float[4,5] z, float[4,3] u) {
            t = Transpose (x) z = Gemm (t, y) u = Relu(t) }"""
        )

    def test_a_matrix_whose_rank_is_not_known(self):
        for given, expected in (
            ("alpha=0.5", ["Reshape", "Gemm"]),
            ("beta=0.5", ["Reshape", "Transpose", "Gemm"]),
        ):
            text = f"""agraph (float[N,4] x, int64[R] s, float[3,5] w, float[5] c) => (float[M,5] z) {{
                r = Reshape (x, s) t = Transpose <perm=[1,0]> (r) z = Gemm <{given}> (t, w, c) }}"""
            model = parsed(text)
            optimized = optimize(model)
            feeds = drawn(model) | {"s": np.array([3, 4])}
            wanted, got = (session(item).run(None, feeds)[0] for item in (model, optimized))
            np.testing.assert_allclose(wanted, got, rtol=1e-5, atol=1e-6)
            self.assertEqual(expected, operators(optimized))


class TestTransposedRightOfGemm(RuleTestCase):
    RULE = "TransposedRightOfGemm"

    def test_the_gemm_transposes(self):
        for flag in (0, 1):
            sizes = "3,5" if flag else "5,3"
            self.assert_becomes(
                f"""agraph (float[N,3] x, float[{sizes}] y, float[5] c) => (float[N,5] z) {{
                t = Transpose <perm=[1,0]> (y) z = Gemm <transB={flag}> (x, t, c) }}""",
                ["Gemm"],
            )

    def test_a_permutation_that_moves_nothing(self):
        self.assert_stays(
            """agraph (float[N,3] x, float[3,5] y) => (float[N,5] z) {
            t = Transpose <perm=[0,1]> (y) z = Gemm (x, t) }"""
        )


if __name__ == "__main__":
    unittest.main()
