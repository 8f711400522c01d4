"""Factorizations of matrices: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter.torch_versions import installed

torch.manual_seed(0)

aten = torch.ops.aten
A = torch.randn(2, 4, 4)
WIDE = torch.randn(3, 5)
TALL = torch.randn(2, 5, 3)
POSITIVE = A @ A.mT + torch.eye(4)
SINGULAR = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
LU = torch.linalg.lu_factor(A)
GEQRF = torch.geqrf(TALL)


class TestFactorization(ExporterTestCase):
    CASES = {
        "lu_factor": (aten.linalg_lu_factor.default, A),
        "lu_factor of a wide matrix": (aten.linalg_lu_factor.default, WIDE),
        "lu_factor of a tall matrix in float64": (aten.linalg_lu_factor.default, TALL.double()),
        "lu_factor_ex": (aten.linalg_lu_factor_ex.default, SINGULAR),
        "_lu_with_info": (aten._lu_with_info.default, A),
        "lu": (aten.linalg_lu.default, A),
        "lu of a tall matrix": (aten.linalg_lu.default, TALL),
        "lu of a wide matrix": (aten.linalg_lu.default, WIDE),
        "lu of no matrix": (aten.linalg_lu.default, torch.zeros(0, 3, 2)),
        "lu_unpack": (aten.lu_unpack.default, *LU),
        "det": (aten.det.default, A),
        "det of a singular matrix": (aten.det.default, torch.zeros(3, 3)),
        "det of nothing": (aten.det.default, torch.zeros(2, 0, 0)),
        "linalg_det in float64": (aten.linalg_det.default, A.double()),
        "linalg_slogdet": (aten.linalg_slogdet.default, A),
        "slogdet": (aten.slogdet.default, torch.zeros(2, 2)),
        "_linalg_det": (lambda x: aten._linalg_det.default(x)[0], A),
        "_linalg_slogdet": (lambda x: aten._linalg_slogdet.default(x)[:2], A),
        "logdet": (aten.logdet.default, A),
        "logdet of positive matrices": (aten.logdet.default, POSITIVE),
        "logdet with NaN below the diagonal": (
            aten.logdet.default,
            torch.tensor([[1.0, 2.0, 3.0], [float("nan"), 1.0, 2.0], [4.0, 5.0, 6.0]]),
        ),
        "linalg_cholesky": (aten.linalg_cholesky.default, POSITIVE),
        "the upper factor": (aten.linalg_cholesky.default, POSITIVE[0].double(), {"upper": True}),
        "cholesky_ex": (aten.linalg_cholesky_ex.default, POSITIVE),
        "qr of a tall matrix": (aten.linalg_qr.default, TALL),
        "qr of a wide matrix": (aten.linalg_qr.default, WIDE),
        "complete qr": (aten.linalg_qr.default, TALL.double(), "complete"),
        "only r": (aten.linalg_qr.default, TALL, "r"),
        "qr of a triangle": (aten.linalg_qr.default, A.triu()),
        "geqrf": (aten.geqrf.default, TALL),
        "householder_product": (aten.linalg_householder_product.default, *GEQRF),
        "orgqr": (aten.orgqr.default, *GEQRF),
        "ormqr": (aten.ormqr.default, *GEQRF, torch.randn(2, 5, 4)),
        "ormqr from the right": (aten.ormqr.default, *GEQRF, torch.randn(2, 4, 5), False),
        "ormqr of the transpose": (aten.ormqr.default, *GEQRF, torch.randn(2, 5, 4), True, True),
    }  # fmt: skip
    if installed("qr.default"):  # until torch 2.13
        CASES |= {
            "cholesky": (aten.cholesky.default, POSITIVE, True),
            "qr": (aten.qr.default, A),
            "qr that is not reduced": (aten.qr.default, TALL, False),
        }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_dynamic_sizes(self):
        for target in (aten.linalg_det.default, aten.linalg_qr.default):
            with self.subTest(target=target):
                self.assert_same_as_eager(target, A, others=[(torch.randn(3, 5, 5),)])

    def test_the_factors_of_a_determinant(self):
        """They are those of the transpose when the matrix is contiguous."""
        for target in (aten._linalg_det.default, aten._linalg_slogdet.default):
            for matrix in (A, A.mT):
                with self.subTest(target=target, contiguous=matrix.is_contiguous()):
                    self.assert_same_as_eager(target, matrix, dynamic=False)


if __name__ == "__main__":
    unittest.main()
