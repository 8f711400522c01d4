"""CPM-Ant's mask of a prompt and of a text of any length."""

import unittest

import torch
from transformers.models.cpmant import modeling_cpmant

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


def small():
    """CPM-Ant of one layer, with a prompt of 4 tokens."""
    config = modeling_cpmant.CpmAntConfig(
        vocab_size=30, hidden_size=16, num_attention_heads=2, dim_head=8, dim_ff=24, num_hidden_layers=1, prompt_length=4,
        prompt_types=4, segment_types=4, position_bias_num_buckets=16,
    )  # fmt: skip
    torch.manual_seed(0)
    model = modeling_cpmant.CpmAntModel(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    return model


def call(batch, length, padding=2):
    """Ids, of which the first row has padding on its left."""
    torch.manual_seed(length)
    ids = torch.randint(1, 30, (batch, length))
    ids[0, :padding] = 0
    return {"input_ids": ids, "use_cache": False}


class TestPrompts(ExporterTestCase):
    SHAPES = {"input_ids": {0: "batch", 1: "length"}, "use_cache": None}

    def test_any_text(self):
        model, others = small(), [((), call(3, 12, 7)), ((), call(1, 1, 0))]
        self.export_and_compare(
            model, (), call(2, 9), others=others, dynamic_shapes=self.SHAPES, target_opset=20
        )
        with self.assertRaises(CaptureError):
            options = ExportOptions(patches=False)
            to_onnx(model, (), call(2, 9), dynamic_shapes=self.SHAPES, export_options=options)

    def test_same_mask(self):
        model = small()
        context = torch.tensor([[1, 1, 1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1]])
        span = torch.tensor([[0] * 8, [0] * 5 + [1] * 3])
        given = torch.ones(2, 8, dtype=torch.int64), span, context.bool(), torch.tensor([2, 4])
        expected = model._prepare_attention_mask(*given)
        with bypass_export_some_errors(patch_transformers=True):
            self.assertTrue(torch.equal(model._prepare_attention_mask(*given), expected))

    def test_undone(self):
        before = modeling_cpmant.CpmAntModel._prepare_attention_mask
        with bypass_export_some_errors(patch_transformers=True):
            self.assertIsNot(modeling_cpmant.CpmAntModel._prepare_attention_mask, before)
        self.assertIs(modeling_cpmant.CpmAntModel._prepare_attention_mask, before)


if __name__ == "__main__":
    unittest.main()
