"""Longformer and LED with dynamic sizes, and with any tokens that attend to all others."""

import unittest

import torch
import transformers

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
from experimental_experiment.torch_interpreter.patches.global_attention import ATTENTIONS, PADDINGS
from experimental_experiment.torch_interpreter.patches.patch import owner_of

SIZES = {"vocab_size": 60, "num_hidden_layers": 1, "attention_window": [4]}


def longformer():
    """A small Longformer."""
    torch.manual_seed(0)
    config = transformers.LongformerConfig(
        **SIZES, hidden_size=32, num_attention_heads=4, intermediate_size=48, max_position_embeddings=80
    )
    return transformers.LongformerModel(config, add_pooling_layer=False).eval()


def led():
    """A small encoder of LED."""
    torch.manual_seed(0)
    config = transformers.LEDConfig(
        **SIZES, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4
    )
    return transformers.LEDModel(config).encoder.eval()


def call(batch, length, *marked):
    """Ids, a mask with a hole on the right of the first row, and the (row, token) pairs that attend to all."""
    torch.manual_seed(length)
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, -2:] = 0
    over_all = torch.zeros_like(mask)
    for row, token in marked:
        over_all[row, token] = 1
    ids = torch.randint(3, 60, (batch, length))
    return {"input_ids": ids, "attention_mask": mask, "global_attention_mask": over_all}


class TestGlobalAttention(ExporterTestCase):
    EXAMPLE = call(2, 9, (0, 0), (1, 0), (1, 3))
    SHAPES = {name: {0: "batch", 1: "length"} for name in EXAMPLE}

    def check(self, model):
        others = [call(3, 14, (2, 13)), call(2, 12), call(2, 8, (0, 1), (0, 5), (1, 7)), call(4, 5, (1, 0))]
        with torch.no_grad():
            self.export_and_compare(
                model,
                (),
                self.EXAMPLE,
                [((), other) for other in others],
                target_opset=20,
                dynamic_shapes=self.SHAPES,
            )

    def test_longformer(self):
        self.check(longformer())

    def test_led(self):
        self.check(led())

    def test_no_window_is_held(self):
        example = {"inputs_embeds": torch.randn(2, 8, 32)}
        others = [((), {"inputs_embeds": torch.randn(3, length, 32)}) for length in (9, 12)]
        with torch.no_grad():
            self.export_and_compare(
                longformer(),
                (),
                example,
                others,
                target_opset=20,
                dynamic_shapes={"inputs_embeds": {0: "b", 1: "n"}},
            )

    def test_refused_without_it(self):
        with self.assertRaisesRegex(CaptureError, "Could not guard on data-dependent expression"):
            options = ExportOptions(patches=False)
            to_onnx(led(), (), self.EXAMPLE, dynamic_shapes=self.SHAPES, export_options=options)

    def test_undone(self):
        owners = [owner_of(path) for path in (*ATTENTIONS, *PADDINGS)]
        before = [vars(owner).copy() for owner in owners]
        self.assertEqual(len(owners), 4)
        with bypass_export_some_errors(patch_transformers=True), torch.no_grad():
            self.assertNotEqual(before, [vars(owner).copy() for owner in owners])
            longformer()(**call(2, 9, (0, 0)))
            led()(**call(2, 9))
        self.assertEqual(before, [vars(owner).copy() for owner in owners])


if __name__ == "__main__":
    unittest.main()
