"""Rows of GridSample and AffineGrid."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
IMAGE, GRID = torch.randn(2, 3, 5, 6), torch.rand(2, 4, 3, 2) * 2 - 1
VOLUME, POINTS = torch.randn(2, 2, 4, 3, 5), torch.rand(2, 2, 3, 2, 3) * 2 - 1
NOWHERE, NO_PLACE = GRID.clone(), POINTS.clone()
NOWHERE[:, 1:, 0], NO_PLACE[:, 1, 0] = float("nan"), float("nan")
BETWEEN = torch.tensor([-2.0, -1.5, 1.5, 2.0, 0.25, 0.5]).expand(2, 2, 6)[..., None].repeat(1, 1, 1, 2)
SAMPLE = aten.grid_sampler.default

ROWS = {
    "AffineGrid.sum_over_axes": (
        aten.affine_grid_generator.default,
        torch.randn(2, 2, 3),
        [2, 3, 4, 5],
        False,
    ),
    "GridSample.end_at_nowhere": (SAMPLE, VOLUME, NO_PLACE, 1, 1, False),
    "GridSample.in_elementary_operators": (SAMPLE, IMAGE, GRID, 0, 0, False),
    "GridSample.in_float64": (SAMPLE, IMAGE.double(), GRID.double(), 0, 0, False),
    "GridSample.nan_at_nowhere": (SAMPLE, IMAGE, NOWHERE, 0, 0, False),
    "GridSample.near_enough": (SAMPLE, IMAGE, GRID * 1e12, 0, 1, False),
    "GridSample.of_images": (SAMPLE, VOLUME, POINTS, 0, 0, False),
    "GridSample.reflected_before_it_is_rounded": (SAMPLE, IMAGE[..., :4], BETWEEN, 1, 2, False),
    "GridSample.zero_at_nowhere": (SAMPLE, IMAGE, NOWHERE, 1, 0, False),
}


class TestGrids(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_old_names(self):
        for mode in (0, 1, 2):
            with self.subTest(mode=mode):
                for opset in (13, 18):
                    self.assert_same_as_eager(SAMPLE, IMAGE, GRID, mode, 0, False, target_opset=opset)


if __name__ == "__main__":
    unittest.main()
