"""Pooling with positions: same values, shapes and dtypes as eager."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE, VOLUME = normal(2, 3, 9, 8), normal(1, 2, 6, 5, 7)
PLANE, PLACES = torch.nn.functional.max_pool2d(normal(2, 3, 8, 8), 2, return_indices=True)
BLOCK, PLACES3 = torch.nn.functional.max_pool3d(normal(3, 4, 8, 8), 2, return_indices=True)


def uniform(*shape):
    """Numbers between 0 and 1, the same at every run."""
    return torch.rand(*shape, generator=GENERATOR)


class TestUnpooling(ExporterTestCase):
    CASES = {
        "elements at their positions": (aten.max_unpool2d.default, PLANE, PLACES, [8, 8]),
        "a larger plane": (aten.max_unpool2d.default, PLANE, PLACES, [9, 8]),
        "no batch": (aten.max_unpool2d.default, PLANE[0], PLACES[0], [8, 8]),
        "float64": (aten.max_unpool2d.default, PLANE.double(), PLACES, [8, 8]),
        "float16": (aten.max_unpool2d.default, PLANE.half(), PLACES, [8, 8]),
        "three axes": (aten.max_unpool3d.default, BLOCK, PLACES3, [4, 8, 8], [2, 2, 2], [0, 0, 0]),
        "fractional": (aten.fractional_max_pool2d.default, IMAGE, [2, 3], [4, 3], uniform(2, 3, 2)),
        "fractional, one window": (
            aten.fractional_max_pool2d.default,
            IMAGE,
            [3, 2],
            [1, 4],
            uniform(2, 3, 2),
        ),
        "fractional, no batch": (
            aten.fractional_max_pool2d.default,
            IMAGE[0],
            [2, 2],
            [4, 3],
            uniform(1, 3, 2),
        ),
        "fractional, three axes": (
            aten.fractional_max_pool3d.default,
            VOLUME,
            [2, 3, 2],
            [3, 2, 4],
            uniform(1, 2, 3),
        ),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_the_last_nan(self):
        windows = [2, 3], [4, 3], uniform(2, 3, 2)
        x = IMAGE.where(IMAGE > 0, math.nan)
        self.assert_same_as_eager(aten.fractional_max_pool2d.default, x, *windows, special_values=True)


if __name__ == "__main__":
    unittest.main()
