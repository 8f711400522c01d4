"""EoMT, which asks a buffer whether a layer masks: always, or never."""

import unittest

import torch
from transformers.models.eomt import modeling_eomt

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx


class Small(torch.nn.Module):
    """EoMT of three layers, of which the last two mask with these probabilities."""

    def __init__(self, *probabilities):
        super().__init__()
        config = modeling_eomt.EomtConfig(
            hidden_size=16, num_hidden_layers=3, num_attention_heads=2, mlp_ratio=2, image_size=32, patch_size=8, num_blocks=2,
            num_queries=5, num_register_tokens=2, num_upscale_blocks=1, num_labels=3,
        )  # fmt: skip
        torch.manual_seed(0)
        self.model = modeling_eomt.EomtForUniversalSegmentation(config)
        for weight in self.model.parameters():
            torch.nn.init.normal_(weight, std=0.2)
        self.model.attn_mask_probs.copy_(torch.tensor(probabilities))

    def forward(self, pixel_values):
        result = self.model(pixel_values)
        return result.masks_queries_logits, result.class_queries_logits


class TestFlagsOfEomt(ExporterTestCase):
    SHAPES = ({0: "batch"},)

    def test_always_and_never(self):
        others = [(torch.randn(batch, 3, 32, 32),) for batch in (3, 1)]
        for probabilities in ((1.0, 1.0), (0.0, 0.0), (0.0, 1.0)):
            with self.subTest(probabilities=probabilities):
                example = (torch.randn(2, 3, 32, 32),)
                model = Small(*probabilities).eval()
                self.export_and_compare(model, example, others=others, dynamic_shapes=self.SHAPES)
                self.assertEqual(model.model.attn_mask_probs.tolist(), list(probabilities))

    def test_refused_without(self):
        options = ExportOptions(patches=False)
        with self.assertRaises(CaptureError):
            example = (torch.randn(2, 3, 32, 32),)
            to_onnx(Small(1.0, 1.0).eval(), example, dynamic_shapes=self.SHAPES, export_options=options)


if __name__ == "__main__":
    unittest.main()
