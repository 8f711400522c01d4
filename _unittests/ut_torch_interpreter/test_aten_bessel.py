"""Bessel and Airy functions: same values, shapes and dtypes as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
LINE = torch.linspace(-20, 20, 161)
EDGES = torch.tensor([math.nan, 0.0, -0.0, 5.0, 8.0, 2.0, -8.0, 1e-6, 1e-3, 80.0, -80.0, 104.0, 2.09, -2.09])
INFINITE = torch.tensor([math.inf, -math.inf])


class TestBessel(ExporterTestCase):
    FUNCTIONS = (
        aten.i0.default,
        aten.special_airy_ai.default,
        aten.special_bessel_j0.default,
        aten.special_bessel_j1.default,
        aten.special_bessel_y0.default,
        aten.special_bessel_y1.default,
        aten.special_i0.default,
        aten.special_i0e.default,
        aten.special_i1.default,
        aten.special_i1e.default,
        aten.special_modified_bessel_i0.default,
        aten.special_modified_bessel_i1.default,
        aten.special_modified_bessel_k0.default,
        aten.special_modified_bessel_k1.default,
        aten.special_scaled_modified_bessel_k0.default,
        aten.special_scaled_modified_bessel_k1.default,
        aten.special_spherical_bessel_j0.default,
    )

    def test_same_as_eager(self):
        for target in self.FUNCTIONS:
            for name, x in (("line", LINE), ("edges", EDGES), ("infinite", INFINITE)):
                with self.subTest(target=target, x=name):
                    self.assert_same_as_eager(target, x.double(), dynamic=False)
                    self.assert_same_as_eager(target, x, dynamic=False)

    def test_integers(self):
        for target in (aten.i0.default, aten.special_bessel_j1.default):
            with self.subTest(target=target):
                self.assert_same_as_eager(target, torch.arange(-3, 3), dynamic=False)

    def test_dynamic_sizes(self):
        self.assert_same_as_eager(
            aten.i0.default, LINE[:6].reshape(2, 3), others=[(LINE[:20].reshape(4, 5),)]
        )


if __name__ == "__main__":
    unittest.main()
