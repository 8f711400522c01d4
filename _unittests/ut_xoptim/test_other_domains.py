"""Nodes of another domain, local functions and custom operators, may have the names of ONNX's operators: no rule takes them for these."""

import unittest

import numpy as np
import onnx.parser
import onnx_ir as ir

from _unittests.ut_xoptim.cases import drawn, operators
from experimental_experiment.comparison import session
from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.xoptim import OptimizationOptions, optimize

HEADER = '<ir_version: 10, opset_import: ["" : {opset}, "my" : 1]> '
FUNCTIONS = {
    "Concat": "<axis>(x, y) => (z) { n = Neg(x) z = Concat<axis: int = @axis>(n, y) }",
    "Expand": "(x, s) => (z) { e = Expand(x, s) z = Neg(e) }",
    "Range": "(a, b, c) => (z) { r = Range(a, b, c) five = Constant<value = int64 {5}>() z = Add(r, five) }",
    "Shape": "(x) => (z) { s = Shape(x) one = Constant<value = int64[1] {-1}>() end = Constant<value = int64[1] {-9}>() "
    "axis = Constant<value = int64[1] {0}>() z = Slice(s, one, end, axis, one) }",
    "Slice": "(x, s, e, a, t) => (z) { p = Slice(x, s, e, a, t) z = Neg(p) }",
    "Split": "(x) => (y, z) { y = Neg(x) z = Identity(x) }",
    "Transpose": "(x) => (z) { t = Neg(x) z = Transpose<perm=[1, 0]>(t) }",
}
"""What a function of such a name does: another thing."""


class TestNamesOfOnnx(unittest.TestCase):
    CASES = {
        "a Split whose parts are joined": ("float[3,4] x", "float[M,4] y", "a, b = my.Split(x) y = Concat<axis=0>(a, b)"),
        "Transposes that are joined": (
            "float[3,4] x, float[3,4] w",
            "float[8,3] y",
            "a = my.Transpose(x) b = my.Transpose(w) y = Concat<axis=0>(a, b)",
            "float[4,3] a, float[4,3] b",
        ),
        "a Shape of which a shape is made": (
            "float[A,4] x",
            "float[?,?,?] y",
            "s = my.Shape(x) t = Concat<axis=0>(s, one) y = Reshape(x, t)",
            "int64[1] one = {1}",
        ),
        "an Expand before a Where": (
            "bool[4,300] c, float[4,300] x, float[1,300] w",
            "float[4,300] y",
            "e = my.Expand(w, s) y = Where(c, e, x)",
            "int64[2] s = {4, 300}, float[4,300] e",
        ),
        "Slices side by side": (
            "float[6,5] x",
            "float[6,5] y",
            "p = my.Slice(x, zero, three, zero, one) q = my.Slice(x, three, six, zero, one) y = Concat<axis=0>(p, q)",
            "int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[1] six = {6}, float[3,5] p, float[3,5] q",
        ),
        "Slices of patches": (
            "float[1,4,4,5] x",
            "float[1,2,2,20] y",
            " ".join(f"p{k} = my.Slice(x, s{k}, e, a, t)" for k in range(4)) + " y = Concat<axis=3>(p0, p1, p2, p3)",
            "int64[2] s0 = {0, 0}, int64[2] s1 = {1, 0}, int64[2] s2 = {0, 1}, int64[2] s3 = {1, 1}, int64[2] e = {9, 9}, "
            "int64[2] a = {1, 2}, int64[2] t = {2, 2}" + "".join(f", float[1,2,2,5] p{k}" for k in range(4)),
        ),
        "angles that are joined": (
            "float[1,2,5,8] x, float[1,1,5,4] w",
            "float[1,2,5,8] y",
            "a = my.Concat<axis=-1>(w, w) c = Cos(a) s = Sin(a) l, r = Split<axis=-1, num_outputs=2>(x) n = Neg(r) "
            "j = Concat<axis=-1>(n, l) p = Mul(x, c) q = Mul(j, s) y = Add(p, q)",
            "float[1,1,5,8] a",
        ),
        "positions that a Range counts": (
            "float[2,4] x",
            "float[2,4] y",
            "k = my.Range(zero, four, one) m = LessOrEqual(k, query) b = Where(m, none, low) l = ReduceMax<keepdims=1>(b, last) "
            "g = Equal(l, low) y = Where(g, none, x)",
            "int64 zero = {0}, int64 four = {4}, int64 one = {1}, int64[1,1] query = {0}, float none = {0}, float low = {-inf}, "
            "int64[1] last = {-1}, int64[4] k",
        ),
    }  # fmt: skip

    def test_they_are_no_operators_of_onnx(self):
        for promise, (inputs, result, nodes, *constants) in self.CASES.items():
            with self.subTest(promise):
                known = f"<{constants[0]}>" if constants else ""
                text = f"agraph ({inputs}) => ({result}) {known} {{ {nodes} }} "
                for name, body in FUNCTIONS.items():
                    if f"my.{name}" in nodes:
                        text += f'<domain: "my", opset_import: ["": 23]> {name} {body} '
                model = onnx.parser.parse_model(HEADER.format(opset=23) + text)
                for patterns in ("default", "default+onnxruntime"):
                    optimized = optimize(model, OptimizationOptions(patterns=patterns))
                    for seed in (0, 1):
                        feeds = drawn(model, seed)
                        wanted, got = (session(item).run(None, feeds) for item in (model, optimized))
                        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5, atol=1e-6)

    def test_the_same_nodes_without_a_domain_are(self):
        """The rules that the cases are about do apply."""
        for promise in (
            "Slices side by side",
            "Slices of patches",
            "an Expand before a Where",
            "angles that are joined",
            "positions that a Range counts",
        ):
            inputs, result, nodes, constants = self.CASES[promise]
            nodes = nodes.replace("my.", "")
            text = f"agraph ({inputs}) => ({result}) <{constants}> {{ {nodes} }}"
            model = onnx.parser.parse_model(HEADER.format(opset=23) + text)
            with self.subTest(promise):
                self.assertNotEqual(operators(model), operators(optimize(model)))

    def test_who_gives_a_value(self):
        x = ir.val("x")
        for domain, found in (("", True), ("my", False)):
            node = ir.node("Neg", [x], domain=domain)
            self.assertEqual(
                [found, found, False, found, False],
                [
                    producer_of(node.outputs[0]) is node,
                    producer_of(node.outputs[0], "Abs", "Neg") is node,
                    producer_of(node.outputs[0], "Abs") is node,
                    is_of(node, "Abs", "Neg"),
                    is_of(node, "Abs"),
                ],
            )
        self.assertEqual([None, None, False], [producer_of(x), producer_of(None), is_of(None, "Neg")])
