"""Operators of torchvision, defined here by their schemas when it is not installed: the models and their results."""

import importlib.util
import itertools
import unittest

import onnx
import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx

GENERATOR = torch.Generator().manual_seed(0)
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
)


def fake_nms(dets, scores, iou_threshold):
    """As many indices as boxes stay."""
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def fake_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    """One block a region."""
    return input.new_empty(rois.shape[0], input.shape[1], pooled_height, pooled_width)


def fake_roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    """The elements and their places."""
    result = fake_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, 0, False)
    return result, torch.empty_like(result, dtype=torch.int32)


def fake_deform_conv2d(input, weight, offset, mask, bias, *geometry):
    """One element a window."""
    return input.new_empty(input.shape[0], weight.shape[0], *offset.shape[2:])


def normal(*shape):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR)


def overlap(a, b):
    """Area in common over area of both."""
    low, high = torch.maximum(a[:2], b[:2]), torch.minimum(a[2:], b[2:])
    common = (high - low).clamp(min=0).prod()
    return common / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - common)


class TestVision(ExporterTestCase):
    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("torchvision") is not None:
            raise unittest.SkipTest("torchvision defines its operators itself")
        cls.library = torch.library.Library("torchvision", "FRAGMENT")
        fakes = {
            "nms": fake_nms,
            "roi_align": fake_roi_align,
            "roi_pool": fake_roi_pool,
            "deform_conv2d": fake_deform_conv2d,
        }
        for schema in SCHEMAS:
            cls.library.define(schema)
        for name, fake in fakes.items():
            torch.library.register_fake(f"torchvision::{name}", fake, lib=cls.library)

    def computed(self, function, *inputs):
        """The result of the ONNX model of a function that cannot run in eager."""
        module = torch.nn.Module()
        module.forward = function
        model = to_onnx(module, inputs)
        onnx.checker.check_model(model, full_check=True)
        return run(session(model), inputs)[0]

    def test_nms(self):
        corners = torch.rand(20, 2, generator=GENERATOR) * 10
        boxes = torch.cat([corners, corners + torch.rand(20, 2, generator=GENERATOR) * 6 + 1], dim=1)
        scores = torch.rand(20, generator=GENERATOR)
        kept = []
        for index in scores.argsort(descending=True).tolist():
            if all(overlap(boxes[index], boxes[other]) <= 0.3 for other in kept):
                kept.append(index)
        got = self.computed(lambda b, s: torch.ops.torchvision.nms(b, s, 0.3), boxes, scores)
        self.assertEqual(got.tolist(), kept)

    def test_roi_align_of_a_plane(self):
        # samples of a linear function average to its value at the center of each cell
        plane = torch.arange(8.0).reshape(8, 1) * 10 + torch.arange(8.0)
        rois = torch.tensor([[0.0, 2.0, 2.0, 6.0, 6.0]])
        for aligned, shift in ((True, 0.5), (False, 0.0)):
            with self.subTest(aligned=aligned):
                align = lambda x, r, a=aligned: torch.ops.torchvision.roi_align(x, r, 1.0, 2, 2, 2, a)
                got = self.computed(align, plane[None, None], rois)
                centers = torch.tensor([3.0, 5.0]) - shift
                torch.testing.assert_close(got[0, 0], centers[:, None] * 10 + centers)

    def test_roi_pool(self):
        """The last pixel of a region is part of it; a cell outside of the image is 0."""
        x, pool = normal(2, 3, 8, 9), torch.ops.torchvision.roi_pool
        rois = torch.tensor([[0.0, 2, 2, 9, 13], [1, 0, 5, 3, 6.9], [1, 40, 40, 60, 60]])
        for dtype in torch.float32, torch.float64, torch.float16, torch.bfloat16:
            with self.subTest(dtype):
                got = self.computed(lambda x, r: pool(x, r, 0.5, 2, 2)[0], x.to(dtype), rois.to(dtype))
                first, second = x.to(dtype)[0, :, 1:8, 1:6], x.to(dtype)[1, :, 3:4, 0:3]
                expected = torch.zeros(3, 3, 2, 2, dtype=dtype)
                for row, column in itertools.product(range(2), repeat=2):
                    expected[0, :, row, column] = first[
                        :, 3 * row : 4 + 3 * row, 2 * column : 3 + 2 * column
                    ].amax((1, 2))
                    expected[1, :, row, column] = second[:, :, column : 2 + column].amax((1, 2))
                torch.testing.assert_close(got, expected, rtol=0, atol=0)

    def test_the_places_of_roi_pool_are_refused(self):
        places = lambda x, r: torch.ops.torchvision.roi_pool(x, r, 1.0, 2, 2)[1]
        with self.assertRaisesRegex(ExportError, "a result that only the gradient needs is read"):
            to_onnx(places, (normal(1, 2, 4, 4), torch.zeros(1, 5)))

    def test_deform_conv2d_without_offset_is_a_convolution(self):
        x, weight, bias, mask = normal(2, 4, 6, 5), normal(6, 2, 3, 3), normal(6), torch.ones(2, 9, 6, 5)
        geometry = 1, 1, 1, 1, 1, 1, 2, 1
        for use_mask in (False, True):
            with self.subTest(use_mask=use_mask):
                deformed = lambda x, w, o, m, b, use=use_mask: torch.ops.torchvision.deform_conv2d(
                    x, w, o, m, b, *geometry, use
                )
                got = self.computed(deformed, x, weight, torch.zeros(2, 18, 6, 5), mask, bias)
                expected = torch.nn.functional.conv2d(x, weight, bias, padding=1, groups=2)
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)

    def test_deform_conv2d_before_its_operator(self):
        deformed = lambda x, w, o: torch.ops.torchvision.deform_conv2d(
            x, w, o, x.new_ones(1, 9, 4, 4), w.new_zeros(2), 1, 1, 1, 1, 1, 1, 1, 1, False
        )
        inputs = normal(1, 2, 4, 4), normal(2, 2, 3, 3), torch.zeros(1, 18, 4, 4)
        with self.assertRaisesRegex(
            ExportError, "ONNX DeformConv does not exist in opset 18: raise target_opset to 19"
        ):
            to_onnx(deformed, inputs, target_opset=18)
        with self.assertRaisesRegex(ExportError, "a kernel of symbolic size"):
            to_onnx(deformed, inputs, dynamic_shapes=({}, {2: torch.export.Dim.DYNAMIC}, {}))


if __name__ == "__main__":
    unittest.main()
