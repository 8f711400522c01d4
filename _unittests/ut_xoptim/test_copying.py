"""Rules of operators that copy their input."""

import unittest

import onnx

from _unittests.ut_xoptim.cases import RuleTestCase, parsed
from experimental_experiment.xoptim import optimize


class TestIdentity(RuleTestCase):
    RULE = "IdentityNothing"

    def test_chains(self):
        self.assert_becomes(
            "agraph (float[N] x) => (float[N] y) { a = Identity(x) b = Identity(a) y = Neg(b) }", ["Neg"]
        )

    def test_an_output_keeps_its_name(self):
        self.assert_becomes(
            "agraph (float[N] x) => (float[N] y) { a = Neg(x) b = Identity(a) y = Identity(b) }", ["Neg"]
        )
        self.assert_becomes(
            "agraph (float[N] x) => (float[N] y, float[N] z) { a = Neg(x) y = Identity(a) z = Abs(a) }",
            ["Neg", "Abs"],
        )

    def test_an_output_that_is_an_input_or_two_outputs(self):
        self.assert_stays("agraph (float[N] x) => (float[N] y) { y = Identity(x) }")
        self.assert_stays("agraph (float[N] x) => (float[N] y) <float[1] w = {1}> { y = Identity(w) }")
        self.assert_stays("agraph (float[N] x) => (float[N] y, float[N] z) { y = Neg(x) z = Identity(y) }")
        self.assert_becomes(
            "agraph (float[N] x) => (float[N] y, float[N] z) { a = Neg(x) y = Identity(a) z = Identity(a) }",
            ["Neg", "Identity"],
        )

    def test_two_copies_of_an_output(self):
        """Neither is a copy of the other: optimizing again would turn them."""
        text = (
            "agraph (float[N] x) => (float[N] y, float[N] u, float[N] k) { y = Neg(x) u = Neg(x) k = Neg(x) }"
        )
        once = optimize(parsed(text))
        self.assertEqual([["x"], ["y"], ["y"]], [list(node.input) for node in once.graph.node])
        self.assertEqual(once, optimize(once))

    def test_in_bodies(self):
        """An output of a branch is no outer value."""
        text = """agraph (bool c, float[2] x) => (float[2] y) {
            t = Neg(x) y = If (c) <then_branch = a () => (float[2] z) { z = Identity(t) },
                                   else_branch = b () => (float[2] w) { u = Relu(x) w = Identity(u) }> }"""
        self.assert_becomes(text, ["Neg", "If"])
        branches = optimize(parsed(text)).graph.node[1].attribute
        self.assertEqual(["Identity", "Relu"], [attribute.g.node[0].op_type for attribute in branches])
        self.assertEqual([1, 1], [len(attribute.g.node) for attribute in branches])

    def test_in_functions(self):
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
            agraph (float[2] x) => (float[2] y) { y = local.f(x) }
            <domain: "local", opset_import: ["" : 20]> f (a) => (c) { n = Neg(a) m = Identity(n) c = Identity(m) }"""
        )
        optimized = optimize(model)
        self.assertEqual(["Neg"], [node.op_type for node in optimized.functions[0].node])
        self.assertEqual(list(optimized.functions[0].output), list(optimized.functions[0].node[0].output))


class TestDropout(RuleTestCase):
    RULE = "DropoutNothing"

    def test_outside_of_training(self):
        for nodes in (
            "a = Dropout(x)",
            "r = Constant<value_float=0.5>() a = Dropout(x, r)",
            "r = Constant<value_float=0.5>() t = Constant<value=bool {0}>() a, m = Dropout(x, r, t)",
            "r = Constant<value_float=0.0>() t = Constant<value=bool {1}>() a = Dropout(x, r, t)",
        ):
            with self.subTest(nodes):
                self.assert_becomes(f"agraph (float[N] x) => (float[N] y) {{ {nodes} y = Neg(a) }}", ["Neg"])

    def test_a_mask_that_is_used(self):
        self.assert_stays("agraph (float[N] x) => (float[N] y, bool[N] m) { y, m = Dropout(x) }")

    def test_training(self):
        model = parsed(
            "agraph (float[N] x, bool t) => (float[N] y) { r = Constant<value_float=0.5>() y = Dropout(x, r, t) }"
        )
        self.assertEqual(["Dropout"], [node.op_type for node in optimize(model).graph.node])


if __name__ == "__main__":
    unittest.main()
