"""``Tensor.data`` in forward."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X = torch.randn(2, 3)


class Net(torch.nn.Module):
    """A linear layer, and a function of it and of the input."""

    def __init__(self, function):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.function = function

    def forward(self, x):
        return self.function(self.linear, x)


def of_weights(linear, x):
    return torch.nn.functional.linear(x, linear.weight.data * 2, linear.bias.data)


def of_an_input(linear, x):
    return linear(x.data)


def written(linear, x):
    y = linear(x)
    y.data.mul_(3)
    return y


def assigned(linear, x):
    y = linear(x)
    y.data = x * 3
    return y


class TestData(ExporterTestCase):
    def test_same_as_eager(self):
        for function in (of_weights, of_an_input, written):
            with self.subTest(function.__name__):
                self.export_and_compare(
                    Net(function), (X,), others=[(torch.randn(5, 3),)], dynamic_shapes=({0: "rows"},)
                )

    def test_without_the_patch(self):
        with self.assertRaises(CaptureError):
            to_onnx(Net(of_weights), (X,), export_options=ExportOptions(patches=False))

    def test_an_assignment_is_refused(self):
        message = r"forward writes x\.data = y, which no program can hold: write x\.copy_\(y\)\n.*line \d+, in assigned"
        with self.assertRaisesRegex(CaptureError, message):
            to_onnx(Net(assigned), (X,))

    def test_it_is_torchs_again(self):
        before = torch.Tensor.data
        to_onnx(Net(of_weights), (X,))
        self.assertIs(torch.Tensor.data, before)


if __name__ == "__main__":
    unittest.main()
