"""What the example decided: branches on sizes are warned about with their line, pinned sizes are static."""

import importlib
import math
import unittest

import torch
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.assumptions.decisions import Decisions, example_of
from experimental_experiment.torch_interpreter.assumptions.judging import environment_of, judge
from experimental_experiment.torch_interpreter.signature import program_of

X = torch.randn(3, 4)


class Function(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def sizes(model):
    """The sizes of the inputs, in order."""
    return [
        tuple(dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim)
        for info in model.graph.input
    ]


def branch(x):
    if x.shape[0] == 1:  # the branch
        return x + 1
    return x * 2


def unless_large(x):
    return x + 1 if x.shape[0] > 10 else x * 2  # the branch


def when_even(x):
    return x + 1 if x.shape[0] % 2 == 0 else x * 2  # the branch


def when_equal(x, y):
    return x.sum() + y.sum() if x.shape[0] != y.shape[0] else x + y  # the branch


def in_one_block(x):
    return x + 1 if (x.shape[0] + 7) // 8 == 1 else x * 2  # the branch


def by_area(x):
    return x + 1 if x.shape[0] * x.shape[1] == 12 else x * 2  # the branch


def by_step(x):
    return torch.cumulative_trapezoid(x, dx=1 / x.shape[0])  # the branch


def by_both(x, y):
    return torch.pairwise_distance(x, y, eps=2 / x.shape[0])  # the branch


def by_quarters(x):
    y = x.view(-1, 4).transpose(0, 1).reshape(-1) + 1
    return y * 2 if y.shape[0] // 4 == 1 else y * 3  # the branch


def in_one_half(x, flag):
    y = torch.cond(flag, lambda x: x.view(-1, 2).sum(), lambda x: x.sum(), (x,))
    return x * y if x.shape[0] % 2 == 0 else x - y  # the branch


def by_patches(x, weight):
    y = torch.nn.functional.conv2d(x, weight, stride=6).flatten(2)
    return y * 2 if y.shape[2] + 1 > 1 else y


def in_rows(x):
    return (x.view(-1, 4, 6).transpose(1, 2) + 1).reshape(-1, 24) * 2


def in_halves(x, y):
    return x + 1 if torch.cat([y, y]).shape[0] // x.shape[0] == 2 else x * 2


def squeezed(x):
    return x.squeeze(0)


class SqueezedRows(torch.nn.Module):
    def forward(self, x):
        return x.squeeze((0, 1))  # the squeeze


class SqueezedPositives(torch.nn.Module):
    def forward(self, x):
        return x[x > 0].squeeze()  # the squeeze


class SqueezedInBranch(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.squeeze().exp(), lambda x: x.exp(), (x,))


class SlicedRows(torch.nn.Module):
    def __init__(self, *rows):
        super().__init__()
        self.rows = slice(*rows)

    def forward(self, x):
        return x[self.rows].shape[0] + x  # the slice


class TestBranches(ExporterTestCase):
    ROWS = ({0: "batch"},)
    CASES = {
        "batch != 1": (branch, (X,), ROWS),
        "batch <= 10": (unless_large, (X,), ROWS),
        r"\(batch % 2\) == 1|\(batch % 2\) != 0": (when_even, (X,), ROWS),
        r"\(\(batch \+ 7\)//8\) == 1": (in_one_block, (X,), ROWS),
        "left != right": (when_equal, (X, X[:2]), ({0: "left"}, {0: "right"})),
        "left == right": (when_equal, (X, X), ({0: "left"}, {0: "right"})),
        r"\(1 / batch\) == 0\.33+": (by_step, (X,), ROWS),
        r"\(2 / batch\) == 0\.66+": (by_both, (X, X), ROWS * 2),  # torch finds that both have one size
        r"batch\*width == 12": (by_area, (X,), ({0: "batch", 1: "width"},)),
        # what torch's operators ask of the example before tells nothing about other sizes
        r"\(batch//4\) != 1": (by_quarters, (torch.randn(16),), ROWS),
        r"\(batch % 2\) == 0": (in_one_half, (torch.randn(4), torch.tensor(True)), ({0: "batch"}, None)),
    }

    def warning(self, function, args, dynamic_shapes, **options):
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(Function(function), args, dynamic_shapes=dynamic_shapes, **options)
        (record,) = logs.records
        return record.getMessage()

    def test_the_warning_names_the_sizes_and_the_line(self):
        for strict in (False, True):
            for condition, (function, args, dynamic_shapes) in self.CASES.items():
                with self.subTest(condition, strict=strict):
                    options = ExportOptions(strict=strict)
                    text = self.warning(function, args, dynamic_shapes, export_options=options)
                    first, second, place, code, *right = text.splitlines()
                    self.assertRegex("".join(right), r"^(  which are batch: [\w ,.]+)?$")
                    self.assertEqual(
                        "the model holds the branches that the example took, those of sizes where", first
                    )
                    self.assertRegex(second, f"^  ({condition})$")
                    self.assertRegex(place, r'^  File ".*test_decisions\.py", line \d+, in ')
                    self.assertRegex(code, r"# the branch$")

    def test_the_warning_tells_the_sizes_that_are_right(self):
        def in_blocks(x):
            return torch.stack([x[i * 4 : i * 4 + 4].sum(0) for i in range(math.ceil((x.shape[0] - 2) / 4))])

        def of_a_fraction(x):
            return x * len([*range(math.ceil((x.shape[0] - 2) / 2.5))])

        def up_to_a_power(x):
            power = 1
            while power < x.shape[0]:
                power *= 2
            return x * power

        def of_both(x):
            return (x + 1 if x.shape[0] % 3 == 0 else x) * (2 if x.shape[1] > 5 and x.shape[1] < 9 else 3)

        cases = (
            (in_blocks, (7, 3), ("batch", None), "batch: 7 to 10", "[x[i * 4 : i * 4 + 4].sum(0)"),
            (of_a_fraction, (7, 3), ("batch", None), "batch: 5 to 7", "math.ceil(((batch - 2) / 2.5)) == 2"),
            (up_to_a_power, (7, 3), ("batch", None), "batch: 5 to 8", "while power < x.shape[0]:"),
            (of_both, (7, 6), (None, "width"), "width: 6 to 8", "width > 5"),
            (
                of_both,
                (7, 6),
                ("batch", None),
                "batch: 1 to 2, 4 to 5, 7 to 8, 10 to 11, ...",
                "(batch % 3) != 0",
            ),
            (of_both, (9, 6), ("batch", "width"), "batch: 3, 6, 9, 12, ...; width: 6 to 8", "width < 9"),
            (of_both, (7, 12), (None, "width"), "width: 9 to 4096 at least", "width >= 9"),
            (unless_large, (7, 12), ("batch", None), "", "batch <= 10"),
        )
        for function, shape, names, right, condition in cases:
            with self.subTest(right, condition=condition):
                dims = {axis: name for axis, name in enumerate(names) if name}
                text = self.warning(function, (torch.randn(shape),), (dims,))
                self.assertIn(condition, text)
                told = text.splitlines()[-1]
                self.assertEqual(f"  which are {right}" if right else told, told)
                self.assertTrue(right or "which are" not in text)

    def test_a_size_that_another_one_computes(self):
        """No axis has the size ``k`` itself."""
        halves = Function(lambda x: x + 1 if x.shape[0] > 100 else x * 2)
        for size, example, told in (
            (32 * Dim("k", min=1, max=64), 64, r"32\*k <= 100.*which are k: 1 to 3"),
            (2 * Dim("k", min=1, max=400), 64, r"2\*k <= 100.*which are k: 1 to 50"),
            (2 * Dim("k", min=1, max=400) + 1, 65, r"2\*k \+ 1 <= 100.*which are k: 1 to 49"),
        ):
            with self.subTest(told), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(halves, (torch.ones(example, 2),), dynamic_shapes=({0: size},))
            self.assertRegex(logs.output[0], f"(?s){told}")
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            blocks = Function(lambda x: x.reshape(-1, 16).sum(1))
            to_onnx(blocks, (torch.ones(64, 2),), dynamic_shapes=({0: 32 * Dim("k", min=1, max=64)},))

    def test_numbers_of_conditions(self):
        """What Python computes of a condition, or looks up, is the example's: in both modes it is told."""
        functions = {
            r"batch > 2": lambda x: x * ((x.shape[0] > 2) + 1),
            r"batch >= 2": lambda x: x * (not x.shape[0] < 2),
            r"batch > 1\n(.|\n)*  features > 3": lambda x: x * all([x.shape[0] > 1, x.shape[1] > 3]),
            r"\(batch % 2\) == 1": lambda x: x * [10, 20][x.shape[0] % 2],
        }
        shapes = ({0: "batch", 1: "features"},)
        for condition, function in functions.items():
            for strict in (False, True):
                options = ExportOptions(strict=strict)
                with (
                    self.subTest(condition, strict=strict),
                    self.assertLogs("experimental_experiment") as logs,
                ):
                    to_onnx(
                        Function(function),
                        (torch.randn(3, 4),),
                        dynamic_shapes=shapes,
                        export_options=options,
                    )
                self.assertRegex("".join(logs.output), f"sizes where\n  {condition}")

    def test_slices_of_a_checked_size(self):
        """Where `torch._check` raises nothing is sliced: no warning, but for what it does not tell."""

        def checked(least):
            def forward(x):
                torch._check(x.shape[0] >= least)
                return x[1:3].sum() + x

            return forward

        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(Function(checked(3)), (X,), dynamic_shapes=self.ROWS)
        text = self.warning(checked(2), (torch.randn(5, 3),), self.ROWS)
        self.assertIn("sizes where\n  batch >= 3\n", text)

    def test_slices_of_a_known_size(self):
        """torch takes every size for at least 2."""
        many = torch.randn(9, 3)
        for rows, least in (((0, 2), 2), ((1, 2), 2), ((-2, None), 2), ((0, 3), 3), ((1, 8, 3), 8)):
            with self.subTest(rows=rows), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(SlicedRows(*rows), (many,), dynamic_shapes=self.ROWS)
            (record,) = logs.records
            self.assertRegex(record.getMessage(), f"sizes where\n  batch >= {least}\n(.|\n)*# the slice$")
        enough = ({0: Dim("batch", min=2)},)
        for rows, shapes in (
            ((0, 1), self.ROWS),
            ((-1, None), self.ROWS),
            ((1, -1), self.ROWS),
            ((0, 2), enough),
        ):
            with self.subTest(rows=rows), self.assertNoLogs("experimental_experiment", "WARNING"):
                to_onnx(SlicedRows(*rows), (many,), dynamic_shapes=shapes)

    def test_slices_whose_step_is_a_size(self):
        """The first and the last row, as Kornia takes the corners of a grid: what they need of the size is not known."""
        self.export_and_compare(
            Function(lambda x: x[:: x.shape[0] - 1] + 1),
            (torch.randn(9, 3),),
            others=[(torch.randn(4, 3),), (torch.randn(2, 3),)],
            dynamic_shapes=self.ROWS,
        )

    def test_squeezes_that_keep_an_axis(self):
        for module, dynamic_shapes, condition, code in (
            (SqueezedRows(), ({0: "rows"},), "rows != 1", "# the squeeze"),
            (SqueezedRows(), ({0: Dim("rows", min=0)},), "rows != 1", "# the squeeze"),
            (SqueezedPositives(), None, "u0 != 1", "# the squeeze"),
            (SqueezedInBranch(), ({0: "rows"},), "rows != 1", ""),
        ):
            with (
                self.subTest(condition, module=module),
                self.assertLogs("experimental_experiment", "WARNING") as logs,
            ):
                to_onnx(module, (X,), dynamic_shapes=dynamic_shapes)
            (record,) = logs.records
            self.assertRegex(record.getMessage(), f"those of sizes where\n  {condition}\n(.|\n)*{code}$")

    def test_a_squeeze_of_a_program_that_was_captured_before(self):
        for dynamic_shapes, told in (
            (({0: Dim("rows")},), "rows != 1"),
            (({0: Dim.AUTO},), r"x.shape\[0\] != 1"),
        ):
            program = torch.export.export(SqueezedRows(), (X,), dynamic_shapes=dynamic_shapes)
            with self.subTest(told), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(program)
            (record,) = logs.records
            self.assertRegex(record.getMessage(), f"those of sizes where\n  {told}\n(.|\n)*# the squeeze$")
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(torch.export.export(SqueezedRows(), (X,)))

    def test_a_branch_that_holds_for_every_size(self):
        bounded = ({0: Dim("batch", min=2, max=9)},)
        for promise, function, args, dynamic_shapes in (
            ("declared larger than 1", branch, (X,), bounded),
            ("declared smaller", unless_large, (X,), bounded),
            ("squeezed, declared larger than 1", squeezed, (X,), bounded),
            ("squeezed, static", squeezed, (X[:1],), ({1: "width"},)),
            ("static", branch, (X,), None),
            ("one name", when_equal, (X, X + 1), ({0: Dim("batch")},) * 2),
            ("one name in a division", in_halves, (X, X + 1), ({0: "batch"},) * 2),
            ("min() is part of the program", lambda x: x[: min(x.shape[0], 5)], (X,), self.ROWS),
            ("of the operators themselves", lambda x: x.reshape(-1, 2), (X,), self.ROWS),
            (
                "positive, or a convolution raises",
                by_patches,
                (torch.randn(2, 3, 12, 18), torch.randn(4, 3, 6, 6)),
                ({2: "height", 3: "width"}, None),
            ),
            ("a multiple, or a view raises", in_rows, (torch.randn(8, 6),), self.ROWS),
            (
                "divided by a size that is 1 in the example",  # torch says that it may be 0
                lambda x, y: torch.chunk(torch.conv2d(torch.cat([x, y]), torch.ones(4, 3, 2, 2)), 2)[1],
                (torch.randn(1, 3, 4, 4), torch.randn(1, 3, 4, 4)),
                ({0: "batch"},) * 2,
            ),
            (
                "multiples, or a view raises",
                lambda x: torch.nn.functional.pixel_unshuffle(x, 2),
                (torch.randn(2, 3, 8, 6),),
                ({0: "batch", 2: "height", 3: "width"},),
            ),
        ):
            with self.subTest(promise), self.assertNoLogs("experimental_experiment", "WARNING"):
                to_onnx(Function(function), args, dynamic_shapes=dynamic_shapes)

    def test_a_size_without_a_name(self):
        self.assertIn("\n  x.shape[0] <= 10\n", self.warning(unless_large, (X,), ({0: Dim.DYNAMIC},)))

    def test_the_patch_is_gone(self):
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        before = ShapeEnv.evaluate_expr
        with self.assertRaises(ZeroDivisionError), Decisions().recorded():
            self.assertIsNot(before, ShapeEnv.evaluate_expr)
            raise ZeroDivisionError
        self.assertIs(before, ShapeEnv.evaluate_expr)


class TestInnerSizes(ExporterTestCase):
    """What is 1 inside of the model, for the example alone."""

    def test_strides(self):
        layers = [torch.nn.Conv2d(width, 4, 3, stride=4, padding=1) for width in (3, 4)]
        model = torch.nn.Sequential(layers[0], torch.nn.BatchNorm2d(4), layers[1], torch.nn.Flatten(2)).eval()
        with self.assertLogs("experimental_experiment", "INFO") as logs:
            written = self.export_and_compare(
                model,
                (torch.randn(2, 3, 16, 12),),
                others=[(torch.randn(1, 3, *sizes),) for sizes in ((17, 40), (5, 90), (64, 3))],
                dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
            )
        self.assertEqual({record.levelname for record in logs.records}, {"INFO"})
        self.assertIn("the model was captured twice", "".join(logs.output))
        size = written.graph.output[0].type.tensor_type.shape.dim[2]
        self.assertIn("height", size.dim_param)

    def test_rows_of_two(self):
        """``x[1:]`` has one row, in the example."""
        functions = (
            lambda x: x[1:],
            lambda x: x[1:] - x[:-1],
            lambda x: x.split([1, x.shape[0] - 1])[1].reshape(-1, 2),
            lambda x: torch.nn.functional.max_pool1d(x, 2)[1:].flatten(),
        )
        for number, function in enumerate(functions):
            for size in ("rows", Dim.AUTO):
                with self.subTest(number, size=size):
                    others = [(torch.randn(rows, 4, 4),) for rows in (3, 7)]
                    args = (torch.randn(2, 4, 4),)
                    self.export_and_compare(
                        Function(function), args, others=others, dynamic_shapes=({0: size},)
                    )

    def test_rows_of_two_that_are_two(self):
        """Where the general capture is refused, the error is that of the first one."""

        def forward(x):
            return x[1:] + x.view(2, -1)[:1]

        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(Function(forward), (torch.randn(2, 4),), dynamic_shapes=({0: "rows"},))

    def test_one_that_is_expanded(self):
        """The general program takes it for 5: it is that of the example, with a warning."""

        def by_steps(x):
            return x[::8] + torch.arange(5)

        def by_rest(x):
            return torch.zeros((x.shape[0] + 8 - x.shape[0] % 8) // 8) + torch.arange(5)

        for function, example, other in ((by_steps, 8, 6), (by_rest, 5, 6)):
            with self.subTest(function.__name__):
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    written = to_onnx(Function(function), (torch.randn(example),), dynamic_shapes=({0: "n"},))
                self.assertIn("== 1", "".join(logs.output))
                self.assert_matches(written, Function(function), (torch.randn(other),))

    def test_a_batch_of_one_beside_a_size_that_is_closed(self):
        """A branch closes the width in both captures, as the windows of a Swin do: the other one opens the batch."""

        def forward(x):
            y = x[:, :4].reshape(x.shape[0], -1)
            return y * 2 if x.shape[2] * x.shape[2] == 16 else y

        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            written = self.export_and_compare(
                Function(forward),
                (torch.randn(1, 6, 4),),
                others=[(torch.randn(3, 6, 4),)],
                dynamic_shapes=({0: "batch", 2: "width"},),
            )
        self.assertIn("which are width: 4", "".join(logs.output))
        self.assertEqual(sizes(written), [("batch", 6, "width")])


class TestPinned(ExporterTestCase):
    def test_a_number_that_torch_kept_is_told(self):
        """The model has it among its inputs all the same."""
        total = Function(lambda x, axis: x.cumsum(axis))  # kept
        for number, entries in ((1, ("axis", Dim.DYNAMIC, Dim.AUTO)), (-1, (Dim.AUTO,))):
            for entry in entries:
                with self.subTest(number, entry=entry), self.assertLogs("experimental_experiment") as logs:
                    to_onnx(total, (X, number), dynamic_shapes=(None, entry))
                text = logs.records[0].getMessage()
                self.assertRegex(text, rf"^axis is {number} in the model, as in the example(.|\n)*# kept$")

    def test_what_is_assumed_of_a_number_without_bounds(self):
        diagonal = Function(lambda x, offset: x.diagonal(offset) * 2)
        with self.assertLogs("experimental_experiment") as logs:
            others = [(X, offset) for offset in (2, -1, 3, -2)]
            self.export_and_compare(diagonal, (X, 0), others=others, dynamic_shapes=(None, "offset"))
        self.assertNotIn("which are", logs.records[0].getMessage())

    def test_a_size_of_one_that_torch_kept_is_static(self):
        cases = {
            "an index": (
                lambda x, a, b: x[a, b],  # pinned
                (X, torch.tensor([0]), torch.tensor([0, 1, 2])),
                ({0: "rows"}, {0: "n"}, {0: "m"}),
                "a.shape[0] is 1",
                [("rows", 4), (1,), ("m",)],
                (torch.randn(5, 4), torch.tensor([2]), torch.tensor([3, 0, 1, 1])),
            ),
            "the other index": (
                lambda x, a, b: x[a, b],  # pinned
                (X, torch.tensor([0, 1, 2]), torch.tensor([3])),
                ({0: "rows"}, {0: "n"}, {0: "m"}),
                "b.shape[0] is 1",
                [("rows", 4), ("n",), (1,)],
                (torch.randn(5, 4), torch.tensor([2, 4, 1, 0]), torch.tensor([1])),
            ),
            "a branch": (
                lambda x: x + 1 if x.shape[0] == 1 else x * 2,  # pinned
                (X[:1],),
                ({0: "rows"},),
                "x.shape[0] is 1",
                [(1, 4)],
                (torch.randn(1, 4),),
            ),
        }
        for promise, (function, args, dynamic_shapes, message, expected, other) in cases.items():
            with self.subTest(promise):
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    model = self.export_and_compare(
                        Function(function), args, dynamic_shapes=dynamic_shapes, others=[other]
                    )
                text = logs.records[0].getMessage()
                self.assertIn(f"{message} in the model, as in the example: torch.export did not keep", text)
                self.assertRegex(text, r"test_decisions\.py(.|\n)*# pinned")
                self.assertEqual(expected, sizes(model))

    def test_a_size_of_one_that_torch_would_keep(self):
        """The model is captured again with another size: torch asks what is contiguous, and makes it 1."""

        def halves(x, y):
            return x[:, :2].reshape(x.shape[0], -1) + y[:, 2:]  # kept

        def written(x, y):
            x = x.clone()
            x[:, :2] = y[:, 2:] * 2
            return x.reshape(-1)

        args = X[:1], X[1:2]
        others = [(torch.randn(n, 4), torch.randn(n, 4)) for n in (1, 2, 5, 6)]
        for function in (halves, written):
            for entry in ("rows", Dim("rows"), Dim.DYNAMIC):
                with (
                    self.subTest(function.__name__, entry=entry),
                    self.assertNoLogs("experimental_experiment", "WARNING"),
                ):
                    self.export_and_compare(
                        Function(function),
                        args,
                        others=others,
                        dynamic_shapes=({0: entry}, {0: entry}),
                    )

    def test_a_size_of_one_and_the_layout_of_memory(self):
        """WavLM: torch asks whether batch * steps and steps differ, which they do not for one text."""
        transformers = importlib.import_module("transformers")
        config = transformers.WavLMConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, conv_dim=(8,),
            conv_stride=(5,), conv_kernel=(10,), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2,
        )  # fmt: skip
        model = transformers.WavLMModel(config).eval()
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(
                Function(lambda x: model(x).last_hidden_state),
                (torch.randn(1, 100),),
                others=[(torch.randn(3, 100),), (torch.randn(2, 150),)],
                dynamic_shapes=({0: "batch", 1: "length"},),
            )

    def test_a_size_of_one_that_is_another_model(self):
        """The second capture takes a branch that is not the example's, or asks for its own size."""

        def branched(x):
            y = x[:, :2].reshape(x.shape[0], -1)
            return y * 2 if x.shape[0] == 1 else y  # kept

        def repeated(x):
            y = x[:, :2].reshape(x.shape[0], -1)
            return y * len([*range(x.shape[0])])  # kept

        def squeezed(x):
            return x[:, :2].reshape(x.shape[0], -1).squeeze().argmax(-1)  # kept

        def expanded(x):
            return x[:, :2].reshape(x.shape[0], -1).sum(1) + torch.ones(5)  # kept

        for function in (branched, repeated, squeezed, expanded):
            with self.subTest(function.__name__):
                with self.assertLogs("experimental_experiment", "WARNING") as logs:
                    model = to_onnx(function, (X[:1],), dynamic_shapes=({0: "rows"},))
                self.assertRegex(
                    logs.records[0].getMessage(), r"x\.shape\[0\] is 1 in the model(.|\n)*# kept"
                )
                self.assert_matches(model, function, (X[1:2],))

    def test_a_squeeze_of_a_size_of_one(self):
        for function in (
            lambda x: x.squeeze(),
            lambda x: x.squeeze(0) * 2,
        ):
            with self.assertRaisesRegex(
                CaptureError,
                r"assumes L\['x'\]\.size\(\)\[0\] != 1, which the example contradicts(.|\n)*"
                "give an example whose sizes called dynamic are larger than 1",
            ):
                to_onnx(function, (X[:1],), dynamic_shapes=({0: "rows"},))

    def test_an_example_that_contradicts_the_program(self):
        exported = torch.export.export(Function(unless_large), (X,), dynamic_shapes=({0: Dim.DYNAMIC},))
        program = program_of(exported)
        environment = environment_of(program.inputs)
        example = example_of(environment)
        (symbol,) = example
        example[symbol] = type(example[symbol])(11)
        with self.assertRaisesRegex(
            CaptureError,
            r"the program of torch\.export assumes L\['x'\]\.size\(\)\[0\] <= 10, which the example contradicts\n"
            "  hint   give an example whose sizes called dynamic are larger than 1",
        ):
            judge(program.inputs, program.module, Decisions())

    def test_the_line_that_made_a_size_constant(self):
        def compared(x):
            return x + 1 if x.shape[0] == 3 else x * 2  # constant

        def counted(x):
            return sum([x for _ in range(x.shape[0])])  # constant

        def walked(x):
            y = x.sum(0)
            for row in x:  # constant
                y = y * 2 + row
            return y

        def reshaped(x):
            return x.reshape(2, 6)  # constant

        def added(x):
            doubled = torch.cat([x, x])
            return doubled + torch.ones(6, 1)  # constant

        hints = dict.fromkeys((compared, reshaped, added), "a dimension declared dynamic")
        hints |= dict.fromkeys(
            (counted, walked), "a Python loop over a size .*simple_loop_for, has those of any size"
        )
        for function, hint in hints.items():
            for strict in (False, True):
                with self.subTest(function.__name__, strict=strict):
                    with self.assertRaises(CaptureError) as caught:
                        to_onnx(
                            Function(function),
                            (X,),
                            dynamic_shapes=({0: "batch"},),
                            export_options=ExportOptions(strict=strict),
                        )
                    self.assertRegex(
                        str(caught.exception),
                        r"You marked L\['x'\]\.size\(\)\[0\] as dynamic but your code specialized it to be a constant "
                        rf"\(3\)(.|\n)*test_decisions\.py(.|\n)*# constant\n  hint   {hint}",
                    )

    def test_the_line_of_a_constant_that_has_the_name_of_its_dim(self):
        def reshaped(x):
            return x.reshape(2, 6)  # constant

        with self.assertRaises(CaptureError) as caught:
            to_onnx(Function(reshaped), (X,), dynamic_shapes=({0: Dim("batch")},))
        self.assertRegex(
            str(caught.exception),
            r"You marked batch as dynamic but your code specialized it(.|\n)*# constant\n  hint",
        )


if __name__ == "__main__":
    unittest.main()
