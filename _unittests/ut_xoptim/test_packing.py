"""The rule that makes one product of several."""

import os
import tempfile
import unittest

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from _unittests.ut_xoptim.cases import RuleTestCase, parsed
from experimental_experiment.xoptim import OptimizationOptions, Report, optimize

WEIGHTS = """
w = Constant <value=float[2,3]{1.0,2.0,3.0,4.0,5.0,6.0}> () v = Constant <value=float[2,1]{7.0,8.0}> ()
u = Constant <value=float[2,2]{0.5,1.5,2.5,3.5}> () b = Constant <value=float[3]{1.0,2.0,3.0}> () c = Constant <value=float[1]{4.0}> ()
d = Constant <value=float[2]{5.0,6.0}> ()
"""


THREE = "float[B,1,3] y, float[B,1,1] z, float[B,1,2] t"


def graph(nodes: str, results: str = THREE, x: str = "float[B,1,2] x") -> str:
    """The text of a model whose products read ``n``."""
    return f"agraph ({x}) => ({results}) {{ {WEIGHTS} n = Neg (x) {nodes} }}"


class TestProductsOfOneValue(RuleTestCase):
    RULE = "ProductsOfOneValue"

    def test_forms(self):
        cases = {
            "queries, keys and values": (graph("y = MatMul (n, w) z = MatMul (n, v) t = MatMul (n, u)"), []),
            "the first is used before the others": (
                graph("p = MatMul (n, w) y = Sin (p) z = MatMul (n, v) t = MatMul (n, u)"),
                ["Sin"],
            ),
            "another node between them": (
                graph(
                    "y = MatMul (n, w) s = Relu (n) z = MatMul (n, v) t = MatMul (n, u)",
                    f"{THREE}, float[B,1,2] s",
                ),
                ["Relu"],
            ),
            "matrices of one row": (
                graph(
                    "y = MatMul (n, w) z = MatMul (n, v) t = MatMul (n, u)",
                    THREE.replace("B,1,", "1,"),
                    "float[1,2] x",
                ),
                [],
            ),
        }
        for promise, (text, others) in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, ["Neg", "MatMul", "Split", *others])

    def test_biases(self):
        cases = {
            "of all of two": "p = MatMul (n, w) y = Add (p, b) q = MatMul (n, v) z = Add (c, q) t = Abs(n)",
            "of two of three": "p = MatMul (n, w) y = Add (p, b) z = MatMul (n, v) q = MatMul (n, u) t = Add (d, q)",
        }
        for promise, nodes in cases.items():
            with self.subTest(promise):
                others = ["Abs"] if "Abs" in nodes else []
                self.assert_becomes(graph(nodes), ["Neg", "MatMul", "Add", "Split", *others])

    def test_what_is_no_bias_stays_behind(self):
        cases = {
            "one number": graph("p = MatMul (n, w) y = Add (p, c) z = MatMul (n, v) t = MatMul (n, u)"),
            "a product that is a result too": graph(
                "r = MatMul (n, w) y = Add (r, b) z = MatMul (n, v) t = MatMul (n, u)",
                f"{THREE}, float[B,1,3] r",
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_becomes(text, ["Neg", "MatMul", "Split", "Add"])

    def test_what_it_declines(self):
        both = "y = MatMul (n, w) z = MatMul (n, v)"
        three = f"{both} t = MatMul (n, u)"
        cases = {
            "many rows": graph(three, THREE.replace("B,1,", "B,"), "float[B,2] x"),
            "many positions": graph(three, THREE.replace("B,1,", "B,S,"), "float[B,S,2] x"),
            "two products, which would be a product and a Split": graph(
                both, THREE.partition(", float[B,1,2]")[0]
            ),
            "a weight that something else reads": graph(
                f"{three} r = ReduceSum (u)", f"{THREE}, float[1,1] r"
            ),
            "a weight that is transposed": graph(
                f"{both} q = Transpose <perm=[0,1]> (u) s = MatMul (n, q) t = Abs (s)"
            ),
            "a weight on the other side": graph(
                f"{both} q = Constant <value=float[1,1]{{2.0}}> () t = MatMul (q, n)"
            ),
            "a batch of weights": graph(
                f"{both} q = Constant <value=float[1,2,2]{{2.0,3.0,4.0,5.0}}> () t = MatMul (n, q)"
            ),
        }
        for promise, text in cases.items():
            with self.subTest(promise):
                self.assert_stays(text)

    def test_products_of_an_input(self):
        """Nothing writes an input: where it would be multiplied is not known."""
        nodes = f"{WEIGHTS} y = MatMul (x, w) z = MatMul (x, v) t = MatMul (x, u)"
        self.assert_stays(f"agraph (float[B,1,2] x) => ({THREE}) {{ {nodes} }}")

    def test_products_in_a_branch(self):
        """A product that runs in one branch only stays there."""
        text = f"""agraph (bool k, float[B,1,2] x) => ({THREE}) {{ {WEIGHTS} n = Neg (x)
            y = If (k) <then_branch = one () => (float[B,1,3] p) {{ p = MatMul (n, w) }},
                        else_branch = two () => (float[B,1,3] q) {{ s = ReduceSum (n) q = Add (s, b) }}>
            z = MatMul (n, v) t = MatMul (n, u) }}"""
        report = Report()
        optimize(parsed(text), OptimizationOptions([self.RULE]), report=report)
        self.assertEqual([], report.applications)

    def test_weights_of_a_file_stay_there(self):
        model = ir.from_proto(parsed(graph("y = MatMul (n, w) z = MatMul (n, v) t = MatMul (n, u)")))
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            ir.save(model, path, external_data="data", size_threshold_bytes=0)
            report = Report()
            optimize(ir.load(path), OptimizationOptions([self.RULE]), report=report)
        reason = "the others have no weights, or weights that are read elsewhere"
        self.assertEqual({(self.RULE, reason): 3}, dict(report.declined))


if __name__ == "__main__":
    unittest.main()
