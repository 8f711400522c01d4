"""linear_cross_entropy: the loss of chunks is that of the whole batch."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

torch.manual_seed(0)


class TestLinearCrossEntropy(ExporterTestCase):
    def test_same_as_eager(self):
        target = torch.tensor([0, 2, -100, 1, 2])
        for reduction in ("mean", "sum", "none"):
            with self.subTest(reduction):
                module = torch.nn.LinearCrossEntropyLoss(4, 3, reduction=reduction)
                self.export_and_compare(module, (torch.randn(5, 4), target))


if __name__ == "__main__":
    unittest.main()
