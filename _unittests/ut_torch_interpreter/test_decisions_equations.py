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


def cut_rest(x):
    rows = x.shape[0]
    return torch.cat([x, x[: rows % 4]])[:rows] * 2  # the branch


def cut_padding(x):
    columns = x.shape[1]
    return torch.nn.functional.pad(x, (0, columns % 4))[:, :columns] * 2


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


class TestRemainders(ExporterTestCase):
    """What torch leaves out where a remainder of the example is 0, and what it asks of others too."""

    def test_a_slice_that_cuts_nothing(self):
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(cut_rest, (torch.randn(12),), dynamic_shapes=({0: "rows"},))
        _, told, place, code, which = logs.records[0].getMessage().splitlines()
        self.assertEqual(["  (rows % 4) == 0", "  which are rows: 4, 8, 12, 16, ..."], [told, which])
        self.assertRegex(place, r'^  File ".*test_decisions_equations\.py", line \d+, in ')
        self.assertRegex(code, "# the branch$")

    def test_a_remainder_beside_the_size(self):
        """torch asks whether both sizes are one; with strict=True it leaves out the slice then."""
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(
                cut_padding,
                (torch.randn(2, 12),),
                dynamic_shapes=({1: "columns"},),
                export_options=ExportOptions(strict=True),
            )
        self.assertIn("  (columns % 4) == 0\n", logs.records[0].getMessage())

    def test_what_only_a_layout_asks_is_not_told(self):
        """The slice cuts nothing in the example; the program has it all the same. In a branch, which TorchDynamo runs, it is told."""
        columns = ({1: "columns"},)
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            others = [(torch.randn(2, size),) for size in (1, 9, 15, 16)]
            self.export_and_compare(cut_padding, (torch.randn(2, 12),), others=others, dynamic_shapes=columns)

        def forward(x):
            return torch.cond(x.sum() > 0, cut_padding, lambda x: x * 3, (x,))

        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(forward, (torch.randn(2, 12),), dynamic_shapes=columns)
        self.assertIn("  (columns % 4) == 0\n", logs.records[0].getMessage())

    def test_what_a_view_needs_is_not_told(self):
        """Eager raises for the others."""
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            for function in (lambda x: x.view(-1, 4) * 2, lambda x: x.reshape(x.shape[0] // 4, 4, -1).sum(1)):
                self.export_and_compare(
                    function,
                    (torch.randn(12, 4),),
                    others=[(torch.randn(20, 4),)],
                    dynamic_shapes=({0: "rows"},),
                )

    def test_another_remainder_of_the_example(self):
        others = [(torch.randn(n),) for n in (12, 15, 1)]
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(
                cut_rest, (torch.randn(14),), others=others, dynamic_shapes=({0: "rows"},)
            )


if __name__ == "__main__":
    unittest.main()
