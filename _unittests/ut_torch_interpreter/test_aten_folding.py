"""Folding and shuffles: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE, COLUMNS = normal(2, 8, 6, 4), normal(2, 12, 12)


class TestFolding(ExporterTestCase):
    CASES = {
        "windows as columns": (aten.im2col.default, IMAGE, [3, 2], [1, 2], [1, 0], [2, 1]),
        "windows as columns, one element wide": (aten.im2col.default, IMAGE, [3, 1], [1, 1], [1, 1], [1, 3]),
        "windows as columns, wide": (
            aten.im2col.default,
            normal(1, 2, 3, 39),
            [2, 17],
            [1, 2],
            [0, 1],
            [1, 4],
        ),
        "windows side by side": (aten.im2col.default, IMAGE, [2, 4], [1, 1], [0, 0], [2, 4]),
        "windows side by side, a rest": (aten.im2col.default, IMAGE, [4, 3], [1, 1], [0, 0], [4, 3]),
        "windows side by side, padding": (aten.im2col.default, IMAGE[0], [2, 3], [1, 1], [1, 1], [2, 3]),
        "windows of booleans, no batch": (aten.im2col.default, IMAGE[0] > 0, [2, 2], [1, 1], [0, 0], [1, 1]),
        "columns added at windows": (aten.col2im.default, COLUMNS, [5, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
        "columns, padding, stride": (
            aten.col2im.default,
            normal(2, 12, 8),
            [8, 5],
            [3, 2],
            [1, 1],
            [1, 0],
            [2, 2],
        ),
        "columns, dilation": (aten.col2im.default, normal(2, 12, 8), [6, 5], [3, 2], [2, 1], [0, 0], [1, 1]),
        "columns without a batch": (aten.col2im.default, COLUMNS[0], [5, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
        "columns, float64": (aten.col2im.default, COLUMNS.double(), [5, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
        "columns, float64, padding": (
            aten.col2im.default,
            normal(2, 12, 8).double(),
            [8, 5],
            [3, 2],
            [1, 1],
            [1, 0],
            [2, 3],
        ),
        "pixels from channels": (aten.pixel_shuffle.default, IMAGE, 2),
        "pixels, five axes": (aten.pixel_shuffle.default, IMAGE[None], 2),
        "pixels of integers": (aten.pixel_shuffle.default, torch.arange(64).reshape(8, 4, 2), 2),
        "channels from pixels": (aten.pixel_unshuffle.default, IMAGE, 2),
        "channels, no batch": (aten.pixel_unshuffle.default, IMAGE[0], 2),
        "channels in turn": (aten.channel_shuffle.default, IMAGE, 4),
        "the operator behind it": (aten.native_channel_shuffle.default, IMAGE, 2),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_other_sizes(self):
        unfold = lambda x: torch.nn.functional.unfold(x, (3, 2), padding=1, stride=2)
        fold = lambda x: torch.nn.functional.fold(unfold(x), x.shape[2:], (3, 2), padding=1, stride=2)
        for dtype in (torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                others = [(normal(3, 8, 7, 9, dtype=dtype),)]
                self.assert_same_as_eager(fold, IMAGE.to(dtype), others=others)

    def test_channels_of_any_number_in_turn(self):
        shuffle = lambda x: torch.nn.functional.channel_shuffle(x, 2)
        self.assert_same_as_eager(
            shuffle, normal(2, 8, 3, 5), others=[(normal(3, 12, 2, 4),), (normal(1, 2, 3, 3),)]
        )


if __name__ == "__main__":
    unittest.main()
