"""Udop's text on images."""

import unittest

import torch
from transformers.models.udop import modeling_udop

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

SIDE, WIDTH = 3, 4


class Combined(torch.nn.Module):
    """Text and image of a model of 3 x 3 patches."""

    def forward(self, image, text, boxes, mask, visual_boxes=None):
        return modeling_udop.combine_image_text_embeddings(
            image, text.clone(), boxes, visual_boxes, mask, SIDE, 0, 6 * SIDE, 6
        )


def call(batch, length):
    """Patches of images, text with boxes: a token without one, one over all, two on the same patch."""
    torch.manual_seed(length)
    boxes = torch.rand(batch, length, 2).repeat(1, 1, 2)
    boxes[0, 0], boxes[0, -1], boxes[-1, 1] = 0.0, 1.0, boxes[-1, 0]
    mask = torch.ones(batch, length, dtype=torch.int64)
    return torch.randn(batch, SIDE * SIDE, WIDTH), torch.randn(batch, length, WIDTH), boxes, mask


class TestTextOnImages(ExporterTestCase):
    SHAPES = ({0: "batch"}, *[{0: "batch", 1: "length"}] * 3)

    def test_any_text(self):
        others = [call(3, 2), call(1, 12)]
        self.export_and_compare(Combined(), call(2, 5), others=others, dynamic_shapes=self.SHAPES)

    def test_other_boxes(self):
        def boxes(batch):
            return torch.rand(batch, SIDE * SIDE, 4)

        self.export_and_compare(
            Combined(),
            (*call(2, 5), boxes(2)),
            others=[(*call(3, 4), boxes(3))],
            dynamic_shapes=(*self.SHAPES, {0: "batch"}),
        )

    def test_refused_without_it(self):
        with self.assertRaisesRegex(CaptureError, "its data is not allocated yet"):
            options = ExportOptions(patches=False)
            to_onnx(Combined(), call(2, 5), dynamic_shapes=self.SHAPES, export_options=options)

    def test_undone(self):
        before, inputs = modeling_udop.combine_image_text_embeddings, call(2, 5)
        with bypass_export_some_errors(patch_transformers=True):
            self.assertIsNot(modeling_udop.combine_image_text_embeddings, before)
            inside = Combined()(*inputs)
        self.assertIs(modeling_udop.combine_image_text_embeddings, before)
        for got, expected in zip(inside, before(*inputs[:3], None, inputs[3], SIDE, 0, 6 * SIDE, 6)):
            torch.testing.assert_close(got, expected)


if __name__ == "__main__":
    unittest.main()
