"""Packed images of several sizes: positions, windows and attention of vision towers, for any number of images."""

import unittest

import torch
from transformers import vision_utils
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches import vision

T = torch.tensor
GRIDS = [T([[1, 8, 12]]), T([[2, 4, 6], [1, 8, 4], [3, 10, 14]]), T([[1, 16, 16], [1, 2, 2]])]


class TestGrids(unittest.TestCase):
    """The functions that replace those of transformers give the same tensors."""

    def test_positions(self):
        for grid in GRIDS:
            for merge in (1, 2, torch.full((len(grid),), 2)):
                for is_timed in (False, True):
                    with self.subTest(grid=grid, merge=merge, is_timed=is_timed):
                        expected = vision_utils.get_vision_position_ids(grid, merge, is_timed)
                        got = vision.get_vision_position_ids(grid, merge, is_timed)
                        self.assertTrue(torch.equal(got, expected))

    def test_windows(self):
        for grid in GRIDS:
            for window, patch in ((16, 2), (8, 2), (24, 4)):
                with self.subTest(grid=grid, window=window):
                    expected = vision_utils.get_vision_window_index(grid, 2, window, patch)
                    for wanted, got in zip(expected, vision.get_vision_window_index(grid, 2, window, patch)):
                        self.assertEqual(got.dtype, wanted.dtype)
                        self.assertTrue(torch.equal(got, wanted))

    def test_what_is_given_is_taken(self):
        given = {"position_ids": T([1]), "window_index": T([2]), "cu_window_seqlens": T([0, 3])}
        self.assertEqual(vision.get_vision_position_ids(GRIDS[0], 2, kwargs=given), 1)
        self.assertEqual(vision.get_vision_window_index(GRIDS[0], 2, 8, 2, kwargs=given)[0], 2)
        self.assertEqual(given, {})


class TestTower(ExporterTestCase):
    """A tower with windows, rotary positions and merged patches."""

    def test_any_number_of_images_of_any_size(self):
        config = Qwen2_5_VLVisionConfig(
            depth=2, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=2, spatial_merge_size=2,
            window_size=8, out_hidden_size=16, fullatt_block_indexes=[1],
        )  # fmt: skip
        tower = Qwen2_5_VisionTransformerPretrainedModel(config).eval()
        width = config.in_channels * config.temporal_patch_size * config.patch_size**2

        def call(grid):
            return torch.randn(int(grid.prod(1).sum()), width), grid

        example = call(T([[1, 4, 6], [1, 8, 4], [2, 2, 4]]))
        shapes = ({0: "patches"}, {0: "images"})
        with self.assertLogs("experimental_experiment", "INFO") as logged:
            model = to_onnx(tower, example, dynamic_shapes=shapes)
        for name in ("packed_attention", "vision_grids"):
            self.assertIn(f"patch {name} was used", "".join(logged.output))
        for grid in (example[1], *GRIDS):
            self.assert_matches(model, tower, call(grid))
        with self.assertRaises(CaptureError):
            to_onnx(tower, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
