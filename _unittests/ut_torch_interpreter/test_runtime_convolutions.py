"""Rows of convolutions."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

SIGNAL, WEIGHT = torch.randn(2, 6, 9), torch.randn(4, 6, 3)
BACK = torch.randn(6, 4, 3)


def transposed(x, weight):
    """An output padding that only the dilation allows."""
    return torch.nn.functional.conv_transpose1d(x, weight, stride=1, output_padding=1, dilation=2)


def kernel(x, weight):
    """A weight that the model pads, as kernels that grow."""
    return torch.nn.functional.conv1d(x, torch.nn.functional.pad(weight, (1, 1)), padding=2)


def kernel_of_halves(x, weight):
    """The same in float16, cast before it is multiplied."""
    return torch.nn.functional.conv1d(x, torch.nn.functional.pad(weight, (1, 1)).float())


def turned_kernel(x, weight):
    """The same between transpositions, which onnxruntime takes away."""
    padded = torch.nn.functional.pad(weight.transpose(0, 1), (1, 1)).transpose(0, 1)
    return torch.nn.functional.conv1d(x, padded)


ROWS = {
    "Conv.of_padded_weight": (kernel, SIGNAL, WEIGHT),
    "Conv.over_windows": (
        lambda x, w: torch.nn.functional.conv1d(x, w, stride=2, padding=1),
        SIGNAL.double(),
        WEIGHT.double(),
    ),
    "ConvTranspose.of_float64": (
        lambda x, w: torch.nn.functional.conv_transpose1d(x, w, stride=2, padding=1),
        SIGNAL.double(),
        BACK.double(),
    ),
    "ConvTranspose.with_much_padding": (transposed, SIGNAL, BACK),
}


class TestConvolutions(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)
        self.assert_rows_needed({"Conv.of_padded_weight": (kernel_of_halves, SIGNAL, WEIGHT.half())})
        self.assert_rows_needed({"Conv.of_padded_weight": (turned_kernel, SIGNAL, WEIGHT)})


if __name__ == "__main__":
    unittest.main()
