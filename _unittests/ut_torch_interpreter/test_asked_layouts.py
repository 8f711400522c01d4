"""Questions about the layout of memory: told where torch answers otherwise for other sizes, and the model does something else then."""

import unittest

import torch
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.randn(3, 4)
IMAGES = torch.randn(2, 3, 4, 5)
N = ({0: "n"},)
SIZES = ({0: "n", 1: "c", 2: "h", 3: "w"},)
OPTIONS = (None, ExportOptions(strict=True), ExportOptions(tracing="make_fx"))


def transposed(x):
    y = x.t()
    return y + 1 if y.is_contiguous() else y * 2  # line


def columns(x):
    y = x[:, :2]
    flag = y.is_contiguous()  # line
    return y + 1 if flag else y * 2


def channels_behind(x):
    y = x.permute(0, 2, 3, 1)
    return y + 1 if y.is_contiguous() else y * 2  # line


def channels_last(x):
    return x + 1 if x.is_contiguous(memory_format=torch.channels_last) else x * 2  # line


def so_many_columns(x, z):
    y = x[:, : z.shape[0]]
    return y + 1 if y.is_contiguous() else y * 2  # line


def contiguous(x):
    y = x.t()
    if not y.is_contiguous():
        y = y.contiguous()
    z = x.t()
    z = z if z.is_contiguous() else z.contiguous()
    return y + z


def contiguous_or_nothing(x):
    y = x.t()
    assert not y.is_contiguous()
    if y.is_contiguous():
        raise ValueError("one row")
    return y + 1


def always_contiguous(x):
    return x + 1 if x.is_contiguous() else x * 2


def of_three_axes(x):
    return x + 1 if x.is_contiguous(memory_format=torch.channels_last) else x * 2


class TestQuestionsOfLayouts(ExporterTestCase):
    TOLD = [
        (transposed, (X,), N, ["n != 1"]),
        (columns, (X,), N, ["n != 1"]),
        (channels_behind, (IMAGES,), SIZES, ["c != 1", "h != 1 or w != 1"]),
        (channels_last, (IMAGES,), SIZES, ["c != 1", "h != 1 or w != 1"]),
        (channels_last, (IMAGES,), ({2: "h"},), []),
    ]

    def lines(self, model, args, shapes, **options):
        """What is told, and whether each of it comes with the line that asks."""
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(model, args, dynamic_shapes=shapes, **options)
        (record,) = logs.records
        first, *lines = record.getMessage().splitlines()
        self.assertEqual("the model holds the branches that the example took, those of sizes where", first)
        self.assertTrue(all(line.endswith("# line") for line in lines[2::3]), lines)
        return [line.strip() for line in lines[::3]]

    def test_what_is_told(self):
        for options in OPTIONS:
            for model, args, shapes, expected in self.TOLD:
                with self.subTest(model.__name__, shapes=shapes, options=options):
                    if expected:
                        found = self.lines(model, args, shapes, export_options=options)
                        self.assertEqual(expected, sorted(found))
                    else:
                        with self.assertNoLogs("experimental_experiment", "WARNING"):
                            to_onnx(model, args, dynamic_shapes=shapes, export_options=options)

    def test_an_answer_of_two_sizes(self):
        shapes = ({0: "n", 1: "m"}, {0: "k"})
        found = self.lines(so_many_columns, (X, torch.randn(2)), shapes)
        self.assertEqual(["m != Min(k, m)", "n != 1"], sorted(found))
        found = self.lines(so_many_columns, (X, torch.randn(4)), shapes)
        self.assertEqual(["m == Min(k, m) or n == 1"], found)

    def test_what_changes_nothing(self):
        """A copy, what raises, an answer that is the same for all sizes that are allowed."""
        for options in OPTIONS:
            for model, args, shapes in (
                (contiguous, (X,), N),
                (contiguous_or_nothing, (X,), N),
                (always_contiguous, (X,), N),
                (of_three_axes, (IMAGES[0],), N),
                (transposed, (X,), None),
                (transposed, (X,), ({0: Dim("n", min=2)},)),
            ):
                with (
                    self.subTest(model.__name__, shapes=shapes, options=options),
                    self.assertNoLogs("experimental_experiment", "WARNING"),
                ):
                    to_onnx(model, args, dynamic_shapes=shapes, export_options=options)


if __name__ == "__main__":
    unittest.main()
