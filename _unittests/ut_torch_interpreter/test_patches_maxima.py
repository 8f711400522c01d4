"""Maxima of a number of sizes and one that it is never below, or never above."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


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


class TestMaxima(ExporterTestCase):
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

    def test_undone(self):
        before = torch.SymInt.__sym_max__
        with bypass_export_some_errors(patch_torch=True):
            self.assertIsNot(before, torch.SymInt.__sym_max__)
        self.assertIs(before, torch.SymInt.__sym_max__)


if __name__ == "__main__":
    unittest.main()
