"""Functions and conditions of complex numbers: same values, shapes and dtypes as eager."""

import itertools
import math
import unittest

import torch

from experimental_experiment.testing import Call, ExporterTestCase, each
from experimental_experiment.torch_interpreter import ExportError, to_onnx

torch.manual_seed(0)

aten = torch.ops.aten
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, -0.5, 1e-8, -1e-8, 20.0)
EDGES = torch.tensor([complex(a, b) for a, b in itertools.product(NUMBERS, NUMBERS)], dtype=torch.complex128)
Z = torch.randn(40, dtype=torch.complex128) * torch.logspace(-3, 1, 40)
ZEROS = torch.tensor([[0, 1j, 2], [-0.0, complex(math.nan, 0), 0]])
X = torch.randn(3, 4, dtype=torch.complex64)
Y = torch.randn(3, 4, dtype=torch.complex64)


class TestComplexFunctions(ExporterTestCase):
    FUNCTIONS = {
        "trigonometric": (
            aten.acos.default,
            aten.arccos.default,
            aten.asin.default,
            aten.arcsin.default,
            aten.atan.default,
            aten.arctan.default,
            aten.tan.default,
        ),
        "hyperbolic": (
            aten.acosh.default,
            aten.arccosh.default,
            aten.asinh.default,
            aten.arcsinh.default,
            aten.atanh.default,
            aten.arctanh.default,
        ),
        "exponentials": (aten.exp.default, aten.exp2.default, aten.expm1.default, aten.sqrt.default),
        "logarithms": (aten.log1p.default, aten.log2.default, aten.log10.default),
        "quotients": (aten.sinc.default, lambda z: aten.rsqrt.default(z + 3)),
    }
    CONDITIONS = {
        "all": (aten.all.default, ZEROS),
        "all along an axis": (aten.all.dim, ZEROS, 0),
        "all along axes": (aten.all.dims, ZEROS, [0, 1], True),
        "any": (aten.any.default, ZEROS),
        "any along an axis": (aten.any.dim, ZEROS, 0),
        "any along axes": (aten.any.dims, ZEROS, [-1]),
        "argwhere": (aten.argwhere.default, ZEROS),
        "count_nonzero": (aten.count_nonzero.default, ZEROS),
        "count_nonzero along an axis": (aten.count_nonzero.dim_IntList, ZEROS, [0]),
        "nonzero": (aten.nonzero.default, ZEROS),
        "nonzero_numpy": (aten.nonzero_numpy.default, ZEROS),
        "nonzero_static": (aten.nonzero_static.default, ZEROS, {"size": 5}),
        "logical_and": (aten.logical_and.default, ZEROS, ZEROS.flip(0)),
        "logical_or with integers": (aten.logical_or.default, ZEROS, torch.tensor([0, 0, 1])),
        "logical_xor": (aten.logical_xor.default, ZEROS, ZEROS.flip(0)),
        "isclose": (aten.isclose.default, ZEROS, ZEROS + 1e-6, {"atol": 1e-5}),
        "isclose, NaN": (aten.isclose.default, ZEROS, ZEROS.clone(), {"equal_nan": True}),
        "eq_, ne_": (lambda a, b: [a.clone().eq_(b), a.clone().ne_(b)], torch.tensor([1j, 2]), torch.tensor([1j, 3])),
        "logical_not_": (lambda a: a.clone().logical_not_(), ZEROS),
    }  # fmt: skip
    COMPOSED = {
        "addcdiv": (aten.addcdiv.default, X, Y, X + 3, {"value": 0.5}),
        "addcmul": (aten.addcmul.default, X, Y, X, {"value": 2 - 1j}),
        "dist": (aten.dist.default, X, Y, 3),
        "float_power": (aten.float_power.Tensor_Scalar, X, 2.5),
        "float_power of tensors": (aten.float_power.Tensor_Tensor, X, Y),
        "float_power of a number": (aten.float_power.Scalar, 2, X),
        "gradient": (
            each(
                lambda x: aten.gradient.scalarint(x, spacing=0.5, dim=1),
                lambda x: aten.gradient.scalararray(x, spacing=0.5, dim=[0, 1]),
                lambda x: aten.gradient.scalarrayint(x, spacing=[0.5, 2.0]),
                lambda x: aten.gradient.scalarrayarray(x, spacing=[0.5, 2.0], dim=[1, 0]),
                lambda x: aten.gradient.array(x, dim=[0]),
                lambda x: aten.gradient.tensorarrayint(x, spacing=[torch.arange(4.0) ** 2], dim=1),
                lambda x: aten.gradient.tensorarray(x, spacing=[torch.arange(4.0) ** 2], dim=[1]),
            ),
            X,
        ),
        "l1_loss": (lambda x, y: [aten.l1_loss.default(x, y, k) for k in range(3)], X, Y),
        "l1_loss of a real target": (lambda x, y: [torch.nn.functional.l1_loss(x, y[0]), torch.nn.functional.l1_loss(y, x, reduction="sum")], X, Y.real),
        "l1_loss of float64": (lambda x, y: torch.nn.functional.l1_loss(x.to(torch.complex128), y), X, Y),
        "lerp": (aten.lerp.Scalar, X, Y, 0.25 + 1j),
        "lerp by a tensor": (aten.lerp.Tensor, X, Y, X),
        "norm": (aten.norm.Scalar, X, 2),
        "norm along an axis": (aten.norm.ScalarOpt_dim, X, 1, [0]),
        "linalg_norm": (lambda x: [aten.linalg_norm.default(x), aten.linalg_norm.ord_str(x, "fro")], X),
        "matrix_norm": (lambda x: [aten.linalg_matrix_norm.str_ord(x), aten.linalg_matrix_norm.default(x, 1)], X),
        "tensorinv": (aten.linalg_tensorinv.default, torch.randn(2, 3, 6, dtype=torch.complex64)),
        "tensorsolve": (
            aten.linalg_tensorsolve.default,
            torch.randn(2, 3, 6, dtype=torch.complex64),
            torch.randn(2, 3, dtype=torch.complex64),
        ),
        "vander": (lambda x: [aten.vander.default(x[0], 3), aten.linalg_vander.default(x), aten.linalg_vander.default(x, N=2)], X),
        "logaddexp": (aten.logaddexp.default, X, Y),
        "_chunk_cat": (lambda x, y: aten._chunk_cat.default([x, y], 0, 2), X, Y),
        "pairwise_distance": (aten.pairwise_distance.default, X, Y),
        "renorm": (aten.renorm.default, X, 2, 0, 1.0),
        "rms_norm": (aten.rms_norm.default, X, [4]),
        "softmax": (lambda x: aten.softmax.int(x, 1, dtype=torch.float64), X),
        "log_softmax": (lambda x: aten.log_softmax.int(x, 1, dtype=torch.float64), X),
        "logsumexp": (aten.logsumexp.default, X, [1]),
        "trapezoid": (lambda x, y: [aten.trapezoid.dx(x, dx=0.5), aten.trapezoid.x(x, y)], X, Y),
        "trapz": (lambda x, y: [aten.trapz.dx(x, dx=0.5), aten.trapz.x(x, y)], X, Y),
        "cumulative_trapezoid": (lambda x, y: [aten.cumulative_trapezoid.dx(x), aten.cumulative_trapezoid.x(x, y)], X, Y),
        "triplet_margin_loss": (aten.triplet_margin_loss.default, X, Y, X * 2),
        "true_divide": (aten.true_divide.Tensor, X, Y),
        "divide, multiply": (each(aten.divide.Tensor, aten.multiply.Tensor), X, Y),
        "divide, multiply by a number": (
            each(aten.divide.Scalar, aten.multiply.Scalar, aten.true_divide.Scalar),
            X,
            2 - 1j,
        ),
        "negative, absolute": (each(aten.negative.default, aten.absolute.default), X),
        "powers": (lambda x, y: [x**0.5, x**2, x**-1.5, x**y], X, Y),
    }  # fmt: skip

    def test_functions(self):
        for name, functions in self.FUNCTIONS.items():
            for where, z in (("edges", EDGES), ("random", Z)):
                with self.subTest(name, z=where):
                    self.assert_same_as_eager(each(*functions), z, dynamic=False)
                    self.assert_same_as_eager(each(*functions), z.to(torch.complex64), dynamic=False)

    def test_the_root_follows_the_sign_of_zero(self):
        z = torch.tensor([complex(-4, 0.0), complex(-4, -0.0)])
        self.assert_same_as_eager(lambda z: z.sqrt().imag, z, dynamic=False)

    def test_conditions(self):
        self.assert_cases(self.CONDITIONS, dynamic=False)

    def test_composed(self):
        self.assert_cases(self.COMPOSED, dynamic=False)

    def test_dynamic_sizes(self):
        def function(z):
            return z.asin().reshape(z.shape[1], -1).tan(), aten.sym_numel.default(z) + aten.sym_size.int(
                z, -1
            )

        self.assert_same_as_eager(function, X, others=[(Z[:10].reshape(2, 5).to(torch.complex64),)])

    def test_a_decomposition_that_is_chosen_by_sizes_is_refused(self):
        def chunks(x):
            return aten._chunk_cat.default([x], 0, 2)

        self.assert_same_as_eager(chunks, X, dynamic=False)
        with self.assertRaisesRegex(ExportError, "torch's decomposition of it is that of sizes where .* != "):
            to_onnx(Call(chunks, (X,), {}), (X,), dynamic_shapes=(({0: "rows"},),))


if __name__ == "__main__":
    unittest.main()
