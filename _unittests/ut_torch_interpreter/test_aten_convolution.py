"""Convolutions: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE, SIGNAL, VOLUME = normal(2, 4, 9, 8), normal(2, 4, 9), normal(2, 4, 5, 6, 4)


class TestConvolution(ExporterTestCase):
    CASES = {
        "one axis": (aten.conv1d.default, SIGNAL, normal(6, 4, 3), normal(6), [2], [1]),
        "two axes, a bias": (aten.conv2d.default, IMAGE, normal(6, 4, 3, 2), normal(6), [2, 1], [1, 0]),
        "groups and dilation": (
            aten.conv2d.default, IMAGE, normal(6, 2, 3, 2), None, [1, 1], [2, 1], [2, 3], 2),
        "three axes": (aten.conv3d.default, VOLUME, normal(3, 4, 2, 3, 2), normal(3)),
        "an input without a batch": (aten.conv2d.default, IMAGE[0], normal(3, 4, 3, 3), normal(3)),
        "an empty batch": (aten.conv2d.default, IMAGE[:0], normal(3, 4, 3, 3), normal(3)),
        "one number for two axes": (aten.conv2d.default, IMAGE, normal(3, 4, 3, 3), None, [2], [1], [1]),
        "same padding, even kernel": (aten.conv1d.padding, SIGNAL, normal(6, 4, 4), None, [1], "same", [3]),
        "same padding, two axes": (aten.conv2d.padding, IMAGE, normal(6, 4, 3, 2), normal(6), [1, 1], "same"),
        "valid padding": (aten.conv2d.padding, IMAGE, normal(6, 4, 3, 2), None, [2, 1], "valid"),
        "same padding, three axes": (aten.conv3d.padding, VOLUME, normal(3, 4, 2, 3, 2), None, [1], "same"),
        "the operator behind them": (
            aten._convolution_mode.default, SIGNAL, normal(6, 4, 3), None, [1], "same", [1], 1),
        "float64 keeps its digits": (
            aten.conv2d.default, IMAGE.double(), normal(6, 2, 3, 2).double(), normal(6).double(), [2, 1],
            [1, 0], [1, 2], 2),
        "int64 stays exact": (
            aten.conv2d.default, torch.arange(2**40, 2**40 + 50).reshape(1, 2, 5, 5),
            torch.arange(-8, 10).reshape(1, 2, 3, 3)),
        "float16": (
            aten.conv2d.default, normal(1, 2, 5, 5, dtype=torch.float16),
            normal(2, 2, 3, 3, dtype=torch.float16)),
        "bfloat16": (
            aten.conv1d.default, normal(1, 2, 5, dtype=torch.bfloat16),
            normal(2, 2, 3, dtype=torch.bfloat16)),
        "the general operator": (
            aten.convolution.default, IMAGE, normal(6, 4, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0],
            1),
        "the general operator, transposed": (
            aten.convolution.default, IMAGE, normal(4, 6, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 0],
            1),
        "with flags": (
            aten._convolution.default, IMAGE, normal(6, 4, 3, 3), None, [1, 1], [0, 0], [1, 1], False,
            [0, 0], 1, False, True, False, True),
        "with fewer flags": (
            aten._convolution.deprecated, IMAGE, normal(6, 4, 3, 3), None, [1, 1], [0, 0], [1, 1], False,
            [0, 0], 1, False, True, False),
        "time first": (aten.conv_tbc.default, normal(7, 2, 3), normal(3, 3, 5), normal(5), 1),
        "transposed, one axis": (
            aten.conv_transpose1d.default, SIGNAL, normal(4, 3, 3), normal(3), [2], [1], [1]),
        "transposed, groups": (
            aten.conv_transpose2d.input, IMAGE, normal(4, 3, 3, 2), normal(6), [2, 3], [1, 0], [1, 2], 2,
            [2, 1]),
        "transposed, three axes": (
            aten.conv_transpose3d.input, VOLUME, normal(4, 3, 2, 3, 2), None, [1, 2, 1], [1, 0, 0]),
        "transposed, no batch": (aten.conv_transpose2d.input, IMAGE[0], normal(4, 3, 3, 2), None, [2, 1]),
        "transposed, float64": (
            aten.conv_transpose2d.input, IMAGE.double(), normal(4, 3, 3, 2).double(), normal(6).double(),
            [2, 3], [1, 0], [1, 2], 2, [2, 1]),
        "transposed, padding larger than the kernel": (
            aten.conv_transpose1d.default, SIGNAL, normal(4, 3, 2), None, [3], [4]),
        "transposed, output padding of a stride": (
            aten.conv_transpose1d.default, SIGNAL, normal(4, 3, 3), None, [2], [1], [2], 1, [4]),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_other_sizes(self):
        for dtype in (torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                weight = normal(6, 4, 3, 2, dtype=dtype)
                same = lambda x, weight=weight: aten.conv2d.default(x, weight, None, [2, 1], [1, 1])
                self.assert_same_as_eager(same, IMAGE.to(dtype), others=[(normal(3, 4, 12, 7, dtype=dtype),)])

    def test_decomposed_with_a_dynamic_kernel(self):
        """``padding="same"`` becomes a padding of half of the kernel, whose size is not known."""
        same = lambda x, weight: torch.conv2d(x, weight, None, 1, "same", 2)
        options = ExportOptions(decomposition_table="default")
        other = (normal(3, 4, 12, 7), normal(6, 4, 5, 7))
        self.assert_same_as_eager(same, IMAGE, normal(6, 4, 3, 5), others=[other], export_options=options)

    def test_a_group_for_each_image(self):
        """Weights that each image of a batch has its own of, as StyleGAN 2 modulates them."""

        class Modulated(torch.nn.Module):
            def forward(self, x, scale, weight, bias):
                batch, _, height, width = x.shape
                joined, each = x.reshape(1, -1, height, width), weight * scale[:, None, :, None, None]
                bias = bias.repeat(batch)
                same = torch.conv2d(joined, each.flatten(0, 1), bias, padding="same", groups=batch)
                strided = torch.conv2d(joined, each.flatten(0, 1), None, (2, 1), 1, (1, 2), batch)
                twice = torch.conv_transpose2d(
                    joined, each.transpose(1, 2).flatten(0, 1), bias, 2, 1, 1, groups=batch
                )
                return [y.reshape(batch, 5, *y.shape[2:]) for y in (same, strided, twice)]

        def made(batch, *sizes):
            return normal(batch, 4, *sizes), normal(batch, 4), normal(5, 4, 3, 3), normal(5)

        shapes = ({0: "batch", 2: "height", 3: "width"}, {0: "batch"}, None, None)
        for options in ({}, {"target_opset": 18}, {"dynamic_shapes": None}):
            with self.subTest(**options):
                others = [] if "dynamic_shapes" in options else [made(1, 5, 9), made(3, 8, 6)]
                options = {"dynamic_shapes": shapes} | options
                self.export_and_compare(Modulated(), made(2, 6, 7), others=others, **options)


if __name__ == "__main__":
    unittest.main()
