"""Packed images of several sizes: positions, windows and attention of vision towers, for any number of images."""

import unittest

import torch
from transformers import vision_utils
from transformers.models.glm5_next import modeling_glm5_next as glm5_next
from transformers.models.glm_ocr import modeling_glm_ocr as glm_ocr
from transformers.models.muse_spark import modeling_muse_spark as muse_spark
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, frames, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
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

    def test_shuffled_patches(self):
        for grid in GRIDS:
            with self.subTest(grid=grid):
                expected = muse_spark.get_vision_pixel_shuffle_index(grid, 2)
                self.assertTrue(torch.equal(vision.get_vision_pixel_shuffle_index(grid, 2), expected))
        given = {"pixel_shuffle_index": T([3])}
        self.assertEqual(vision.get_vision_pixel_shuffle_index(GRIDS[0], 2, given), 3)
        self.assertEqual(given, {})

    def test_what_is_given_is_taken(self):
        given = {"position_ids": T([1]), "window_index": T([2]), "cu_window_seqlens": T([0, 3])}
        self.assertEqual(vision.get_vision_position_ids(GRIDS[0], 2, kwargs=given), 1)
        self.assertEqual(vision.get_vision_window_index(GRIDS[0], 2, 8, 2, kwargs=given)[0], 2)
        self.assertEqual(given, {})


class TestTower(ExporterTestCase):
    """A tower with windows, rotary positions and merged patches."""

    def test_patched_towers_are_eager_s(self):
        sizes = {
            "depth": 1, "hidden_size": 32, "intermediate_size": 24, "num_heads": 2, "patch_size": 2, "spatial_merge_size": 2,
            "out_hidden_size": 16,
        }  # fmt: skip
        towers = [
            Qwen2_5_VisionTransformerPretrainedModel(Qwen2_5_VLVisionConfig(**sizes)),
            glm_ocr.GlmOcrVisionModel(glm_ocr.GlmOcrVisionConfig(**sizes)),  # with norms of queries and keys
            glm5_next.Glm5NextVisionModel(
                glm5_next.Glm5NextVisionConfig(**sizes)
            ),  # transformers does not prepare it
        ]
        for tower in towers:
            config = tower.eval().config
            width = config.in_channels * config.temporal_patch_size * config.patch_size**2
            for grid in GRIDS:
                with self.subTest(type(tower).__name__, grid=grid), torch.no_grad():
                    x = torch.randn(int(grid.prod(1).sum()), width)
                    expected = tower(x, grid).pooler_output
                    with bypass_export_some_errors(patch_transformers=True):
                        self.assertNotIn("tolist", frames.words(type(tower.blocks[0].attn).forward.__code__))
                        got = tower(x, grid).pooler_output
                    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)

    def test_other_attentions_are_refused(self):
        class Layer(torch.nn.Module):
            def forward(self, x, cu_seqlens, mask=None, calls=1):
                (x,) = torch.split(x, (cu_seqlens[1:] - cu_seqlens[:-1]).tolist())
                for _ in range(calls):
                    x = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
                return x

        x, bounds = torch.randn(4, 4), T([0, 3, 4])
        forward = vision.masked(Layer.forward)
        self.assertEqual(forward(Layer(), x, bounds).shape, x.shape)
        with self.assertRaisesRegex(
            CaptureError, "Layer does not call scaled_dot_product_attention: its images"
        ):
            forward(Layer(), x, bounds, calls=0)
        with self.assertRaisesRegex(CaptureError, "has a mask of its own, which is not handled"):
            forward(Layer(), x, cu_seqlens=bounds, mask=torch.ones(4, 4))

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

    def test_patches_merged_after_all_layers(self):
        config = muse_spark.MuseSparkVisionConfig(
            num_hidden_layers=1, hidden_size=16, intermediate_size=24, num_attention_heads=2, patch_size=2, pos_emb_height=8,
            pos_emb_width=8, layer_types=["window_attention"],
        )  # fmt: skip
        tower = muse_spark.MuseSparkVisionModel(config).eval()

        def call(grid):
            return torch.randn(
                int(grid.prod(1).sum()), 3 * config.patch_temporal * config.patch_size**2
            ), grid

        shapes = ({0: "patches"}, {0: "images"})
        model = to_onnx(tower, call(T([[1, 4, 6], [1, 8, 4]])), dynamic_shapes=shapes)
        for grid in GRIDS:
            self.assert_matches(model, tower, call(grid))


if __name__ == "__main__":
    unittest.main()
