"""Random numbers that two bodies draw."""

import unittest

import numpy as np
import torch
from torch._higher_order_ops.map import map as torch_map

from _unittests.ut_control_flow.holder import OneInput
from experimental_experiment.comparison import session
from experimental_experiment.torch_interpreter import to_onnx

X = torch.zeros(64, 3)


def noise(row):
    return row + torch.randn_like(row)


def two_maps(s, x):
    return torch_map(noise, x), torch_map(noise, x)


def one_map(s, x):
    return torch_map(lambda row: torch_map(lambda y: y * 2.0, noise(row)), x)


def two_branches(s, x):
    return torch.cond(x.sum() > 1, noise, lambda row: row - torch.randn_like(row), (x,))


def drawn_before(s, x):
    several = torch.randn_like(x), torch.randn_like(x)
    return tuple(torch_map(lambda row, drawn: row + drawn, x, each) for each in several)


def correlation(model) -> float:
    """Of the two results, in one run."""
    first, second = session(model).run(None, {"x": X.numpy()})
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


class TestDraws(unittest.TestCase):
    def test_two_bodies(self):
        """The numbers are the same, as the warning tells: a runtime that draws others needs it no longer."""
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            model = to_onnx(OneInput(two_maps), (X,))
        (text,) = [record.getMessage() for record in logs.records]
        self.assertRegex(
            text,
            "^onnxruntime draws the same numbers for '.*' and '.*', which have one place in two bodies: "
            "draw them before the (Loop|Scan), and give it them$",
        )
        self.assertGreater(correlation(model), 0.999)
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(OneInput(two_maps), (X,), runtime="onnx")

    def test_others(self):
        """One body, two branches of which one runs, and what is drawn before the bodies."""
        for module in (one_map, two_branches, drawn_before):
            with self.subTest(module.__name__), self.assertNoLogs("experimental_experiment", "WARNING"):
                model = to_onnx(OneInput(module), (X,))
        self.assertLess(abs(correlation(model)), 0.5)


if __name__ == "__main__":
    unittest.main()
