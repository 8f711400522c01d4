"""Images that are resized by a factor that sizes tell: any size of what tells it."""

import unittest

import torch
import torch.nn.functional as F

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

SIZES = ((10, 12), (16, 16), (20, 9), (7, 33), (16, 5), (32, 12))


class Positions(torch.nn.Module):
    """Positions on a grid of 16 x 16 for patches of 14 x 14, as DINOv2 resizes them."""

    def __init__(self, offset=0.1, **options):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1, 16 * 16, 4))
        self.offset, self.options = offset, options

    def forward(self, x):
        rows, columns = x.shape[2] // 14, x.shape[3] // 14
        factors = float(rows + self.offset) / 16, float(columns + self.offset) / 16
        table = self.table.reshape(1, 16, 16, 4).permute(0, 3, 1, 2)
        return F.interpolate(table, scale_factor=factors, **self.options).flatten(2) + x.mean()


class Resized(torch.nn.Module):
    """An image of any size, resized to at least 24."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return F.interpolate(x, scale_factor=24.5 / x.shape[-1], **self.options)


def image(rows, columns):
    """An image of so many patches."""
    return (torch.randn(1, 3, 14 * rows, 14 * columns),)


class TestScaleFactors(ExporterTestCase):
    def test_positions(self):
        """The same grid, where eager copies it or not, among the sizes."""
        example, *others = (image(*size) for size in SIZES)
        for offset in (0.1, 0.0):
            for options in (
                {"mode": "bicubic"},
                {"mode": "bicubic", "align_corners": True},
                {"mode": "bilinear"},
                {"mode": "bilinear", "align_corners": True},
                {"mode": "nearest"},
                {"mode": "nearest-exact"},
            ):
                with self.subTest(offset=offset, **options):
                    self.export_and_compare(
                        Positions(offset, **options),
                        example,
                        others=others,
                        dynamic_shapes=({2: "height", 3: "width"},),
                        target_opset=20,
                    )

    def test_images(self):
        for rank, mode in ((3, "nearest"), (4, "bilinear"), (4, "bicubic"), (5, "nearest-exact")):
            for dtype in (torch.float32, torch.float16, torch.float64):
                with self.subTest(rank=rank, mode=mode, dtype=dtype):
                    shapes = ({0: "batch", **{axis: f"size_{axis}" for axis in range(2, rank)}},)
                    example, *others = (
                        (torch.randn(batch, 2, *range(size, size + 2 * rank - 4, 2)).to(dtype),)
                        for batch, size in ((2, 5), (3, 7), (1, 24), (2, 30))
                    )
                    self.export_and_compare(
                        Resized(mode=mode), example, others=others, dynamic_shapes=shapes, target_opset=20
                    )

    def test_bytes(self):
        """Whose linear results are rounded otherwise: the factor of the example."""
        example, other = ((torch.randint(0, 255, (1, 2, 5, size), dtype=torch.uint8),) for size in (5, 7))
        shapes = ({3: "width"},)
        model = Resized(mode="bilinear")
        with self.assertLogs("experimental_experiment", "WARNING"):
            to_onnx(model, example, dynamic_shapes=shapes)
        self.export_and_compare(Resized(mode="nearest"), example, others=[other], dynamic_shapes=shapes)

    def test_without_the_patch(self):
        """The factor of the example, with a warning."""
        example, other = image(10, 12), image(16, 16)
        shapes = ({2: "height", 3: "width"},)
        options = ExportOptions(patches=False)
        model = Positions(mode="bicubic")
        with self.assertLogs("experimental_experiment") as logged:
            written = to_onnx(model, example, dynamic_shapes=shapes, export_options=options)
        self.assertIn("the model holds the branches that the example took", "".join(logged.output))
        with self.assertRaises(AssertionError):
            self.assert_matches(written, model, other)


if __name__ == "__main__":
    unittest.main()
