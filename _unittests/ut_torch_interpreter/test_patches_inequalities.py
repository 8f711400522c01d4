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


class Halved(torch.nn.Module):
    """A layer of YOLOv9 between a strided convolution and the way back: widths are multiples of 4."""

    def __init__(self):
        super().__init__()
        self.first, self.middle = (torch.nn.Conv2d(2, 2, 3, stride=2, padding=1) for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        pooled = torch.nn.functional.avg_pool2d(x, 2, 1)
        largest = torch.nn.functional.max_pool2d(pooled, 3, 2, 1)
        return x + torch.nn.functional.interpolate(self.middle(pooled) * largest, scale_factor=2)


class TestInequalities(ExporterTestCase):
    def test_an_equation_that_cannot_be_solved(self):
        """It is no branch: eager raises for other sizes."""
        x = torch.randn(2, 2, 8, 16)
        with torch.no_grad(), self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(
                Halved(),
                (x,),
                others=[(torch.randn(1, 2, *size),) for size in ((12, 4), (4, 20))],
                dynamic_shapes=SHAPES,
            )
        with self.assertRaisesRegex(CaptureError, "cannot be solved"):
            to_onnx(Halved(), (x,), dynamic_shapes=SHAPES, export_options=ExportOptions(patches=False))

    def test_no_remark_of_torch(self):
        """It logs a traceback about inequalities that it then leaves as they are."""
        with self.assertNoLogs("torch.fx.experimental.symbolic_shapes", "WARNING"):
            to_onnx(Pooled().eval(), (torch.randn(2, 3, 56, 56),), dynamic_shapes=SHAPES)

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
