"""Boxes of which the data decide how many there are: models, and what stands in torchvision's place when it is not installed."""

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

    def test_without_it(self):
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(
                detections, candidates(12), dynamic_shapes=ANY, export_options=ExportOptions(patches=False)
            )

    def test_numbers_are_left_to_torchvision(self):
        # a number of boxes that is known is asked for as ever: what is written above does not export
        with self.assertRaises(CaptureError):
            to_onnx(batched_nms_of_all, candidates(12))


def batched_nms_of_all(boxes, scores, classes):
    """No box is left out before."""
    return sys.modules["torchvision.ops.boxes"].batched_nms(boxes, scores, classes, 0.5)


if __name__ == "__main__":
    unittest.main()
