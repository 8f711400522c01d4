"""Factorizations of complex matrices: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter.torch_versions import installed

torch.manual_seed(0)

aten = torch.ops.aten
A = torch.randn(2, 4, 4, dtype=torch.complex64)
WIDE = torch.randn(3, 5, dtype=torch.complex64)
TALL = torch.randn(2, 5, 3, dtype=torch.complex64)
POSITIVE = A @ A.mH + torch.eye(4)
SINGULAR = torch.tensor([[1j, 2.0, 3.0], [2j, 4.0, 6.0], [1.0, 0.0, 1.0 + 1j]])
LU = torch.linalg.lu_factor(A)
GEQRF = torch.geqrf(TALL)
REAL = torch.randn(4, 3).to(torch.complex64)
"""Reflections of numbers without imaginary part, the last one of which is none."""


class TestComplexFactorization(ExporterTestCase):
    CASES = {
        "lu_factor": (aten.linalg_lu_factor.default, A),
        "lu_factor of a wide matrix": (aten.linalg_lu_factor.default, WIDE),
        "lu_factor of a tall matrix in complex128": (aten.linalg_lu_factor.default, TALL.to(torch.complex128)),
        "lu_factor_ex": (aten.linalg_lu_factor_ex.default, A),
        "the pivot is the largest sum, not the longest": (
            aten.linalg_lu_factor.default, torch.tensor([[3.0, 1.0], [2 + 2j, 1j]])),
        "lu_factor_ex of a singular matrix": (lambda x: aten.linalg_lu_factor_ex.default(x)[2], SINGULAR),
        "_lu_with_info": (aten._lu_with_info.default, A),
        "lu": (aten.linalg_lu.default, A),
        "lu of a tall matrix": (aten.linalg_lu.default, TALL),
        "lu of no matrix": (aten.linalg_lu.default, torch.zeros(0, 3, 2, dtype=torch.complex64)),
        "lu_unpack": (aten.lu_unpack.default, *LU),
        "lu_unpack, the data only": (aten.lu_unpack.default, *LU, True, False),
        "lu_unpack, the pivots only": (aten.lu_unpack.default, *LU, False, True),
        "det": (aten.det.default, A),
        "det of zeros": (aten.det.default, torch.zeros(3, 3, dtype=torch.complex64)),
        "det of nothing": (aten.det.default, torch.zeros(2, 0, 0, dtype=torch.complex64)),
        "linalg_det in complex128": (aten.linalg_det.default, A.to(torch.complex128)),
        "_linalg_det": (lambda x: aten._linalg_det.default(x)[0], A),
        "linalg_slogdet": (aten.linalg_slogdet.default, A),
        "_linalg_slogdet": (lambda x: aten._linalg_slogdet.default(x)[:2], A),
        "slogdet of zeros": (aten.slogdet.default, torch.zeros(2, 2, dtype=torch.complex64)),
        "logdet": (aten.logdet.default, A),
        "linalg_cholesky": (aten.linalg_cholesky.default, POSITIVE),
        "the upper factor": (aten.linalg_cholesky.default, POSITIVE[0].to(torch.complex128), {"upper": True}),
        "only one triangle is read": (aten.linalg_cholesky.default, POSITIVE + torch.randn(4, 4).triu(1)),
        "cholesky_ex": (aten.linalg_cholesky_ex.default, POSITIVE),
        "cholesky_ex of what is not positive": (lambda x: aten.linalg_cholesky_ex.default(x)[1], -POSITIVE),
        "qr of a tall matrix": (aten.linalg_qr.default, TALL),
        "qr of a wide matrix": (aten.linalg_qr.default, WIDE),
        "complete qr": (aten.linalg_qr.default, TALL.to(torch.complex128), "complete"),
        "only r": (aten.linalg_qr.default, TALL, "r"),
        "qr of a triangle": (aten.linalg_qr.default, A.triu()),
        "qr of real numbers": (aten.linalg_qr.default, REAL),
        "geqrf": (aten.geqrf.default, TALL),
        "geqrf of a triangle of real numbers": (aten.geqrf.default, REAL[:3].triu()),
        "householder_product": (aten.linalg_householder_product.default, *GEQRF),
        "orgqr": (aten.orgqr.default, *GEQRF),
        "ormqr": (aten.ormqr.default, *GEQRF, torch.randn(2, 5, 4, dtype=torch.complex64)),
        "ormqr from the right": (aten.ormqr.default, *GEQRF, torch.randn(2, 4, 5, dtype=torch.complex64), False),
        "ormqr of the adjoint": (aten.ormqr.default, *GEQRF, torch.randn(2, 5, 4, dtype=torch.complex64), True, True),
        "ormqr of the adjoint from the right": (
            aten.ormqr.default, *GEQRF, torch.randn(2, 4, 5, dtype=torch.complex64), False, True),
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
        other = torch.randn(3, 5, 5, dtype=torch.complex64)
        for function in (aten.linalg_lu.default, aten.det.default, aten.linalg_qr.default):
            with self.subTest(function):
                self.assert_same_as_eager(function, A, others=[(other,)])

    def test_the_factors_of_a_determinant(self):
        """Those of the matrix itself, wherever it lies in memory, which the gradient reads."""
        for function in (
            lambda x: aten._linalg_det.default(x),
            lambda x: aten._linalg_slogdet.default(x.mT)[1:],
        ):
            self.assert_same_as_eager(function, A, others=[(torch.randn(3, 5, 5, dtype=torch.complex64),)])


if __name__ == "__main__":
    unittest.main()
