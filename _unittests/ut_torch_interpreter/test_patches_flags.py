"""Branches on buffers and parameters of the model."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X = torch.randn(2, 3)
ROWS = ({0: "rows"},)


class Net(torch.nn.Module):
    """A module with a flag, three numbers and three weights, and a function of it and of its input."""

    def __init__(self, function, flag):
        super().__init__()
        self.function = function
        self.register_buffer("flag", torch.tensor(flag))
        self.register_buffer("numbers", torch.arange(3.0))
        self.weights = torch.nn.Parameter(torch.full((3,), 0.25))

    def forward(self, x):
        return self.function(self, x)


def of_a_flag(self, x):
    return x * 2 if self.flag else x + 1


def of_a_condition(self, x):
    if (self.flag > 3) & (self.numbers[1] == 1):
        return x * 2
    return x + 1


def of_weights(self, x):
    if self.weights.abs().max() > 1:
        return x
    return x + self.weights


def of_constants(self, x):
    steps = torch.linspace(0, 1, 4)
    return x * 2 if (steps[1:] > steps[:-1]).all() else x


def initialized(self, x):
    if not self.flag:
        self.numbers.copy_(x.mean(0))
        self.flag.fill_(True)
    return x - self.numbers


def after_a_write(self, x):
    self.flag.fill_(True)
    return x * 2 if self.flag else x + 1


def after_a_write_to_a_view(self, x):
    self.numbers[0] = 5.0
    return x * 2 if (self.numbers > 4).any() else x + 1


def of_a_written_condition(self, x):
    large = self.numbers > 4
    large[0] = True
    return x * 2 if large.any() else x + 1


def of_the_data(self, x):
    return x * 2 if (self.numbers + x.sum() > 4).any() else x + 1


def of_chance(self, x):
    return x * 2 if (torch.rand_like(self.numbers) > 0.5).any() else x + 1


class TestFlags(ExporterTestCase):
    def test_the_branch_of_the_value(self):
        cases = {
            "a bool": (of_a_flag, True),
            "a false one": (of_a_flag, False),
            "a number": (of_a_flag, 1.0),
            "a condition": (of_a_condition, 4),
            "a condition that is not met": (of_a_condition, 3),
            "weights": (of_weights, True),
            "constants": (of_constants, True),
            "what has been initialized": (initialized, True),
        }
        for promise, (function, flag) in cases.items():
            with self.subTest(promise):
                model = self.export_and_compare(
                    Net(function, flag), (X,), others=[(torch.randn(5, 3),)], dynamic_shapes=ROWS
                )
                self.assertEqual(len(model.graph.node), 1)
                with self.assertRaisesRegex(CaptureError, "data-dependent"):
                    to_onnx(Net(function, flag), (X,), export_options=ExportOptions(patches=False))

    def test_what_is_written_or_no_constant_is_refused(self):
        functions = (
            after_a_write,
            after_a_write_to_a_view,
            of_a_written_condition,
            of_the_data,
            of_chance,
        )
        for function in functions:
            with self.subTest(function.__name__), self.assertRaisesRegex(CaptureError, "data-dependent"):
                to_onnx(Net(function, False), (X,))

    def test_a_flag_without_a_value_is_refused(self):
        with torch.device("meta"):
            net = Net(of_a_flag, True)
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(net, (X,), weights=Net(of_a_flag, True).state_dict())


if __name__ == "__main__":
    unittest.main()
