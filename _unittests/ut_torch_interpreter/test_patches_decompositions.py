"""Decompositions of torch's that do not compute what their operator does, or not for all sizes."""

import unittest

import torch
import torch.nn.functional as F

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches.decompositions import (
    FORWARD,
    MEAN,
    SUM,
    multilabel_margin_loss_forward,
)
from experimental_experiment.versions import numbers

SCORES = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
ENDED = torch.tensor([[0, 2, -1, 1, 1], [1, 3, 0, 4, -1], [-1, 0, 0, 0, 0], [4, 3, 2, 1, 0]])

MAKE_FX = ExportOptions(tracing="make_fx")
ROWS = ({0: "rows"},)


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


def splits(x):
    return x.tensor_split(3, 1)[0], x.tensor_split(4, -1)[2]


def transforms(x):
    half = torch.fft.rfft(x, n=x.shape[1] // 2 * 2)
    signals = (
        torch.fft.fft(x, n=2 * x.shape[1]),
        torch.fft.ihfft(x, n=9).resolve_conj(),
        torch.fft.ifft(half, n=5),
        half,
    )
    return *map(torch.view_as_real, signals), torch.fft.irfft(half, n=7), torch.fft.hfft(half, n=x.shape[1])


def gradients(x):
    return torch.func.grad(lambda y: (torch.fft.rfft(y, n=7).abs() * y.tensor_split(4)[0].sum()).sum())(x)


def resized(x):
    return F.interpolate(x, scale_factor=(2.3, 1.1), mode="bicubic", align_corners=True)


class TestSizesOfComposites(ExporterTestCase):
    def test_splits_and_transforms_of_any_size(self):
        for function in (splits, transforms, gradients):
            with self.subTest(function.__name__), self.assertNoLogs("experimental_experiment", "WARNING"):
                others = [(torch.randn(5, columns),) for columns in (6, 7, 17, 60)]
                self.export_and_compare(
                    function,
                    (torch.randn(3, 16),),
                    others=others,
                    dynamic_shapes=({0: "rows", 1: "columns"},),
                    export_options=MAKE_FX,
                )

    def test_what_their_checks_refuse(self):
        with self.assertRaisesRegex(CaptureError, "number of sections must be larger than 0"):
            to_onnx(lambda x: x.tensor_split(0), (SCORES,), dynamic_shapes=ROWS, export_options=MAKE_FX)

    def test_the_size_of_the_example_without_the_patch(self):
        options = ExportOptions(tracing="make_fx", patches=False)
        proto = to_onnx(
            lambda x: x.tensor_split(3)[0], (SCORES,), dynamic_shapes=ROWS, export_options=options
        )
        self.assertEqual([(2, 5)], [got.shape for got in run(session(proto), [SCORES])])
        self.assertEqual([(3, 5)], [got.shape for got in run(session(proto), [SCORES.repeat(2, 1)])])

    def test_what_no_node_holds_is_not_told(self):
        """torch.export keeps the operator, whose translation is right for all sizes."""
        sizes = ({2: "height", 3: "width"},)
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            for function in (
                resized,
                lambda x: F.interpolate(x, scale_factor=0.6, mode="bilinear", align_corners=True),
            ):
                others = [(torch.randn(1, 2, 2, 3),), (torch.randn(1, 2, 30, 9),)]
                self.export_and_compare(
                    function, (torch.randn(1, 2, 5, 8),), others=others, dynamic_shapes=sizes
                )

    def test_other_branches_of_decompositions_are_told(self):
        image = torch.randn(1, 2, 5, 8)
        dynamic_shapes = ({2: "height", 3: "width"},)
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(resized, (image,), dynamic_shapes=dynamic_shapes, export_options=MAKE_FX)
        self.assertRegex(
            logs.records[0].getMessage(),
            r"where\n  math\.trunc\(1\.1\*width\) > 1\n.*test_patches_decompositions(.|\n)*width: 2 to ",
        )
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(
                lambda x: F.interpolate(x, size=x.shape[2:], mode="bilinear"),
                (image,),
                dynamic_shapes=dynamic_shapes,
                export_options=MAKE_FX,
            )


class TestComplexNumbers(ExporterTestCase):
    def test_means_over_axes_of_any_size(self):
        def means(z):
            return z.mean(0), torch.view_as_real(z.mean()), z.mean((0, 1), keepdim=True)

        z, other = torch.randn(3, 4, dtype=torch.complex64), torch.randn(7, 4, dtype=torch.complex64)
        for options in (ExportOptions(), MAKE_FX, ExportOptions(strict=True)):
            with self.subTest(options):
                self.export_and_compare(
                    means, (z,), others=[(other,)], dynamic_shapes=ROWS, export_options=options
                )
        with self.assertRaisesRegex(CaptureError, r"specialized it to be a constant \(3\)"):
            to_onnx(means, (z,), dynamic_shapes=ROWS, export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
