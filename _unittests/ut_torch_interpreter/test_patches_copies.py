"""Copies that Python makes of tensors, layers and containers in forward."""

import copy
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx


def deep(model, x):
    """A tensor, a dict of two and a layer, all of which are written to afterwards."""
    y = copy.deepcopy(x)
    y.mul_(2)
    held = copy.deepcopy({"x": x, "again": x, "y": [y]})
    held["x"].add_(1)
    layer = copy.deepcopy(model.layer)
    layer.weight.data.mul_(3)
    return x, y, held["again"], held["y"][0], layer(x), model.layer(x)


def shallow(model, x):
    """Another name of the same memory, and of a container."""
    x = x * 2
    y = copy.copy(x)
    y.add_(1)
    held = copy.copy([x])
    held[0].mul_(2)
    return x, y, copy.copy(model.layer)(x)


class Calls(torch.nn.Module):
    """A layer, and a function of it."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.function(self, x)


class TestCopies(ExporterTestCase):
    X = torch.randn(3, 4)

    def test_same_as_eager(self):
        shapes = {"x": {0: "rows"}}
        for function in (deep, shallow):
            for tracing in ("export", "make_fx"):
                with self.subTest(function.__name__, tracing=tracing):
                    model = Calls(function).requires_grad_(False)
                    self.export_and_compare(
                        model,
                        (self.X,),
                        others=[(torch.randn(5, 4),)],
                        dynamic_shapes=shapes,
                        export_options=ExportOptions(tracing=tracing),
                    )

    def test_two_tensors_of_one_memory(self):
        """Eager keeps them together: what is written to one copy is seen in the other one."""
        for function in (
            lambda model, x: copy.deepcopy([x, x[0]])[0],
            lambda model, x: copy.deepcopy(x[:1].expand(3, 4)),
        ):
            with self.assertRaisesRegex(CaptureError, "Cannot access data pointer"):
                to_onnx(Calls(function), (self.X,))

    def test_refused_without_the_patch(self):
        for function, text in (
            (deep, "Cannot access data pointer"),
            (shallow, "AssertionError"),
        ):
            with self.subTest(function.__name__), self.assertRaisesRegex(CaptureError, text):
                to_onnx(Calls(function), (self.X,), export_options=ExportOptions(patches=False))


if __name__ == "__main__":
    unittest.main()
