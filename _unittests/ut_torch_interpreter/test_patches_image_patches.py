"""ViLT: pictures of any number and sizes, with padding around them."""

import unittest

import torch
from transformers.models.vilt import modeling_vilt

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


class Pooled(torch.nn.Module):
    """What ViLT makes of a text and of a picture; the states of patches come in a random order in eager."""

    def __init__(self, **options):
        super().__init__()
        config = modeling_vilt.ViltConfig(
            vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=24,
            patch_size=6, max_position_embeddings=16, **options,
        )  # fmt: skip
        torch.manual_seed(0)
        self.model = modeling_vilt.ViltModel(config)
        for weight in self.model.parameters():
            torch.nn.init.normal_(weight, std=0.2)

    def forward(self, input_ids, pixel_values, pixel_mask):
        result = self.model(input_ids, pixel_values=pixel_values, pixel_mask=pixel_mask)
        states = result.last_hidden_state
        length = input_ids.shape[1] + 1  # the text, and what stands for the picture
        return states[:, :length], result.pooler_output, states[:, length:].shape[1]


def call(batch, length, size, cut=0):
    """Ids, pictures and their masks: the last picture is smaller by *cut* rows of pixels, and by twice as many columns."""
    mask = torch.ones(batch, *size, dtype=torch.int64)
    mask[-1, size[0] - cut :] = 0
    mask[-1, :, size[1] - 2 * cut :] = 0
    return torch.randint(1, 30, (batch, length)), torch.randn(batch, 3, *size), mask


class TestPatchesOfImages(ExporterTestCase):
    SHAPES = (
        {0: "batch", 1: "length"},
        {0: "batch", 2: "height", 3: "width"},
        {0: "batch", 1: "height", 2: "width"},
    )

    def test_any_picture(self):
        """Pictures that are full or not, of a single row, or the only one, padded or not."""
        sizes = (
            (2, 5, (24, 30), 6),
            (3, 7, (36, 48), 12),
            (1, 2, (12, 42)),
            (2, 3, (30, 36)),
            (2, 4, (24, 60), 18),
        )
        example, *others = (call(*size) for size in sizes)
        self.export_and_compare(
            Pooled().eval(), example, others=others, dynamic_shapes=self.SHAPES, target_opset=20
        )

    def test_refused_without(self):
        with self.assertRaises(CaptureError):
            options = ExportOptions(patches=False)
            to_onnx(Pooled().eval(), call(2, 5, (24, 30)), dynamic_shapes=self.SHAPES, export_options=options)

    def test_random_choice_is_left_alone(self):
        """A configured number of patches is a random choice among them."""
        with self.assertRaises(CaptureError):
            to_onnx(Pooled(max_image_length=5).eval(), call(2, 5, (24, 30)), dynamic_shapes=self.SHAPES)

    def test_undone(self):
        before = modeling_vilt.ViltEmbeddings.visual_embed
        with bypass_export_some_errors(patch_transformers=True):
            self.assertIsNot(modeling_vilt.ViltEmbeddings.visual_embed, before)
        self.assertIs(modeling_vilt.ViltEmbeddings.visual_embed, before)


if __name__ == "__main__":
    unittest.main()
