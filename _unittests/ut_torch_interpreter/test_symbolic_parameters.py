"""Parameters that are numbers of sizes: activations, norms, deviations, as eager for other sizes."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each, of_each_float
from experimental_experiment.torch_interpreter import ExportError, to_onnx

aten = torch.ops.aten
F = torch.nn.functional
X = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)) * 2
LARGER, ROW = torch.cat([X, X + 0.5]), X[:1, :4]


def by_rows(function):
    """Calls a function on a tensor, the number of its rows and one divided by it."""
    return lambda x: function(x, x.shape[0], 1 / x.shape[0])


UNITS = each(
    by_rows(lambda x, rows, part: F.leaky_relu(x, part)),
    by_rows(lambda x, rows, part: F.leaky_relu(x, rows)),
    by_rows(lambda x, rows, part: F.elu(x, part)),
    by_rows(lambda x, rows, part: F.elu(x, rows)),
    by_rows(lambda x, rows, part: aten.elu.default(x, part, rows, 0.5)),
    by_rows(lambda x, rows, part: aten.elu.default(x, 2.0, 1.0, part)),
    by_rows(lambda x, rows, part: F.celu(x, part)),
    by_rows(lambda x, rows, part: F.celu(x, rows)),
    by_rows(lambda x, rows, part: F.softplus(x, beta=part)),
    by_rows(lambda x, rows, part: F.softplus(x, beta=rows)),
    by_rows(lambda x, rows, part: F.softplus(x, threshold=part)),
    by_rows(lambda x, rows, part: F.softplus(x, 1, rows)),
    by_rows(lambda x, rows, part: F.threshold(x, part, rows)),
    by_rows(lambda x, rows, part: F.hardshrink(x, part)),
    by_rows(lambda x, rows, part: F.softshrink(x, part)),
    by_rows(lambda x, rows, part: F.softshrink(x, rows)),
    by_rows(lambda x, rows, part: F.hardtanh(x, -part, rows)),
    by_rows(lambda x, rows, part: F.leaky_relu_(x.clone(), part)),
)
GRADIENTS = each(
    by_rows(lambda x, rows, part: aten.elu_backward.default(x, part, rows, 0.5, False, x + 1)),
    by_rows(lambda x, rows, part: aten.elu_backward.default(x, rows, 1, part, True, F.elu(x, rows, False))),
    by_rows(lambda x, rows, part: aten.leaky_relu_backward.default(x, x + 1, part, False)),
    by_rows(lambda x, rows, part: aten.softplus_backward.default(x, x + 1, part, rows)),
    by_rows(lambda x, rows, part: aten.threshold_backward.default(x, x + 1, part)),
)
NORMS = each(
    by_rows(lambda x, rows, part: x.norm(p=rows, dim=1)),
    by_rows(lambda x, rows, part: x.norm(p=rows - 1, dim=1, keepdim=True)),
    by_rows(lambda x, rows, part: x.norm(p=1 - rows)),
    by_rows(lambda x, rows, part: torch.linalg.vector_norm(x, ord=1 + part)),
    by_rows(lambda x, rows, part: F.normalize(x, p=part + 1, dim=1)),
    by_rows(lambda x, rows, part: x.renorm(2, 0, part)),
    by_rows(lambda x, rows, part: x.renorm(rows, 0, rows)),
    by_rows(lambda x, rows, part: torch.dist(x, x + 1, p=rows)),
    by_rows(lambda x, rows, part: x.std(1, correction=part)),
    by_rows(lambda x, rows, part: x.var(1, correction=rows)),
)


class TestSymbolicParameters(ExporterTestCase):
    CASES = {
        **of_each_float(UNITS, X, of="activations of"),
        **of_each_float(GRADIENTS, X, of="gradients of"),
        **of_each_float(NORMS, X, of="norms of"),
    }
    INTEGERS = {
        "integers truncate a threshold": (by_rows(lambda x, rows, part: F.threshold(x, 3 * part, rows)), X.long()),
        "integers truncate bounds": (by_rows(lambda x, rows, part: F.hardtanh(x, -part, 3 * part)), X.long()),
        "a histogram whose bounds are equal": (by_rows(lambda x, rows, part: x.histc(4, 1 - rows, rows - 1)), X),
    }  # fmt: skip

    def test_same_as_eager(self):
        for promise, (function, x) in self.CASES.items():
            with self.subTest(promise):
                others = [(LARGER.to(x.dtype),), (ROW.to(x.dtype),)]
                self.assert_same_as_eager(function, x, others=others)

    def test_integers(self):
        for promise, (function, x) in self.INTEGERS.items():
            with self.subTest(promise):
                others = [(LARGER.to(x.dtype),), (ROW.to(x.dtype),)]
                self.assert_same_as_eager(function, x, others=others)

    def test_constants_keep_their_operators(self):
        for function, operators in (
            (lambda x: F.leaky_relu(x, 0.3), ["LeakyRelu"]),
            (lambda x: F.elu(x, 0.3), ["Elu"]),
            (lambda x: F.celu(x, 0.3), ["Celu"]),
            (F.softplus, ["Softplus"]),
        ):
            with self.subTest(operators):
                model = to_onnx(function, (X,), dynamic_shapes=({0: "rows"},))
                self.assertEqual([node.op_type for node in model.graph.node], operators)

    def test_one_that_is_refused(self):
        with self.assertRaisesRegex(
            ExportError, "rrelu.default cannot be translated: lower and upper computed from sizes"
        ):
            to_onnx(
                lambda x: F.rrelu(x, 1 / x.shape[0], 2 / x.shape[0], training=True),
                (X,),
                dynamic_shapes=({0: "rows"},),
            )


if __name__ == "__main__":
    unittest.main()
