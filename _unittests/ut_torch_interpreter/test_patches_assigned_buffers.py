"""Buffers that are given an argument, or another buffer."""

import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X = torch.randn(2, 3)


class Net(torch.nn.Module):
    """A module with two buffers, and a function of it and of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("last", torch.zeros(2, 3))
        self.register_buffer("older", torch.ones(2, 3))

    def forward(self, x):
        return self.function(self, x)


def an_argument(self, x):
    y = x - self.last
    self.last = x
    return y


def a_delay(self, x):
    y = x - self.older
    self.older, self.last = self.last, x
    return y


def each_other(self, x):
    self.older, self.last = self.last, self.older
    return x - self.last + self.older * 2


class TestAssignedBuffers(ExporterTestCase):
    def test_call_after_call(self):
        for function in (an_argument, a_delay, each_other):
            for of_functions in (False, True):
                with self.subTest(function.__name__, functions=of_functions):
                    eager = Net(function)
                    model = to_onnx(eager, (X,), mutated_buffers="outputs", modules_as_functions=of_functions)
                    held = {
                        value.name: eager.get_buffer(value.name).clone() for value in model.graph.input[1:]
                    }
                    inner = session(model)
                    for x in (X, X * 2, X - 5, X * 3):
                        found = run(inner, [x, *held.values()])
                        held = dict(zip(held, found[1:], strict=True))
                        self.assertTrue(torch.equal(eager(x), found[0]))
                        for name, value in held.items():
                            self.assertTrue(torch.equal(eager.get_buffer(name), value), name)

    def test_the_first_call(self):
        for function in (an_argument, a_delay, each_other):
            with self.subTest(function.__name__):
                self.export_and_compare(Net(function), (X,), others=[(X + 1,)])

    def test_torch_refuses_them(self):
        for function in (an_argument, a_delay, each_other):
            with self.subTest(function.__name__), self.assertRaisesRegex(CaptureError, "SpecViolationError"):
                to_onnx(Net(function), (X,), export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
