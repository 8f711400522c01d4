"""Singular values and what is made of them: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.torch_interpreter.torch_versions import installed

torch.manual_seed(0)

aten = torch.ops.aten
A = torch.randn(2, 4, 4)
WIDE = torch.randn(3, 5)
TALL = torch.randn(2, 7, 3)
SYMMETRIC = A + A.mT
LOW_RANK = torch.randn(2, 5, 2) @ torch.randn(2, 2, 4)


class TestSingularValues(ExporterTestCase):
    CASES = {
        "svdvals": (aten.linalg_svdvals.default, A),
        "svdvals of a wide matrix": (aten.linalg_svdvals.default, WIDE),
        "svdvals of a tall matrix": (aten.linalg_svdvals.default, TALL.double()),
        "svdvals of one column": (aten.linalg_svdvals.default, TALL[..., :1]),
        "svdvals of zeros": (aten.linalg_svdvals.default, torch.zeros(3, 3)),
        "svdvals of many columns": (aten.linalg_svdvals.default, torch.randn(50, 41)),
        "the values of svd": (lambda x: aten.svd.default(x)[1], A),
        "svd without vectors": (lambda x: aten.svd.default(x, True, False)[1], A),
        "the values of linalg_svd": (lambda x: aten.linalg_svd.default(x)[1], WIDE),
        "the values of _linalg_svd": (lambda x: aten._linalg_svd.default(x, True)[1], TALL),
        "_linalg_svd without vectors": (lambda x: aten._linalg_svd.default(x, False, False)[1], WIDE),
        "the values of _linalg_eigh": (lambda x: aten._linalg_eigh.default(x, "U")[0], SYMMETRIC),
        "_linalg_eigh without vectors": (aten._linalg_eigh.default, SYMMETRIC, "L", False),
        "eigvalsh": (aten.linalg_eigvalsh.default, SYMMETRIC),
        "eigvalsh of the upper triangle": (aten.linalg_eigvalsh.default, A.double(), "U"),
        "eigvalsh of the lower triangle": (aten.linalg_eigvalsh.default, A),
        "the values of eigh": (lambda x: aten.linalg_eigh.default(x)[0], SYMMETRIC),
        "matrix_rank": (aten.linalg_matrix_rank.atol_rtol_float, LOW_RANK),
        "matrix_rank with tolerances": (aten.linalg_matrix_rank.atol_rtol_float, A, {"atol": 1.0, "rtol": 0.1}),
        "matrix_rank of symmetric matrices": (aten.linalg_matrix_rank.atol_rtol_float, SYMMETRIC, {"hermitian": True}),
        "matrix_rank with tensors": (aten.linalg_matrix_rank.atol_rtol_tensor, A, {"atol": torch.tensor([0.0, 1.0])}),
        "matrix_rank above one of several tolerances": (aten.linalg_matrix_rank.tol_tensor, A[0], torch.tensor([0.1, 1.0, 2.0])),
        "matrix_rank above those of a matrix": (aten.linalg_matrix_rank.tol_tensor, A, torch.tensor([[0.1], [1.5], [2.0]])),
        "matrix_rank above tol": (aten.linalg_matrix_rank.default, A, 1.5),
        "matrix_rank above a tensor": (aten.linalg_matrix_rank.tol_tensor, A, torch.tensor(1.5)),
        "pinv": (aten.linalg_pinv.atol_rtol_float, A),
        "pinv of a wide matrix": (aten.linalg_pinv.atol_rtol_float, WIDE),
        "pinv of low rank": (aten.linalg_pinv.atol_rtol_tensor, LOW_RANK),
        "pinv of symmetric matrices": (aten.linalg_pinv.atol_rtol_float, SYMMETRIC, {"hermitian": True}),
        "pinv with a tensor": (aten.linalg_pinv.atol_rtol_tensor, TALL, {"rtol": torch.tensor([0.5, 0.01])}),
        "pinv with rcond": (aten.linalg_pinv.default, TALL, 0.3),
        "pinv with a tensor rcond": (aten.linalg_pinv.rcond_tensor, TALL, torch.tensor(0.3)),
        "pinverse": (aten.pinverse.default, WIDE),
    }  # fmt: skip
    if installed("linalg_polar.default"):  # since torch 2.14
        CASES |= {
            "polar": (aten.linalg_polar.default, A),
            "polar of a tall matrix": (aten.linalg_polar.default, TALL.double()),
            "polar of one column": (aten.linalg_polar.default, TALL[..., :1]),
            "matrix_sqrth": (aten.linalg_matrix_sqrth.default, A @ A.mT + torch.eye(4)),
            "matrix_sqrth of the lower triangle": (
                aten.linalg_matrix_sqrth.default, torch.tensor([[2.0, 9.0], [0.5, 3.0]]).double()),
        }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_other_sizes(self):
        others = [(torch.randn(size),) for size in ((1, 1), (2, 2), (2, 5), (5, 2), (6, 6), (1, 7), (7, 1))]
        for function in (torch.linalg.svdvals, torch.linalg.pinv, torch.linalg.matrix_rank):
            with self.subTest(function.__name__):
                self.assert_same_as_eager(function, WIDE, others=others)
        squares = [(other + other.mT,) for other in (torch.randn(k, k) for k in range(1, 7))]
        self.assert_same_as_eager(torch.linalg.eigvalsh, SYMMETRIC[0], others=squares)

    def test_vectors_are_refused(self):
        functions = (
            lambda x: torch.linalg.svd(x)[0],
            lambda x: torch.linalg.eigh(x)[1],
            lambda x: aten._linalg_svd.default(x)[2],
            lambda x: aten._linalg_eigh.default(x)[1],
        )
        for function in functions:
            with self.assertRaisesRegex(ExportError, "signs of its vectors are not determined"):
                self.assert_same_as_eager(function, SYMMETRIC)


if __name__ == "__main__":
    unittest.main()
