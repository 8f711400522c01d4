"""Position embeddings that are resized for each image: any number of images of any size."""

import unittest

import torch
import transformers
from transformers.models.cosmos3_edge import modeling_cosmos3_edge as cosmos
from transformers.models.siglip2 import modeling_siglip2 as siglip

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
from experimental_experiment.torch_interpreter.patches import positions
from experimental_experiment.versions import numbers

T = torch.tensor
SIZES = [T([[4, 2], [2, 6]]), T([[2, 2], [8, 4], [10, 12]]), T([[16, 2]])]
SIGLIP, COSMOS = siglip.Siglip2VisionEmbeddings, cosmos.Cosmos3EdgeVisionEmbeddings


class Padded(torch.nn.Module):
    """Positions of images that are padded to as many patches as *patches* has columns."""

    def forward(self, table, sizes, patches):
        return SIGLIP.resize_positional_embeddings(table, sizes, max_length=patches.shape[1])


class Packed(torch.nn.Module):
    """Positions of images one after the other."""

    def forward(self, table, grid):
        return COSMOS.resize_positional_embeddings(table, grid, 2)


def padded(sizes, more=3):
    """A call of `Padded`."""
    torch.manual_seed(0)
    return torch.randn(6, 6, 5), sizes, torch.zeros(1, int(sizes.prod(1).max()) + more)


def packed(sizes):
    """A call of `Packed`, with a frame more for each image."""
    torch.manual_seed(0)
    frames = torch.arange(1, len(sizes) + 1)[:, None]
    return torch.randn(6, 6, 5), torch.cat([frames, sizes], 1)


class TestPositions(ExporterTestCase):
    def test_same_as_the_loop(self):
        for sizes in SIZES:
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(sizes=sizes, dtype=dtype):
                    table, _, patches = padded(sizes)
                    table, length = table.to(dtype), patches.shape[1]
                    expected = SIGLIP.resize_positional_embeddings(table, sizes, length)
                    torch.testing.assert_close(positions.of_padded_images(table, sizes, length), expected)
                    _, grid = packed(sizes)
                    expected = COSMOS.resize_positional_embeddings(table, grid, 2)
                    torch.testing.assert_close(positions.of_packed_images(table, grid, 2), expected)

    def test_padded_images(self):
        shapes = (None, {0: "images"}, {1: "patches"})
        others = [padded(SIZES[1]), padded(SIZES[2], 0)]
        self.export_and_compare(
            Padded(), padded(SIZES[0]), others=others, dynamic_shapes=shapes, target_opset=20
        )
        if numbers(transformers.__version__) < numbers("5.24"):  # which has no loop there any more
            with self.assertRaises(CaptureError):
                options = ExportOptions(patches=False)
                to_onnx(Padded(), padded(SIZES[0]), dynamic_shapes=shapes, export_options=options)

    def test_packed_images(self):
        others = [packed(sizes) for sizes in SIZES[1:]]
        for shapes, calls in (((None, {0: "images"}), others), (None, [])):
            with self.subTest(shapes=shapes):
                example = packed(SIZES[0])
                self.export_and_compare(
                    Packed(), example, others=calls, dynamic_shapes=shapes, target_opset=20
                )
                with self.assertRaises(CaptureError):
                    options = ExportOptions(patches=False)
                    to_onnx(Packed(), example, dynamic_shapes=shapes, export_options=options)

    def test_undone(self):
        name = "resize_positional_embeddings"
        before = [vars(owner)[name] for owner in (SIGLIP, COSMOS)]
        with bypass_export_some_errors(patch_transformers=True):
            for owner, original in zip((SIGLIP, COSMOS), before):
                self.assertIsNot(vars(owner)[name], original)
        self.assertEqual([vars(owner)[name] for owner in (SIGLIP, COSMOS)], before)


if __name__ == "__main__":
    unittest.main()
