"""Conditions on sizes that exclude one another, and conditions of bytes."""

import sys
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.patches import conditions
from experimental_experiment.versions import numbers


class Resized(torch.nn.Module):
    """An image whose short or long side becomes 6, as Kornia resizes it."""

    def __init__(self, is_short: bool):
        super().__init__()
        self.is_short = is_short

    def forward(self, x):
        height, width = x.shape[-2:]
        if self.is_short ^ (width / height < 1.0):
            size = 6, int(6 * width / height)
        else:
            size = int(6 * height / width), 6
        return torch.nn.functional.interpolate(x, size)


class Numbers(torch.nn.Module):
    """Conditions that are used as they are: two of sizes, one of a size and one of Python."""

    def forward(self, x):
        rows, columns = x.shape
        conditions = (
            (rows > 3) ^ (columns > 3),
            (rows > 3) ^ False,
            True ^ (rows == columns),
        )
        return [torch.full((2,), torch.sym_ite(condition, rows, columns + 10)) for condition in conditions]


class Bits(torch.nn.Module):
    """The bits that differ, of two sizes, of a size and a number of either sign."""

    def forward(self, x):
        rows, columns = x.shape
        return [
            torch.full((2,), bits) for bits in (rows ^ columns, rows ^ 3, -2 ^ columns, (rows - 4) ^ True)
        ]


class Compared(torch.nn.Module):
    """Conditions on sizes beside numbers: True is 1, False is 0, and neither is another number."""

    def forward(self, x):
        rows, columns = x.shape
        tall = rows > 3
        conditions = (
            tall == (1 < 2),
            tall == 0,
            1.0 == tall,
            tall == columns,
            tall == 2,
            tall == (columns > 3),
        )
        return [torch.full((2,), torch.sym_ite(condition, rows, columns + 10)) for condition in conditions]


class Flagged(torch.nn.Module):
    """A branch on a boolean as a number, of a buffer or of the data."""

    def __init__(self, flag):
        super().__init__()
        self.register_buffer("flag", None if flag is None else torch.tensor(flag))

    def forward(self, x):
        flag = (x.sum() > 0) if self.flag is None else self.flag
        if flag.item() == 0:
            return x + 1
        return x * 2 if flag.item() in (1,) else x * 3


class Bytes(torch.nn.Module):
    """Choices by masks of bytes, which need not be 0 and 1."""

    def forward(self, x, mask):
        mask = mask.byte() * 2
        wide = torch.where(mask[:, None], x.unsqueeze(1), 0.0)
        return torch.where(mask, x, -x), x.where(mask, 1.0), x.where(condition=mask[:1], other=x * 2), wide


class TestConditions(ExporterTestCase):
    SHAPES = {"x": {2: "height", 3: "width"}}

    def test_the_short_and_the_long_side(self):
        x = torch.randn(1, 3, 9, 12)
        others = [(torch.randn(1, 3, 8, 8),), (torch.randn(1, 3, 10, 25),)]
        for is_short in (True, False):
            with self.subTest(is_short=is_short):
                self.export_and_compare(Resized(is_short), (x,), others=others, dynamic_shapes=self.SHAPES)

    def test_conditions_of_two_sizes(self):
        others = [(torch.randn(*sizes),) for sizes in ((5, 5), (2, 3), (5, 2), (3, 4))]
        self.export_and_compare(
            Numbers(), (torch.randn(2, 6),), others=others, dynamic_shapes={"x": {0: "rows", 1: "columns"}}
        )

    def test_bits_of_sizes(self):
        others = [(torch.randn(*sizes),) for sizes in ((5, 5), (2, 3), (12, 7), (3, 4))]
        shapes = {"x": {0: "rows", 1: "columns"}}
        for strict in (False, True):
            options = ExportOptions(strict=strict)
            self.export_and_compare(
                Bits(), (torch.randn(2, 6),), others=others, dynamic_shapes=shapes, export_options=options
            )
        with self.assertRaisesRegex(CaptureError, "xor"):
            to_onnx(
                Bits(),
                (torch.randn(2, 6),),
                dynamic_shapes=shapes,
                export_options=ExportOptions(patches=False),
            )

    @unittest.skipIf(numbers(torch.__version__) >= numbers("2.14"), "torch 2.14 captures it")
    def test_refused_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "unsupported operand"):
            to_onnx(
                Resized(True),
                (torch.randn(1, 3, 9, 12),),
                dynamic_shapes=self.SHAPES,
                export_options=ExportOptions(patches=False),
            )

    def test_conditions_as_numbers(self):
        others = [(torch.randn(*sizes),) for sizes in ((5, 5), (2, 1), (5, 2), (3, 4))]
        self.export_and_compare(
            Compared(), (torch.randn(2, 6),), others=others, dynamic_shapes={"x": {0: "rows", 1: "columns"}}
        )

    def test_a_boolean_as_a_number(self):
        """torch.export takes it for another one than 0 and 1, without a word."""
        for flag, written in ((True, "Mul"), (False, "Add")):
            with self.subTest(flag):
                model = self.export_and_compare(Flagged(flag), (torch.ones(3),))
                self.assertEqual([written], [node.op_type for node in model.graph.node])
        for strict in (False, True):
            with self.subTest(strict=strict), self.assertRaisesRegex(CaptureError, "data-dependent"):
                to_onnx(Flagged(None), (torch.ones(3),), export_options=ExportOptions(strict=strict))

    def test_other_operands_are_refused(self):
        class Mixed(torch.nn.Module):
            def forward(self, x):
                return x + ((x.shape[0] > 3) ^ "a")

        with self.assertRaisesRegex(CaptureError, "unsupported operand"):
            to_onnx(Mixed(), (torch.randn(2, 6),), dynamic_shapes={"x": {0: "rows"}})

    def test_bytes(self):
        def call(rows):
            return torch.randn(rows, 3), torch.randn(rows, 3) > 0

        shapes = {"x": {0: "rows"}, "mask": {0: "rows"}}
        with self.assertWarnsRegex(UserWarning, "uint8 condition"):  # eager's
            self.export_and_compare(Bytes(), call(4), others=[call(2), call(7)], dynamic_shapes=shapes)
        options = ExportOptions(tracing="make_fx")
        self.export_and_compare(Bytes(), call(4), dynamic_shapes=shapes, export_options=options)
        with self.assertRaisesRegex(CaptureError, "predicate to be bool"):
            to_onnx(Bytes(), call(4), export_options=ExportOptions(patches=False))

    def test_numbers_or_zero(self):
        class Counted(torch.nn.Module):
            def forward(self, index):
                size = index.max().item() + 1
                return torch.bincount(index, minlength=size or 0)

        class Asked(torch.nn.Module):
            def forward(self, index):
                size = index.max().item()
                return index + (1 if size or 0 else 2)

        indices = [torch.tensor(values) for values in ([0, 2, 1], [0], [4, 4, 0, 1])]
        shapes = {"index": {0: "count"}}
        for index in indices:
            self.export_and_compare(
                Counted(), (index,), others=[(other,) for other in indices], dynamic_shapes=shapes
            )
        for model, options in ((Counted(), ExportOptions(patches=False)), (Asked(), None)):
            with self.assertRaisesRegex(CaptureError, "data-dependent"):
                to_onnx(model, indices[:1], dynamic_shapes=shapes, export_options=options)

    def test_the_code_of_a_number_or_zero(self):
        class Number:
            def __bool__(self):
                frame = sys._getframe(1)
                asked.append(conditions.is_or_zero(frame.f_code, frame.f_lasti))
                return False

        def values(n):
            return [n or 0, abs(n or 0), (n or 0) + 1]

        def others(n):
            for _ in range(1):
                if not n:
                    return n or 1, n or 0.0, n or False, n and 0, (n or 0) and 3, 0 if n or 0 else 1
            return 0

        def left(n):
            for _ in range(1):
                if not n:
                    return 0

        for function, expected in ((values, True), (others, False), (left, False)):
            asked = []
            function(Number())
            self.assertEqual({expected}, set(asked))


if __name__ == "__main__":
    unittest.main()
