"""Branches on whether sizes are equal, or computed from each other: torch takes one for the other since, and the warning tells it."""

import unittest

import torch
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X, Y = torch.randn(3, 6), torch.randn(3, 4)
ROWS, MAKE_FX = Dim("rows"), ExportOptions(tracing="make_fx")


def when_equal(x, y):
    same = x.shape[0] == y.shape[0]
    return x.sum() + y.sum() if same else x.sum()  # the branch


def when_twice(x, y):
    if x.shape[1] != 2 * x.shape[0]:  # the branch
        return x + y.sum()
    return x * 2 + y.sum()


def when_two_more(x, y):
    assert x.shape[1] == y.shape[1] + 2  # the branch
    return x.sum() + y


class TestEquations(ExporterTestCase):
    NAMES = ({0: "a", 1: "b"}, {0: "c", 1: "d"})
    CASES = {
        "a == c": (when_equal, NAMES),
        "b == 2*a": (when_twice, NAMES),
        "b == d + 2": (when_two_more, NAMES),
        "x size == c": (when_equal, ({0: "x size", 1: "b"}, {0: "c", 1: "d"})),
        "x.shape[0] == y.shape[0]": (when_equal, ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})),
    }

    def test_the_warning(self):
        for options in (ExportOptions(), MAKE_FX):
            for equation, (function, dynamic_shapes) in self.CASES.items():
                with self.subTest(equation, tracing=options.tracing):
                    with self.assertLogs("experimental_experiment", "WARNING") as logs:
                        to_onnx(function, (X, Y), dynamic_shapes=dynamic_shapes, export_options=options)
                    (record,) = logs.records
                    _, told, place, code = record.getMessage().splitlines()
                    self.assertEqual(f"  {equation}", told)
                    self.assertRegex(place, r'^  File ".*test_decisions_equations\.py", line \d+, in ')
                    self.assertRegex(code, "# the branch$")

    def test_what_the_user_says_is_not_told(self):
        cases = (
            (when_equal, ({0: "a", 1: "b"}, {0: "a", 1: "d"})),
            (when_equal, ({0: ROWS}, {0: ROWS})),
            (when_twice, ({0: ROWS, 1: 2 * ROWS}, None)),
        )
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            for function, dynamic_shapes in cases:
                to_onnx(function, (X, Y), dynamic_shapes=dynamic_shapes)

    def test_what_an_operator_asks_is_not_told(self):
        def forward(x, y):
            total = x[:, 2:] + y
            return total if x.shape[0] == y.shape[0] else total * 2

        others = [(torch.randn(5, 8), torch.randn(5, 6))]
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(forward, (X, Y), others=others, dynamic_shapes=self.NAMES)


if __name__ == "__main__":
    unittest.main()
