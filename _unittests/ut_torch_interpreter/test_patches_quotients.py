"""Quotients of sizes that are rounded."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


class Numbers(torch.nn.Module):
    """Rounded quotients, some of them of negative numbers, by negative ones and by others that are no integers."""

    def forward(self, x):
        n = x.shape[0]
        numbers = (
            math.ceil(n / 4),
            math.floor(n / 4),
            math.ceil((n - 20) / 8) + 1,
            math.floor((3 - n) / 4),
            math.ceil(n / -4),
            math.ceil(n / 2.5),
            math.floor(n * 0.75),
            math.ceil(math.ceil(n / 3) / 2),
            math.ceil(n / 4 + 0.5),
            math.ceil(x.shape[1] / n),
            math.ceil(n / 1),
            math.ceil(n - 0.5),
            math.floor(n - 2.75),
            math.ceil((n - 0.25) / 1),
            math.floor((n - -0.5) / 1.0),
            math.ceil(n - 0.1),
            math.floor((n - 1.5) / 2),
            math.ceil((n / 4) / 1),
        )
        return [torch.full((), number) for number in numbers]


class Padded(torch.nn.Module):
    """A signal padded to what strided convolutions take whole, as networks that remove noise do it."""

    def __init__(self):
        super().__init__()
        self.down = torch.nn.ModuleList(torch.nn.Conv1d(1, 1, 8, 4) for _ in range(2))
        self.up = torch.nn.ModuleList(torch.nn.ConvTranspose1d(1, 1, 8, 4) for _ in range(2))

    def forward(self, x):
        size = length = x.shape[-1]
        for _ in self.down:
            length = max(math.ceil((length - 8) / 4) + 1, 1)
        for _ in self.down:
            length = (length - 1) * 4 + 8
        x = torch.nn.functional.pad(x, (0, length - size))
        for layer in (*self.down, *self.up):
            x = layer(x)
        return x[..., :size]


class Middles(torch.nn.Module):
    """The middles of pixels, which DINOv3 turns its queries by, and the number of pixels that they meet."""

    def forward(self, x):
        rows, columns = (torch.arange(0.5, size) / size for size in x.shape[-2:])
        return x.flatten(1) + (rows[:, None] * columns).flatten()


class Divided(torch.nn.Module):
    """Quotients with their remainders, of sizes and of fractions of them, also by and of numbers, some of them negative."""

    def forward(self, x):
        rows, columns = x.shape
        pairs = (
            divmod(rows, 3),
            divmod(rows - 20, 4),
            divmod(rows, -4),
            divmod(100, columns),
            divmod(columns, rows),
            divmod(rows / 2, 1.5),
        )
        return [torch.full((), number) for pair in pairs for number in pair]


class TestQuotients(ExporterTestCase):
    def test_the_numbers(self):
        others = [(torch.zeros(size, size + 5),) for size in (1, 3, 4, 8, 31, 32)]
        self.export_and_compare(
            Numbers(), (torch.zeros(13, 17),), others=others, dynamic_shapes=({0: "rows", 1: "columns"},)
        )

    def test_sizes_are_named_by_integers(self):
        def halves(x):
            return x.new_zeros(math.ceil(x.shape[0] / 2))

        model = self.export_and_compare(
            halves, (torch.zeros(5),), others=[(torch.zeros(8),)], dynamic_shapes=({0: "n"},)
        )
        names = [size.dim_param for size in model.graph.output[0].type.tensor_type.shape.dim]
        self.assertEqual(["((n + 1)//2)"], names)
        self.assertNotIn("Ceil", {node.op_type for node in model.graph.node})

    def test_middles_of_pixels_are_as_many_as_pixels(self):
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(
                Middles(),
                (torch.randn(2, 6, 5),),
                others=[(torch.randn(1, 3, 7),), (torch.randn(3, 1, 1),)],
                dynamic_shapes=({0: "batch", 1: "height", 2: "width"},),
            )

    def test_padded(self):
        others = [(torch.randn(batch, 1, size),) for batch, size in ((1, 200), (3, 163), (2, 97))]
        self.export_and_compare(
            Padded(), (torch.randn(2, 1, 201),), others=others, dynamic_shapes=({0: "batch", 2: "time"},)
        )

    def test_with_remainders(self):
        shapes, x = ({0: "rows", 1: "columns"},), torch.zeros(13, 17)
        others = [(torch.zeros(size, size + 5),) for size in (2, 4, 31, 32)]
        self.export_and_compare(Divided(), (x,), others=others, dynamic_shapes=shapes)
        with self.assertRaisesRegex(CaptureError, "unsupported operand type.*divmod"):
            to_onnx(Divided(), (x,), dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_undone(self):
        def methods():
            names = (torch.SymInt, "__truediv__ __sub__"), (torch.SymFloat, "__truediv__ __ceil__ __floor__")
            return [getattr(cls, name) for cls, found in names for name in found.split()]

        before = methods()
        with bypass_export_some_errors(patch_torch=True):
            for method, replacing in zip(before, methods()):
                self.assertIsNot(method, replacing)
        self.assertEqual(before, methods())


if __name__ == "__main__":
    unittest.main()
