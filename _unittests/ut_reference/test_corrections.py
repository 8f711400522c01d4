"""Operators of ONNX that onnx computes wrongly: the reference evaluator gives what onnxruntime gives."""

from __future__ import annotations

import unittest

import numpy as np
import onnx.parser

from _unittests.ut_reference.cases import OperatorTestCase, numbers
from experimental_experiment.comparison import session
from experimental_experiment.reference import ExtendedReferenceEvaluator

STANDARD = {"domain": ""}
X = numbers(2, 3, 4)
NORM = numbers(3), numbers(3, seed=1), numbers(3, seed=2), np.abs(numbers(3, seed=3))
SCAN = """
<ir_version: 8, opset_import: ["" : 20]>
main (float[2] start, float[2,n] x, float[n,2] y) => (float[2] last, float[2,n] sums, float[n,2] products)
{
    last, sums, products = Scan<num_scan_inputs=2, scan_input_axes=[1,0], scan_input_directions=[1,0],
        scan_output_axes=[1,0], scan_output_directions=[0,1],
        body = step (float[2] before, float[2] a, float[2] b) => (float[2] after, float[2] sum, float[2] product) {
            after = Add(before, a) sum = Identity(after) product = Mul(b, start)
        }>(start, x, y)
}
"""
LOOP = """
<ir_version: 8, opset_import: ["" : 20]>
main (int64 trips, float[2,3] start) => (float[2,3] last, float[k,2,3] each, float[k] sums)
<int64 limit = {4}>
{
    go = Constant<value=bool {1}>()
    last, each, sums = Loop(trips, go, start) <
        body = step (int64 i, bool before, float[2,3] a) => (bool more, float[2,3] b, float[2,3] each_b, float sum) {
            one = Constant<value=float {0.5}>() b = Add(a, one) each_b = Identity(b) sum = ReduceSum<keepdims=0>(b)
            more = Less(i, limit)
        }>
}
"""


class TestCorrections(OperatorTestCase):
    CASES = {
        "transposed convolution in groups": (
            "ConvTranspose", numbers(2, 4, 5), numbers(4, 3, 3), numbers(6), {**STANDARD, "group": 2, "strides": [2]}),
        "transposed convolution of images": (
            "ConvTranspose", numbers(1, 6, 4, 4), numbers(6, 1, 3, 3),
            {**STANDARD, "group": 3, "pads": [1, 0, 1, 0], "output_padding": [1, 0], "strides": [2, 1], "dilations": [1, 2]}),
        "more than 64 elements": (
            "GatherElements", numbers(100, 3), np.arange(300).reshape(100, 3) % 97 - 40, STANDARD),
        "fewer indices than elements": ("GatherElements", X, np.array([[[3, -1], [0, 2]]]), {**STANDARD, "axis": -1}),
        "no index": ("GatherElements", X, np.zeros((2, 0, 4), np.int64), {**STANDARD, "axis": 1}),
        "a grid of float64": (
            "AffineGrid", numbers(2, 2, 3, dtype="float64"), np.array([2, 1, 4, 5]), STANDARD),
        "a grid of float32 in space, corner to corner": (
            "AffineGrid", numbers(2, 3, 4), np.array([2, 1, 4, 5, 3]), {**STANDARD, "align_corners": 1}),
        "a norm of a batch": (
            "BatchNormalization", X, *NORM, {**STANDARD, "epsilon": 0.25}),
        "elements are removed": ("Pad", X, np.array([0, -1, 2, 0, 1, -3]), STANDARD),
        "a value, some axes": ("Pad", X, np.array([-1, 2]), np.array(5, np.float32), np.array([-1]), STANDARD),
        "removed and continued": ("Pad", X, np.array([0, 0, 2, 0, -1, -1]), {**STANDARD, "mode": "edge"}),
        "reflected": ("Pad", X, np.array([0, 2, 1, 0, 0, 3]), {**STANDARD, "mode": "reflect"}),
        "an empty matrix": ("Flatten", np.zeros((0, 3, 2), np.float32), {**STANDARD, "axis": 2}),
        "a matrix of the last axes": ("Flatten", X, {**STANDARD, "axis": -2}),
        "one row": ("Flatten", X, {**STANDARD, "axis": 0}),
        "a norm of layers": (
            "LayerNormalization", X, numbers(3, 4), numbers(3, 4, seed=1), {**STANDARD, "axis": 1, "epsilon": 0.25}),
        "a norm of large halves": (
            "LayerNormalization", (3000 * X).astype(np.float16), np.full(4, 0.5, np.float16), STANDARD),
        "weights that underflow": ("LogSoftmax", 200 * X, {**STANDARD, "axis": 1}),
        "no weight": ("LogSoftmax", X[:0], STANDARD),
        "integers to negative powers": (
            "Pow", np.array([2, -2, 1, -1, -1, 3]), np.array([-1, -2, -3, -3, -4, 2]), STANDARD),
        "floats to integers": ("Pow", X, np.array(2), STANDARD),
        "the mean of some axes": ("ReduceMean", X, np.array([0, -1]), {**STANDARD, "keepdims": 0}),
        "the mean of all": ("ReduceMean", X, STANDARD),
        "nothing to reduce": ("ReduceMean", X, {**STANDARD, "noop_with_empty_axes": 1}),
    }  # fmt: skip

    def test_same_as_onnxruntime(self):
        self.assert_cases(self.CASES)

    def test_recurrent_layers(self):
        x, h = numbers(5, 3, 4), numbers(1, 3, 6)
        sizes = {**STANDARD, "hidden_size": 6, "outputs": 2}
        lengths = np.array([5, 2, 3], np.int32)
        gates = {"RNN": 1, "GRU": 3, "LSTM": 4}
        cases = {}
        for name, count in gates.items():
            w, r, b = numbers(1, 6 * count, 4), numbers(1, 6 * count, 6), numbers(1, 12 * count)
            options = {**sizes, "linear_before_reset": 1} if name == "GRU" else sizes
            cases[f"{name} alone"] = (name, x, w, r, b, None, h, options)
            cases[f"{name} of lengths"] = (name, x, w, r, b, lengths, h, options)
            cases[f"{name} of lengths, backwards"] = (
                name,
                x,
                w,
                r,
                b,
                lengths,
                {**options, "direction": "reverse"},
            )
        both = [
            np.concatenate([array, -array])
            for array in (numbers(1, 24, 4), numbers(1, 24, 6), numbers(1, 48))
        ]
        states = [np.concatenate([h, -h])] * 2
        cases["LSTM both ways"] = (
            "LSTM",
            x,
            *both,
            lengths,
            *states,
            {**sizes, "direction": "bidirectional", "outputs": 3},
        )
        w, r, b = numbers(1, 6, 4), numbers(1, 6, 6), numbers(1, 12)
        for activation in ("Relu", "Sigmoid", "Tanh"):
            cases[activation] = ("RNN", x, w, r, b, lengths, {**sizes, "activations": [activation]})
        self.assert_cases(cases)

    def test_lengths_with_the_batch_first(self):
        with self.assertRaisesRegex(NotImplementedError, "sequence_lens with layout=1 is not handled"):
            self.reference(
                "RNN", numbers(2, 3, 4), numbers(1, 6, 4), numbers(1, 6, 6), None, np.array([1, 3], np.int32),
                domain="", layout=1, hidden_size=6,
            )  # fmt: skip

    def test_a_mean_of_halves(self):
        """onnxruntime has no kernel of this dtype."""
        (got,) = self.reference("ReduceMean", np.full((3, 4), 60000, np.float16), domain="")
        self.assertEqual((got.dtype, got.shape, got.item()), (np.float16, (1, 1), 60000))

    def test_scan(self):
        model = onnx.parser.parse_model(SCAN)
        for length in (4, 1):
            with self.subTest(length=length):
                feeds = {"start": numbers(2), "x": numbers(2, length), "y": numbers(length, 2)}
                got = ExtendedReferenceEvaluator(model).run(None, feeds)
                for expected, found in zip(session(model).run(None, feeds), got, strict=True):
                    np.testing.assert_allclose(found, expected, 1e-5)

    def test_loop(self):
        model = onnx.parser.parse_model(LOOP)
        for trips in (3, 1, 0):
            with self.subTest(trips=trips):
                feeds = {"trips": np.array(trips), "start": numbers(2, 3)}
                got = ExtendedReferenceEvaluator(model).run(None, feeds)
                for expected, found in zip(session(model).run(None, feeds), got, strict=True):
                    np.testing.assert_allclose(found, expected, 1e-5)

    def test_a_loop_that_its_condition_ends(self):
        model = onnx.parser.parse_model(LOOP.replace("Loop(trips, go, start)", "Loop(, go, start)"))
        feeds = {"trips": np.array(0), "start": numbers(2, 3)}
        got = ExtendedReferenceEvaluator(model).run(None, feeds)
        for expected, found in zip(session(model).run(None, feeds), got, strict=True):
            np.testing.assert_allclose(found, expected, 1e-5)

    def test_a_scan_of_nothing(self):
        feeds = {"start": numbers(2), "x": numbers(2, 0), "y": numbers(0, 2)}
        last, sums, products = ExtendedReferenceEvaluator(onnx.parser.parse_model(SCAN)).run(None, feeds)
        np.testing.assert_array_equal(last, feeds["start"])
        self.assertEqual((sums.shape, products.shape), ((2, 0), (0, 2)))

    def test_training(self):
        """onnxruntime has no kernel of it without its training."""
        momentum = {"momentum": 0.75, "training_mode": 1}
        result, mean, variance = self.reference(
            "BatchNormalization", X, *NORM, domain="", outputs=3, **momentum
        )
        now = X.mean((0, 2)), X.var((0, 2))
        np.testing.assert_allclose(mean, 0.75 * NORM[2] + 0.25 * now[0], 1e-5)
        np.testing.assert_allclose(variance, 0.75 * NORM[3] + 0.25 * now[1], 1e-5)
        scale, bias, mean, variance = (array[:, None] for array in (*NORM[:2], *now))
        np.testing.assert_allclose(result, (X - mean) / np.sqrt(variance + 1e-5) * scale + bias, 1e-4, 1e-5)


class TestCorrectionsOfOpset13(OperatorTestCase):
    OPSET = 13

    def test_same_as_onnxruntime(self):
        self.assert_same("BatchNormalization", X, *NORM, **STANDARD)
        self.assert_same("BatchNormalization", X, *NORM, **STANDARD, momentum=0.5, epsilon=0.25)


class TestCorrectionsOfOpset23(OperatorTestCase):
    OPSET = 23

    def test_a_norm_of_large_halves(self):
        x, scale = (3000 * X).astype(np.float16), np.full(4, 0.5, np.float16)
        self.assert_same("RMSNormalization", x, scale, **STANDARD)
        self.assert_same("RMSNormalization", X, numbers(3, 4), **STANDARD, axis=1, epsilon=0.25)


if __name__ == "__main__":
    unittest.main()
