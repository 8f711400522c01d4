"""Tensors that a model makes of lists of sizes."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


class Model(torch.nn.Module):
    """Sizes in tables, and numbers that are none."""

    def forward(self, x):
        height, width = x.shape
        levels = torch.as_tensor([(height, width), (height // 2, 7)], dtype=torch.long, device=x.device)
        return (
            levels.prod(1),
            torch.as_tensor(height, dtype=torch.float32),
            torch.as_tensor([1, 2], dtype=x.dtype),
            torch.as_tensor([height / 2, width * 0.5]),
            x.new_tensor([width, height, 1.5]) / x.new_tensor(height),
            x.new_tensor([[height, width]], dtype=torch.int32),
            x.new_tensor([height / 3, 1]),
            x.new_tensor([1, 2]),
            x.new([width, height / 2]),
            x.new([1, 2]),
            x.new(height, 0),
        )


class Padding(torch.nn.Module):
    """Which elements are behind the end, of lengths that were made a list."""

    def forward(self, x, lengths):
        place = torch.arange(x.shape[1]).expand(x.shape)
        return place >= place.new(lengths.tolist()).unsqueeze(-1)


class Elements(torch.nn.Module):
    """Tensors of one element in lists, between numbers and sizes."""

    def forward(self, x):
        low, count = x.min(), (x > 0).sum()
        return (
            torch.tensor([low, x.max()]),
            torch.tensor([count, 1]) + torch.tensor(data=[1, 2]),
            torch.tensor([[low, count], [x.shape[0], 0.5]]),
            torch.tensor([*low.half()[None], 1]),
            torch.tensor([low.half(), 1.5]),
            torch.tensor([low, count.item()], dtype=torch.float64),
            torch.tensor([count.int(), 2.7], dtype=torch.long),
            torch.as_tensor((low, x[:1, 0]), dtype=torch.float64, device=x.device),
            torch.as_tensor([low, 2.0], dtype=torch.float16),
            x.new_tensor([count, 2]),
            x.new([low, count]),
            torch.tensor(data=x.shape[0]),
        )


class TestTables(ExporterTestCase):
    SHAPES = ({0: "height", 1: "width"},)

    def test_any_size(self):
        others = [(torch.randn(9, 3),), (torch.randn(2, 5),)]
        self.export_and_compare(Model(), (torch.randn(4, 6),), others=others, dynamic_shapes=self.SHAPES)

    def test_refused_without_it(self):
        options = ExportOptions(patches=False)
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(Model(), (torch.randn(4, 6),), dynamic_shapes=self.SHAPES, export_options=options)

    def test_numbers_of_the_data(self):
        def inputs(size, *lengths):
            return torch.randn(len(lengths), size), torch.tensor(lengths)

        others = [inputs(9, 9, 1), inputs(5, 0, 4)]
        self.export_and_compare(Padding(), inputs(7, 3, 7), others=others, dynamic_shapes=({1: "size"}, None))

    def test_elements(self):
        others = [(torch.randn(9, 3),), (-torch.ones(2, 5),)]
        self.export_and_compare(Elements(), (torch.randn(4, 6),), others=others, dynamic_shapes=self.SHAPES)

    def test_elements_are_refused_without_it(self):
        for options in (ExportOptions(patches=False), ExportOptions(patches=False, tracing="make_fx")):
            with self.subTest(options.tracing), self.assertRaises(CaptureError):
                to_onnx(Elements(), (torch.randn(4, 6),), dynamic_shapes=self.SHAPES, export_options=options)

    def test_elements_under_make_fx(self):
        options = ExportOptions(tracing="make_fx")
        self.export_and_compare(Elements(), (torch.randn(4, 6),), export_options=options)

    def test_elements_share_no_memory(self):
        def forward(x):
            x = x.clone()
            pair = torch.tensor([x[0], x[1]])
            single = torch.tensor([x[2]])
            x.zero_()
            return pair, single

        self.export_and_compare(forward, (torch.randn(4),))

    def test_what_eager_refuses_is_refused(self):
        refused = {
            "a float for an integer": lambda x: torch.tensor([x.max()], dtype=torch.int64),
            "several elements": lambda x: torch.tensor([x, x]),
        }
        for promise, forward in refused.items():
            with self.subTest(promise), self.assertRaises(CaptureError):
                to_onnx(forward, (torch.randn(4),))

    def test_undone(self):
        before = torch.as_tensor
        with bypass_export_some_errors():
            self.assertIsNot(torch.as_tensor, before)
            x = torch.randn(3)
            self.assertIs(torch.as_tensor(x), x)
            self.assertTrue(torch.equal(torch.as_tensor([x[0], 2.0]), torch.stack([x[0], torch.tensor(2.0)])))
        self.assertIs(torch.as_tensor, before)


if __name__ == "__main__":
    unittest.main()
