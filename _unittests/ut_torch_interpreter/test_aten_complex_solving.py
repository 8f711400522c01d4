"""Linear systems with complex matrices: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

torch.manual_seed(0)

aten = torch.ops.aten
A = torch.randn(2, 4, 4, dtype=torch.complex64) + 3 * torch.eye(4)
B = torch.randn(2, 4, 3, dtype=torch.complex64)
LOW = torch.linalg.cholesky(A @ A.mH)
SINGULAR = torch.tensor([[0.0, 1.0], [0.0, 1j]])
LU = torch.linalg.lu_factor(A)


class TestComplexSolving(ExporterTestCase):
    CASES = {
        "solve_triangular": (aten.linalg_solve_triangular.default, LOW, B, {"upper": False}),
        "solve_triangular, upper, right": (
            aten.linalg_solve_triangular.default, A, B.mT, {"upper": True, "left": False}),
        "solve_triangular with ones": (
            aten.linalg_solve_triangular.default, A[0], B, {"upper": True, "unitriangular": True}),
        "triangular_solve": (aten.triangular_solve.default, B, A),
        "triangular_solve transposed": (aten.triangular_solve.default, B, A.tril(), False, True),
        "triangular_solve broadcasts": (aten.triangular_solve.default, B, A[0]),
        "cholesky_solve": (aten.cholesky_solve.default, B, LOW),
        "cholesky_solve, upper": (aten.cholesky_solve.default, B, LOW.mH, True),
        "cholesky_inverse": (aten.cholesky_inverse.default, LOW),
        "solve": (aten.linalg_solve.default, A, B),
        "solve from the right": (aten.linalg_solve.default, A, B.mT, {"left": False}),
        "solve for a vector": (aten.linalg_solve.default, A[0], B[0, :, 0]),
        "solve for vectors": (aten.linalg_solve.default, A, B[..., 0]),
        "solve broadcasts": (aten.linalg_solve.default, A[0].to(torch.complex128), B.to(torch.complex128)),
        "solve_ex": (aten.linalg_solve_ex.default, A, B),
        "solve_ex of a singular matrix": (lambda a, b: aten.linalg_solve_ex.default(a, b)[1], SINGULAR, B[:, :2, :2]),
        "_linalg_solve_ex": (aten._linalg_solve_ex.default, A, B),
        "_linalg_solve_ex from the right": (aten._linalg_solve_ex.default, A, B.mT, {"left": False}),
        "linalg_lu_solve": (aten.linalg_lu_solve.default, *LU, B),
        "linalg_lu_solve from the right": (aten.linalg_lu_solve.default, *LU, B.mT, {"left": False}),
        "linalg_lu_solve of the adjoint": (aten.linalg_lu_solve.default, *LU, B, {"adjoint": True}),
        "linalg_lu_solve, both": (aten.linalg_lu_solve.default, *LU, B.mT, {"left": False, "adjoint": True}),
        "lu_solve": (aten.lu_solve.default, B, *LU),
        "linalg_inv_ex": (aten.linalg_inv_ex.default, A),
        "the inverse of nothing": (aten.linalg_inv_ex.default, torch.zeros(2, 0, 0, dtype=torch.complex64)),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_dynamic_sizes(self):
        others = [(torch.randn(3, 5, 5, dtype=torch.complex64), torch.randn(3, 5, 2, dtype=torch.complex64))]
        self.assert_same_as_eager(aten.linalg_solve.default, A, B, others=others)


if __name__ == "__main__":
    unittest.main()
