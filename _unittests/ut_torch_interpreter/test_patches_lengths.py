"""``len`` of a tensor, ``torch_int`` of a size in a model of transformers, and products of shapes."""

import linecache
import sys
import textwrap
import types
import unittest

import torch
import transformers

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

NAME = "transformers.models.of_lengths.modeling_of_lengths"
MODEL = textwrap.dedent(
    """
    import torch
    from transformers.utils import torch_int


    class Model(torch.nn.Module):
        def forward(self, x, names):
            return torch.arange(len(names)) + torch.zeros(len(x), len(names)), x.new_full((len(x),), len(x.shape))


    class Resized(torch.nn.Module):
        def forward(self, x):
            size = torch_int(x.shape[0] // 2), torch_int(7.5)
            return torch.nn.functional.interpolate(torch.arange(6.0).reshape(1, 1, 2, 3), size=size)
    """
)


class Products(torch.nn.Module):
    """A model of one's own."""

    def forward(self, x):
        rows, *sizes = x.shape
        whole = x.reshape(rows, x.shape[1:].numel()).reshape(x.size()[:-1].numel() // x.size(0), -1)
        return whole == x.shape.numel() + x.shape[-1] + len(sizes), torch.zeros(2).expand(*x.shape, 2)


class Shapes(torch.nn.Module):
    """Returns shapes, of which it takes products too."""

    def forward(self, x):
        longer, nested = x.shape[:1] + (2,), (3,) + x.shape * 2
        return x.numel(), x.shape, {"rest": [x.shape[1:]]}, longer, longer.numel(), nested, nested.numel()


def kept(*tensors):
    """Shapes for another function, as torchdiffeq keeps those of a state of several tensors."""
    return [tensor.shape for tensor in tensors]


class Packed(torch.nn.Module):
    """A state of several tensors in one, and back."""

    def forward(self, x, y):
        shapes, whole = kept(x, y), torch.cat([x.reshape(-1), y.reshape(-1)]) * 2
        first, second = (shape.numel() for shape in shapes)
        return whole[:first].view(shapes[0]), whole[first : first + second].view(shapes[1])


class TestLengths(ExporterTestCase):
    def test_shapes_that_are_kept(self):
        x = torch.arange(12.0).reshape(3, 4)
        shapes = ({0: torch.export.Dim("rows")}, {0: torch.export.Dim("others")})
        self.export_and_compare(Packed(), (x, x[:2]), others=[(x[:1], x)], dynamic_shapes=shapes)

    def setUp(self):
        super().setUp()
        self.module = types.ModuleType(NAME)
        file = f"<{NAME}>"  # with a source: what is not known to only call int keeps it
        linecache.cache[file] = len(MODEL), None, MODEL.splitlines(True), file
        self.addCleanup(linecache.cache.pop, file, None)
        exec(compile(MODEL, file, "exec"), vars(self.module))
        sys.modules[NAME] = self.module
        self.addCleanup(sys.modules.pop, NAME)

    def test_any_batch(self):
        model, shapes = self.module.Model(), ({0: "batch"}, None)
        example, others = (torch.randn(2, 3), "abc"), [(torch.randn(rows, 3), "abc") for rows in (5, 1)]
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes)
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_any_size(self):
        model, shapes = self.module.Resized(), ({0: "size"},)
        example, others = (torch.randn(8),), [(torch.randn(size),) for size in (12, 21)]
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes)
        written = to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))
        with self.assertRaises(AssertionError):
            self.assert_matches(written, model, others[0])

    def test_products(self):
        model, shapes = Products(), ({1: "height", 2: "width"},)
        example, others = (torch.randn(2, 3, 4),), [(torch.randn(2, *size),) for size in ((5, 2), (1, 1))]
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes)
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_shapes_that_are_returned(self):
        example, others = (torch.randn(2, 3),), [(torch.randn(1, 5),), (torch.randn(4, 2),)]
        self.export_and_compare(Shapes(), example, others=others, dynamic_shapes=({0: "n", 1: "m"},))

    def test_undone(self):
        with bypass_export_some_errors(patch_transformers=True):
            self.assertEqual(self.module.torch_int(2.5), 2)
        self.assertIs(self.module.torch_int, transformers.utils.torch_int)


if __name__ == "__main__":
    unittest.main()
