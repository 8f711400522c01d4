"""Inequalities of sizes that sympy cannot solve."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

SHAPES = ({0: "batch", 2: "height", 3: "width"},)


class Pooled(torch.nn.Module):
    """The layers of a SENet whose window is all of an image of 56 pixels."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 7, stride=2, padding=3),
            torch.nn.MaxPool2d(3, stride=2, ceil_mode=True),
            torch.nn.Conv2d(4, 4, 3, stride=2, padding=1),
            torch.nn.AvgPool2d(7, stride=1),
        )

    def forward(self, x):
        x = self.layers(x)
        return x.view(x.size(0), -1)


class TestInequalities(ExporterTestCase):
    def test_a_pool_with_ceil_mode(self):
        others = [
            (torch.randn(batch, 3, *size),) for batch, size in ((1, (57, 56)), (3, (64, 81)), (1, (56, 53)))
        ]
        with torch.no_grad():
            self.export_and_compare(
                Pooled().eval(), (torch.randn(2, 3, 56, 56),), others=others, dynamic_shapes=SHAPES
            )

    def test_refused_without_it(self):
        with self.assertRaisesRegex(CaptureError, "cannot be solved") as caught:
            to_onnx(
                Pooled().eval(),
                (torch.randn(2, 3, 56, 56),),
                dynamic_shapes=SHAPES,
                export_options=ExportOptions(patches=False),
            )
        self.assertNotIn("sympy", str(caught.exception).replace("sympy.org", ""))


if __name__ == "__main__":
    unittest.main()
