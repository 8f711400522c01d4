"""Vector norms of every order, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
INF = float("inf")
CUBE = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
SPECIAL = torch.tensor([[1.0, float("nan"), -2.0], [-INF, 0.0, 1.0], [0.0, -0.0, 0.0]])


class TestVectorNorm(ExporterTestCase):
    CASES = {
        "order 2": (aten.linalg_vector_norm.default, CUBE),
        "order 1 of special values": (aten.linalg_vector_norm.default, SPECIAL, 1, [1]),
        "order 3 along an axis": (aten.linalg_vector_norm.default, CUBE, 3, [-1], True),
        "order 0 counts": (aten.linalg_vector_norm.default, SPECIAL, 0, [1]),
        "order inf of numbers": (aten.linalg_vector_norm.default, SPECIAL[1:], INF, [1]),
        "order -inf of numbers": (aten.linalg_vector_norm.default, SPECIAL[1:], -INF, [0], True),
        "order 0.5": (aten.linalg_vector_norm.default, CUBE, 0.5, [0, 1]),
        "a negative order": (aten.linalg_vector_norm.default, CUBE, -1.5, [0]),
        "halves": (aten.linalg_vector_norm.default, CUBE.half() * 1000, 2, [0]),
        "halves, order 3": (aten.linalg_vector_norm.default, CUBE.half() * 100, 3, [0]),
        "another dtype": (aten.linalg_vector_norm.default, CUBE, 2, [0], {"dtype": torch.float64}),
        "a 0-d tensor": (aten.linalg_vector_norm.default, torch.tensor(-3.0), 3),
        "nothing": (aten.linalg_vector_norm.default, torch.zeros(2, 0), 2, [1]),
        "norm": (aten.norm.Scalar, CUBE),
        "norm of order 1": (aten.norm.Scalar, CUBE, 1),
        "norm along axes": (aten.norm.ScalarOpt_dim, CUBE, None, [1, 2], True),
        "norm in a dtype": (aten.norm.ScalarOpt_dtype, CUBE.half(), 2, {"dtype": torch.float32}),
        "norm along axes in a dtype": (aten.norm.ScalarOpt_dim_dtype, CUBE, INF, [1], False, {"dtype": torch.float64}),
        "slices are scaled down": (aten.renorm.default, CUBE, 2, 1, 1.5),
        "slices of halves": (aten.renorm.default, CUBE.half(), 1, -1, 2.0),
        "frobenius": (aten.frobenius_norm.dim, CUBE, [0, 1]),
    }  # fmt: skip

    SPECIAL_VALUES = {
        "order inf": (aten.linalg_vector_norm.default, SPECIAL, INF, [1]),
        "order -inf": (aten.linalg_vector_norm.default, SPECIAL, -INF, [0], True),
    }

    def test_special_values(self):
        self.assert_cases(self.SPECIAL_VALUES, special_values=True)

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)


if __name__ == "__main__":
    unittest.main()
