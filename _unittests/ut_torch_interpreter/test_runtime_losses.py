"""The row of cross entropies."""

import unittest

import torch
from torch.nn.functional import cross_entropy

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

PIXELS, CLASSES = torch.randn(2, 5, 3), torch.tensor([[0, 4, 2], [1, -100, 3]])
NO_PIXELS = PIXELS[:0], CLASSES[:0]

ROWS = {
    "SoftmaxCrossEntropyLoss.of_log_probabilities": (
        lambda x, target: cross_entropy(x, target, reduction="sum"),
        *(PIXELS, CLASSES),
        {"dynamic_shapes": ({0: "batch"}, {0: "batch"}), "others": [NO_PIXELS]},
    ),
}


class TestLosses(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_the_plain_standard(self):
        """One operator, of classes and of pixels, in halves too."""
        for x, target in ((PIXELS, CLASSES), (PIXELS[0].T, CLASSES[0]), (PIXELS.half(), CLASSES)):
            for shapes in (None, ({0: "batch"}, {0: "batch"})):
                model = to_onnx(cross_entropy, (x, target), runtime="onnx", dynamic_shapes=shapes)
                kinds = [node.op_type for node in model.graph.node if node.op_type != "Cast"]
                self.assertEqual(["SoftmaxCrossEntropyLoss"], kinds)

    def test_a_translation_that_asks_for_the_logarithms(self):
        def with_logarithms(op, self, target, weight, reduction, ignore_index, label_smoothing):
            return op.SoftmaxCrossEntropyLoss(self, target, outputs=2)[0]

        options = {"translations": {torch.ops.aten.cross_entropy_loss.default: with_logarithms}}
        model = to_onnx(cross_entropy, (PIXELS[0].T, CLASSES[0]), **options)
        self.assertEqual(["SoftmaxCrossEntropyLoss"], [node.op_type for node in model.graph.node])

    def test_positions_are_rows(self):
        """All of them are reduced at once, by weights and with targets that count for nothing."""
        weight = torch.rand(5)
        for reduction in ("mean", "sum", "none"):
            for dtype in (torch.float32, torch.float64, torch.float16):
                with self.subTest(reduction, dtype=dtype):
                    self.assert_same_as_eager(
                        lambda x, target, w, r=reduction: cross_entropy(x, target, w, reduction=r),
                        *(PIXELS[..., None].to(dtype), CLASSES[..., None], weight.to(dtype)),
                    )


if __name__ == "__main__":
    unittest.main()
