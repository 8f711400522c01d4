"""Rows of casts and of functions of one tensor; operators without kernels."""

import unittest

import torch
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented

from experimental_experiment.comparison import session
from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx

LARGE = torch.tensor([1.0, 61439.0, 61440.0, 1e9, -61440.0, float("-inf"), float("nan")])

ROWS = {
    "Cast.overflow_to_infinity": (lambda x: x.to(torch.float8_e5m2).float(), LARGE),
    "Clip.by_one_bound": (lambda x: x.clamp(max=5.0), LARGE),
    "Sign.sign_of_numbers": (torch.sign, LARGE),
}

OTHER_ROWS = {
    "MaxRoiPool.warned_about": (lambda x: x.amax((2, 3), keepdim=True), torch.ones(1, 2, 5, 5)),
    "RoiAlign.warned_about": (lambda x: x.mean((2, 3), keepdim=True), torch.ones(1, 2, 5, 5)),
}
"""Functions that become an operator without any kernel after opset 21."""


def pooled_box(op, self, dim, keepdim):
    """A translation of the mean of an image that writes RoiAlign."""
    return op.RoiAlign(self, [[0.0, 0.0, 5.0, 5.0]], [0])


def largest_in_box(op, self, dim, keepdim):
    """A translation of the maximum of an image that writes MaxRoiPool."""
    return op.MaxRoiPool(self, [[0.0, 0.0, 0.0, 4.0, 4.0]], pooled_shape=[1, 1])


class TestConversions(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_the_bound_that_is_not_given_is_infinite(self):
        functions = {
            "the least": (lambda x: x.clamp(min=1e-12), "Clip"),
            "the most": (lambda x: x.clamp(max=0.0), "Clip"),
            "both, one after the other": (lambda x: x.clamp(min=-3.0).clamp(max=61440.0), "Clip"),
            "zero": (lambda x: x.clamp(min=0), "Relu"),
            "zero, and then the most": (lambda x: x.relu().clamp(max=5.0), "Clip"),
        }
        for name, (function, operator) in functions.items():
            for x in (LARGE, LARGE.double(), LARGE.reshape(-1, 1)):
                with self.subTest(name, dtype=x.dtype):
                    model = self.export_and_compare(function, (x,))
                    self.assertEqual([operator], [node.op_type for node in model.graph.node])

    def test_bounds_of_a_relu_of_integers(self):
        x = torch.tensor([-3, 0, 1, 2, 5], dtype=torch.int32)
        for bounds in ({"min": 1}, {"max": 2}, {"min": 1, "max": 2}):
            self.export_and_compare(lambda x, bounds=bounds: torch.relu(x).clamp(**bounds), (x,))

    def test_a_warning_where_there_is_no_kernel(self):
        for name, (function, x) in OTHER_ROWS.items():
            translations = {torch.ops.aten.mean.dim: pooled_box, torch.ops.aten.amax.default: largest_in_box}
            options = {"translations": translations}
            with self.subTest(name):
                session(to_onnx(function, (x,), target_opset=21, **options))
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    model = to_onnx(function, (x,), target_opset=22, **options)
                operator = name.partition(".")[0]
                self.assertIn(
                    f"onnxruntime has no kernel for {operator} after opset 21: lower target_opset",
                    logs.output[0],
                )
                with self.assertRaises(NotImplemented):
                    session(model)
                with self.assertNoLogs("experimental_experiment", "WARNING"), without_row(name):
                    to_onnx(function, (x,), target_opset=22, **options)


if __name__ == "__main__":
    unittest.main()
