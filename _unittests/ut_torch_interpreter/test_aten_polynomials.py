"""Orthogonal polynomials: same values, shapes and dtypes as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
X = torch.tensor([-1.7, -1.0, -0.9, -0.3, 0.0, 0.2, 0.5, 0.99, 1.0, 1.5, 4.0, math.nan])
N = torch.tensor([[-2], [0], [1], [2], [3], [5], [9]])


class TestPolynomials(ExporterTestCase):
    POLYNOMIALS = (
        aten.special_chebyshev_polynomial_t,
        aten.special_chebyshev_polynomial_u,
        aten.special_chebyshev_polynomial_v,
        aten.special_chebyshev_polynomial_w,
        aten.special_hermite_polynomial_h,
        aten.special_hermite_polynomial_he,
        aten.special_laguerre_polynomial_l,
        aten.special_legendre_polynomial_p,
        aten.special_shifted_chebyshev_polynomial_t,
        aten.special_shifted_chebyshev_polynomial_u,
        aten.special_shifted_chebyshev_polynomial_v,
        aten.special_shifted_chebyshev_polynomial_w,
    )

    def test_same_as_eager(self):
        for packet in self.POLYNOMIALS:
            with self.subTest(packet):
                self.assert_same_as_eager(packet.default, X[:-1], N, dynamic=False)
                self.assert_same_as_eager(packet.default, X.double()[:-1], N, dynamic=False)
                self.assert_same_as_eager(packet.n_scalar, X[:-1], 4, dynamic=False)
                self.assert_same_as_eager(packet.x_scalar, 0.75, N, dynamic=False)
                self.assert_same_as_eager(packet.default, torch.arange(3), torch.arange(3), dynamic=False)

    def test_the_degree_of_hermite_is_limited(self):
        degrees = torch.tensor([100, 128, 129, 600])
        x = torch.tensor(0.01, dtype=torch.float64)
        for packet in (aten.special_hermite_polynomial_h, aten.special_hermite_polynomial_he):
            with self.subTest(packet):
                self.assert_same_as_eager(packet.default, x, degrees, dynamic=False)
                self.assert_same_as_eager(packet.default, x.float().reshape(1), degrees, dynamic=False)

    def test_dynamic_sizes(self):
        target = aten.special_legendre_polynomial_p.default
        self.assert_same_as_eager(target, X[:6], N[:6, 0], others=[(X[2:6], N[3:, 0])])


if __name__ == "__main__":
    unittest.main()
