"""``F.l1_loss`` with weights, which torch.export leaves out."""

import unittest

import torch
import torch.nn.functional as F
from torch.nn.functional import l1_loss

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

SIZES = ({0: "batch"},) * 3


def tensors(batch=3):
    return torch.randn(batch, 4), torch.randn(batch, 4), torch.rand(batch, 4)


def by_name(x, y, w):
    return tuple(F.l1_loss(x, y, reduction=reduction, weight=w) for reduction in ("none", "mean", "sum"))


def by_position(x, y, w):
    return l1_loss(x, y, None, False, "mean", w)


def in_a_branch(x, y, w):
    return torch.cond(
        x.sum() > 0, lambda x, y, w: l1_loss(x, y, weight=w), lambda x, y, w: w.sum(), (x, y, w)
    )


class TestWeightedLosses(ExporterTestCase):
    def test_weights_are_kept(self):
        for function in (by_name, by_position, in_a_branch):
            with self.subTest(function.__name__):
                self.export_and_compare(function, tensors(), others=[tensors(5)], dynamic_shapes=SIZES)

    def test_weights_are_kept_by_dynamo(self):
        self.export_and_compare(by_name, tensors(), export_options=ExportOptions(strict=True))

    def test_torch_forgets_them(self):
        options = ExportOptions(patches=False)
        model = to_onnx(by_position, tensors(), export_options=options)
        self.assertEqual(["Sub", "Abs"], [node.op_type for node in model.graph.node])

    def test_without_weights_the_loss_is_recorded(self):
        model = to_onnx(F.l1_loss, tensors()[:2])
        self.assertEqual(["Sub", "Abs", "ReduceMean"], [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
