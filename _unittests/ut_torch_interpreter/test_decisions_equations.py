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
        """The slice cuts nothing in the example; the program has it all the same. In a branch, which TorchDynamo runs, and of what is written it is told."""
        columns = ({1: "columns"},)
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            others = [(torch.randn(2, size),) for size in (1, 9, 15, 16)]
            self.export_and_compare(cut_padding, (torch.randn(2, 12),), others=others, dynamic_shapes=columns)

        def in_branch(x):
            return torch.cond(x.sum() > 0, cut_padding, lambda x: x * 3, (x,))

        def written(x):
            columns = x.shape[1]
            cut = torch.nn.functional.pad(x, (0, columns % 4))[:, :columns]
            return cut, cut.contiguous().add_(1)  # of itself, or of a copy

        for forward in (in_branch, written):
            with self.subTest(forward), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(forward, (torch.randn(2, 12),), dynamic_shapes=columns)
            self.assertIn("  (columns % 4) == 0\n", logs.records[0].getMessage())

    def test_what_linear_asks_of_its_memory_is_not_told(self):
        """Windows of four columns, of which the example has one: F.linear flattens them, as a view or as a copy."""

        def in_windows(x):
            x = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[1] % 4))
            windows = x.reshape(2, 2, x.shape[1] // 4, 4, 6).transpose(1, 2)
            return torch.nn.functional.linear(windows, Y.new_ones(5, 6))

        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(
                in_windows,
                (torch.randn(4, 3, 6),),
                others=[(torch.randn(4, columns, 6),) for columns in (1, 4, 5, 9)],
                dynamic_shapes=({1: "columns"},),
            )

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


class TestSizesOfData(ExporterTestCase):
    """torch asserts that two sizes are equal where eager repeats a single row, when the data decide one of them."""

    def test_a_row_that_may_be_repeated(self):
        mask, columns = torch.tensor([True, False, True]), torch.tensor(6)
        cases = {
            "u0 == u1": (lambda x, m: x[m] + x[x[:, 0] > 0], (torch.ones(3, 6), mask), None),
            "u0 == 2": (lambda x, m: (x[m] + torch.ones(2, 6)).sum(0), (X, mask), ({0: "rows"}, {0: "rows"})),
            "u0 == 6": (lambda x, n: x * torch.arange(n.item()), (X, columns), None),
            "columns == u0": (lambda x, n: x * torch.arange(n.item()), (X, columns), ({1: "columns"}, None)),
        }
        for equation, (function, args, dynamic_shapes) in cases.items():
            with self.subTest(equation), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(function, args, dynamic_shapes=dynamic_shapes)
            (record,) = logs.records
            self.assertEqual(f"  {equation}", record.getMessage().splitlines()[1])

    def test_a_mask_that_changes_is_told(self):
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(of_a_mask_that_changes, (torch.ones(3, 6) * 3,))
        self.assertIn("those of sizes where\n  u0 == u1\n", logs.output[0])

    def test_what_is_equal_or_has_to_be_is_not_told(self):
        mask = torch.tensor([True, False, True])
        functions = {
            "one mask": lambda x, m: x[m] * m.nonzero() + x[m],
            "a mask that is computed twice": lambda x, m: x[x[:, 0] + 1 > 0] * x[x[:, 0] + 1 > 0],
            "a variance of Student": lambda x, m: (
                torch.distributions.StudentT(x.abs() * 3, x, x.abs()).variance
            ),
            "rows that are stacked": lambda x, m: torch.cat([x[m], x[m.flip(0)] * 2], 1),
            "two rows or more": at_least_two,
            "as many of ten": lambda x, m: torch.ones(10, 6)[: x[m].shape[0]] + x[m],
        }
        for promise, function in functions.items():
            with self.subTest(promise), self.assertNoLogs("experimental_experiment", "WARNING"):
                self.export_and_compare(function, (X, mask))


def of_a_mask_that_changes(x):
    y = x.clone()
    first = x[y[:, 0] > 0]
    y[0] -= 2
    return first + x[y[:, 0] > 0]


def at_least_two(x, mask):
    count = mask.sum().item()
    torch._check(count >= 2)
    return torch.ones(2, 1) * x[:count]


if __name__ == "__main__":
    unittest.main()
