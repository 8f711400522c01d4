"""Variances, products and matrices of complex numbers: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each

torch.manual_seed(0)

aten = torch.ops.aten
X = torch.randn(2, 3, 4, dtype=torch.complex64)
SQUARE = torch.randn(2, 4, 4, dtype=torch.complex64)
B = torch.randn(2, 4, 3, dtype=torch.complex64)


class TestComplexAlgebra(ExporterTestCase):
    CASES = {
        "variances": (
            each(
                aten.var.default,
                aten.std.default,
                aten.var_mean.default,
                aten.std_mean.default,
                lambda x: aten.var.correction(x, [1], correction=0),
                lambda x: aten.std.correction(x, [0, 2], correction=2, keepdim=True),
                lambda x: aten.var_mean.correction(x, [1], correction=0),
                lambda x: aten.std_mean.correction(x, [1], correction=0),
                lambda x: aten.var.dim(x, [1], False),
                lambda x: aten.std.dim(x, [1], False),
                lambda x: aten.var_mean.dim(x, [1], False),
                lambda x: aten.std_mean.dim(x, [1], False),
            ),
            X,
        ),
        "cumprod": (aten.cumprod.default, X, -2),
        "cumprod of a number": (aten.cumprod.default, torch.tensor(2j), 0),
        "cumprod in complex128": (aten.cumprod.default, X, 1, {"dtype": torch.complex128}),
        "prod": (aten.prod.default, X),
        "prod along an axis": (aten.prod.dim_int, X, 1, True),
        "prod along an empty axis": (aten.prod.dim_int, X[:, :0], 1),
        "prod of a number": (aten.prod.dim_int, torch.tensor(2j), 0),
        "inverse": (each(aten.inverse.default, aten.linalg_inv.default), SQUARE),
        "matrix_exp": (each(aten.matrix_exp.default, aten.linalg_matrix_exp.default), SQUARE),
        "matrix_power": (lambda a: [aten.matrix_power.default(a, n) for n in (-2, 0, 3)], SQUARE),
        "linalg_matrix_power": (aten.linalg_matrix_power.default, SQUARE, 2),
        "solve": (aten.linalg_solve.default, SQUARE, B),
        "solve for vectors": (aten.linalg_solve.default, SQUARE, B[..., 0]),
        "solve for one vector": (aten.linalg_solve.default, SQUARE[0], B[0, :, 0]),
        "svdvals": (aten.linalg_svdvals.default, X),
        "eigvalsh": (aten.linalg_eigvalsh.default, SQUARE),
        "eigvalsh of the upper triangle": (aten.linalg_eigvalsh.default, SQUARE.to(torch.complex128), "U"),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_dynamic_sizes(self):
        others = [(torch.randn(5, 2, 3, dtype=torch.complex64),)]
        self.assert_same_as_eager(lambda x: [x.prod(1), x.cumprod(-1), x.var(2)], X, others=others)


if __name__ == "__main__":
    unittest.main()
