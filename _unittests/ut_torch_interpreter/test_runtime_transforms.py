"""Rows of Fourier transforms."""

import unittest

import torch
import torch.nn.functional as F

from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx

WINDOW = torch.hann_window(1024)


def signal_of_odd_size(spectrum):
    """Something of one element a frequency is computed, and forgotten, before the signal of twice that size."""
    scale = spectrum[..., :1].exp().double()
    spectrum = torch.view_as_complex((spectrum.double() * scale).float())
    return torch.fft.irfft(spectrum, n=2 * spectrum.shape[1] - 1, dim=1)


ROWS = {
    "DFT.in_float64": (lambda x: torch.view_as_real(torch.fft.rfft(x, norm="ortho")), torch.randn(1, 4001)),
    "DFT.divided_in_float64": (
        lambda x: (torch.fft.ifft(torch.fft.fft(x)).real - x) * 1e4,
        torch.randn(2, 1501, dtype=torch.float64),
    ),
    "DFT.of_an_axis_without_name": (
        signal_of_odd_size,
        torch.randn(3, 6, 2),
        {"others": [(torch.randn(3, 9, 2),)], "dynamic_shapes": (({1: "frequencies"},),)},
    ),
    "DFT.along_an_attribute": (
        lambda x: torch.view_as_real(torch.fft.fft(x, norm="ortho")),
        torch.randn(2, 2048),
    ),
    "STFT.of_frames": (
        lambda x: torch.view_as_real(
            torch.stft(x, 1024, window=WINDOW, normalized=True, return_complex=True)
        ),
        torch.randn(2, 3000),
    ),
}

OTHER_ROWS = {"DFT.along_the_last_axis": (lambda x: torch.view_as_real(torch.fft.fft(x, dim=1)), [2, 2048])}
"""Rows for speed: what is computed, and the sizes of the axes before those that follow."""


class TestTransforms(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_elements_far_apart(self):
        """They are brought together, and only they."""
        name = "DFT.along_the_last_axis"
        function, sizes = OTHER_ROWS[name]
        for following, count in ((64, 2), (63, 0)):
            x = torch.randn(*sizes, following, dtype=torch.float64)
            model = self.assert_same_as_eager(function, x, dynamic=False)
            self.assertEqual(count, [node.op_type for node in model.graph.node].count("Transpose"))
        x = torch.randn(*sizes, 64)
        for model in (to_onnx(function, (x,), runtime="onnx"), with_row_left_out(name, function, x)):
            self.assertNotIn("Transpose", [node.op_type for node in model.graph.node])

    def test_one_cast_around_several_transforms(self):
        """They go on in float64 with what moves elements between them, zeros around included; a product is one of float32."""

        def larger(x):
            return torch.fft.irfft2(torch.fft.rfft2(x), s=(2 * x.shape[1], 2 * x.shape[2]))

        def low_pass(x):
            spectrum = torch.fft.rfft(x.transpose(1, 2))[..., :2]
            return torch.fft.irfft(F.pad(spectrum, (0, x.shape[1] // 2 - 1)), n=x.shape[1]).transpose(1, 2)

        def shifted(x):
            spectrum = torch.fft.fftshift(torch.fft.fft2(x), dim=(1, 2))
            return torch.fft.ifft2(torch.fft.ifftshift(spectrum, dim=(1, 2))).real

        def scaled(x):
            return torch.fft.irfft2(torch.fft.rfft2(x) * 3, s=x.shape[1:])

        dims = ({0: "batch", 1: torch.export.Dim("height", min=4), 2: "width"},)
        for function, casts in ((larger, 2), (low_pass, 2), (shifted, 2), (scaled, 4)):
            with self.subTest(function.__name__):
                model = self.export_and_compare(
                    function,
                    (torch.randn(2, 12, 10),),
                    others=[(torch.randn(size),) for size in ((1, 7, 9), (3, 4, 16), (2, 13, 21))],
                    dynamic_shapes=dims,
                )
                written = [node.op_type for node in model.graph.node]
                self.assertEqual(casts, written.count("Cast"))

    def test_float32_cast_to_float64_has_the_digits_of_float64(self):
        def again(x):
            return (torch.fft.ifft(torch.fft.fft(x.double())).real - x) * 1e4

        self.assert_same_as_eager(again, torch.randn(2, 1501))


def with_row_left_out(name, function, x):
    """The model that is written without the row."""
    with without_row(name):
        return to_onnx(function, (x,))


if __name__ == "__main__":
    unittest.main()
