"""Norms and condition numbers of matrices: same values, shapes and dtypes as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

torch.manual_seed(0)

aten = torch.ops.aten
A = torch.randn(2, 4, 4) + 3 * torch.eye(4)
B = torch.randn(2, 4, 3)


class TestMatrixNorm(ExporterTestCase):
    CASES = {
        "matrix_norm": (aten.linalg_matrix_norm.str_ord, B),
        "matrix_norm by columns": (aten.linalg_matrix_norm.default, B, 1),
        "matrix_norm by rows": (aten.linalg_matrix_norm.default, B, math.inf, [0, 2], True),
        "the smallest sum": (aten.linalg_matrix_norm.default, B, -1, [-1, 0]),
        "linalg_norm": (aten.linalg_norm.default, B),
        "linalg_norm of vectors": (aten.linalg_norm.default, B, 3, [1], True),
        "linalg_norm of matrices": (aten.linalg_norm.default, B, math.inf, [0, 1]),
        "the norm of nothing": (aten.linalg_norm.default, torch.zeros(5, 0), 1, None, True),
        "linalg_norm by name": (aten.linalg_norm.ord_str, B, "fro", [0, 1]),
        "linalg_norm of a matrix": (aten.linalg_norm.default, B[0], 1),
        "the largest singular value": (aten.linalg_matrix_norm.default, B, 2),
        "the smallest singular value": (aten.linalg_matrix_norm.default, B.double(), -2, [0, 2], True),
        "the sum of singular values": (aten.linalg_matrix_norm.str_ord, B, "nuc"),
        "linalg_norm of order 2": (aten.linalg_norm.default, B[0], 2),
        "nuclear_norm": (aten.nuclear_norm.default, B[0]),
        "nuclear_norm of axes": (aten.nuclear_norm.dim, B, [0, 1], True),
        "cond": (aten.linalg_cond.default, B),
        "cond of order -2": (aten.linalg_cond.default, B, -2),
        "cond of order 1": (aten.linalg_cond.default, A, 1),
        "cond of Frobenius": (aten.linalg_cond.p_str, A, "fro"),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES, dynamic=False)

    def test_no_singular_value(self):
        empty = [torch.randn(shape) for shape in ((3, 0), (0, 3), (0, 0))]
        for target, order in (
            (aten.linalg_matrix_norm.default, 2),
            (aten.linalg_cond.default, 2),
            (aten.linalg_cond.default, -2),
        ):
            with self.subTest(target=str(target), order=order):
                self.assert_same_as_eager(
                    target, torch.randn(4, 5), order, others=[(x, order) for x in empty]
                )


if __name__ == "__main__":
    unittest.main()
