"""Features of images that a model splits and concatenates again: any number of images."""

import sys
import textwrap
import types
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

NAME = "transformers.models.of_pieces.modeling_of_pieces"
MODEL = textwrap.dedent(
    """
    import torch


    class Model(torch.nn.Module):
        def __init__(self, use):
            super().__init__()
            self.use = use

        def get_image_features(self, features, grid):
            return torch.split(features * 2, grid.prod(-1).tolist())

        def forward(self, features, grid):
            pieces = self.get_image_features(features, grid)
            if self.use == "joined":
                return torch.cat(pieces, dim=0) + 1, torch.cat(pieces)
            return torch.cat([piece.sum(0, keepdim=True) for piece in pieces])
    """
)


def call(*sizes):
    """Features of images of these sizes."""
    grid = torch.tensor(sizes)
    return torch.randn(int(grid.prod(1).sum()), 3), grid


class TestPieces(ExporterTestCase):
    def setUp(self):
        super().setUp()
        module = types.ModuleType(NAME)
        exec(MODEL, vars(module))
        sys.modules[NAME] = module
        self.addCleanup(sys.modules.pop, NAME)
        self.model = module.Model

    def test_any_number_of_images(self):
        shapes = ({0: "features"}, {0: "images"})
        example, others = call((2, 3), (4, 2)), [call((1, 1)), call((2, 2), (5, 1), (3, 3))]
        self.export_and_compare(
            self.model("joined"), example, others=others, dynamic_shapes=shapes, target_opset=20
        )
        for patches, use in ((False, "joined"), (None, "joined beside each other")):
            with self.subTest(use), self.assertRaises(CaptureError):
                options = ExportOptions(patches=patches)
                to_onnx(self.model(use), example, dynamic_shapes=shapes, export_options=options)

    def test_the_number_of_the_example(self):
        shapes = ({0: "features"}, None)
        for use in ("joined", "joined beside each other"):
            with self.subTest(use):
                others = [call((2, 2), (3, 3))]
                self.export_and_compare(
                    self.model(use),
                    call((2, 3), (4, 2)),
                    others=others,
                    dynamic_shapes=shapes,
                    target_opset=20,
                )


if __name__ == "__main__":
    unittest.main()
