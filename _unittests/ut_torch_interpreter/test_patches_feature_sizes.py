"""The detector of Sam 3 on feature maps of any size."""

import importlib
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
from experimental_experiment.versions import numbers

# a lazy one wants torchvision
modeling_sam3 = importlib.import_module("transformers.models.sam3.modeling_sam3")
SIZES = {"hidden_size": 16, "num_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}


class Detector(torch.nn.Module):
    """Encoder and decoder of Sam 3."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = modeling_sam3.Sam3DetrEncoder(modeling_sam3.Sam3DETREncoderConfig(**SIZES))
        self.decoder = modeling_sam3.Sam3DetrDecoder(
            modeling_sam3.Sam3DETRDecoderConfig(**SIZES, num_queries=3)
        )

    def forward(self, features, positions, text):
        encoded = self.encoder([features], text, [positions])
        return self.decoder(
            vision_features=encoded.last_hidden_state,
            text_features=encoded.text_features,
            vision_pos_encoding=encoded.pos_embeds_flattened,
            spatial_shapes=encoded.spatial_shapes,
        ).intermediate_hidden_states


def call(batch, height, width, length):
    """Features, their positions, a text."""
    torch.manual_seed(height)
    maps = torch.randn(2, batch, 16, height, width)
    return (*maps.unbind(), torch.randn(batch, length, 16))


class TestSizesOfFeatures(ExporterTestCase):
    SHAPES = (*[{0: "batch", 2: "height", 3: "width"}] * 2, {0: "batch", 1: "length"})

    def test_any_size(self):
        others = [call(3, 6, 2, 4), call(1, 2, 5, 7)]
        with torch.no_grad():
            self.export_and_compare(
                Detector().eval(),
                call(2, 4, 3, 5),
                others=others,
                dynamic_shapes=self.SHAPES,
                target_opset=20,
            )

    @unittest.skipIf(numbers(torch.__version__) >= numbers("2.15"), "torch 2.15 compares such sizes")
    def test_refused_without_it(self):
        shapes = ({0: "batch"}, {0: "batch"}, {0: "batch", 1: "length"})
        refused = self.assertRaisesRegex(CaptureError, "Could not guard on data-dependent expression Eq")
        with torch.no_grad(), refused:
            options = ExportOptions(patches=False)
            to_onnx(Detector().eval(), call(2, 4, 4, 5), dynamic_shapes=shapes, export_options=options)

    def test_undone(self):
        owners = [modeling_sam3.Sam3DetrEncoder, modeling_sam3.Sam3DetrDecoder]
        before = [vars(owner).copy() for owner in owners]
        model, inputs = Detector().eval(), call(2, 4, 3, 5)
        with torch.no_grad(), bypass_export_some_errors(patch_transformers=True):
            self.assertNotEqual(before, [vars(owner).copy() for owner in owners])
            inside = model(*inputs)
        self.assertEqual(before, [vars(owner).copy() for owner in owners])
        torch.testing.assert_close(inside, model(*inputs))


if __name__ == "__main__":
    unittest.main()
