"""Rows of float64, of Gelu and of int64 beyond 2 ** 53."""

import unittest

import torch
import torch.nn.functional as F

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

INF = float("inf")
X = torch.tensor([-3.7, -1.5, -0.1, 0.3, 0.7, 2.5, 11.3], dtype=torch.float64)
UNIT = torch.tensor([-0.999, -0.3, 0.1, 0.7, 0.99999], dtype=torch.float64)
SLOPE = torch.tensor([0.1], dtype=torch.float64)
MATRICES = X[[0, 1, 2, 3, 4, 5, 6, 1, 5, 0, 4, 2, 3, 6, 3, 2, 1, 0]].reshape(2, 3, 3)
LARGE = torch.tensor([2**53 + 1, -(2**62) - 1, 10**18])

ANY_LENGTH = {"dynamic_shapes": {"tensors": ({0: "n"},)}, "others": [(X[2:4],), (X[:1] + 5.2,), (X[:0],)]}


def digits(function, x):
    """A function that gives the digits of *function* that float32 has not, and its argument."""
    rounded = function(x).float().double()
    return lambda x: (function(x) / rounded - 1.0) * 1e8, x


ROWS = {
    "Add.of_a_tiny_constant": (lambda x: (1e-300 + x.relu()).log(), X, ANY_LENGTH),
    "Sub.of_a_tiny_constant": (lambda x: (x.relu() - 1e-46).abs().log(), X, ANY_LENGTH),
    "Mul.by_nearly_one": (lambda x: ((1 - 1e-9) * x.relu() - 1.5) * 1e9, X, ANY_LENGTH),
    "Div.by_nearly_one": (lambda x: (x.relu() / (1 + 1e-9) - 1.5) * 1e9, X, ANY_LENGTH),
    "Acos.angle_of_a_cosine": digits(torch.acos, UNIT),
    "Acosh.area_of_a_hyperbolic_cosine": digits(torch.acosh, UNIT + 2),
    "Asin.angle_of_a_sine": digits(torch.asin, UNIT),
    "Asinh.area_of_a_hyperbolic_sine": digits(torch.asinh, X),
    "Atan.angle_of_a_tangent": digits(torch.atan, X),
    "Atanh.area_of_a_hyperbolic_tangent": digits(torch.atanh, UNIT),
    "Celu.scaled_exponential_where_negative": digits(lambda x: F.celu(x, 0.7), X),
    "Cosh.half_the_sum_of_exponentials": digits(torch.cosh, X),
    "Det.product_of_pivots": digits(torch.det, MATRICES),
    "Elu.exponential_where_negative": digits(lambda x: F.elu(x, 0.7), X),
    "Erf.less_its_complement": digits(torch.erf, X),
    "Gelu.half_of_it_times_one_and_erf": (lambda x: F.gelu(x, approximate="tanh"), X.float()),
    "Gelu.half_of_it_times_one_and_more": digits(F.gelu, X),
    "HardSigmoid.clipped_line": digits(F.hardsigmoid, X[1:]),
    "HardSwish.times_a_clipped_line": digits(F.hardswish, X[1:]),
    "LeakyRelu.scaled_where_negative": digits(lambda x: F.leaky_relu(x, 0.1), X),
    "LogSoftmax.shifted_by_the_largest": (
        lambda x: F.log_softmax(x, 1),
        torch.tensor([[1.0, INF, 2.0], [-INF, 0.5, 0.0]], dtype=torch.float64),
    ),
    "Mish.times_the_tanh_of_softplus": digits(F.mish, X),
    "Mod.what_the_quotient_leaves": (torch.fmod, LARGE, torch.tensor([7, 1000003, -3])),
    "PRelu.weighted_where_negative": digits(lambda x: F.prelu(x, SLOPE), X),
    "Pow.bit_by_bit": (torch.pow, LARGE, torch.tensor([1, 2, 3])),
    "Selu.self_normalizing": digits(F.selu, X),
    "Sigmoid.inverse_of_a_sum": (lambda x: torch.sigmoid(x) * 1e15, -X.abs() * 10),
    "Sinh.half_the_difference_of_exponentials": digits(torch.sinh, X),
    "Softplus.logarithm_of_a_sum": digits(F.softplus, X),
    "Tan.sine_over_cosine": digits(torch.tan, X),
}


class TestFloat64(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_a_warning_where_there_is_no_kernel(self):
        """Of an operator without a row; no translation of ours writes one of them in float64."""

        def normalized(op, self):
            return op.MeanVarianceNormalization(self, axes=[1])

        options = {"translations": {torch.ops.aten.sin.default: normalized}}
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(torch.sin, (MATRICES,), **options)
        expected = "onnxruntime has no float64 kernel for MeanVarianceNormalization: computed in float32"
        self.assertEqual([expected], [record.getMessage() for record in logs.records])

    def test_the_plain_standard_has_det(self):
        model = to_onnx(torch.det, (MATRICES,), runtime="onnx")
        self.assertEqual(["Det"], [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
