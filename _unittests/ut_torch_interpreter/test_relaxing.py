"""Dims whose promises torch.export cannot prove: the model is that of all sizes where they hold, and refused where they do not."""

from __future__ import annotations

import unittest
import unittest.mock

import torch
import torch.nn.functional as F
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.export_options import CapturedOnce
from experimental_experiment.versions import numbers

X = torch.arange(48.0).reshape(8, 6).sin()
ROWS, COLUMNS = Dim("rows"), Dim("columns", max=4096)


def rows(*sizes: int) -> list[tuple]:
    """Other arguments than those of the example."""
    return [(torch.arange(6.0 * size).reshape(size, 6).cos(),) for size in sizes]


def in_windows(x):
    """Windows of four rows, the last one filled up."""
    size = x.shape[0]
    padding = (4 - size % 4) % 4
    windows = F.pad(x, (0, 0, 0, padding)).view((size + padding) // 4, 4, 6)
    return (windows - windows.amax(1, keepdim=True)).reshape(size + padding, 6)[:size] * 2


def halves_and_thirds(function, x, y):
    """What a function makes of half of the rows of *x* and a third of those of *y*; their number goes into it."""
    rows = function(x[: x.shape[0] // 2], y[: y.shape[0] // 3])
    return rows.sum(0) / rows.shape[0]


class TestDims(ExporterTestCase):
    """torch.export refuses each of these for ``Dim("rows")``."""

    PROVEN = {
        "a half": lambda x: x[: x.shape[0] // 2],
        "the other half": lambda x: x[x.shape[0] // 2 :],
        "the middle": lambda x: x[x.shape[0] // 2],
        "every second row": lambda x: x[::2],
        "differences": lambda x: x[1:] - x[:-1],
        "even rows": lambda x: x[: x.shape[0] // 2 * 2].view(-1, 2, 6),
        "padded to multiples": lambda x: F.pad(x, (0, 0, 0, -x.shape[0] % 4)).view(-1, 4, 6),
        "padded to multiples and cut again": in_windows,
        "a median": lambda x: x.sort(0)[0][(x.shape[0] - 1) // 2],
        "parts": lambda x: x.split([x.shape[0] // 2, x.shape[0] - x.shape[0] // 2])[1],
        "a spectrum": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0) * 2, n=x.shape[0], dim=0),
        "a multiple": lambda x: x.view(-1, 4),
    }
    POOLS = {
        "a pool": lambda x: F.avg_pool1d(x.T, 2),
        "a pool and back": lambda x: F.interpolate(F.max_pool1d(x.T[None], 2), size=x.shape[0]),
    }

    def test_of_all_sizes(self):
        for promise, function in self.PROVEN.items():
            with self.subTest(promise), self.assertNoLogs("experimental_experiment", "WARNING"):
                others = rows(12, 24) if promise == "a multiple" else rows(12, 5, 7)
                self.export_and_compare(function, (X,), others=others, dynamic_shapes=({0: ROWS},))

    @unittest.skipIf(
        numbers(torch.__version__) < numbers("2.13"), "torch 2.9 asks whether a pool leaves rows"
    )
    def test_pools_of_all_sizes(self):
        for promise, function in self.POOLS.items():
            with self.subTest(promise), self.assertNoLogs("experimental_experiment", "WARNING"):
                self.export_and_compare(function, (X,), others=rows(12, 5, 7), dynamic_shapes=({0: ROWS},))

    def test_captures_of_other_kinds(self):
        half = lambda x: x[: x.shape[0] // 2]
        for options in (ExportOptions(strict=True), ExportOptions(tracing="make_fx")):
            with self.subTest(options=options):
                self.export_and_compare(
                    half, (X,), others=rows(5), dynamic_shapes=({0: ROWS},), export_options=options
                )

    def test_one_size_of_two_tensors(self):
        """The second capture gives each tensor a size of its own, of one name."""
        halves = lambda x, y: (x + y)[::2]
        model = self.export_and_compare(
            halves,
            (X, X + 1),
            others=[(*rows(5)[0], *rows(5)[0])],
            dynamic_shapes=({0: ROWS}, {0: ROWS}),
        )
        names = [value.type.tensor_type.shape.dim[0].dim_param for value in model.graph.input]
        self.assertEqual(["rows", "rows"], names)

    def test_a_size_twice_another_one(self):
        """Eager takes no others."""
        halves = lambda x, y: torch.stack([x[::2], y]).sum(0)
        shapes = ({0: ROWS}, {0: Dim("other")})
        others = [(*rows(size)[0], *rows((size + 1) // 2)[0]) for size in (5, 12)]
        self.export_and_compare(halves, (X, X[:4]), others=others, dynamic_shapes=shapes)

    def test_sizes_that_are_derived(self):
        n = Dim("n", min=2, max=64)
        for promise, function, derived, sizes in (
            ("one more", lambda x, y: (x + y[1:])[::2], n + 1, lambda size: size + 1),
            (
                "twice",
                lambda x, y: x[::2].sum(0) + (x + y[: x.shape[0]] + y[::2]).sum(0),
                2 * n,
                lambda size: 2 * size,
            ),
            (
                "twice, and nothing asks for it",
                lambda x, y: (x[::2], y[: y.shape[0] // 2]),
                2 * n,
                lambda size: 2 * size,
            ),
        ):
            example, *others = [(torch.randn(size, 6), torch.randn(sizes(size), 6)) for size in (8, 5, 12)]
            with self.subTest(promise):
                self.export_and_compare(
                    function, example, others=others, dynamic_shapes=({0: n}, {0: derived})
                )

    def test_bounds_that_are_declared(self):
        """The second capture knows them, and so does what judges any other."""
        longest = Dim("n", max=20)
        short = lambda x: x[::2] if x.shape[0] <= 20 else x
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(short, (X,), others=rows(5, 20), dynamic_shapes=({0: longest},))
            to_onnx(
                lambda x: x * 2 if x.shape[0] < 20 else x, (X,), dynamic_shapes=({0: Dim.DYNAMIC(max=9)},)
            )
        for others in ({0: Dim("n", max=21)}, {0: ROWS}):
            with self.assertRaisesRegex(CaptureError, "Constraints violated"):
                to_onnx(short, (X,), dynamic_shapes=(others,))

    def test_numbers_beside_sizes(self):
        """A number may be 0 or 1, unlike the sizes that torch.export takes for possible."""

        class Scaled(torch.nn.Module):
            def forward(self, x, number: int):
                return x[::2] * 2 if number >= 2 else x

        shapes = ({0: ROWS}, Dim.DYNAMIC)
        with self.assertRaisesRegex(CaptureError, "Constraints violated"):
            to_onnx(Scaled(), (X, 5), dynamic_shapes=shapes)
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(Scaled(), (X, 5), dynamic_shapes=({0: ROWS}, Dim("number", min=2)))

    def test_a_size_that_torch_may_choose(self):
        sums = lambda x, y: (x[::2], y + torch.ones(8, 6))
        model = to_onnx(sums, (X, X), dynamic_shapes=({0: ROWS}, {0: Dim.AUTO}))
        sizes = [value.type.tensor_type.shape.dim[0] for value in model.graph.input]
        self.assertEqual(["rows", 8], [size.dim_param or size.dim_value for size in sizes])

    def test_keywords_in_another_order(self):
        class Parts(torch.nn.Module):
            def forward(self, *, x, y):
                return x[::2].sum(1), y[: y.shape[0] // 2]

        model = to_onnx(
            Parts(), (), {"y": X, "x": X[:5]}, dynamic_shapes={"x": {0: ROWS}, "y": {0: Dim("other")}}
        )
        names = {v.name: v.type.tensor_type.shape.dim[0].dim_param for v in model.graph.input}
        self.assertEqual({"x": "rows", "y": "other"}, names)

    def test_sizes_from_two_on(self):
        """As for Dims that torch.export takes: what only a size of 1 contradicts is a warning, none where the Dim leaves it out."""
        chunks = lambda x: x.chunk(2)[0]
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            self.export_and_compare(chunks, (X,), others=rows(5), dynamic_shapes=({0: ROWS},))
        self.assertIn("rows", logs.output[0])
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(chunks, (X,), dynamic_shapes=({0: Dim("rows", min=2)},))

    BOUNDS = {
        "n - 5 >= 0": lambda x: x[x.shape[0] - 5 :],
        "n - 4 >= 0": lambda x: x[: x.shape[0] - 4],
        r"-\(\(n//3\)\) < 0": lambda x: x[-(x.shape[0] // 3) :],
        r"\(\(n//2\)\) - 2 >= 0": lambda x: x[: x.shape[0] // 2 - 2],
        r"\(n//2\) >= 2": lambda x: x[2 : x.shape[0] // 2],
        r"\(\(n//2\)\) \+ 1 >= n - 5": lambda x: x[x.shape[0] - 5 : x.shape[0] // 2 + 1],
    }

    def test_bounds_that_may_be_on_the_other_side(self):
        """``x[n - 5:]`` is counted from the end for 4 rows; the program has ``5`` rows, and torch.export says so of Dims."""
        for condition, part in self.BOUNDS.items():
            function = lambda x, part=part: part(x).sum(0) / part(x).shape[0]
            with self.subTest(condition):
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    to_onnx(function, (X,), dynamic_shapes=({0: "n"},))
                self.assertRegex(logs.output[0], condition)
                with self.assertRaisesRegex(CaptureError, "Constraints violated|Expected op|AssertionError"):
                    to_onnx(function, (X,), dynamic_shapes=({0: ROWS},))
        least = Dim("n", min=6)
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(
                lambda x: x[x.shape[0] - 5 :][::2] + x[3:-2].sum(),
                (X,),
                others=rows(6, 12),
                dynamic_shapes=({0: least},),
            )

    def test_bounds_that_lie_beyond(self):
        """No row of 8, two of 4: asked of each run, but not in a program that torch.export has captured by itself."""

        class Part(torch.nn.Module):
            def forward(self, x):
                return x[: 6 - 2 * x.shape[0]] * 2

        program = torch.export.export(Part(), (X,), dynamic_shapes=({0: Dim.DYNAMIC},))
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(program)
        self.assertRegex(logs.output[0], r"6 - 2\*x.shape\[0\] < -x.shape\[0\]")

    HALVES = {
        "a sum": lambda x, y: halves_and_thirds(torch.add, x, y),
        "a choice": lambda x, y: halves_and_thirds(lambda a, b: torch.where(a > 0, b, 1.0), x, y),
        "an expansion": lambda x, y: halves_and_thirds(lambda a, b: a.expand(b.shape[0], 6), x, y),
    }

    def test_computed_sizes_that_are_equal_in_the_example(self):
        """Eager repeats one row for several: 3 // 2 for 9 // 3. What raises for all other sizes, as a product does, tells nothing."""
        example = X, X[:6].repeat(2, 1)
        for promise, function in self.HALVES.items():
            with self.subTest(promise):
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    to_onnx(function, example, dynamic_shapes=({0: "n"}, {0: "m"}))
                self.assertRegex(logs.output[0], r"\(n//2\) == \(m//3\)|\(m//3\) == \(n//2\)")
                self.assertEqual(1, logs.output[0].count(" == "))
                with self.assertRaisesRegex(CaptureError, "Constraints violated"):
                    to_onnx(function, example, dynamic_shapes=({0: ROWS}, {0: Dim("other")}))
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(
                lambda x, y: halves_and_thirds(lambda a, b: a.T @ b, x, y),
                example,
                others=[(X[:5], X[:6])],
                dynamic_shapes=({0: ROWS}, {0: Dim("other")}),
            )

    REFUSED = {
        "a branch": (lambda x: x[::2] if x.shape[0] > 4 else x, (X,), ({0: ROWS},)),
        "rows that may be too few": (lambda x: x[3:] - x[:-3], (X,), ({0: ROWS},)),
        "a size that another one fixes": (lambda x: x[::2] + torch.ones(4, 6), (X,), ({0: ROWS},)),
        "two names of one size": (lambda x, y: (x + y)[::2], (X, X), ({0: ROWS}, {0: Dim("other")})),
    }

    def test_refused(self):
        for promise, (function, args, shapes) in self.REFUSED.items():
            with self.subTest(promise), self.assertNoLogs("experimental_experiment", "WARNING"):
                with self.assertRaisesRegex(CaptureError, "Constraints violated|Expected op|AssertionError"):
                    to_onnx(function, args, dynamic_shapes=shapes)

    def test_what_the_example_decides_is_no_proof(self):
        """A capture that goes on with one of two sizes only because it is the smaller one in the example."""
        captured, calls = ExportOptions.captured, []

        def refused_twice(self, *asked):
            program = captured(self, *asked)
            calls.append(program)
            if len(calls) < 3:
                raise CaptureError("Constraints violated")
            return program

        function = lambda x, y: x[:, : y.shape[0]] * 2
        with unittest.mock.patch.object(ExportOptions, "captured", refused_twice):
            with self.assertRaisesRegex(CaptureError, "Constraints violated"):
                to_onnx(function, (X, X[0, :4]), dynamic_shapes=({1: COLUMNS}, {0: ROWS}))
        self.assertEqual(3, len(calls))

    def test_a_capture_for_several_uses_keeps_it(self):
        once = CapturedOnce(ExportOptions())
        for _ in range(2):
            to_onnx(lambda x: x[::2], (X,), dynamic_shapes=({0: ROWS},), export_options=once)
            self.assertIsInstance(once.program, torch.export.ExportedProgram)


if __name__ == "__main__":
    unittest.main()
