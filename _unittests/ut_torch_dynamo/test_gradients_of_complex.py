"""Gradients through complex tensors: Fourier transforms, views, numbers of Python."""

import unittest

import torch
from torch.nn import functional as F

from _unittests.ut_torch_dynamo.gradient_case import FLAT, GradientTestCase, normal

RECTANGLE = normal(4, 6)
WINDOW = torch.hann_window(4)


def shown(*results):
    """The parts of complex results: losses are real."""
    return tuple(torch.view_as_real(result) if result.is_complex() else result for result in results)


class TestComplex(GradientTestCase):
    CASES = {
        "transforms of another length": (
            lambda x: shown(torch.fft.irfft(torch.fft.rfft(x), n=5), torch.fft.fft2(x, s=(3, 5))), RECTANGLE),
        "slices": (lambda x: (z := torch.fft.fft(x), shown(z[:, 1:3], z[1], z[..., -1], z[::2]))[1], RECTANGLE),
        "diagonals": (lambda x: shown(torch.fft.fft(x).diagonal(1), torch.fft.fft(x).mT.diagonal()), RECTANGLE),
        "windows": (lambda x: shown(torch.fft.fft(x).unfold(1, 3, 2)), RECTANGLE),
        "sigmoid, tanh": (lambda x: shown((z := torch.fft.fft(x) / 4).sigmoid(), z.tanh()), RECTANGLE),
        "numbers of Python": (lambda x: shown(x * 1j, torch.exp(1j * x), torch.fft.fft(x) / (2 - 1j), x + 2j), FLAT),
        "rotations": (
            lambda x, y: shown(torch.view_as_complex(x.unflatten(-1, (3, 2))) * torch.polar(y.abs(), y)),
            RECTANGLE, normal(4, 3)),
        "a spectrogram and back": (
            lambda x: (z := torch.stft(x, 4, 2, window=WINDOW, return_complex=True),
                       shown(z.abs(), torch.istft(z * 0.5, 4, 2, window=WINDOW)))[1],
            RECTANGLE),
        "a window that all rows share": (
            lambda x: torch.istft(torch.stft(x, 4, 2, window=torch.ones(4), return_complex=True), 4, 2,
                                  window=torch.ones(4)),
            RECTANGLE),
        "masked_scatter": (lambda x, y: shown((z := torch.fft.fft(x)).masked_scatter(x > 0, z * y)), FLAT, normal(3, 5)),
        "reflected": (lambda x: shown(F.pad(torch.fft.fft(x), (1, 2), "reflect")), RECTANGLE),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_functions(self.CASES)


if __name__ == "__main__":
    unittest.main()
