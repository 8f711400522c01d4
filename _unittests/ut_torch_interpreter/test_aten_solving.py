"""Linear systems and powers of matrices: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
torch.manual_seed(0)
A = torch.randn(2, 4, 4) + 3 * torch.eye(4)
B = torch.randn(2, 4, 3)
LOW = torch.linalg.cholesky(A @ A.mT)
SINGULAR = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
LU = torch.linalg.lu_factor(A)


class TestSolving(ExporterTestCase):
    CASES = {
        "solve_triangular": (aten.linalg_solve_triangular.default, LOW, B, {"upper": False}),
        "solve_triangular, upper, right": (
            aten.linalg_solve_triangular.default, A, B.mT, {"upper": True, "left": False}),
        "solve_triangular with ones": (
            aten.linalg_solve_triangular.default, A[0], B, {"upper": True, "unitriangular": True}),
        "triangular_solve": (aten.triangular_solve.default, B, A),
        "triangular_solve transposed": (aten.triangular_solve.default, B, LOW, False, True),
        "cholesky_solve": (aten.cholesky_solve.default, B, LOW),
        "cholesky_solve, upper": (aten.cholesky_solve.default, B, LOW.mT, True),
        "cholesky_inverse": (aten.cholesky_inverse.default, LOW),
        "solve": (aten.linalg_solve.default, A, B),
        "solve from the right": (aten.linalg_solve.default, A, B.mT, {"left": False}),
        "solve for a vector": (aten.linalg_solve.default, A[0], B[0, :, 0]),
        "solve for vectors": (aten.linalg_solve.default, A, B[..., 0]),
        "solve broadcasts": (aten.linalg_solve.default, A[0].double(), B.double()),
        "solve one system for many matrices": (aten.linalg_solve.default, A, B[:1]),
        "solve_ex": (aten.linalg_solve_ex.default, A, B),
        "solve_ex of a singular matrix": (lambda a, b: aten.linalg_solve_ex.default(a, b)[1], SINGULAR, B[:, :2, :2]),
        "solve_ex of a singular matrix from the right": (
            lambda a, b: aten.linalg_solve_ex.default(a, b, left=False)[1], SINGULAR, B[:, :2, :2]),
        "_linalg_solve_ex": (aten._linalg_solve_ex.default, A, B),
        "_linalg_solve_ex from the right": (aten._linalg_solve_ex.default, A, B.mT, {"left": False}),
        "_linalg_solve_ex broadcasts from the right": (aten._linalg_solve_ex.default, A, B[0].mT, {"left": False}),
        "linalg_lu_solve": (aten.linalg_lu_solve.default, *LU, B),
        "linalg_lu_solve from the right": (aten.linalg_lu_solve.default, *LU, B.mT, {"left": False}),
        "linalg_lu_solve of the transpose": (aten.linalg_lu_solve.default, *LU, B, {"adjoint": True}),
        "linalg_lu_solve, both": (aten.linalg_lu_solve.default, *LU, B.mT, {"left": False, "adjoint": True}),
        "the inverse of nothing": (aten.linalg_inv.default, torch.zeros(2, 0, 0)),
        "lu_solve": (aten.lu_solve.default, B, *LU),
        "inverse": (aten.inverse.default, A),
        "linalg_inv": (aten.linalg_inv.default, A.double()),
        "linalg_inv_ex": (aten.linalg_inv_ex.default, A),
        "the inverse of a number": (aten.linalg_inv.default, torch.tensor([[4.0]])),
        "tensorinv": (aten.linalg_tensorinv.default, torch.randn(2, 3, 6)),
        "tensorsolve": (aten.linalg_tensorsolve.default, torch.randn(2, 3, 6), torch.randn(2, 3)),
        "tensorsolve with moved axes": (
            aten.linalg_tensorsolve.default, torch.randn(6, 2, 3), torch.randn(2, 3), [0]),
        "matrix_power": (aten.linalg_matrix_power.default, A, 5),
        "matrix_power of zero": (aten.matrix_power.default, A, 0),
        "a negative matrix_power": (aten.linalg_matrix_power.default, A, -3),
        "matrix_exp": (aten.matrix_exp.default, A),
        "linalg_matrix_exp": (aten.linalg_matrix_exp.default, torch.stack([A[0].double() * 3, A[1] * 1e-3])),
        "matrix_exp of zero": (aten.matrix_exp.default, torch.zeros(2, 2)),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_dynamic_sizes(self):
        self.assert_same_as_eager(aten.linalg_inv.default, A, others=[(torch.randn(3, 5, 5),)])
        self.assert_same_as_eager(
            aten.linalg_solve.default, A, B, others=[(torch.randn(3, 5, 5), torch.randn(3, 5, 2))]
        )


if __name__ == "__main__":
    unittest.main()
