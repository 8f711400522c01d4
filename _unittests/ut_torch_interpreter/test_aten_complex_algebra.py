"""Variances, products, singular values of complex matrices: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase, each
from experimental_experiment.torch_interpreter import ExportError
from experimental_experiment.torch_interpreter.torch_versions import installed

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
        "products of real numbers as complex ones": (
            each(
                lambda x: x.prod(dtype=torch.complex64),
                lambda x: x.prod(1, keepdim=True, dtype=torch.complex128),
                lambda x: x.cumprod(-1, dtype=torch.complex64),
            ),
            X.real.contiguous(),
        ),
        "products of a real number as a complex one": (
            each(lambda x: x.prod(0, dtype=torch.complex64), lambda x: x.cumprod(0, dtype=torch.complex64)),
            torch.tensor(2.0),
        ),
        "inverse": (each(aten.inverse.default, aten.linalg_inv.default), SQUARE),
        "matrix_exp": (each(aten.matrix_exp.default, aten.linalg_matrix_exp.default), SQUARE),
        "matrix_power": (lambda a: [aten.matrix_power.default(a, n) for n in (-2, 0, 3)], SQUARE),
        "linalg_matrix_power": (aten.linalg_matrix_power.default, SQUARE, 2),
        "svdvals": (aten.linalg_svdvals.default, X),
        "svd, values only": (
            each(
                lambda a: aten.linalg_svd.default(a)[1],
                lambda a: aten._linalg_svd.default(a, False, False),
                lambda a: aten.svd.default(a)[1],
            ),
            X,
        ),
        "eigh, values only": (
            each(
                lambda a: aten.linalg_eigh.default(a)[0],
                lambda a: aten._linalg_eigh.default(a, "U", False),
            ),
            SQUARE,
        ),
        "pinv": (each(lambda a: aten.linalg_pinv.default(a, 1e-5), aten.pinverse.default), X),
        "pinv of matrices of rank 2": (
            each(aten.linalg_pinv.atol_rtol_float, lambda a: aten.linalg_pinv.atol_rtol_float(a, atol=1e-4)),
            X[..., :2] @ X.mT[:, :2],
        ),
        "pinv of one triangle": (lambda a: aten.linalg_pinv.default(a, 1e-6, hermitian=True), SQUARE),
        "pinv up to one's own tolerances": (
            lambda a, t: aten.linalg_pinv.atol_rtol_tensor(a, rtol=t),
            SQUARE,
            torch.tensor([0.1, 0.3]),
        ),
        "pinv.rcond_tensor": (aten.linalg_pinv.rcond_tensor, SQUARE, torch.tensor(0.2)),
        "matrix_rank": (
            each(
                aten.linalg_matrix_rank.atol_rtol_float,
                lambda a: aten.linalg_matrix_rank.default(a, 1e-3),
                lambda a: aten.linalg_matrix_rank.default(a, 1e-3, True),
            ),
            X[..., :2] @ X.mT[:, :2],
        ),
        "matrix_rank up to one's own tolerances": (
            each(
                lambda a, t: aten.linalg_matrix_rank.tol_tensor(a, t),
                lambda a, t: aten.linalg_matrix_rank.atol_rtol_tensor(a, atol=t),
            ),
            SQUARE,
            torch.tensor([0.1, 2.0]),
        ),
        "cond": (each(aten.linalg_cond.default, lambda a: aten.linalg_cond.p_str(a, "fro")), SQUARE),
        "eigvalsh": (aten.linalg_eigvalsh.default, SQUARE),
        "eigvalsh of the upper triangle": (aten.linalg_eigvalsh.default, SQUARE.to(torch.complex128), "U"),
    }
    if installed("linalg_polar.default"):  # since torch 2.14
        CASES |= {
            "polar": (aten.linalg_polar.default, SQUARE),
            "matrix_sqrth": (aten.linalg_matrix_sqrth.default, SQUARE @ SQUARE.mH + torch.eye(4)),
        }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_vectors_are_refused(self):
        for function in (aten.linalg_svd.default, aten.linalg_eigh.default):
            with self.subTest(function), self.assertRaisesRegex(ExportError, "the signs of its vectors"):
                self.assert_same_as_eager(function, SQUARE)

    def test_dynamic_sizes(self):
        others = [(torch.randn(5, 2, 3, dtype=torch.complex64),)]
        self.assert_same_as_eager(lambda x: [x.prod(1), x.cumprod(-1), x.var(2)], X, others=others)


if __name__ == "__main__":
    unittest.main()
