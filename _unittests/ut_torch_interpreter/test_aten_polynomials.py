"""Orthogonal polynomials: same values, shapes and dtypes as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
X = torch.tensor([-1.7, -1.0, -0.9, -0.3, 0.0, 0.2, 0.5, 0.99, 1.0, 1.5, 4.0, math.nan])
N = torch.tensor([[-2], [0], [1], [2], [3], [5], [9]])


class TestPolynomials(ExporterTestCase):
    OF_TENSORS = (
        aten.special_chebyshev_polynomial_t.default,
        aten.special_chebyshev_polynomial_u.default,
        aten.special_chebyshev_polynomial_v.default,
        aten.special_chebyshev_polynomial_w.default,
        aten.special_hermite_polynomial_h.default,
        aten.special_hermite_polynomial_he.default,
        aten.special_laguerre_polynomial_l.default,
        aten.special_legendre_polynomial_p.default,
        aten.special_shifted_chebyshev_polynomial_t.default,
        aten.special_shifted_chebyshev_polynomial_u.default,
        aten.special_shifted_chebyshev_polynomial_v.default,
        aten.special_shifted_chebyshev_polynomial_w.default,
    )
    OF_A_DEGREE = (
        aten.special_chebyshev_polynomial_t.n_scalar,
        aten.special_chebyshev_polynomial_u.n_scalar,
        aten.special_chebyshev_polynomial_v.n_scalar,
        aten.special_chebyshev_polynomial_w.n_scalar,
        aten.special_hermite_polynomial_h.n_scalar,
        aten.special_hermite_polynomial_he.n_scalar,
        aten.special_laguerre_polynomial_l.n_scalar,
        aten.special_legendre_polynomial_p.n_scalar,
        aten.special_shifted_chebyshev_polynomial_t.n_scalar,
        aten.special_shifted_chebyshev_polynomial_u.n_scalar,
        aten.special_shifted_chebyshev_polynomial_v.n_scalar,
        aten.special_shifted_chebyshev_polynomial_w.n_scalar,
    )
    OF_A_NUMBER = (
        aten.special_chebyshev_polynomial_t.x_scalar,
        aten.special_chebyshev_polynomial_u.x_scalar,
        aten.special_chebyshev_polynomial_v.x_scalar,
        aten.special_chebyshev_polynomial_w.x_scalar,
        aten.special_hermite_polynomial_h.x_scalar,
        aten.special_hermite_polynomial_he.x_scalar,
        aten.special_laguerre_polynomial_l.x_scalar,
        aten.special_legendre_polynomial_p.x_scalar,
        aten.special_shifted_chebyshev_polynomial_t.x_scalar,
        aten.special_shifted_chebyshev_polynomial_u.x_scalar,
        aten.special_shifted_chebyshev_polynomial_v.x_scalar,
        aten.special_shifted_chebyshev_polynomial_w.x_scalar,
    )

    def test_same_as_eager(self):
        for target in self.OF_TENSORS:
            with self.subTest(target):
                self.assert_same_as_eager(target, X[:-1], N, dynamic=False)
                self.assert_same_as_eager(target, X.double()[:-1], N, dynamic=False)
                self.assert_same_as_eager(target, torch.arange(3), torch.arange(3), dynamic=False)

    def test_numbers(self):
        for target in self.OF_A_DEGREE:
            with self.subTest(target):
                self.assert_same_as_eager(target, X[:-1], 4, dynamic=False)
        for target in self.OF_A_NUMBER:
            with self.subTest(target):
                self.assert_same_as_eager(target, 0.75, N, dynamic=False)

    def test_the_degree_of_hermite_is_limited(self):
        degrees = torch.tensor([100, 128, 129, 600])
        x = torch.tensor(0.01, dtype=torch.float64)
        for target in (aten.special_hermite_polynomial_h.default, aten.special_hermite_polynomial_he.default):
            with self.subTest(target):
                self.assert_same_as_eager(target, x, degrees, dynamic=False)
                self.assert_same_as_eager(target, x.float().reshape(1), degrees, dynamic=False)

    def test_dynamic_sizes(self):
        target = aten.special_legendre_polynomial_p.default
        self.assert_same_as_eager(target, X[:6], N[:6, 0], others=[(X[2:6], N[3:, 0])])


if __name__ == "__main__":
    unittest.main()
