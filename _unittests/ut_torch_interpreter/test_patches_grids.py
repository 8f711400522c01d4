"""Models that take packed images one after the other: any number of images, of any sizes."""

import types
import unittest

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.ernie4_5_vl_moe import modeling_ernie4_5_vl_moe as ernie
from transformers.models.hunyuan_vl import modeling_hunyuan_vl as hunyuan
from transformers.models.lfm2_vl import modeling_lfm2_vl as lfm2
from transformers.models.lfm3_vl import modeling_lfm3_vl as lfm3
from transformers.models.video_llama_3 import modeling_video_llama_3 as video_llama

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches import grids
from experimental_experiment.torch_interpreter.patches.pieces import Lengths

T = torch.tensor
RESAMPLER = ernie.Ernie4_5_VLMoeVariableResolutionResamplerModel
TOWER = video_llama.VideoLlama3VisionModel
IMAGES = [T([[1, 4, 4], [1, 2, 6]]), T([[1, 8, 2], [1, 4, 4], [1, 6, 10]]), T([[1, 2, 4]])]
VIDEOS = [
    T([[1, 4, 4], [4, 2, 6]]),
    T([[5, 2, 2], [1, 4, 6], [2, 2, 2], [3, 4, 2]]),
    T([[1, 2, 2]]),
    T([[7, 2, 4]]),
]


class Frames(torch.nn.Module):
    """Ernie's frames, two and two."""

    spatial_merge_size = 2

    def forward(self, states, grid):
        return RESAMPLER._temporal_slicing(self, states, grid)


class Centers(torch.nn.Module):
    """VideoLlama's squares, each resized to one patch."""

    def forward(self, states, grid, merge_sizes):
        return TOWER.pixel_unshuffle(self, states, grid, merge_sizes)


class Given(torch.nn.Module):
    """A tower whose features are given."""

    def forward(self, pixel_values, **others):
        return BaseModelOutputWithPooling(last_hidden_state=pixel_values)


class Squares(torch.nn.Module):
    """Lfm2's features of its images."""

    def __init__(self, use_layer_norm):
        super().__init__()
        torch.manual_seed(0)
        width = types.SimpleNamespace(hidden_size=5)
        config = types.SimpleNamespace(
            vision_config=width,
            text_config=width,
            downsample_factor=2,
            projector_use_layernorm=use_layer_norm,
            projector_hidden_size=7,
            projector_bias=True,
            projector_hidden_act="gelu",
            return_dict=True,
        )
        self.config, self.vision_tower = config, Given()
        self.multi_modal_projector = lfm2.Lfm2VlMultiModalProjector(config)

    def forward(self, pixel_values, spatial_shapes, mask):
        found = lfm2.Lfm2VlModel.get_image_features(
            self, pixel_values, spatial_shapes, mask, return_dict=True
        )
        return torch.cat(found.pooler_output)


def frames(grid):
    """A call of `Frames`."""
    torch.manual_seed(0)
    return torch.randn(int(grid.prod(1).sum()) // 4, 3), grid


def centers(sizes):
    """A call of `Centers`: frames, rows and columns of squares, patches of a side of one."""
    torch.manual_seed(0)
    grid = sizes[:, :3] * torch.cat([torch.ones_like(sizes[:, 3:]), sizes[:, 3:], sizes[:, 3:]], 1)
    return torch.randn(int(grid.prod(1).sum()), 3), grid, sizes[:, 3]


def squares(grid):
    """A call of `Squares`, with padding."""
    torch.manual_seed(0)
    counts = grid.prod(1)
    mask = torch.arange(int(counts.max()) + 2) < counts[:, None]
    return torch.randn(*mask.shape, 5), grid[:, 1:], mask.long()


def patches(grid, width):
    """A call of a tower: its patches and their grid."""
    torch.manual_seed(0)
    return torch.randn(int(grid.prod(1).sum()), width), grid


def hunyuan_tower():
    """A small tower of HunYuan."""
    torch.manual_seed(0)
    config = hunyuan.HunYuanVLVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=2,
        num_hidden_layers=1,
        patch_size=2,
        max_image_size=10,
        text_hidden_size=8,
    )
    model = hunyuan.HunYuanVLVisionTransformer(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0.1, 0.3)
    return model


def lfm3_tower():
    """A small tower of Lfm3, with a convolution and an attention."""
    torch.manual_seed(0)
    config = lfm3.Lfm3VlVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=2,
        layer_types=["conv", "full_attention"],
        patch_size=2,
    )
    model = lfm3.Lfm3VlVisionModel(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0.1, 0.3)
    return model


SIZES = [T([[1, 2, 3, 2], [2, 1, 2, 1]]), T([[1, 1, 2, 4], [3, 2, 1, 3], [1, 4, 2, 2]]), T([[2, 2, 2, 1]])]
"""Frames, rows and columns of squares, and their sides."""


class TestLoops(ExporterTestCase):
    def check(self, model, function, calls, shapes):
        """The same as the loop for all calls, in ONNX too, and refused without the patch."""
        with torch.no_grad():
            for call in calls:
                torch.testing.assert_close(function(*call), model(*call))
        example, *others = calls
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes, target_opset=20)
        with self.assertRaises(CaptureError):
            to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_frames(self):
        model, shapes = Frames(), ({0: "patches"}, {0: "images"})
        self.check(model, lambda *call: grids.of_frames(model, *call), [*map(frames, VIDEOS)], shapes)

    def test_centers(self):
        model, shapes = Centers(), ({0: "patches"}, {0: "images"}, {0: "images"})
        self.check(model, lambda *call: grids.of_centers(model, *call), [*map(centers, SIZES)], shapes)

    def test_squares(self):
        shapes = ({0: "images", 1: "patches"}, {0: "images"}, {0: "images", 1: "patches"})
        for use_layer_norm in (True, False):
            model = Squares(use_layer_norm)

            def of_squares(*call, model=model):
                return grids.of_squares(model, *call).pooler_output.whole

            self.check(model, of_squares, [*map(squares, IMAGES)], shapes)

    def test_lines(self):
        model, shapes = hunyuan_tower(), ({0: "patches"}, {0: "images"})
        calls = [patches(grid, 12) for grid in (*IMAGES, T([[1, 5, 7], [1, 2, 3]]))]

        def tensors(found):
            return found.last_hidden_state, found.pooler_output

        with torch.no_grad():
            for call in calls:
                expected = tensors(model(*call))
                torch.testing.assert_close(tensors(grids.of_lines(model, *call)), expected)
        example, *others = calls
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes, target_opset=20)
        with self.assertRaises(CaptureError):
            to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_neighbours(self):
        model, shapes = lfm3_tower(), ({0: "patches"}, {0: "images"})
        layer = model.layers[0].conv
        with torch.no_grad():
            for grid in VIDEOS:
                states, _ = patches(grid, 16)
                found = grids.of_neighbours(layer, states, Lengths(grid, torch.Tensor.tolist))
                torch.testing.assert_close(found, layer(states, grid.tolist()))
        width = model.patch_embed.in_features
        example, *others = [patches(grid, width) for grid in VIDEOS]
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes, target_opset=20)
        with self.assertRaises(CaptureError):
            to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_a_known_number_of_images_is_the_models_loop(self):
        """The program of a model that exports without the patch is as it was."""
        model, call = lfm3_tower(), patches(VIDEOS[0], 0)[1]
        width = model.patch_embed.in_features
        with self.assertLogs("experimental_experiment", "INFO") as logs:
            to_onnx(model, patches(call, width), dynamic_shapes=({0: "patches"}, None))
        self.assertNotIn("loops_over_images", "".join(logs.output))


if __name__ == "__main__":
    unittest.main()
