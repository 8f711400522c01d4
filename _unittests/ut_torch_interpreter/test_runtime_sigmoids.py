"""Rows of logarithms of a Sigmoid, and of what is divided by one."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

X = torch.tensor([-30.0, -80.0, -24.0, -20.0, -18.5, -16.0, 0.0, 5.0, 90.0])

ROWS = {
    "Log.of_a_sigmoid": (lambda x: torch.log(torch.sigmoid(x)), X),
    "Div.by_a_sigmoid": (lambda x, y: (y / torch.sigmoid(x)).log1p(), X[2:], X[2:] + 25),
    "Reciprocal.inverse_of_a_sigmoid": (lambda x: torch.sigmoid(x).reciprocal().log1p(), X[2:]),
}

BETWEEN = {
    "a bound": lambda s: s.clamp(min=1e-12).log(),
    "two bounds": lambda s: s.clamp(1e-12, 0.9).log(),
    "the larger": lambda s: torch.maximum(s, torch.tensor(1e-12)).log(),
    "a small term": lambda s: (s + 1e-12).log(),
    "a factor": lambda s: (s * 0.5).log(),
    "another value": lambda s: (s * (s + 1.5)).log(),
    "a view": lambda s: s[:, None].transpose(0, 1).log(),
    "a part": lambda s: s[2:].log(),
    "several": lambda s: ((s[:, None] * 0.25) + 1e-9).log2(),
    "the odds": torch.logit,
    "a divisor": lambda s: (s / (s.flip(0) + 1e-9)).log(),
    "the number": lambda s: torch.cat([s, s * 0.5]).log(),
}
"""What is computed of a Sigmoid, and loses all digits without the row."""


class TestSigmoids(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_what_stands_between(self):
        for name, function in BETWEEN.items():
            with self.subTest(name):
                self.export_and_compare(
                    lambda x, function=function: function(torch.sigmoid(x)),
                    (X,),
                    dynamic_shapes=({0: "n"},),
                    others=[(X[:4],), (X[1:2] - 10,)] if name != "a part" else [(X[:4],)],
                )

    def test_what_needs_no_digits(self):
        """A plain Sigmoid: the term or the bound is large, or its result is no divisor."""
        for function in (
            lambda s: (s + 1.0).log(),
            lambda s: s.clamp(min=0.1).log(),
            lambda s: (1 - s).log(),
            lambda s: s / 3.0,
            lambda s: 2.0 / (1.0 + s),
            torch.exp,
        ):
            model = to_onnx(lambda x, function=function: function(torch.sigmoid(x)), (X,))
            self.assertIn("Sigmoid", [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
