"""`bisect` names the rewriting that changes the results."""

import math
import os
import tempfile
import unittest

import ml_dtypes
import numpy as np
import onnx

from _unittests.ut_xoptim.cases import drawn, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import OptimizationOptions, P, bisect, rule, var
from experimental_experiment.xoptim.bisection import array_gap, gap, random_feeds

x = var("x")

MODEL = """agraph (float[2,3] x) => (float[2,3] y) {
    a = Neg(x) b = Neg(a) c = Abs(b) d = Neg(c) e = Neg(d) f = Sin(e) g = Neg(f) h = Neg(g) y = Relu(h) }"""


@rule(P.Sin(x))
def sin_as_tan(op, x):
    """A wrong rule."""
    return op.Tan(x)


class TestBisection(unittest.TestCase):
    def test_the_wrong_rule_is_named(self):
        model = parsed(MODEL)
        found = bisect(
            model, drawn(model), options=OptimizationOptions([*OptimizationOptions().rules, sin_as_tan])
        )
        self.assertEqual("SinAsTan", found.rule)
        self.assertGreater(found.difference, 0.01)
        self.assertIn(found.position, range(4))

    def test_right_rules(self):
        model = parsed(MODEL)
        self.assertIsNone(bisect(model, drawn(model)))

    def test_wrong_arguments(self):
        model = parsed(MODEL)
        array = np.ones((2, 3), np.float32)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(model, path)
            for kind, message, arguments in (
                (TypeError, "a model is an onnx.ModelProto or the path of a file, not NoneType", (None, {})),
                (TypeError, "feeds is a dict of arrays by name, not list", (model, [array])),
                (ValueError, "the model has no input 'z' but x", (model, {"z": array})),
                (ValueError, "the input 'x' is not given", (path, {})),
                (
                    ValueError,
                    r"the input 'x' has the shape \[2, 3\], not \[2, 7\]",
                    (path, {"x": np.ones((2, 7), np.float32)}),
                ),
                (
                    TypeError,
                    "the input 'x' is float32, not float64",
                    (model, {"x": array.astype(np.float64)}),
                ),
                (ValueError, "tolerance is at least 0, not nan", (model, {"x": array}, math.nan)),
                (ValueError, "tolerance is at least 0, not -1e-05", (model, {"x": array}, -1e-5)),
                (TypeError, "tolerance is a number, not '1e-5'", (model, {"x": array}, "1e-5")),
                (
                    TypeError,
                    "options is an OptimizationOptions, not {}: it takes",
                    (model, {"x": array}, 1e-5, {}),
                ),
            ):
                with self.subTest(message), self.assertRaisesRegex(kind, message):
                    bisect(*arguments)

    def test_differences(self):
        a = np.array([1, np.nan, np.inf], np.float32)
        for b, expected in (
            (a, 0.0),
            (a + np.float32(0.5), 0.5),
            (-a, float("inf")),
            (a.astype(np.float64), float("inf")),
            (a[:2], float("inf")),
            (np.array([1, 2, np.inf], np.float32), float("inf")),
        ):
            self.assertEqual(expected, array_gap(a, b)[0])
        self.assertEqual(0.0, array_gap(a[:0], a[:0])[0])
        small = np.array([1.0, 2.0], ml_dtypes.float8_e5m2)
        self.assertEqual(0.25, array_gap(small, np.array([1.25, 2.0], ml_dtypes.float8_e5m2))[0])
        self.assertEqual(float("inf"), array_gap(np.array(["a"]), np.array(["b"]))[0])

    def test_integers_are_equal_whatever_the_tolerance(self):
        for array in (
            np.array([0, 100000], np.int64),
            np.array([2**53], np.int64),
            np.array([2**64 - 2], np.ulonglong),
            np.array([0], np.uint8),
        ):
            for tolerance in (None, 1e-2, 5.0):
                with self.subTest(f"{array.dtype} {array} {tolerance}"):
                    self.assertEqual((0.0, True), array_gap(array, array, tolerance))
                    self.assertEqual((1.0, False), array_gap(array, array + array.dtype.type(1), tolerance))

    def test_tolerances(self):
        for dtype, within, beyond in (
            (np.float64, 1e-8, 1e-6),
            (np.float32, 5e-5, 2e-4),
            (np.float16, 5e-3, 5e-2),
            (ml_dtypes.bfloat16, 0.02, 0.1),
        ):
            one = np.array([1.0], dtype)
            with self.subTest(dtype.__name__):
                self.assertTrue(array_gap(one, np.array([1 + within], dtype))[1])
                self.assertFalse(array_gap(one, np.array([1 + beyond], dtype))[1])
                self.assertTrue(array_gap(one, np.array([1 + beyond], dtype), 0.2)[1])

    def test_inputs_and_outputs_of_bfloat16(self):
        model = parsed("agraph (bfloat16[2,3] x) => (bfloat16[3,2] y) { a = Identity(x) y = Transpose(a) }")
        self.assertIsNone(bisect(model, random_feeds(session(model))))

    def test_a_wrong_rule_for_integers(self):
        """What it changes is small beside the numbers."""

        @rule(P.Neg(P.Neg(x)))
        def neg_neg_as_next(op, x):
            """A wrong rule."""
            return op.Add(x, 1)

        model = parsed("agraph (int64[2] x) => (int64[2] y) { a = Neg(x) b = Neg(a) y = Add(b, b) }")
        feeds = {"x": np.array([100000, 2**40])}
        found = bisect(model, feeds, tolerance=1e-2, options=OptimizationOptions([neg_neg_as_next]))
        self.assertEqual(("NegNegAsNext", 2.0), (found.rule, found.difference))

    def test_a_rule_after_which_the_model_does_not_run(self):
        """What onnxruntime refuses when it runs, and when it loads the model."""

        @rule(P.Sin(x))
        def sin_of_another_size(op, x):
            """A wrong rule."""
            return op.Reshape(op.Tan(x), op.Add(op.Shape(x), 1))

        @rule(P.Sin(x))
        def sin_from_nowhere(op, x):
            """A wrong rule."""
            return op.Sin(x, domain="nowhere")

        model = parsed("agraph (float[N] x) => (float[M] y) { a = Sin(x) y = Neg(a) }")
        for wrong in (sin_of_another_size, sin_from_nowhere):
            found = bisect(model, drawn(model), options=OptimizationOptions([wrong]))
            self.assertEqual((wrong.name, 0, float("inf")), (found.rule, found.position, found.difference))

    def test_differences_of_sequences_and_maps(self):
        a = np.array([1, 2], np.float32)
        wrong = float("inf")
        for first, second, expected in (
            ([a, [a, a]], [a, [a, a - np.float32(0.5)]], 0.5),
            ([[a]], [[a, a]], wrong),
            ([[{4: 0.5, 5: 2.0}]], [[{4: 0.25, 5: 2.0}]], 0.25),
            ([[{4: 0.5}]], [[{5: 0.5}]], wrong),
            ([{"a": "b"}], [{"a": "c"}], wrong),
            ([None, a], [None, a], 0.0),
            ([None], [a], wrong),
        ):
            with self.subTest(f"{first} {second}"):
                self.assertEqual((expected, expected == 0.0), gap(first, second))
                self.assertEqual((0.0, True), gap(first, first))

    def test_a_model_that_gives_a_sequence(self):
        nodes = "{ s = Sin(x) y = SplitToSequence<axis=0>(s, two) }"
        model = parsed(f"agraph (float[4] x) => (seq(float[2]) y) <int64 two = {{2}}> {nodes}")
        self.assertIsNone(bisect(model, drawn(model)))
        culprit = bisect(model, drawn(model), options=OptimizationOptions([sin_as_tan]))
        self.assertEqual("SinAsTan", culprit.rule)

    def test_random_feeds(self):
        model = parsed(
            """agraph (float[N,3] x, int64[N] i, bool[2] c, float16[1] h) => (float[N,3] y, int64[N] j, bool[2] d, float16[1] k) {
            y = Relu(x) j = Abs(i) d = Not(c) k = Neg(h) }"""
        )
        feeds = random_feeds(session(model), size=5)
        self.assertEqual(
            {"x": ("float32", (5, 3)), "i": ("int64", (5,)), "c": ("bool", (2,)), "h": ("float16", (1,))},
            {name: (array.dtype.name, array.shape) for name, array in feeds.items()},
        )
        texts = parsed("agraph (string[2] x) => (string[2] y) { y = Identity(x) }")
        with self.assertRaisesRegex(
            ValueError, r"the input x is a tensor\(string\): it has no random values"
        ):
            random_feeds(session(texts))

    def test_sizes_of_several_dimensions(self):
        """The mask of a decoder has the tokens of the past and the new ones; what the name says is no size of its own."""
        model = parsed(
            "agraph (float[P] past, float[N] new, float[T] mask) => (float[T] y) { x = Concat<axis=0>(past, new) y = Add(x, mask) }"
        )
        cases = {
            "P + N": ({}, 6),
            "P + 2*N - 1": ({}, 8),
            "N + P": ({"P": 5, "N": 0}, 5),
            "P+N": ({"P+N": 4}, 4),
            "P - 7": ({}, 3),
            "P // 0": ({}, 3),
            "total length": ({}, 3),
        }
        for name, (sizes, expected) in cases.items():
            with self.subTest(name):
                model.graph.input[2].type.tensor_type.shape.dim[0].dim_param = name
                feeds = random_feeds(session(model), sizes=sizes)
                self.assertEqual((expected,), feeds["mask"].shape)

    def test_a_model_in_a_file(self):

        model = parsed(MODEL)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(model, path)
            self.assertIsNone(bisect(path, drawn(model)))


if __name__ == "__main__":
    unittest.main()
