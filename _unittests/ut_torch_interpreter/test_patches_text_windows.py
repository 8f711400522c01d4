"""Canine: texts of any number of windows, with padding on either side."""

import unittest

import torch
from transformers.models.canine import modeling_canine

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


def small():
    """Canine of windows of 8 characters, and molecules of 3."""
    config = modeling_canine.CanineConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, num_hash_functions=2,
        num_hash_buckets=64, max_position_embeddings=64, local_transformer_stride=8, downsampling_rate=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = modeling_canine.CanineModel(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def call(batch, length, before=0, behind=0):
    """Characters; the first text has padding on its left, the last one on its right."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, :before] = 0
    mask[-1, length - behind :] = 0
    return {"input_ids": torch.randint(1, 1000, (batch, length)), "attention_mask": mask}


class TestWindows(ExporterTestCase):
    SHAPES = {name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")}

    def test_any_text(self):
        """Windows that are full or not, one or more of them; a window of nothing but padding gives each character the same."""
        sizes = (2, 13, 2, 2), (3, 8), (1, 5), (2, 16, 9), (2, 31, 0, 17), (2, 33, 4, 1)
        example, *others = (call(*size) for size in sizes)
        others = [((), other) for other in others]
        self.export_and_compare(
            small(), (), example, others=others, dynamic_shapes=self.SHAPES, target_opset=20
        )
        with self.assertRaises(CaptureError):
            options = ExportOptions(patches=False)
            to_onnx(small(), (), example, dynamic_shapes=self.SHAPES, export_options=options)

    def test_one_window(self):
        others = [((), call(3, 21, 5, 2)), ((), call(1, 4))]
        self.export_and_compare(
            small(), (), call(2, 6, 1), others=others, dynamic_shapes=self.SHAPES, target_opset=20
        )

    def test_undone(self):
        owners = (
            (modeling_canine.CanineAttention, "forward"),
            (modeling_canine.CanineModel, "_repeat_molecules"),
        )
        before = [getattr(*owner) for owner in owners]
        with bypass_export_some_errors(patch_transformers=True):
            for owner, function in zip(owners, before):
                self.assertIsNot(getattr(*owner), function)
        self.assertEqual([getattr(*owner) for owner in owners], before)


if __name__ == "__main__":
    unittest.main()
