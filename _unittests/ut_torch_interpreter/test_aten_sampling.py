"""Sampling at the points of a grid: same values, shapes and dtypes as eager."""

import itertools
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE, GRID = normal(2, 3, 5, 6), normal(2, 4, 3, 2)
VOLUME, POINTS = normal(2, 2, 4, 3, 5), normal(2, 2, 3, 2, 3)
THETA = normal(2, 2, 3)


class TestSampling(ExporterTestCase):
    CASES = {
        "an image": (aten.grid_sampler.default, IMAGE, GRID, 0, 0, False),
        "a volume": (aten.grid_sampler.default, VOLUME, POINTS, 0, 1, True),
        "grid_sampler_2d": (aten.grid_sampler_2d.default, IMAGE, GRID, 2, 2, False),
        "grid_sampler_3d": (aten.grid_sampler_3d.default, VOLUME, POINTS, 1, 0, False),
        "float16, an element": (aten.grid_sampler_2d.default, IMAGE.half(), GRID.half(), 1, 0, False),
        "float16, rounded at every step": (
            aten.grid_sampler_2d.default,
            IMAGE.half(),
            GRID.half(),
            0,
            2,
            False,
        ),
        "bfloat16, cubic": (aten.grid_sampler_2d.default, IMAGE.bfloat16(), GRID.bfloat16(), 2, 1, True),
        "bfloat16, a volume": (
            aten.grid_sampler_3d.default,
            VOLUME.bfloat16(),
            POINTS.bfloat16(),
            0,
            0,
            False,
        ),
        "far outside": (aten.grid_sampler_2d.default, IMAGE, GRID * 1e10, 0, 1, False),
        "infinitely far": (aten.grid_sampler_2d.default, IMAGE, GRID * float("inf"), 0, 1, True),
        "one element": (aten.grid_sampler_2d.default, IMAGE[..., :1, :1].double(), GRID.double(), 0, 2, True),
        "affine grid": (aten.affine_grid_generator.default, THETA, [2, 3, 4, 5], False),
        "affine grid, corners": (aten.affine_grid_generator.default, THETA, [2, 3, 4, 5], True),
        "affine grid, one element": (aten.affine_grid_generator.default, THETA, [2, 3, 1, 5], True),
        "affine grid, three axes": (
            aten.affine_grid_generator.default,
            normal(2, 3, 4),
            [2, 3, 4, 5, 2],
            True,
        ),
        "affine grid, float64": (aten.affine_grid_generator.default, THETA.double(), [2, 3, 4, 5], False),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_every_mode(self):
        modes = list(itertools.product((0, 1, 2), (0, 1, 2), (False, True)))

        def samples(image, grid, volume, points):
            for mode, padding, corners in modes:
                yield aten.grid_sampler.default(image, grid, mode, padding, corners)
                if mode < 2:
                    yield aten.grid_sampler.default(volume, points, mode, padding, corners)

        every = lambda *tensors: list(samples(*tensors))
        tensors = IMAGE, GRID, VOLUME, POINTS
        for dtype in (torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                self.assert_same_as_eager(every, *(x.to(dtype) for x in tensors), dynamic=False)

    def test_points_that_are_not_numbers(self):
        nowhere = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30])
        grid, points = GRID.clone(), POINTS.clone()
        grid[:, :, 0, 0], grid[:, :, 1, 1] = nowhere, nowhere
        points[:, 0, :, 0, 0], points[:, 1, :, 1, 2] = nowhere[:3], nowhere[1:]

        def samples(image, grid, volume, points):
            for mode, padding in itertools.product((0, 1, 2), (0, 1, 2)):
                # what a reflection gives far outside is made of rounding
                near = [
                    x.where(x.isinf() | (x.abs() < 1e9) | x.isnan(), 0.1) if padding == 2 else x
                    for x in (grid, points)
                ]
                yield aten.grid_sampler.default(image, near[0], mode, padding, False)
                if mode < 2:
                    yield aten.grid_sampler.default(volume, near[1], mode, padding, False)

        for dtype in (torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                given = [x.to(dtype) for x in (IMAGE, grid, VOLUME, points)]
                self.assert_same_as_eager(lambda *tensors: list(samples(*tensors)), *given, dynamic=False)

    def test_image_of_its_own_grid(self):
        def sample(x, theta):
            grid = aten.affine_grid_generator.default(theta, list(x.shape), False)
            return aten.grid_sampler.default(x, grid, 0, 0, False)

        self.assert_same_as_eager(sample, IMAGE, THETA)


if __name__ == "__main__":
    unittest.main()
