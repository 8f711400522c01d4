"""Maxima of several sizes, and of one and a number that it is never below, or never above."""

import heapq
import math
import unittest

import torch
from torch._higher_order_ops import scan

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
from experimental_experiment.versions import numbers


def missing(size: int, kernel: int, stride: int) -> int:
    """What timm adds to an axis."""
    return max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)


class Same(torch.nn.Module):
    """Strided convolutions that pad as TensorFlow does; kernels of 1 need no padding, those of 2 one for odd sizes."""

    def __init__(self, is_asked: bool = False):
        super().__init__()
        self.is_asked = is_asked
        self.layers = torch.nn.ModuleList(torch.nn.Conv1d(1, 1, kernel, 2) for kernel in (3, 1, 2, 5))

    def forward(self, x):
        for layer in self.layers:
            pad = missing(x.shape[-1], layer.kernel_size[0], 2)
            if self.is_asked:
                if pad > 0:
                    x = torch.nn.functional.pad(x, (pad // 2, pad - pad // 2))
            else:
                x = torch.nn.functional.pad(x, (pad // 2, pad - pad // 2))
            x = layer(x)
        return x


class Numbers(torch.nn.Module):
    """Maxima that are known, and some that are not."""

    def forward(self, x):
        n, m = x.shape
        numbers = (
            max((n + 3) // 4 * 4 - n, 0),
            max((n + 3) // 4 * 4 - n, 1),
            max((n + 3) // 4 * 4 - n, 3),
            max(n // 4 * 4 - n, 0),
            max(n // 4 * 4 - n, -1),
            max((n // 2 + m // 3) // 2 - m, 0),
            max(5 * ((n // 2 + 4) // 5) - n // 2, 0),
            max(n - m, 0),
            max(0, n - 7),
        )
        return [torch.full((), number) for number in numbers]


class Several(torch.nn.Module):
    """Maxima and minima of more than two sizes, of lists, of fractions."""

    def forward(self, x):
        n, m = x.shape
        whole = max(n, m, 4), min(n, m, 4), max([n, m]), min((n, 5, m)), max([m])
        fractions = max(n / 2, 2.5), min(n / 2, m / 3, 1.5), max([n / 4, m * 0.3])
        return [torch.full((), number) for number in (*whole, *fractions)]


class Mixed(torch.nn.Module):
    """What is an int for some sizes and a float for others; what else decides; what Python computes itself."""

    def forward(self, x):
        n, m = x.shape
        mixed = max(n / 2, 3)  # the first
        key = max(n, m, key=lambda size: -size)  # the second
        largest = heapq.nlargest(1, [n, m])[0]  # the third
        return torch.full((), mixed), torch.full((), key + largest)


class TestSeveral(ExporterTestCase):
    SHAPES = ({0: "n", 1: "m"},)

    def test_any_size(self):
        others = [(torch.randn(*size),) for size in ((3, 5), (2, 7), (6, 6), (4, 3), (9, 2))]
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(
                Several(), (torch.randn(5, 3),), others=others, dynamic_shapes=self.SHAPES
            )

    def test_what_stays_the_example_s_is_told(self):
        """Also where Python's own functions ask."""
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(Mixed(), (torch.randn(7, 3),), dynamic_shapes=self.SHAPES)
        for line in ("first", "second", "third"):
            self.assertIn(f"# the {line}", "".join(logs.output))

    def test_told_without_the_patch(self):
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            options = ExportOptions(patches=False)
            to_onnx(Several(), (torch.randn(5, 3),), dynamic_shapes=self.SHAPES, export_options=options)
        self.assertIn("m <= n", "".join(logs.output))


class Tensors(torch.nn.Module):
    """Maxima and minima of tensors of one element, of those of a tensor, and of symbols among them."""

    def forward(self, x, lengths):
        longest = max(lengths)
        return (
            max(x[0, 0], x[1, 0], x[1, 1]),
            min(x[0, 0], 9.5, x[1, 0]),
            max([x[0, 0], x[0, 1], x[1, 1]]),
            min(lengths),
            max(lengths.max(), x.shape[0]),
            max(x.shape[1], lengths.min(), 3),
            min(x.max() - 9, x.shape[0] / 2),
            min(x.half().max() - 9, x.shape[0] / 2),
            torch.zeros(longest),
            torch.zeros(max(longest, x.shape[1])),
        )


class TestSeveralTensors(ExporterTestCase):
    SHAPES = ({0: "n", 1: "m"}, {0: "n"})

    @staticmethod
    def inputs(columns, *lengths):
        return torch.randn(len(lengths), columns), torch.tensor(lengths)

    def test_any_size(self):
        others = [self.inputs(2, 9, 1, 4, 2), self.inputs(6, 0, 1)]
        self.export_and_compare(Tensors(), self.inputs(4, 3, 2, 1), others=others, dynamic_shapes=self.SHAPES)

    def test_refused_without_it(self):
        options = ExportOptions(patches=False)
        refused = (
            lambda x: max(x[0], x[1], x[2]),
            lambda x: max(x),
            lambda x: max(x.max(), x.shape[0]),
        )
        for forward in refused:
            with self.subTest(forward=forward), self.assertRaises(CaptureError):
                to_onnx(forward, (torch.rand(3),), dynamic_shapes=({0: "n"},), export_options=options)


class InBodies(torch.nn.Module):
    """Maxima and minima of sizes in a branch and in the body of a scan."""

    def forward(self, x, y):
        def longest(x, y):
            most, least = max(x.shape[1], y.shape[1]), min(x.shape[1], y.shape[1])
            return x.sum(1) / most - least / max([x.shape[1] - 1, 1])

        def step(carry, row):
            carry = carry + row.sum() / max(x.shape[1], y.shape[1])
            return carry, carry.clone()

        branch = torch.cond(x.sum() > -1e9, longest, lambda x, y: y.sum(1) * 2, (x, y))
        return branch, scan(step, x.new_zeros(()), x)[1]


class TestMaxima(ExporterTestCase):
    @unittest.skipIf(numbers(torch.__version__) < numbers("2.13"), "torch 2.9 refuses max in a body")
    def test_in_bodies(self):
        sizes = ((6, 2), (1, 7), (3, 3))
        self.export_and_compare(
            InBodies(),
            (torch.rand(2, 4), torch.rand(2, 5)),
            others=[(torch.rand(2, n), torch.rand(2, m)) for n, m in sizes],
            dynamic_shapes=({1: "n"}, {1: "m"}),
        )

    OTHERS = [(torch.randn(batch, 1, size),) for batch, size in ((1, 64), (3, 63), (2, 97), (1, 74))]
    SHAPES = ({0: "batch", 2: "time"},)

    def test_padded_as_tensorflow_does(self):
        model = self.export_and_compare(
            Same(), (torch.randn(2, 1, 65),), others=self.OTHERS, dynamic_shapes=self.SHAPES
        )
        self.assertNotIn("Max", {node.op_type for node in model.graph.node})
        self.assertNotIn("Max", model.graph.output[0].type.tensor_type.shape.dim[2].dim_param)

    def test_padded_where_there_is_something_to_pad(self):
        for size in (65, 64):
            with self.subTest(size=size):
                self.export_and_compare(
                    Same(True), (torch.randn(2, 1, size),), others=self.OTHERS, dynamic_shapes=self.SHAPES
                )

    def test_the_numbers(self):
        others = [(torch.zeros(rows, columns),) for rows in (2, 4, 7, 8, 9, 31) for columns in (3, 5, 40)]
        self.export_and_compare(
            Numbers(), (torch.zeros(13, 17),), others=others, dynamic_shapes=({0: "rows", 1: "columns"},)
        )

    def test_sizes_that_the_example_exceeds(self):
        """Sizes of 1, of 0, and below what torch's operators find in the example."""

        def forward(x):
            n = x.shape[1]
            padded = torch.nn.functional.pad(x, (0, max(2 - n, 0)))
            quarters = torch.zeros(n // 4 + 1)  # asks whether there is one
            return (
                padded,
                quarters,
                torch.zeros(max(3 - n, 0)),
                torch.zeros(max(n - 3, 0)),
                torch.zeros(max(n // 2 - 1, 0)),
            )

        others = [(torch.randn(2, n),) for n in (0, 1, 2, 3, 12)]
        self.export_and_compare(forward, (torch.randn(2, 8),), others=others, dynamic_shapes=({1: "n"},))

    def test_undone(self):
        before = torch.SymInt.__sym_max__
        with bypass_export_some_errors(patch_torch=True):
            self.assertIsNot(before, torch.SymInt.__sym_max__)
        self.assertIs(before, torch.SymInt.__sym_max__)


if __name__ == "__main__":
    unittest.main()
