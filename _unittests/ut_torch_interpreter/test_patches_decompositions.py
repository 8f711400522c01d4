"""Decompositions of torch's that do not compute what their operator does."""

import unittest

import torch
import torch.nn.functional as F

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions
from experimental_experiment.torch_interpreter.patches.decompositions import (
    FORWARD,
    MEAN,
    SUM,
    multilabel_margin_loss_forward,
)
from experimental_experiment.versions import numbers

SCORES = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
ENDED = torch.tensor([[0, 2, -1, 1, 1], [1, 3, 0, 4, -1], [-1, 0, 0, 0, 0], [4, 3, 2, 1, 0]])


class TestDecompositions(ExporterTestCase):
    def test_margin_of_ended_classes(self):
        class Loss(torch.nn.Module):
            def forward(self, scores, target):
                return F.multilabel_margin_loss(scores, target), F.multilabel_margin_loss(
                    scores, target, reduction="none"
                )

        for options in (
            ExportOptions(tracing="make_fx"),
            ExportOptions(decomposition_table="default"),
            ExportOptions(),
        ):
            with self.subTest(options):
                others = [(SCORES * 2, ENDED.flip(1)), (SCORES.flip(0), ENDED)]
                self.export_and_compare(Loss(), (SCORES, ENDED), others=others, export_options=options)

    def test_the_function(self):
        for given in ((SCORES, ENDED), (SCORES[0], ENDED[0]), (SCORES[0, 0], torch.tensor(0))):
            for reduction in (0, MEAN, SUM):
                with self.subTest(shape=given[0].shape, reduction=reduction):
                    found = multilabel_margin_loss_forward(*given, reduction)
                    torch.testing.assert_close(found, FORWARD(*given, reduction))

    @unittest.skipIf(numbers(torch.__version__) >= numbers("2.14"), "torch 2.14 decomposes it as it is")
    def test_torch_decomposes_it_otherwise(self):
        with self.assertRaises(AssertionError):
            kernel = FORWARD.py_kernels[torch._C.DispatchKey.Autograd]
            torch.testing.assert_close(kernel(SCORES, ENDED, 0), FORWARD(SCORES, ENDED, 0))


if __name__ == "__main__":
    unittest.main()
