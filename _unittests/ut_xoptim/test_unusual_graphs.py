"""Graphs that are valid and that hardly anyone writes, found by changing those of other tests in one place."""

from __future__ import annotations

import unittest
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh

from _unittests.ut_xoptim.cases import RuleTestCase, drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize


def with_function(
    nodes: Sequence[onnx.NodeProto], x: onnx.ValueInfoProto, y: onnx.ValueInfoProto
) -> onnx.ModelProto:
    """A model that calls a local function, x to y, of these nodes."""
    opset, own = oh.make_opsetid("", 20), oh.make_opsetid("mine", 1)
    function = oh.make_function("mine", "F", ["x"], ["y"], nodes, [opset])
    graph = oh.make_graph([oh.make_node("F", ["x"], ["y"], domain="mine")], "g", [x], [y])
    model = oh.make_model(graph, functions=[function], opset_imports=[opset, own], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


class TestUnusualGraphs(RuleTestCase):
    def assert_same(
        self, model: onnx.ModelProto, feeds: Mapping[str, Any] | None = None, **options: Any
    ) -> list[str]:
        """The optimized model gives the same; its operators."""
        feeds = drawn(model) if feeds is None else feeds
        optimized = optimize(model, OptimizationOptions(**options))
        for wanted, got in zip(
            session(model).run(None, feeds), session(optimized).run(None, feeds), strict=True
        ):
            if np.asarray(wanted).dtype == object:
                self.assertEqual(wanted.tolist(), got.tolist())
            else:
                np.testing.assert_allclose(wanted, got, rtol=1e-5, atol=1e-6)
        return operators(optimized)

    def test_a_number_that_is_compared_first(self):
        """Equal(-inf, the largest): the mask of the padding alone gives the same rows."""
        text = """agraph (float[2,4,Q,K] x, float[2,4,Q,8] v, bool[2,1,1,K] padding) => (float[2,4,Q,K] y, float[2,4,Q,8] z) {
            zero = Constant<value=int64 {0}>() one = Constant<value=int64 {1}>() axis = Constant<value=int64[1] {3}>()
            axes = Constant<value=int64[3] {0,1,3}>() none = Constant<value=float {0}>() closed = Constant<value_float=-inf>()
            rows = Shape<start=2,end=3>(x) n = Squeeze(rows) r = Range(zero, n, one) u = Unsqueeze(r, axes)
            m = GreaterOrEqual(u, zero) a = And(m, padding) w = Where(a, none, closed) y = Add(x, w)
            l = ReduceMax(w, axis) t = Equal(closed, l) z = Where(t, none, v) }"""
        model = parsed(text)
        feeds = drawn(model) | {"padding": np.array([[1, 1, 0], [0, 0, 0]], bool).reshape(2, 1, 1, 3)}
        for patterns in (["GuardWherePartlyTrue"], "default"):
            with self.subTest(patterns):
                self.assert_same(model, feeds, patterns=patterns)

    def test_a_past_before_the_keys_and_behind_the_values(self):
        text = """agraph (float[B,4,S,8] q, float[B,2,S,8] k, float[B,2,S,8] v, float[B,2,P,8] pk, float[B,2,P,8] pv)
            => (float[B,4,S,8] y, float[B,2,T,8] nk, float[B,2,T,8] nv) {{
            nk = Concat<axis=2>({keys}) nv = Concat<axis=-2>({values}) y = Attention(q, nk, nv) }}"""
        shifted = text.format(keys="pk, k", values="v, pv")
        self.assert_stays(shifted, opset=23, rule="AttentionWithPast")
        self.assert_becomes(
            text.format(keys="pk, k", values="pv, v"), ["Attention"], opset=23, rule="AttentionWithPast"
        )

    GUARDED = """agraph (float[2,4] q, float[4,3] k, float[3,2] v) => (float[{result}] y) {{
        zero = Constant<value=float{rank} {{0}}>() bias = Constant<value=float[2,3] {{{bias}}}>()
        p = MatMul(q, k) s = Add(p, bias) w = Softmax<axis=-1>(s) n = IsNaN(w) g = Where(n, zero, w) y = MatMul(g, v) }}"""

    def test_guards_of_weights(self):
        rule = "GuardOfWeights"
        self.assert_becomes(
            self.GUARDED.format(result="2,2", rank="", bias="0,-inf,0,0,0,-inf"),
            ["MatMul", "Add", "Softmax", "MatMul"],
            rule=rule,
        )
        self.assert_stays(self.GUARDED.format(result="1,2,2", rank="[1,1,1]", bias="1,2,3,4,-5,6"), rule=rule)
        for number in ("inf", "nan"):
            text = self.GUARDED.format(result="2,2", rank="", bias=f"0,{number},0,0,0,1")
            self.assert_stays(text, rule=rule)

    def test_a_negative_epsilon(self):
        text = """agraph (float[B,1,4] a, float[B,1,4] b) => (float[B,1,4] y) {{ w = Constant<value=float[4] {{1,2,3,-4}}>()
            x = Add(a, b) n = SimplifiedLayerNormalization<epsilon={epsilon}, axis=-1>(x, w) y = Relu(n) }}"""
        rule = "SkipSimplifiedLayerNormalization"
        self.assert_stays(text.format(epsilon=-0.001), rule=rule)
        self.assert_becomes(text.format(epsilon=0.001), [rule, "Relu"], rule=rule)

    def test_a_transpose_without_perm(self):
        text = """agraph (float[A,B,3,C] x, float[D,E,F] w) => (float[A,B,3,D] y) { a = Constant<value=float {0.3}>()
            b = Constant<value=float {0.7}>() s = Mul(x, a) u = Transpose(w) t = Mul(u, b) y = MatMul(s, t) }"""
        model = parsed(text)
        feeds = {"x": drawn(model)["x"], "w": np.ones((6, 3, 3), np.float32)}
        self.assertNotIn("Einsum", self.assert_same(model, feeds))

    def test_a_window_that_says_that_it_pads_nothing(self):
        text = """agraph (float[N,2,H,W] x) => (float[N,2,h,w] y) {
            y = AveragePool<auto_pad="NOTSET", ceil_mode=1, kernel_shape=[640,640], strides=[640,640]>(x) }"""
        self.assert_becomes(text, ["AveragePool"], rule="AverageOfLargeWindows")

    OUTPUTS = (  # constants that are results too
        "y, w = If(c) <t = t () => (float[N,M] ty, float[n,m] w) { w = Constant<value=float[3,2] {1,2,3,4,5,6}>() h = Constant<value_float=2.0>()"
        " p = MatMul(x, w) b = Constant<value=float[2] {1,2}>() z = Add(p, b) ty = Mul(z, h) }, e = e () => (float[N,M] ey, float[n,m] ew) "
        "{ ew = Constant<value=float[1,1] {0}>() ey = Constant<value=float[1,1] {0}>() }>",
        "y, w = If(c) <t = t () => (float[N,M] ty, float[n,m] w) { w = Constant<value=float[3,2] {1,2,3,4,5,6}>() h = Constant<value_float=2.0>()"
        " s = Shape(x) e = Expand(h, s) ty = MatMul(e, w) }, e = e () => (float[N,M] ey, float[n,m] ew) "
        "{ ew = Constant<value=float[1,1] {0}>() ey = Constant<value=float[1,1] {0}>() }>",
        "t = Constant<value=float {-2}>() w = Constant<value=float[3,3] {1,2,3,4,5,6,7,8,9}>() s = Shape(x) e = Expand(t, s) y = MatMul(e, w)",
    )

    def test_constants_that_are_results(self):
        for nodes in self.OUTPUTS:
            nodes = nodes.replace("<t = t", "<then_branch = t").replace(", e = e", ", else_branch = e")
            with self.subTest(nodes):
                text = f"agraph (bool c, float[2,3] x) => (float[N,M] y, float[R,S] w) {{ {nodes} }}"
                for condition in (True, False):
                    model = parsed(text)
                    self.assert_same(model, drawn(model) | {"c": np.array(condition)})

    def test_a_branch_whose_results_tell_no_shape(self):
        text = """agraph (bool c, float[2,3] x, float[3,2] w) => (float[2,2] y, float k) { y, k = If(c) <
            then_branch = t () => (float[2,2] ty, float tk) { tk = Constant<value_float=0.5>() a = Mul(x, tk) b = Mul(w, tk) ty = MatMul(a, b) },
            else_branch = e () => (float[2,2] ey, float ek) { ek = Constant<value_float=0.0>() ey = MatMul(x, w) }> }"""
        model = parsed(text)
        for attribute in model.graph.node[0].attribute:
            for value in attribute.g.output:
                value.type.tensor_type.ClearField("shape")
        self.assert_same(model, drawn(model) | {"c": np.array(True)})

    def test_constant_texts(self):
        texts = [oh.make_tensor(name, onnx.TensorProto.STRING, [], [name.encode()]) for name in "cd"]
        nodes = [oh.make_node("Constant", [], [text.name], value=text) for text in texts]
        nodes += [
            oh.make_node("StringConcat", ["x", "c"], ["z"]),
            oh.make_node("StringConcat", ["z", "d"], ["y"]),
        ]
        values = [oh.make_tensor_value_info(name, onnx.TensorProto.STRING, ["N"]) for name in "xy"]
        self.assert_same(with_function(nodes, *values), {"x": np.array(["a", "b"], object)})

    def test_a_mean_of_unknown_rank(self):
        text = """agraph (float[N] z, int64[3] s) => (double[A,B] y) { x = Reshape(z, s) o = Constant<value=int64[1] {1}>()
            t = Transpose<perm=[0,2,1]>(x) c = Cast<to=11>(t) y = ReduceMean<keepdims=0>(c, o) }"""
        model = parsed(text.replace("int64[3] s", "int64[R] s"))
        feeds = {"z": np.arange(24, dtype=np.float32), "s": np.array([2, 3, 4])}
        for special_values in (False, True):
            optimized = optimize(model, special_values=special_values)
            wanted, got = (session(given).run(None, feeds)[0] for given in (model, optimized))
            np.testing.assert_array_equal(wanted, got)
        nodes = [
            oh.make_node("Constant", [], ["o"], value=onnx.numpy_helper.from_array(np.array([1]))),
            oh.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
            oh.make_node("ReduceMean", ["t", "o"], ["y"], keepdims=0),
        ]
        x, y = (oh.make_tensor_value_info(name, 1, list("ABC")[:rank]) for name, rank in (("x", 3), ("y", 2)))
        self.assert_same(with_function(nodes, x, y), {"x": np.ones((2, 3, 4), np.float32)})

    def test_keys_that_are_a_constant_half(self):
        keys = np.random.default_rng(1).normal(size=(3, 2, 3, 8)).astype(np.float16)
        model = parsed(
            """agraph (float[3,6,S,8] q, float16[3,2,3,8] k) => (float[3,6,S,3] y) { axes = Constant<value=int64[1] {2}>()
            spread = Constant<value=int64[5] {1,1,3,1,1}>() heads = Constant<value=int64[4] {0,6,-1,8}>() u = Unsqueeze(k, axes)
            e = Expand(u, spread) r = Reshape(e, heads) c = Cast<to=1>(r) t = Transpose<perm=[0,1,3,2]>(c) y = MatMul(q, t) }"""
        )
        del model.graph.input[1]
        model.graph.initializer.append(onnx.numpy_helper.from_array(keys, "k"))
        self.assert_same(model, patterns=["ScoresOfGroupedHeads"], constant_folding=False)

    def test_minus_zero(self):
        model = parsed("agraph (float[3] x) => (float[3] y) { t = Relu(x) u = Abs(t) y = Reciprocal(u) }")
        feeds = {"x": np.array([-0.0, 0.0, 1], np.float32)}
        for special_values, expected in (
            (True, ["Relu", "Abs", "Reciprocal"]),
            (False, ["Relu", "Reciprocal"]),
        ):
            optimized = optimize(model, special_values=special_values)
            self.assertEqual(expected, operators(optimized))
            if special_values:
                np.testing.assert_array_equal(
                    session(model).run(None, feeds), session(optimized).run(None, feeds)
                )


if __name__ == "__main__":
    unittest.main()
