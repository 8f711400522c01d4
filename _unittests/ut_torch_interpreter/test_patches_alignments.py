"""``ctc_loss`` exports, with lengths in tensors and in lists, for any length."""

import unittest

import torch
import torch.nn.functional as F

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx


class Loss(torch.nn.Module):
    """The losses of three reductions of what a layer makes of its input."""

    def __init__(self, **options):
        super().__init__()
        self.layer = torch.nn.Linear(4, 6)
        self.options = options

    def forward(self, x, targets, times, counts):
        logarithms = self.layer(x).log_softmax(-1)
        return tuple(
            F.ctc_loss(logarithms, targets, times, counts, reduction=reduction, **self.options)
            for reduction in ("none", "mean", "sum")
        )


class Listed(torch.nn.Module):
    """Lengths in lists, samples that are all as long as the longest one."""

    def forward(self, logarithms, targets):
        times = [logarithms.shape[0]] * 2
        return torch.nn.CTCLoss(blank=5)(logarithms, targets, times, (3, 2))


class Single(torch.nn.Module):
    """One sample, without an axis for it."""

    def forward(self, logarithms, targets, time, count):
        return F.ctc_loss(logarithms, targets, time, count, reduction="none")


class Gradient(torch.nn.Module):
    """The gradient with regard to the logarithms."""

    def __init__(self, reduction):
        super().__init__()
        self.reduction = reduction

    def forward(self, logarithms, targets, times, counts):
        logarithms = logarithms.detach().requires_grad_()
        loss = F.ctc_loss(
            logarithms,
            targets,
            times,
            counts,
            reduction=self.reduction,
            zero_infinity=self.reduction == "mean",
        )
        return torch.autograd.grad(loss.sum(), logarithms)[0]


def call(times, counts, is_flat=False, labels=None, seed=0):
    """Samples of these lengths: repeated labels, and padding that is no label."""
    torch.manual_seed(seed)
    longest = max(counts) if labels is None else labels
    targets = torch.randint(1, 6, (len(counts), longest))
    targets[:, 1:2] = targets[:, :1]
    if is_flat:
        targets = torch.cat([line[:count] for line, count in zip(targets, counts)])
    else:
        for line, count in zip(targets, counts):
            line[count:] = -1
    x = torch.randn(max(times), len(times), 4)
    return x, targets, torch.tensor(times), torch.tensor(counts)


class TestAlignments(ExporterTestCase):
    def shapes(self, is_flat=False):
        targets = {0: "labels"} if is_flat else {0: "samples", 1: "labels"}
        return {0: "time", 1: "samples"}, targets, {0: "samples"}, {0: "samples"}

    def test_lengths_in_tensors(self):
        """Samples without a label, of one label, with more labels than time, and without time."""
        others = [
            call([9, 4, 6], [3, 2, 0], seed=1),
            call([3, 2], [4, 2], seed=2),
            call([12], [1], seed=3),
            call([2, 1], [1, 1], labels=3, seed=4),
            call([5, 0, 0], [2, 0, 2], seed=5),
        ]
        for options in ({}, {"blank": 5, "zero_infinity": True}):
            with self.subTest(**options):
                self.export_and_compare(
                    Loss(**options), call([7, 6], [3, 2]), others=others, dynamic_shapes=self.shapes()
                )

    def test_labels_one_after_the_other(self):
        others = [
            call(*lengths, is_flat=True) for lengths in (([9, 4, 6], [3, 2, 0]), ([4], [2]), ([3, 5], [1, 4]))
        ]
        self.export_and_compare(
            Loss(), call([7, 6], [3, 2], is_flat=True), others=others, dynamic_shapes=self.shapes(True)
        )

    def test_gradients(self):
        """Where labels are repeated, a sample is short or has no label; zero of a loss that is infinite and taken for zero."""
        options = ExportOptions(tracing="make_fx")
        for reduction, lengths in (
            ("none", ([7, 6, 9], [3, 2, 0])),
            ("sum", ([8, 6], [3, 1])),
            ("mean", ([6, 2], [2, 4])),
        ):
            with self.subTest(reduction):
                x, *rest = call(*lengths)
                logarithms = torch.nn.Linear(4, 6)(x).log_softmax(-1).detach()
                self.export_and_compare(Gradient(reduction), (logarithms, *rest), export_options=options)

    def test_lengths_in_lists(self):
        logarithms, other = (torch.randn(time, 2, 6).log_softmax(-1) for time in (7, 9))
        targets = torch.randint(0, 5, (2, 3))
        self.export_and_compare(
            Listed(),
            (logarithms, targets),
            others=[(other, targets)],
            dynamic_shapes=({0: "time"}, None),
        )

    def test_one_sample(self):
        example, other = (torch.randn(time, 6).log_softmax(-1) for time in (7, 4))
        lengths = torch.tensor(6), torch.tensor(2)
        self.export_and_compare(
            Single(),
            (example, torch.tensor([3, 3]), *lengths),
            others=[(other, torch.tensor([2, 4, 1]), torch.tensor(4), torch.tensor(3))],
            dynamic_shapes=({0: "time"}, {0: "labels"}, None, None),
        )

    def test_refused_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "DynamicOutputShapeException"):
            to_onnx(Loss(), call([7, 6], [3, 2]), export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
