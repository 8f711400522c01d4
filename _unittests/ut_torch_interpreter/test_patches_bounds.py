"""Slices whose bounds the example does not reach."""

import unittest
import unittest.mock

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx


class Kept(torch.nn.Module):
    """Slices that keep a part of an axis, as tokens, caches and boxes are cut to a number of them."""

    def forward(self, x):
        steps = x[:, ::2]
        return (
            x[:, :8],
            x[:, -8:] * 2,
            x[:, 8:].sum(1),
            x[:, 2:8].reshape(-1),
            x[:, -8:-2] + 1,
            x[:, -8:8] + 1,
            steps[:, :5].cumsum(1),
            torch.cat([x, x], 1)[:, -11:],
            torch.arange(x.shape[1])[:9] + x.shape[1],
            x.tensor_split([8], 1)[1] + 1,
        )


class Written(torch.nn.Module):
    """Slices that are written."""

    def forward(self, x):
        first, last, rest, middle = (x.clone() for _ in range(4))
        first[:, :8] = 0
        last[:, -8:] += 1
        rest[:, 8:] = 2
        middle[:, 2:10] *= 2
        return first, last, rest, middle


class UpToSizes(torch.nn.Module):
    """One size cuts another one."""

    def forward(self, x, y):
        return x[:, : y.shape[1]] + 1, x[:, -y.shape[1] :] + 1, y[:, x.shape[1] :].sum(1)


class CutBySizes(torch.nn.Module):
    """What is made of a part whose length is another size: read, written, counted."""

    def forward(self, x, y):
        size = y.shape[0]
        first, last = x.clone(), x.clone()
        first[:, :size] = 1
        last[:, -size:] = 2
        part = x[:, :size]
        mean = part.sum(1) / part.shape[1]
        return (
            first,
            last,
            part,
            mean,
            torch.zeros_like(part),
            part.argsort(1),
            x[:, size:].shape[1] * y,
            x[:, 1:size],
        )


class UpToNumber(torch.nn.Module):
    """A number among the inputs cuts a size."""

    def forward(self, x, n):
        return x[:, :n] + 1, x[:, -n:] + 1


class TestBounds(ExporterTestCase):
    SHAPES = ({0: "batch", 1: "tokens"},)

    def test_any_size(self):
        """The example is shorter than the bounds, or as long as one."""
        calls = [(torch.randn(rows, tokens),) for rows in (2, 3) for tokens in (4, 5, 7, 8, 9, 12, 20)]
        for example in calls[1:3]:
            self.export_and_compare(Kept(), example, others=calls, dynamic_shapes=self.SHAPES)
        for tokens in (5, 8):
            example = (torch.randn(2, tokens),)
            self.export_and_compare(Written(), example, others=calls, dynamic_shapes=self.SHAPES)

    def test_strict_and_make_fx(self):
        calls = [(torch.randn(2, tokens),) for tokens in (5, 12, 8, 3)]
        for options in (ExportOptions(strict=True), ExportOptions(tracing="make_fx")):
            self.export_and_compare(
                lambda x: x[:, :8] * 2,
                calls[0],
                others=calls[1:],
                dynamic_shapes=({1: "tokens"},),
                export_options=options,
            )

    def test_example_that_is_as_long(self):
        """torch.export keeps the size at the bound."""
        example, options = (torch.randn(2, 8),), {"dynamic_shapes": ({1: "tokens"},)}
        self.export_and_compare(
            lambda x: x[:, :8] * 2, example, others=[(torch.randn(2, 12),), (torch.randn(2, 3),)], **options
        )
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(lambda x: x[:, :8] * 2, example, export_options=ExportOptions(patches=False), **options)

    def test_sizes_that_cut_sizes(self):
        others = [(torch.randn(2, n), torch.randn(2, m)) for n, m in ((5, 9), (9, 9), (4, 12), (2, 3))]
        shapes = ({1: "n"}, {1: "m"})
        example = torch.randn(2, 5), torch.randn(2, 7)
        self.export_and_compare(UpToSizes(), example, others=others, dynamic_shapes=shapes)

    def test_sizes_of_the_example_decide_nothing(self):
        """Which of two sizes is the smaller one, or that they are equal, is asked of each run."""
        sizes = ((7, 3), (3, 7), (5, 5), (2, 5), (5, 2), (4, 4))
        others = [(torch.randn(4, n), torch.randn(m)) for n, m in sizes]
        for n, m in ((6, 3), (3, 6), (5, 5)):
            with self.subTest(n=n, m=m):
                example, shapes = (torch.randn(2, n), torch.randn(m)), ({0: "rows", 1: "n"}, {0: "m"})
                self.export_and_compare(CutBySizes(), example, others=others, dynamic_shapes=shapes)

    def test_skip_connection(self):
        """What is cut to the size of what it is added to is a Slice, also where nothing is cut in the example."""
        others = [(torch.randn(2, n), torch.randn(2, m)) for n, m in ((9, 8), (8, 8), (5, 2))]
        for n in (9, 8):
            with self.subTest(n):
                example, shapes = (torch.randn(2, n), torch.randn(2, 8)), ({1: "n"}, {1: "m"})
                model = self.export_and_compare(
                    lambda x, y: x[:, : y.shape[1]] + y,
                    example,
                    others=others,
                    dynamic_shapes=shapes,
                    target_opset=20,
                )
                self.assertEqual(["Shape", "Slice", "Add"], [node.op_type for node in model.graph.node])

    def test_related_dimensions(self):
        """torch.export solves no constraint with the smaller one of two sizes: of Dims the example tells, and torch proves it."""
        n = torch.export.Dim("n", min=1, max=100)
        example, others = (
            (torch.randn(4, 3), torch.randn(8, 3)),
            [(torch.randn(n, 3), torch.randn(2 * n, 3)) for n in (9, 3)],
        )
        for function in (
            lambda x, y: y[: x.shape[0]] + x,
            lambda x, y: y[x.shape[0] - 1 :] * 2,
            lambda x, y: y[: x.shape[0] + 3] * 2,
        ):
            self.export_and_compare(function, example, others=others, dynamic_shapes=({0: n}, {0: 2 * n}))

    def test_the_example_tells_where_torch_does_not_go_on(self):
        captured, calls = ExportOptions.captured, []

        def refused_once(self, *asked):
            program = captured(self, *asked)
            calls.append(program)
            if len(calls) == 1:
                raise CaptureError("torch does not go on")
            return program

        example, function = (torch.randn(2, 5), torch.randn(5)), lambda x, y: x[:, : y.shape[0]] * 2
        with (
            unittest.mock.patch.object(ExportOptions, "captured", refused_once),
            self.assertLogs("experimental_experiment", "WARNING") as logs,
        ):
            model = to_onnx(function, example, dynamic_shapes=({1: "n"}, {0: "m"}))
        self.assertRegex(
            logs.output[0],
            "takes a size that cuts another one for the smaller one, or both for equal, as they are in the example: torch.export does not capture it otherwise",
        )
        self.assertEqual(["Mul"], [node.op_type for node in model.graph.node])
        calls.clear()
        with (
            unittest.mock.patch.object(ExportOptions, "captured", refused_once),
            self.assertRaises(CaptureError),
        ):
            to_onnx(lambda x: x * 2, (torch.randn(2, 5),), dynamic_shapes=({1: "n"},))

    def test_numbers_that_cut_sizes(self):
        others = [(torch.randn(2, n), number) for n, number in ((9, 5), (9, 12), (4, 4))]
        shapes = ({1: "n"}, torch.export.Dim.DYNAMIC)
        self.export_and_compare(UpToNumber(), (torch.randn(2, 4), 7), others=others, dynamic_shapes=shapes)

    def test_names_of_sizes(self):
        """The result is not said to have the size of the input, and the slice is written."""
        model = to_onnx(lambda x: x[:, :8], (torch.randn(2, 5),), dynamic_shapes=({1: "tokens"},))
        self.assertEqual([node.op_type for node in model.graph.node], ["Slice"])
        sizes = [
            size.dim_param or size.dim_value for size in model.graph.output[0].type.tensor_type.shape.dim
        ]
        self.assertEqual(sizes, [2, "Min(8, tokens)"])

    def test_warning_without_the_patch(self):
        options = ExportOptions(patches=False)
        for function in (lambda x: x[:, :8], lambda x: x[:, -8:], lambda x: x[:, 2:8] + 1):
            with self.assertLogs("experimental_experiment", "WARNING") as logged:
                to_onnx(
                    function, (torch.randn(2, 5),), dynamic_shapes=({1: "tokens"},), export_options=options
                )
            self.assertIn("those of sizes where\n  tokens <= 8\n", logged.output[0])
        for function in (lambda x: x[:, :-1], lambda x: x[:, 1:], lambda x: x[:, :8]):
            with self.assertNoLogs("experimental_experiment", "WARNING"):
                to_onnx(function, (torch.randn(2, 5),), dynamic_shapes=({1: "tokens"},))


if __name__ == "__main__":
    unittest.main()
