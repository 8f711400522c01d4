"""Position embeddings of vision models, for images of any size."""

import unittest

import torch
import transformers

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}


def tower():
    """A small vision tower for images of 24 x 24."""
    torch.manual_seed(0)
    config = transformers.CLIPSegVisionConfig(**SIZES, image_size=24, patch_size=6)
    return transformers.CLIPSegVisionModel(config).eval()


def images(batch, height, width):
    """Random images."""
    torch.manual_seed(height)
    return (torch.randn(batch, 3, height, width),)


class TestPositionEmbeddings(ExporterTestCase):
    SHAPES = ({0: "batch", 2: "height", 3: "width"},)

    def test_any_size(self):
        others = [images(1, 48, 24), images(3, 18, 30)]
        with torch.no_grad():
            self.export_and_compare(tower(), images(2, 24, 24), others=others, dynamic_shapes=self.SHAPES)

    def test_what_torchdynamo_follows(self):
        """Attention asks whether torch.jit traces."""
        with torch.no_grad(), self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(tower(), images(1, 24, 24), export_options=ExportOptions(strict=True))

    def test_the_size_of_the_example_without_it(self):
        options = ExportOptions(patches=False)
        with torch.no_grad(), self.assertLogs("experimental_experiment", "WARNING") as logs:
            model = to_onnx(tower(), images(2, 24, 24), dynamic_shapes=self.SHAPES, export_options=options)
        self.assertIn("the model holds the branches that the example took", logs.output[0])
        self.assertNotIn("Resize", [node.op_type for node in model.graph.node])

    def test_known_sizes_are_left_alone(self):
        with torch.no_grad():
            model = self.export_and_compare(
                tower(), images(2, 24, 24), others=[images(3, 24, 24)], dynamic_shapes=({0: "batch"},)
            )
        self.assertNotIn("Resize", [node.op_type for node in model.graph.node])

    def test_undone(self):
        before = torch.jit.is_tracing
        with bypass_export_some_errors(patch_transformers=True):
            self.assertFalse(torch.jit.is_tracing())
        self.assertIs(torch.jit.is_tracing, before)


if __name__ == "__main__":
    unittest.main()
