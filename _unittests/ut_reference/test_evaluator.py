"""The evaluator itself: what it takes, what it logs, what it gives."""

from __future__ import annotations

import os
import tempfile
import unittest

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx.reference.op_run import OpRun

from experimental_experiment.reference import ExtendedReferenceEvaluator
from experimental_experiment.reference.statistics import described

CHAIN = """
<ir_version: 8, opset_import: ["" : 18]>
chain (float[2,n] x) => (float[2,n] y)
<float one = {1}>
{ shifted = Sub(x, one) root = Sqrt(shifted) y = Relu(root) }
"""

BRANCHES = """
<ir_version: 8, opset_import: ["" : 18]>
branches (bool c, float[n] x) => (float[n] y)
{
    y = If(c) <then_branch = yes () => (float[n] a) { a = Neg(x) }, else_branch = no () => (float[n] b) { b = Abs(x) }>
}
"""

FUNCTIONS = """
<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
main (float[2] x) => (float[2] y) { y = local.twice<by=2>(x) }
<domain: "local", opset_import: ["" : 18]>
twice <by> (x) => (y) { k = Constant<value_int=@by>() f = CastLike(k, x) y = Mul(x, f) }
"""

X = np.array([[1, 5, 2], [0, 2, 10]], np.float32)


class TestEvaluator(unittest.TestCase):
    def logged(self, text: str, feeds: dict, verbose: int) -> list[str]:
        """The lines that running a model logs."""
        evaluator = ExtendedReferenceEvaluator(onnx.parser.parse_model(text), verbose=verbose)
        with self.assertLogs("experimental_experiment", "INFO") as logs:
            evaluator.run(None, feeds)
        return [record.getMessage() for record in logs.records]

    def test_what_can_be_run(self):
        model = onnx.parser.parse_model(CHAIN)
        with np.errstate(invalid="ignore"):
            expected = np.maximum(np.sqrt(X - 1), 0)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            weights = ir.from_proto(model)
            ir.save(weights, path, external_data="weights.data", size_threshold_bytes=0)
            cases = {
                "a model": (model, {}),
                "its bytes": (model.SerializeToString(), {}),
                "an onnx_ir model": (ir.from_proto(model), {}),
                "a graph": (model.graph, {"opsets": {"": 18}}),
                "a file with external data": (path, {}),
            }
            for promise, (proto, options) in cases.items():
                with self.subTest(promise), np.errstate(invalid="ignore"):
                    (got,) = ExtendedReferenceEvaluator(proto, **options).run(None, {"x": X})
                    np.testing.assert_array_equal(got, expected)

    def test_a_node_alone(self):
        node = onnx.helper.make_node("Neg", ["x"], ["y"])
        (got,) = ExtendedReferenceEvaluator(node).run(None, {"x": X})
        np.testing.assert_array_equal(got, -X)

    def test_every_result_by_its_name(self):
        evaluator = ExtendedReferenceEvaluator(onnx.parser.parse_model(CHAIN))
        with np.errstate(invalid="ignore"):
            results = evaluator.run(None, {"x": X}, intermediate=True)
        self.assertEqual(list(results), ["one", "x", "shifted", "root", "y"])
        np.testing.assert_array_equal(results["shifted"], X - 1)

    def test_verbose_logs_each_result(self):
        with np.errstate(invalid="ignore"):
            lines = self.logged(CHAIN, {"x": X}, verbose=1)
        expected = [
            " +C one: float32[] min=1 max=1 nan=0",
            " +I x: float32[2, 3] min=0 max=10 nan=0",
            "Sub(x, one) -> shifted",
            " + shifted: float32[2, 3] min=-1 max=9 nan=0",
            "Sqrt(shifted) -> root",
            " + root: float32[2, 3] min=0 max=3 nan=1",
            "Relu(root) -> y",
            " + y: float32[2, 3] min=0 max=3 nan=1",
        ]
        self.assertEqual(lines, expected)

    def test_verbose_3_logs_subgraphs(self):
        feeds = {"c": np.array(True), "x": X[0]}
        line = " + a: float32[3] min=-5 max=-1 nan=0"
        self.assertNotIn(line, self.logged(BRANCHES, feeds, verbose=1))
        lines = self.logged(BRANCHES, feeds, verbose=3)
        self.assertIn(line, lines)
        self.assertEqual(sum(line.startswith(" +I") for line in lines), 2)

    def test_verbose_logs_functions(self):
        self.assertIn(" + k: int64[] min=2 max=2 nan=0", self.logged(FUNCTIONS, {"x": X[0, :2]}, verbose=1))

    def test_silent_by_default(self):
        with self.assertNoLogs("experimental_experiment"), np.errstate(invalid="ignore"):
            ExtendedReferenceEvaluator(onnx.parser.parse_model(CHAIN)).run(None, {"x": X})

    def test_inputs_that_the_model_does_not_take(self):
        text = "<ir_version: 8, opset_import: ['' : 18]> g (float[n,2,?] x, int64 k) => (float[n,2,?] y) { c = Cast<to=1>(k) y = Mul(x, c) }"
        evaluator = ExtendedReferenceEvaluator(onnx.parser.parse_model(text.replace("'", '"')))
        x, k = np.ones((3, 2, 4), np.float32), np.array(2)
        np.testing.assert_array_equal(evaluator.run(None, {"x": x, "k": k})[0], 2 * x)
        np.testing.assert_array_equal(evaluator.run(None, {"x": x, "k": np.int64(2)})[0], 2 * x)
        for error, message, feeds in (
            (ValueError, "the model has no input 'z' but x, k", {"x": x, "k": k, "z": x}),
            (ValueError, "the model has no input 'c' but x, k", {"x": x, "k": k, "c": x}),
            (ValueError, "the input 'k' is not given", {"x": x}),
            (TypeError, "feed_inputs is a dict of arrays by name, not list", [x, k]),
            (TypeError, "the input 'x' is an array, not list", {"x": x.tolist(), "k": k}),
            (TypeError, "the input 'x' is float32, not float64", {"x": x.astype(np.float64), "k": k}),
            (TypeError, "the input 'k' is int64, not float32", {"x": x, "k": np.float32(2)}),
            (ValueError, "the input 'x' has the shape ['n', 2, '?'], not [2, 4]", {"x": x[0], "k": k}),
            (ValueError, "the input 'x' has the shape ['n', 2, '?'], not [3, 1, 4]", {"x": x[:, :1], "k": k}),
            (ValueError, "the input 'k' has the shape [], not [1]", {"x": x, "k": k[None]}),
        ):
            with self.subTest(message), self.assertRaises(error) as caught:
                evaluator.run(None, feeds)
            self.assertEqual(message, str(caught.exception))

    def test_an_input_with_a_value_of_its_own(self):
        text = "<ir_version: 8, opset_import: ['' : 18]> g (float[2] x, float k) => (float[2] y) <float k = {3}> { y = Mul(x, k) }"
        evaluator = ExtendedReferenceEvaluator(onnx.parser.parse_model(text.replace("'", '"')))
        for feeds, factor in (({}, 3), ({"k": np.float32(5)}, 5)):
            (got,) = evaluator.run(None, {"x": np.ones(2, np.float32), **feeds})
            self.assertEqual([factor] * 2, got.tolist())

    def test_operators_of_the_user_come_first(self):
        class Relu(OpRun):
            op_domain = ""

            def _run(self, x):
                return (x + 100,)

        evaluator = ExtendedReferenceEvaluator(onnx.helper.make_node("Relu", ["x"], ["y"]), new_ops=[Relu])
        np.testing.assert_array_equal(evaluator.run(None, {"x": X})[0], X + 100)


class TestDescribed(unittest.TestCase):
    CASES = {  # what it is: (value, text)
        "numbers": (np.array([[1.5, -2]]), "float64[1, 2] min=-2 max=1.5 nan=0"),
        "NaN is counted": (np.array([1, np.nan, np.inf], np.float32), "float32[3] min=1 max=inf nan=1"),
        "nothing but NaN": (np.array(np.nan, np.float16), "float16[] nan=1"),
        "no element": (np.zeros((0, 3), np.int64), "int64[0, 3]"),
        "booleans": (np.array([True, False]), "bool[2] min=0 max=1 nan=0"),
        "bfloat16": (np.array([1, np.nan], ml_dtypes.bfloat16), "bfloat16[2] min=1 max=1 nan=1"),
        "int4": (np.array([1, -8], ml_dtypes.int4), "int4[2] min=-8 max=1 nan=0"),
        "strings": (np.array(["a", "bc"], object), "object[2]"),
        "complex numbers": (np.array([1j, np.nan]), "complex128[2] nan=1"),
        "a sequence": ([np.zeros(2), np.ones(1)], "float64[2] min=0 max=0 nan=0, float64[1] min=1 max=1 nan=0"),
        "nothing": (None, "None"),
    }  # fmt: skip

    def test_text(self):
        for promise, (value, text) in self.CASES.items():
            with self.subTest(promise):
                self.assertEqual(described(value), text)


if __name__ == "__main__":
    unittest.main()
