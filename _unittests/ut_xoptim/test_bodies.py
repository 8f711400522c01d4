"""Rules at nodes of bodies: they read what stands around them, and leave it there."""

import unittest

import numpy as np

from _unittests.ut_xoptim.cases import parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, optimize

WEIGHTS = "float two = {2}, float[3,3] w = {1, 0, 2, 3, 1, 0, 2, 2, 1}"
IMAGES = "float[1,1,2,2] w = {1, 2, 3, 4}, float[1,1,1] b = {5}"


class TestBodies(unittest.TestCase):
    def optimized(self, around, nodes, holder="Loop", shape="2,3", constants=WEIGHTS, rules="default"):
        """The operators around a body, and those of the body, with *nodes* that compute ``t`` of what stands *around* it."""
        kind = f"float[{shape}]"
        if holder == "Loop":
            state = f"int64 i, bool go, {kind} s"
            body = f"body = b ({state}) => (bool on, {kind} r) {{ on = Identity(go) {nodes} r = Sub(s, t) }}"
            call = f"y = Loop(n, , x) <{body}>"
        elif holder == "Scan":
            body = f"body = b ({kind} s, float e) => ({kind} r) {{ {nodes} p = Sub(s, t) r = Add(p, e) }}"
            call = f"each = Range(zero, end, one) y = Scan(x, each) <{body}, num_scan_inputs = 1>"
            constants += ", float zero = {0}, float end = {3}, float one = {1}"
        else:
            branches = f"then_branch = t () => ({kind} r) {{ {nodes} r = Sub(x, t) }}, else_branch = e () => ({kind} q) {{ q = Neg(x) }}"
            call = f"few = Constant<value_int=2>() c = Less(n, few) y = If(c) <{branches}>"
        model = parsed(f"agraph ({kind} x, int64 n) => ({kind} y) <{constants}> {{ {around} {call} }}")
        optimized = optimize(model, OptimizationOptions(rules))
        x = np.random.default_rng(0).normal(size=[int(size) for size in shape.split(",")]).astype(np.float32)
        for turns in (1, 3):
            feeds = {"x": x, "n": np.array(turns)}
            for a, b in zip(*(session(item).run(None, feeds) for item in (model, optimized))):
                np.testing.assert_allclose(a, b, rtol=1e-5)
        (node,) = (item for item in optimized.graph.node if item.op_type == holder)
        outer = [item.op_type for item in optimized.graph.node]
        return outer, [item.op_type for body in node.attribute for item in body.g.node]

    def test_a_product_stays_around(self):
        for holder in ("Loop", "Scan", "If"):
            for rules in ("default", "default+onnxruntime"):
                with self.subTest(holder, rules=rules):
                    outer, inner = self.optimized("m = MatMul(x, w)", "t = Mul(m, two)", holder, rules=rules)
                    self.assertEqual(("MatMul", False), (outer[0], "MatMul" in inner))
                    self.assertIn("Mul", inner)

    def test_a_convolution_stays_around(self):
        outer, inner = self.optimized(
            "m = Conv<auto_pad=\"SAME_UPPER\">(x, w)", "t = Add(m, b)", shape="1,1,4,4", constants=IMAGES
        )  # fmt: skip
        self.assertEqual((["Conv", "Loop"], ["Identity", "Add", "Sub"]), (outer, inner))

    def test_nodes_of_the_body_become_one(self):
        _, inner = self.optimized("", "m = Neg(s) k = Neg(m) t = Mul(k, two)")
        self.assertEqual(["Identity", "Mul", "Sub"], inner)

    def test_what_stays_around_is_read(self):
        """A Reshape of a Reshape reads what the one around it reads; the constants stand there, too."""
        constants = f"{WEIGHTS}, int64[1] flat = {{-1}}, int64[2] back = {{2, 3}}"
        around, nodes = "e = Exp(x) m = Reshape(e, flat)", "p = Reshape(m, back) t = Mul(p, two)"
        for holder in ("Loop", "If"):
            outer, inner = self.optimized(around, nodes, holder, constants=constants)
            self.assertNotIn("Reshape", outer + inner)

    def test_shapes_around_are_read(self):
        constants = f"{WEIGHTS}, float[1,1] one = {{3}}"
        around, nodes = "e = Exp(x) sizes = Shape(e)", "f = Expand(one, sizes) t = Mul(f, e)"
        outer, inner = self.optimized(around, nodes, constants=constants)
        self.assertEqual((["Exp", "Loop"], ["Identity", "Mul", "Sub"]), (outer, inner))


if __name__ == "__main__":
    unittest.main()
