"""Paddings to multiples, and those of MobileNet, for images of any size."""

import math
import unittest

import torch
from transformers.models.mobilenet_v1 import modeling_mobilenet_v1
from transformers.models.mobilenet_v2 import modeling_mobilenet_v2

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

MODULES = (modeling_mobilenet_v1, modeling_mobilenet_v2)


class Layers(torch.nn.Module):
    """Convolutions with the padding of a model."""

    def __init__(self, module):
        super().__init__()
        self.place = MODULES.index(module)
        self.first = torch.nn.Conv2d(1, 2, (3, 5), stride=2)
        self.second = torch.nn.Conv2d(2, 1, 3, stride=(1, 3), dilation=2)
        self.third = torch.nn.Conv2d(1, 1, 1, stride=2)

    def forward(self, x):
        for layer in (self.first, self.second, self.third):
            x = layer(MODULES[self.place].apply_tf_padding(x, layer))
        return x


class SameConv2d(torch.nn.Conv2d):
    """A convolution that is padded as timm pads those of TensorFlow."""

    def forward(self, x):
        sizes = zip(x.shape[2:], self.kernel_size, self.stride)
        rows, columns = (
            max((math.ceil(size / stride) - 1) * stride + kernel - size, 0) for size, kernel, stride in sizes
        )
        sides = columns // 2, columns - columns // 2, rows // 2, rows - rows // 2
        return self._conv_forward(torch.nn.functional.pad(x, sides), self.weight, self.bias)


def image(height, width):
    """A random image."""
    torch.manual_seed(height)
    return (torch.randn(2, 1, height, width),)


def with_sizes(x):
    """Padded with a size, with a fraction of one, which integers cut off, and up to a multiple."""
    rows, columns = x.shape
    pad = torch.nn.functional.pad
    whole = x.mul(3).long()
    return (
        pad(x, (0, 1), value=rows - 1),
        pad(whole, (1, 1, 0, 2), "constant", columns),
        pad(whole, (1, 0), value=rows / 2),
        pad(x, (0, -columns % 4), value=1 / rows).reshape(rows, -1, 4),
        pad(x, (1, 0), mode="reflect") * rows,
    )


class Multiples(torch.nn.Module):
    """Rows and columns of whole blocks, each a sum."""

    def forward(self, x):
        height, width = x.shape
        below, right = (4 - height % 4) % 4, -width % 3
        padded = torch.nn.functional.pad(x, (0, right, 0, below), value=1.0)
        rows, columns = padded.shape[0] // 4, padded.shape[1] // 3
        blocks = padded.view(rows, 4, columns, 3).sum((1, 3))
        return blocks, torch.nn.functional.pad(x, (1, right), mode="replicate")


class TestMultiples(ExporterTestCase):
    SHAPES = ({0: "height", 1: "width"},)

    def test_values_of_sizes(self):
        shapes = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("columns")},)
        others = [(torch.randn(size),) for size in ((3, 4), (7, 2))]
        self.export_and_compare(with_sizes, (torch.randn(4, 6),), others=others, dynamic_shapes=shapes)

    def test_any_size(self):
        others = [(torch.randn(*sizes),) for sizes in ((8, 3), (5, 8), (1, 1))]
        written = self.export_and_compare(
            Multiples(), (torch.randn(6, 7),), others=others, dynamic_shapes=self.SHAPES
        )
        names = [size.dim_param for size in written.graph.output[0].type.tensor_type.shape.dim]
        self.assertEqual(names, ["((height + 3)//4)", "((width + 2)//3)"])

    def test_what_is_no_multiple(self):
        def padded(x):
            size = x.shape[0]
            return [torch.nn.functional.pad(x, (0, 0, 0, count)) for count in (size % 4, -2 * size % 4, 3)]

        others = [(torch.randn(rows, 2),) for rows in (4, 7, 9)]
        self.export_and_compare(padded, (torch.randn(6, 2),), others=others, dynamic_shapes=({0: "rows"},))


class Segments(torch.nn.Module):
    """Segments of 10 that overlap by half, as speech separation cuts them, and their sum at each place."""

    def forward(self, x):
        batch, size = x.shape
        gap = 10 - (5 + size % 10) % 10
        x = torch.cat([x, torch.zeros(batch, gap)], 1)
        x = torch.cat([torch.zeros(batch, 5), x, torch.zeros(batch, 5)], 1)
        halves = x[:, :-5].reshape(batch, -1, 10), x[:, 5:].reshape(batch, -1, 10)
        first, second = torch.cat(halves, 2).view(batch, -1, 10).tanh().view(batch, -1, 20).split(10, 2)
        x = first.reshape(batch, -1)[:, 5:] + second.reshape(batch, -1)[:, :-5]
        return x[:, :-gap]


class TestRests(ExporterTestCase):
    SHAPES = ({0: "batch", 1: "size"},)

    def test_segments(self):
        others = [(torch.randn(batch, size),) for batch, size in ((3, 5), (1, 10), (2, 14), (2, 15), (2, 1))]
        model = self.export_and_compare(
            Segments(), (torch.randn(2, 47),), others=others, dynamic_shapes=self.SHAPES
        )
        names = [size.dim_param for size in model.graph.output[0].type.tensor_type.shape.dim]
        self.assertEqual(["batch", "size"], names)

    def test_the_numbers(self):
        def numbers(x):
            n = x.shape[0]
            rests = (
                (4 + n % 8) % 8,
                (n // 3 + n % 8 - 20) % 8,
                (n % 6 + n % 8) % 8,
                (n % 6) % 8,
                (3 - n % 8) % 8,
            )
            return [torch.full((), rest) for rest in (*rests, (n % 8) % 8, (2 * (n % 8)) % 8, n % 8)]

        others = [(torch.zeros(size),) for size in (1, 4, 8, 17, 31)]
        self.export_and_compare(numbers, (torch.zeros(13),), others=others, dynamic_shapes=({0: "size"},))

    def test_undone(self):
        before = torch.SymInt.__mod__
        with bypass_export_some_errors(patch_torch=True):
            self.assertIsNot(before, torch.SymInt.__mod__)
        self.assertIs(before, torch.SymInt.__mod__)


class TestPaddings(ExporterTestCase):
    SHAPES = ({2: "height", 3: "width"},)

    def test_any_size(self):
        for module in MODULES:
            with self.subTest(module.__name__):
                others = [image(*sizes) for sizes in ((9, 8), (16, 17), (11, 21), (10, 10))]
                self.export_and_compare(
                    Layers(module), image(8, 9), others=others, dynamic_shapes=self.SHAPES, target_opset=20
                )

    def test_the_size_of_the_result_is_simple(self):
        module, layer = MODULES[1], torch.nn.Conv2d(1, 2, 3, stride=2)
        model = Layers(module)
        model.first, model.second, model.third = (
            layer,
            torch.nn.Conv2d(2, 1, 3, 2),
            torch.nn.Conv2d(1, 1, 2, 2),
        )
        written = to_onnx(model, image(23, 25), dynamic_shapes=self.SHAPES)
        names = [size.dim_param for size in written.graph.output[0].type.tensor_type.shape.dim[2:]]
        self.assertEqual(names, ["(((height - 1)//8)) + 1", "(((width - 1)//8)) + 1"])

    def test_they_are_attributes(self):
        """A result for each stride is ``auto_pad``, whatever the sizes of the layers between."""
        layers = (
            SameConv2d(1, 4, 3, 2),
            torch.nn.ReLU(),
            SameConv2d(4, 4, (5, 2), 2, groups=4),
            SameConv2d(4, 1, 3),
        )
        others = [image(*sizes) for sizes in ((8, 8), (1, 3), (16, 31), (33, 2))]
        written = self.export_and_compare(
            torch.nn.Sequential(*layers),
            image(23, 25),
            others=others,
            dynamic_shapes=self.SHAPES,
            optimize=True,
        )
        self.assertEqual(["Conv", "Relu", "Conv", "Conv"], [node.op_type for node in written.graph.node])

    def test_one_axis(self):
        others = [image(8, width) for width in (7, 8, 12)]
        model = Layers(modeling_mobilenet_v2)
        self.export_and_compare(
            model, image(8, 9), others=others, dynamic_shapes=({3: "width"},), target_opset=20
        )

    def test_refused_without_it(self):
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            options = ExportOptions(patches=False)
            to_onnx(Layers(MODULES[1]), image(8, 9), dynamic_shapes=self.SHAPES, export_options=options)

    def test_undone(self):
        before = [module.apply_tf_padding for module in MODULES]
        model = Layers(MODULES[1])
        with bypass_export_some_errors(patch_transformers=True):
            self.assertNotEqual(before, [module.apply_tf_padding for module in MODULES])
            inside = model(*image(8, 9))
        self.assertEqual(before, [module.apply_tf_padding for module in MODULES])
        torch.testing.assert_close(inside, model(*image(8, 9)))


if __name__ == "__main__":
    unittest.main()
