"""Losses with a margin, as eager."""

import unittest

import torch

from experimental_experiment.testing import Call, ExporterTestCase, each
from experimental_experiment.torch_interpreter import ExportError, to_onnx

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2
SCORES = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
OTHERS, THIRD = SCORES.flip(0), SCORES.roll(1, 1)
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0])
CLASSES = torch.tensor([0, 2, 1, 4])
SETS = torch.tensor([[0, 2, -1, 1, 1], [4, 3, 2, 1, 0], [-1, -1, -1, -1, -1], [1, 1, 3, -1, 0]])


class TestMarginLoss(ExporterTestCase):
    CASES = {
        "cosine": (aten.cosine_embedding_loss.default, SCORES, OTHERS, SIGNS, 0.2),
        "cosine, no reduction": (aten.cosine_embedding_loss.default, SCORES, OTHERS, SIGNS, 0.0, NONE),
        "hinge": (aten.hinge_embedding_loss.default, SCORES[:, 0], SIGNS),
        "hinge, a sum": (aten.hinge_embedding_loss.default, SCORES.half(), SIGNS[:, None].half(), 0.5, SUM),
        "ranking": (aten.margin_ranking_loss.default, SCORES, OTHERS, SIGNS[:, None], 0.3),
        "ranking of integers": (aten.margin_ranking_loss.default, CLASSES, CLASSES.flip(0), CLASSES, 1.0, NONE),
        "several classes": (aten.multi_margin_loss.default, SCORES, CLASSES),
        "several classes, squared": (aten.multi_margin_loss.default, SCORES, CLASSES, 2, 0.5, torch.rand(5), SUM),
        "sets of classes": (aten.multilabel_margin_loss.default, SCORES, SETS),
        "one set of classes": (aten.multilabel_margin_loss.default, SCORES[0], SETS[0]),
        "sets of classes, and which": (aten.multilabel_margin_loss_forward.default, SCORES, SETS, NONE),
        "logistic": (aten.soft_margin_loss.default, SCORES * 20, SIGNS[:, None]),
        "logistic halves overflow": (aten.soft_margin_loss.default, SCORES.half() * 20, SIGNS[:, None].half(), NONE),
        "logistic gradient": (aten.soft_margin_loss_backward.default, torch.tensor(2.0), SCORES, SIGNS[:, None], MEAN),
        "triplets": (aten.triplet_margin_loss.default, SCORES, OTHERS, THIRD),
        "triplets, swapped": (aten.triplet_margin_loss.default, SCORES, OTHERS, THIRD, 0.5, 1.0, 1e-6, True, NONE),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_dtypes_of_a_ranking(self):
        """The difference is promoted before its product with the signs."""
        loss, number = aten.margin_ranking_loss.default, torch.tensor(0.5, dtype=torch.float64)
        self.assert_same_as_eager(loss, CLASSES, number, SIGNS)

    def test_one_target(self):
        """Its loss is a number, of which torch.export tells one axis where there is no reduction."""
        loss, one = aten.multi_margin_loss.default, (SCORES[0], torch.tensor(2))
        self.assert_same_as_eager(
            each(lambda x, y: loss(x, y, reduction=SUM), lambda x, y: loss(x, y[None], reduction=NONE)), *one
        )
        with self.assertRaisesRegex(
            ExportError, "a wrong shape for one target without reduction: reduction='sum'"
        ):
            to_onnx(Call(loss, one, {"reduction": NONE}), one)


if __name__ == "__main__":
    unittest.main()
