"""Images of several sizes in one padded tensor: Pixtral's tower, the mergers of Mistral 3 and LightOnOCR."""

import types
import unittest

import torch
import transformers
from transformers.models.lighton_ocr import modeling_lighton_ocr as lighton_ocr
from transformers.models.mistral3 import modeling_mistral3 as mistral3
from transformers.models.mistral_large4 import modeling_mistral_large4 as mistral_large4
from transformers.models.pixtral import modeling_pixtral as pixtral

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

T = torch.tensor
SIZES = [T([[8, 12], [16, 4]]), T([[12, 12], [4, 8], [8, 8]]), T([[9, 15]])]


def tower():
    """Pixtral's tower, patches of 4 pixels."""
    config = pixtral.PixtralVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, patch_size=4, image_size=32,
    )  # fmt: skip
    return pixtral.PixtralVisionModel(config).eval()


def images(sizes):
    """Images that are padded to the largest, and their sizes."""
    return torch.randn(len(sizes), 3, *sizes.max(0).values.tolist()), sizes


def merger(cls):
    """A layer that merges 2 x 2 patches of 4 pixels."""
    vision = types.SimpleNamespace(hidden_size=6, patch_size=4)
    return cls(types.SimpleNamespace(vision_config=vision, spatial_merge_size=2))


def patches(sizes):
    """The patches of images of these sizes, one after the other."""
    return torch.randn(int((sizes // 4).prod(1).sum()), 6), sizes


def reader():
    """LightOnOCR, of one layer each; 9 is the token of an image."""
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 8,
    }
    config = transformers.LightOnOcrConfig(
        vision_config=pixtral.PixtralVisionConfig(**sizes, patch_size=4, image_size=32),
        text_config=transformers.Qwen3Config(**sizes, num_key_value_heads=2, vocab_size=20),
        image_token_id=9,
    )
    return lighton_ocr.LightOnOcrModel(config).eval()


def read(sizes):
    """A text with a token for each 2 x 2 patches of its images."""
    count = int((sizes // 8).prod(1).sum())
    ids = torch.tensor([[1, 2] + [9] * count + [3]])
    pixel_values, image_sizes = images(sizes)
    return {"input_ids": ids, "pixel_values": pixel_values, "image_sizes": image_sizes, "use_cache": False}


class TestTower(ExporterTestCase):
    def test_patched_towers_are_eager_s(self):
        model = tower()
        for sizes in SIZES:
            for given in (sizes, None, [tuple(size) for size in sizes.tolist()]):
                with self.subTest(sizes=given), torch.no_grad():
                    x, _ = images(sizes)
                    expected = model(x, given, output_hidden_states=True)
                    with bypass_export_some_errors(patch_transformers=True):
                        got = model(x, given, output_hidden_states=True)
                    for wanted, found in zip(expected.hidden_states, got.hidden_states, strict=True):
                        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)

    def test_any_sizes(self):
        model = tower()
        shapes = ({0: "images", 2: "height", 3: "width"}, {0: "images"})
        others = [images(sizes) for sizes in SIZES[1:]]
        self.export_and_compare(
            model, images(SIZES[0]), others=others, dynamic_shapes=shapes, target_opset=20
        )
        with self.assertRaises(CaptureError):
            options = ExportOptions(patches=False)
            to_onnx(model, images(SIZES[0]), dynamic_shapes=shapes, export_options=options)

    def test_one_size(self):
        model = tower()
        shapes = ({0: "images", 2: "height", 3: "width"},)
        others = [(torch.randn(3, 3, 12, 20),), (torch.randn(1, 3, 7, 8),)]
        example = (torch.randn(2, 3, 8, 16),)
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes, target_opset=20)

    def test_images_given_by_their_name(self):
        shapes = {"pixel_values": {0: "images", 2: "height", 3: "width"}}
        example = {"pixel_values": torch.randn(2, 3, 8, 16)}
        others = [((), {"pixel_values": torch.randn(3, 3, 12, 20)})]
        self.export_and_compare(tower(), (), example, others=others, dynamic_shapes=shapes, target_opset=20)


class TestMergers(ExporterTestCase):
    def test_any_sizes(self):
        shapes = ({0: "patches"}, {0: "images"})
        sizes = T([[12, 12], [8, 16]])
        for cls in (
            mistral3.Mistral3PatchMerger,
            mistral_large4.MistralLarge4PatchMerger,
            lighton_ocr.LightOnOcrPatchMerger,
        ):
            with self.subTest(cls.__name__):
                others = [patches(T([[20, 12], [8, 28], [9, 15]]))]
                self.export_and_compare(
                    merger(cls), patches(sizes), others=others, dynamic_shapes=shapes, target_opset=20
                )
                with self.assertRaises(CaptureError):
                    options = ExportOptions(patches=False)
                    to_onnx(merger(cls), patches(sizes), dynamic_shapes=shapes, export_options=options)

    def test_features_of_any_number_of_images(self):
        shapes = {
            "input_ids": {1: "length"},
            "pixel_values": {0: "images", 2: "height", 3: "width"},
            "image_sizes": {0: "images"},
            "use_cache": None,
        }
        example, other = read(T([[8, 16], [16, 8]])), read(T([[24, 8], [8, 8], [9, 15]]))
        model = reader()
        written = to_onnx(model, (), example, dynamic_shapes=shapes)
        for inputs in (example, other):
            self.assert_matches(written, model, (), inputs)


if __name__ == "__main__":
    unittest.main()
