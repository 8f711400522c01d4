"""Boxes and masks of which the data decide how many there are: models, and what stands in torchvision's place when it is not installed."""

import importlib.util
import sys
import types
import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

GENERATOR = torch.Generator().manual_seed(0)
ANY = ({0: torch.export.Dim.DYNAMIC},) * 3


def nms(boxes, scores, threshold):
    """The places of the boxes that no better one overlaps, the best ones first."""
    order = scores.argsort(descending=True, stable=True)
    a = boxes[order]
    low, high = torch.maximum(a[:, None, :2], a[:, :2]), torch.minimum(a[:, None, 2:], a[:, 2:])
    common = (high - low).clamp(min=0).prod(2)
    areas = (a[:, 2:] - a[:, :2]).prod(1)
    overlap = common / (areas[:, None] + areas - common) > threshold
    is_kept = torch.ones(len(a), dtype=torch.bool)
    for place in range(len(a)):
        if is_kept[place]:
            is_kept[place + 1 :] &= ~overlap[place, place + 1 :]
    return order[is_kept]


def batched_nms(boxes, scores, idxs, iou_threshold):
    """What torchvision's function of this name does: boxes are moved by their class, or compared class by class."""
    if boxes.numel() > 4000:
        kept = [torch.where(idxs == one)[0] for one in idxs.unique()]
        kept = torch.cat([places[nms(boxes[places], scores[places], iou_threshold)] for places in kept])
        kept = kept.sort().values
        return kept[scores[kept].sort(descending=True, stable=True).indices]
    if boxes.numel() == 0:
        return torch.empty(0, dtype=torch.int64)
    return nms(boxes + (idxs.to(boxes) * (boxes.max() + 1))[:, None], scores, iou_threshold)


def detections(boxes, scores, classes):
    """What a detector ends with: the boxes of some score, of which the best ones of each class stay."""
    likely = torch.where(scores > 0.1)[0]
    boxes, scores, classes = boxes[likely], scores[likely], classes[likely]
    kept = sys.modules["torchvision.ops.boxes"].batched_nms(boxes, scores, classes, 0.5)
    return boxes[kept], scores[kept], classes[kept]


def imported(boxes, scores, classes):
    """The same function under a name of this file."""
    return batched_nms(boxes[scores > 0.1], scores[scores > 0.1], classes[scores > 0.1], 0.5)


def candidates(count, low=0.0):
    """Boxes of seven classes within an image, all scores different."""
    corners = torch.rand(count, 2, generator=GENERATOR) * 60 + low
    boxes = torch.cat([corners, corners + torch.rand(count, 2, generator=GENERATOR) * 30 + 1], 1)
    scores = (torch.randperm(count, generator=GENERATOR) + 1) / (count + 1)
    return boxes, scores, torch.randint(0, 7, (count,), generator=GENERATOR)


class TestBoxesOfClasses(ExporterTestCase):
    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("torchvision") is not None:
            raise unittest.SkipTest("torchvision has boxes itself")
        package, module = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops.boxes")
        package.__version__, module.batched_nms = "0.28.0", batched_nms
        for item in (package, module):
            sys.modules[item.__name__] = item
            cls.addClassCleanup(sys.modules.pop, item.__name__)
        cls.model = to_onnx(detections, candidates(12), dynamic_shapes=ANY)

    def assert_same(self, *inputs):
        """The model's detections are eager's, in their order."""
        expected = detections(*inputs)
        for got, wanted in zip(run(session(self.model), inputs), expected):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)
        return expected

    def test_few_boxes_are_moved_by_their_class(self):
        for count in (0, 1, 2, 50, 1111):  # a tenth has no score
            with self.subTest(count=count):
                self.assert_same(*candidates(count))

    def test_many_boxes_are_compared_class_by_class(self):
        self.assert_same(*candidates(1112))
        self.assert_same(*candidates(2000))

    def test_boxes_beside_the_image(self):
        # moved boxes of negative corners meet those of another class: torchvision keeps fewer of a few
        boxes, scores, classes = candidates(1100, low=-90.0)
        few = self.assert_same(boxes, scores, classes)
        apart = nms(boxes + classes[:, None] * 1000.0, scores, 0.5)
        self.assertLess(len(few[0]), int((scores[apart] > 0.1).sum()))
        self.assert_same(*candidates(1200, low=-90.0))

    def test_any_numbers_of_classes_and_equal_scores(self):
        boxes, scores, classes = candidates(900)
        self.assert_same(boxes, (scores * 5).ceil() / 5, classes)
        boxes, scores, classes = candidates(1500)
        self.assert_same(boxes, scores, classes * 100_000 - 7)

    def test_of_a_name_that_a_file_imports(self):
        model = to_onnx(imported, candidates(12), dynamic_shapes=ANY, verify=True)
        self.assertIn("NonMaxSuppression", [node.op_type for node in model.graph.node])
        self.assertIs(sys.modules["torchvision.ops.boxes"].batched_nms, batched_nms)

    def test_the_operator_of_tensors(self):
        boxes = candidates(40)
        found = torch.ops.experimental_experiment.batched_nms.default(*boxes, 0.5)
        self.assertTrue(torch.equal(batched_nms(*boxes, 0.5), found))

    def test_without_it(self):
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(
                detections, candidates(12), dynamic_shapes=ANY, export_options=ExportOptions(patches=False)
            )

    def test_numbers_are_left_to_torchvision(self):
        # a number of boxes that is known is asked for as ever: what is written above does not export
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(batched_nms_of_all, candidates(12))


def expand_masks(mask, padding):
    """As torchvision does: zeros around each mask, and how much larger it is."""
    return torch.nn.functional.pad(mask, (padding,) * 4), float(mask.shape[-1] + 2 * padding) / mask.shape[-1]


def expand_boxes(boxes, scale):
    """As torchvision does: boxes so much larger, of the same centers."""
    centers, halves = (boxes[:, :2] + boxes[:, 2:]) * 0.5, (boxes[:, 2:] - boxes[:, :2]) * 0.5 * scale
    return torch.cat([centers - halves, centers + halves], 1)


def paste_masks_in_image(masks, boxes, img_shape, padding=1):
    """What torchvision's function of this name does: each mask is resized to its box by itself."""
    masks, scale = expand_masks(masks, padding)
    found = []
    for mask, (left, top, right, bottom) in zip(masks, expand_boxes(boxes, scale).to(torch.int64).tolist()):
        size = max(bottom - top + 1, 1), max(right - left + 1, 1)
        resized = torch.nn.functional.interpolate(mask[None], size=size, mode="bilinear")[0, 0]
        image, (height, width) = torch.zeros(img_shape), img_shape
        rows, columns = (
            slice(max(top, 0), min(bottom + 1, height)),
            slice(max(left, 0), min(right + 1, width)),
        )
        image[rows, columns] = resized[
            rows.start - top : rows.stop - top, columns.start - left : columns.stop - left
        ]
        found.append(image[None])
    return torch.stack(found) if found else masks.new_empty(0, 1, *img_shape)


def segments(masks, boxes, scores, image):
    """What Mask R-CNN ends with: the masks of the boxes of some score, in the image."""
    is_likely = scores > 0.3
    paste = sys.modules["torchvision.models.detection.roi_heads"].paste_masks_in_image
    return paste(masks[is_likely], boxes[is_likely], image.shape[-2:])


class TestMasksInImages(ExporterTestCase):
    @classmethod
    def setUpClass(cls):
        if importlib.util.find_spec("torchvision") is not None:
            raise unittest.SkipTest("torchvision has masks itself")
        package = types.ModuleType("torchvision")
        heads = types.ModuleType("torchvision.models.detection.roi_heads")
        package.__version__ = "0.28.0"
        vars(heads).update(
            paste_masks_in_image=paste_masks_in_image, expand_masks=expand_masks, expand_boxes=expand_boxes
        )
        for item in (package, heads):
            sys.modules[item.__name__] = item
            cls.addClassCleanup(sys.modules.pop, item.__name__)

    def call(self, count, height, width):
        """Masks whose boxes may stand beside the image in part, one of a single pixel."""
        corners = torch.rand(count, 2, generator=GENERATOR) * 20 - 5
        boxes = torch.cat([corners, corners + torch.rand(count, 2, generator=GENERATOR) * 40 + 6], 1)
        boxes[:1, 2:] = boxes[:1, :2].abs() + 0.01
        boxes[:1, :2] = boxes[:1, :2].abs()
        masks = torch.rand(count, 1, 14, 14, generator=GENERATOR)
        return masks, boxes, torch.linspace(1, 0, count), torch.zeros(3, height, width)

    def test_masks_of_any_number_of_boxes(self):
        any_size = torch.export.Dim.DYNAMIC
        axes = *ANY, {1: any_size, 2: any_size}
        model = session(to_onnx(segments, self.call(6, 32, 48), dynamic_shapes=axes))
        for count, height, width in ((6, 32, 48), (9, 40, 30), (2, 24, 48), (0, 24, 48)):
            with self.subTest(count=count):
                inputs = self.call(count, height, width)
                expected = segments(*inputs)
                torch.testing.assert_close(run(model, inputs)[0], expected, rtol=0, atol=5e-6)
                self.assertEqual(count > 0, bool(expected.any()))


def batched_nms_of_all(boxes, scores, classes):
    """No box is left out before."""
    return sys.modules["torchvision.ops.boxes"].batched_nms(boxes, scores, classes, 0.5)


if __name__ == "__main__":
    unittest.main()
