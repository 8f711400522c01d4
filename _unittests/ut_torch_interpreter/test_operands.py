"""Branches whose answer changes nothing, as another operand decides: no warning."""

import unittest

import torch

from experimental_experiment.comparison import compare, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

X = torch.randn(9, 3)


def causal(x, mask=None, flag=False):
    is_causal = x.shape[0] > 5 and mask is None and flag
    return x * 2 if is_causal else x + 1


def in_a_branch(x, mask=None, flag=False):
    if (
        x.shape[0] < 10
        or mask is not None  # of several lines
        or flag
    ):
        return x * 2
    return x + 1


def inner(x, mask=None, flag=False):
    return x * 2 if (x.shape[0] > 10 and flag) or mask is not None else x + 1


def computed(x, mask=None, flag=False):
    return x * 2 if x.shape[0] > 10 and bool(flag) else x + 1


def none_first(x, mask=None, flag=False):
    return x if (x.shape[0] > 3 and mask and flag) is None else x + 1


def twice(x, mask=None, flag=False):
    for settled in (True, False):
        x = causal(x, None, not settled)
    return x


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, mask=None, flag=False):
        return self.function(x, mask, flag)


class TestOperands(ExporterTestCase):
    SETTLED = (
        (causal, {}),
        (causal, {"mask": torch.ones(3), "flag": True}),
        (in_a_branch, {"flag": True}),
        (in_a_branch, {"mask": torch.ones(3)}),
        (inner, {}),
    )
    OPEN = (
        (causal, {"flag": True}),
        (in_a_branch, {}),
        (inner, {"flag": True}),
        (computed, {}),
        (none_first, {}),
        (twice, {}),
    )

    def test_answers_that_change_nothing(self):
        """No warning, and the model is right for the other sizes."""
        for function, arguments in self.SETTLED:
            with self.subTest(function.__name__, **arguments):
                with self.assertNoLogs("experimental_experiment", "WARNING"):
                    model, module = self.exported(function, arguments)
                runner = session(model)
                for size in (2, 30):
                    given = {"x": torch.randn(size, 3), **arguments}
                    self.assertTrue(all(item.within for item in compare(module, runner, (), given)))

    def test_answers_that_matter(self):
        for function, arguments in self.OPEN:
            with (
                self.subTest(function.__name__, **arguments),
                self.assertLogs("experimental_experiment", "WARNING") as logs,
            ):
                self.exported(function, arguments)
            self.assertIn("holds the branches that the example took", logs.output[0])

    def exported(self, function, arguments):
        """The model, and the module that it is of."""
        given = {"x": X, **arguments}
        shapes = {name: {0: "n"} if name == "x" else None for name in given}
        module = Function(function)
        return to_onnx(module, (), given, dynamic_shapes=shapes), module


if __name__ == "__main__":
    unittest.main()
