"""Branches of conditions that are known."""

import unittest

import numpy as np
import onnx
import onnx_ir as ir

from _unittests.ut_xoptim.cases import drawn, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import optimize

YES = "bool c = {1}"
NO = "bool[1] c = {0}"
BRANCHES = """y = If(c) <then_branch = yes () => (float[N] a) { t = Exp(x) a = Add(t, one) },
    else_branch = no () => (float[N] b) { t2 = Neg(x) b = Sin(t2) }>"""


class TestKnownConditions(unittest.TestCase):
    def same(self, model: onnx.ModelProto) -> list[str]:
        """The operators of the optimized model, which gives the same and is optimized no further."""
        optimized = optimize(model)
        onnx.checker.check_model(optimized, full_check=True)
        feeds = drawn(model)
        np.testing.assert_equal(session(model).run(None, feeds), session(optimized).run(None, feeds))
        self.assertEqual(optimized, optimize(optimized))
        return operators(optimized)

    def test_one_branch_stays(self):
        cases = {
            "true": (YES, BRANCHES, "Exp Add"),
            "false, a vector": (NO, BRANCHES, "Neg Sin"),
            "computed": ("bool d = {0}", f"c = Not(d) {BRANCHES}", "Exp Add"),
            "an outer value is the result": (
                YES,
                """z = If(c) <then_branch = yes () => (float[N] a) { a = Identity(x) },
                    else_branch = no () => (float[N] b) { b = Sin(x) }> y = Neg(z)""",
                "Neg",
            ),
            "it is an output": (
                YES,
                """y = If(c) <then_branch = yes () => (float[N] a) { a = Identity(x) },
                    else_branch = no () => (float[N] b) { b = Sin(x) }>""",
                "Identity",
            ),
            "one inside the other": (
                YES,
                """y = If(c) <then_branch = yes () => (float[N] a) {
                        a = If(c) <then_branch = yes2 () => (float[N] a2) { t3 = Cos(x) a2 = Neg(t3) },
                            else_branch = no2 () => (float[N] b2) { b2 = Sin(x) }> },
                    else_branch = no () => (float[N] b) { b = Sin(x) }>""",
                "Cos Neg",
            ),
            "its constant is one of those around it": (
                YES,
                """z = If(c) <then_branch = yes () => (float[N] a) { k = Constant<value = float {1}>() a = Add(x, k) },
                    else_branch = no () => (float[N] b) { b = Sin(x) }> s = Add(x, one) y = Mul(s, z)""",
                "Add Mul",
            ),
            "the other branch reads what is then inside of a pattern": (
                YES,
                """r = Concat<axis=0>(x, x) q = Concat<axis=0>(r, x) z = If(c) <then_branch = yes () => (float[N] a) { a = Exp(x) },
                    else_branch = no () => (float[N] b) { t = ReduceSum<keepdims=0>(r) b = Add(x, t) }> s = ReduceSum<keepdims=0>(q) y = Add(z, s)""",
                "Concat Exp ReduceSum Add",
            ),
            "not known": (
                "bool e = {1}",
                f"s = ReduceSum(x) c = Greater(s, one) {BRANCHES}",
                "ReduceSum Greater If",
            ),
        }
        for promise, (constant, text, expected) in cases.items():
            with self.subTest(promise):
                model = parsed(
                    f"agraph (float[N] x) => (float[N] y) <{constant}, float one = {{1}}> {{ {text} }}"
                )
                self.assertEqual(
                    expected.split(), [name for name in self.same(model) if name in expected.split()]
                )
                self.assertEqual("If" in expected, "If" in self.same(model))

    def test_two_with_the_same_names(self):
        """Branches of two nodes may give their results the same names, and have weights of the same names."""
        outer = parsed(
            f"""agraph (float[N] x) => (float[N] y, float[N] z) <{YES}> {{
                y = If(c) <then_branch = yes () => (float[N] a) {{ k = Constant <value_float=2.0> () t = Exp(x) a = Add(t, k) }},
                    else_branch = no () => (float[N] b) {{ b = Sin(x) }}>
                z = If(c) <then_branch = yes () => (float[N] a) {{ k = Constant <value_float=3.0> () t = Cos(x) a = Mul(t, k) }},
                    else_branch = no () => (float[N] b) {{ b = Sin(x) }}>
            }}"""
        )
        for factor, node in zip((5.0, 7.0), outer.graph.node):
            (body,) = (attribute.g for attribute in node.attribute if attribute.name == "then_branch")
            del body.node[0]
            body.initializer.append(onnx.helper.make_tensor("k", onnx.TensorProto.FLOAT, [], [factor]))
        optimized = optimize(outer)
        self.assertEqual(["Exp", "Add", "Cos", "Mul"], operators(optimized))
        x = np.arange(
            3, dtype=np.float32
        )  # onnxruntime 1.31 takes both weights for one, and refuses the original
        results = session(optimized).run(None, {"x": x})
        for expected, result in zip((np.exp(x) + 5, np.cos(x) * 7), results, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-6)

    def test_weights_of_branches(self):
        """The caller's model keeps its names; in a local function they become Constants."""
        branches = """a, b = If(c) <then_branch = yes () => (s, k) { s = Add(v, k) },
            else_branch = no () => (t, k) { t = Sub(v, k) }>"""
        texts = {
            "the graph": f"agraph (float[N] v) => (float[N] a, float[N] b) <{YES}> {{ {branches} }}",
            "a function": f"""agraph (float[N] v) => (float[N] a, float[N] b) {{ a, b = local.f(v) }}
                <domain: "local", opset_import: ["" : 20]>
                f (v) => (a, b) {{ c = Constant <value = bool {{1}}> () {branches} }}""",
        }
        for promise, text in texts.items():
            with self.subTest(promise):
                model = onnx.parser.parse_model(
                    f'<ir_version: 10, opset_import: ["" : 20, "local" : 1]> {text}'
                )
                nodes = model.functions[0].node if model.functions else model.graph.node
                for attribute in nodes[-1].attribute:
                    weight = onnx.numpy_helper.from_array(np.ones(3, np.float32), "k")
                    attribute.g.initializer.append(weight)
                    attribute.g.output[1].CopyFrom(
                        onnx.helper.make_tensor_value_info("k", onnx.TensorProto.FLOAT, [3])
                    )
                before = model.SerializeToString()
                names = self.same(model)
                self.assertEqual(before, model.SerializeToString())
                self.assertNotIn("If", names)

    def test_constants_that_are_outputs_keep_the_names_of_the_caller(self):
        numbers = "Constant <value=float[2]{1,2}> ()"
        cases = {
            "of the graph": f"agraph (float[N] x) => (float[2] y, float[2] z) {{ y = {numbers} z = Identity(y) }}",
            "of a branch": f"""agraph (float[N] x) => (float[2] z) <{YES}> {{
                y = If(c) <then_branch = yes () => (float[2] a) {{ a = {numbers} }},
                           else_branch = no () => (float[2] b) {{ b = {numbers} }}> z = Neg(y) }}""",
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                model = parsed(text)
                before = model.SerializeToString()
                self.same(model)
                self.assertEqual(before, model.SerializeToString())

    def test_inside_a_loop(self):
        model = parsed(
            f"""agraph (float[N] x, int64 m) => (float[N] y) <{YES}> {{
                y = Loop(m, c, x) <body = body (int64 i, bool go, float[N] v) => (bool more, float[N] w) {{
                    more = Identity(go)
                    w = If(c) <then_branch = yes () => (float[N] a) {{ t = Sin(v) a = Neg(t) }},
                        else_branch = no () => (float[N] b) {{ b = Exp(v) }}> }}>
            }}"""
        )
        optimized = optimize(model)
        (loop,) = ir.from_proto(optimized).graph
        self.assertEqual(["Identity", "Sin", "Neg"], [node.op_type for node in loop.attributes["body"].value])
        feeds = {"x": np.arange(3, dtype=np.float32), "m": np.array(3)}
        np.testing.assert_equal(session(model).run(None, feeds), session(optimized).run(None, feeds))


if __name__ == "__main__":
    unittest.main()
