"""Rows of logarithms of a Sigmoid, and of what is divided by one."""

import unittest

import numpy as np
import onnx.parser
import torch

from experimental_experiment.comparison import session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.xoptim import optimize

X = torch.tensor([-30.0, -80.0, -24.0, -20.0, -18.5, -16.0, 0.0, 5.0, 90.0])

ROWS = {
    "Log.of_a_sigmoid": (lambda x: torch.log(torch.sigmoid(x)), X),
    "Div.by_a_sigmoid": (lambda x, y: (y / torch.sigmoid(x)).log1p(), X[2:], X[2:] + 25),
    "Reciprocal.inverse_of_a_sigmoid": (lambda x: torch.sigmoid(x).reciprocal().log1p(), X[2:]),
    "Pow.negative_power_of_a_sigmoid": (lambda x: (torch.sigmoid(x) ** -2).log1p(), X[2:]),
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
    "two of them": lambda s: torch.cat([s, s * 0.5]).log(),
    "the smaller": lambda s: s.clamp(max=0.9).log(),
    "picked elements": lambda s: s.gather(0, torch.tensor([0, 3, 1])).log(),
    "elements under a mask": lambda s: s[s >= 0].log(),
    "a choice": lambda s: torch.where(s > 0.5, s * 0.25, s).log(),
    "many views": lambda s: (
        torch.stack([s, s]).reshape(1, 2, -1).transpose(1, 2)[:, :, 0].unsqueeze(0).expand(3, -1, -1).log()
    ),
    "a root": lambda s: s.sqrt().log(),
    "its inverse": lambda s: torch.rsqrt(s).log1p(),
    "a power": lambda s: (s**1.5).log(),
    "of quotients": lambda s: (s / (s * 0.5 + 1e-20)).log1p(),
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
                    others=[(X[:4],), (X[2:8].flip(0),)],
                )

    def test_casts(self):
        """A bfloat16 Sigmoid is computed in float32, where -20 gives 0 as well; so does one that is cast before its logarithm."""
        for name, function, dtype in (
            ("bfloat16", lambda s: (s.log(), 1 / s, X[2:].bfloat16() / s), torch.bfloat16),
            ("a small term", lambda s: (s * 0.5 + 1e-12).log(), torch.bfloat16),
            ("seen rounded", lambda s: (s.floor(), s.log(), s.flip(0) / s), torch.bfloat16),
            ("cast to float32", lambda s: s.float().log(), torch.bfloat16),
            ("cast to float64", lambda s: s.double().log(), torch.float32),
            ("cast to bfloat16", lambda s: s.bfloat16().log(), torch.float32),
        ):
            for optimized in (True, False):
                with self.subTest(name, optimized=optimized):
                    self.export_and_compare(
                        lambda x, function=function: function(torch.sigmoid(x)),
                        (X[2:].to(dtype),),
                        optimize=optimized,
                    )

    def test_in_files_of_others(self):
        """Forms that the emitter does not write: a Clip without bounds, axes as attributes before opset 13."""
        for opset, between in ((20, "Clip(s)"), (10, "Clip<min=0.5>(s)"), (11, "Unsqueeze<axes=[0]>(s)")):
            nodes = f"s = Sigmoid(x) c = {between} r = Reciprocal(c) y = Mul(z, r)"
            model = onnx.parser.parse_model(
                f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[2] x, float[1,2] z) => (float[1,2] y) {{ {nodes} }}'
            )
            feeds = {"x": np.array([0.5, 3], np.float32), "z": np.ones((1, 2), np.float32)}
            expected, got = (session(item).run(None, feeds)[0] for item in (model, optimize(model)))
            np.testing.assert_allclose(expected, got, rtol=1e-6)

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
