"""Branches on whether there is anything at all are told with their lines: torch takes sizes for positive."""

import unittest
import warnings

import torch
from torch.export import Dim
from transformers import DynamicCache

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.randn(4, 3)


def asserted(x):
    assert x.shape[0] > 0
    return x * 2


def raised(x):
    if not len(x):
        raise ValueError("nothing")
    return x * 2


def only_warned(x):
    if x.numel() == 0:
        warnings.warn("nothing", stacklevel=2)
    return x * 2


class Function(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class TestEmptiness(ExporterTestCase):
    BRANCHES = {
        "equal to 0": lambda x: x.sum(0) + 1 if x.shape[0] == 0 else x.sum(0),  # the branch
        "more than 0": lambda x: x.sum(0) if x.shape[0] > 0 else x.sum(0) + 1,  # the branch
        "at least 1": lambda x: x.sum(0) if 1 <= x.shape[0] else x.sum(0) + 1,  # the branch
        "less than 1": lambda x: x.sum(0) + 1 if x.shape[0] < 1 else x.sum(0),  # the branch
        "a length": lambda x: x.sum(0) if len(x) else x.sum(0) + 1,  # the branch
        "no length": lambda x: x.sum(0) + 1 if not len(x) else x.sum(0),  # the branch
        "elements": lambda x: x.sum(0) if x.numel() else x.sum(0) + 1,  # the branch
        "the larger number": lambda x: x.sum(0) / max(x.shape[0], 1),  # the branch
        "the smaller number": lambda x: x.sum(0) / min(1, len(x)),  # the branch
        "a computed size": lambda x: x.sum(0) if 2 * x.shape[0] != 0 else x.sum(0) + 1,  # the branch
    }

    def test_the_warning(self):
        for options in (ExportOptions(), ExportOptions(tracing="make_fx")):
            for promise, function in self.BRANCHES.items():
                with (
                    self.subTest(promise, tracing=options.tracing),
                    self.assertLogs("experimental_experiment", "WARNING") as logs,
                ):
                    to_onnx(Function(function), (X,), dynamic_shapes=({0: "rows"},), export_options=options)
                _, told, place, code = logs.records[0].getMessage().splitlines()
                self.assertEqual("  rows != 0", told)
                self.assertRegex(place, r'^  File ".*test_emptiness\.py", line \d+, in ')
                self.assertRegex(code, "# the branch$")

    def test_without_a_name(self):
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(Function(raised), (X,), dynamic_shapes=({0: Dim.DYNAMIC},))
            to_onnx(Function(self.BRANCHES["a length"]), (X,), dynamic_shapes=({0: Dim.DYNAMIC},))
        (record,) = logs.records
        self.assertIn("\n  x.shape[0] != 0\n", record.getMessage())

    def test_what_is_not_told(self):
        """What raises for nothing, only says so, or is asked of a size that is 1 at least, or static."""
        branch = self.BRANCHES["equal to 0"]
        cases = [
            (function, {0: "rows"})
            for function in (
                asserted,
                raised,
                only_warned,
                lambda x: x * 2 if x.shape[0] >= 0 else x,
                lambda x: x * 2 if x.shape[1] == 0 else x,
                lambda x: x * max(x.shape[0], 0),
                lambda x: (
                    x.t().reshape(-1, 1, x.shape[0]).cumsum(2)
                ),  # its strides are products of max(size, 1)
            )
        ]
        cases += [
            (branch, {0: Dim("rows", min=1)}),
            (branch, {0: Dim.DYNAMIC(min=1)}),
            (branch, {1: "columns"}),
        ]
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            for function, sizes in cases:
                to_onnx(Function(function), (X,), dynamic_shapes=(sizes,))

    def test_slices_that_are_filled(self):
        """A slice of one element has none of an empty axis, and is one in the model: what is computed from it, or another slice, fits."""

        def last_row(x):
            y = x * 1
            y[-1:] = 0  # the write
            return y

        def first_rows(x):
            y = torch.zeros_like(x)
            y[:1].unsqueeze(0).copy_(torch.ones(3))  # the write
            return y

        def one_more(x):
            y = x * 1
            y[-1:] += 1
            y[:1] = x[-1:]
            return y

        for function in (last_row, first_rows):
            with self.subTest(function.__name__):
                program = torch.export.export(Function(function), (X,), dynamic_shapes=({0: Dim("rows")},))
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    to_onnx(Function(function), (X,), dynamic_shapes=({0: "rows"},))
                    to_onnx(program)
                here, elsewhere = (record.getMessage().splitlines() for record in logs.records)
                self.assertEqual(["  rows != 0"] * 2, [here[1], elsewhere[1]])
                self.assertIn("# the write", here[-1])
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(Function(last_row), (X,), dynamic_shapes=({0: Dim("rows", min=1)},))
            model = to_onnx(Function(one_more), (X,), dynamic_shapes=({0: "rows"},))
        for rows in (0, 1, 4):
            self.assert_matches(model, Function(one_more), (torch.randn(rows, 3),))

    def test_a_cache_without_a_token(self):
        """transformers asks whether it holds something, and gives 0 otherwise, which its size is."""

        class Length(torch.nn.Module):
            def forward(self, x, cache):
                return x + cache.get_seq_length()

        cache = DynamicCache()
        cache.update(torch.randn(1, 2, 5, 3), torch.randn(1, 2, 5, 3), 0)
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(Length(), (X, cache), dynamic_shapes=({0: "rows"}, [{2: "past"}, {2: "past"}]))


if __name__ == "__main__":
    unittest.main()
