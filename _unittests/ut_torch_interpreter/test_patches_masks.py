"""Masks that hide nothing: Autoformer and Informer have none, as in eager."""

import importlib
import unittest

import torch
import transformers

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

SIZES = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "prediction_length": 4, "context_length": 16, "lags_sequence": [1, 2],
    "num_time_features": 2,
}  # fmt: skip
MODELS = {
    "Autoformer": (transformers.AutoformerConfig, {"label_length": 4, "moving_average": 5}),
    "Informer": (transformers.InformerConfig, {"sampling_factor": 6}),  # of all queries: no random choice
    "Informer with full attention": (transformers.InformerConfig, {"attention_type": "full"}),
}


def call(batch):
    """The past of some series and what is known of their future."""
    return {
        "past_values": torch.randn(batch, 18),
        "past_time_features": torch.randn(batch, 18, 2),
        "past_observed_mask": (torch.rand(batch, 18) < 0.8).float(),
        "future_values": torch.randn(batch, 4),
        "future_time_features": torch.randn(batch, 4, 2),
        "use_cache": False,
    }


class TestMasks(ExporterTestCase):
    def test_any_number_of_series(self):
        for promise, (config, options) in MODELS.items():
            with self.subTest(promise):
                torch.manual_seed(0)
                model = transformers.AutoModel.from_config(config(**SIZES, **options)).eval()
                example, others = call(2), [((), call(batch)) for batch in (5, 1)]
                shapes = {name: {0: "batch"} for name in example} | {"use_cache": None}
                self.export_and_compare(
                    model, (), example, others=others, dynamic_shapes=shapes, target_opset=20
                )
                if options.get("attention_type") != "full":
                    with self.assertRaises(CaptureError):
                        options = ExportOptions(patches=False)
                        to_onnx(model, (), example, dynamic_shapes=shapes, export_options=options)

    def test_undone(self):
        for config, _ in MODELS.values():
            module = importlib.import_module(config.__module__.replace("configuration", "modeling"))
            before = module.create_bidirectional_mask
            with bypass_export_some_errors(patch_transformers=True):
                self.assertIsNot(module.create_bidirectional_mask, before)
            self.assertIs(module.create_bidirectional_mask, before)


if __name__ == "__main__":
    unittest.main()
