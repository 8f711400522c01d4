"""Errors: five lines, the first culprit, the user's line."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.errors import ShapeContradiction, Untranslatable

torch.manual_seed(0)

X = torch.randn(2, 3)


@torch.library.custom_op("errors_lib::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """An operator that nobody translates."""
    return x.clone()


@unknown.register_fake
def _(x):
    return torch.empty_like(x)


class Inner(torch.nn.Module):
    """Calls the unknown operator."""

    def forward(self, x):
        return unknown(x + 1)  # the user's line


class Outer(torch.nn.Module):
    """Holds Inner."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Identity(), Inner()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class TestExportError(ExporterTestCase):
    def error(self, function, *args, **options):
        with self.assertRaises(ExportError) as caught:
            to_onnx(function, args, **options)
        return caught.exception

    def test_unknown_operator(self):
        error = self.error(Outer(), X)
        lines = str(error).splitlines()
        self.assertEqual(5, len(lines))
        self.assertEqual("errors_lib.unknown.default has no translation", lines[0])
        self.assertEqual(
            "  node   %unknown = errors_lib.unknown.default(float32[2, 3]) -> float32[2, 3]", lines[1]
        )
        self.assertRegex(lines[2], r'^  File ".*test_errors\.py", line \d+, in forward$')
        self.assertEqual("  return unknown(x + 1)  # the user's line", lines[3])
        self.assertRegex(lines[4], r"^  hint   .*translations=")
        self.assertIs(torch.ops.errors_lib.unknown.default, error.target)
        self.assertEqual("unknown", error.node.name)
        self.assertEqual("layers.1", error.module_path)
        self.assertEqual("forward", error.source[2])

    def test_an_argument_that_is_not_handled(self):
        def only_x(op, x):
            return op.Identity(x)

        @torch.library.custom_op("errors_lib::two", mutates_args=())
        def two(x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
            return x * factor

        two.register_fake(lambda x, factor=1.0: torch.empty_like(x))
        translations = {two: only_x}
        self.assertTrue(to_onnx(lambda x: two(x), (X,), translations=translations).graph.node)
        error = self.error(lambda x: two(x, 2.0), X, translations=translations)
        self.assertRegex(
            str(error), r"errors_lib\.two\.default cannot be translated: factor=2\.0 is not handled"
        )
        self.assertIsInstance(error.__cause__, Untranslatable)
        self.assertEqual(5, len(str(error).splitlines()))

    def test_the_line_of_a_plain_function(self):
        def function(x, factor=2.0, *, bias=None):
            y = x * factor
            return unknown(y)  # here

        class Holder:
            def method(self, x):
                return unknown(x)  # here

        for callable_ in (function, Holder().method, lambda x: unknown(x)):  # here
            error = self.error(callable_, X)
            self.assertRegex(str(error), r"test_errors\.py.*\n.*unknown\(.*# here")

    def test_a_dtype_that_onnx_lacks(self):
        if not hasattr(torch, "float8_e8m0fnu"):
            self.skipTest("this torch has no float8_e8m0fnu")
        error = self.error(lambda x: (x,), torch.zeros(2, dtype=torch.float8_e8m0fnu))
        self.assertRegex(
            str(error), "the input x cannot be translated: ONNX has no dtype for torch.float8_e8m0fnu"
        )

    def test_a_weight_that_onnx_lacks(self):
        class Held(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mask", torch.empty(2, dtype=torch.uint1))

            def forward(self, x):
                return x, self.mask

        self.assertRegex(
            str(self.error(Held(), X)), "the weight mask cannot be translated: ONNX has no dtype"
        )

    def test_a_sparse_input(self):
        error = self.error(lambda x: (x,), X.to_sparse())
        self.assertRegex(str(error), "the input x is torch.sparse_coo: ONNX models take dense tensors")

    def test_an_output_that_is_no_tensor(self):
        error = self.error(lambda x: (x, "text"), X)
        self.assertRegex(str(error), "the output output_1 is 'text': ONNX models return tensors and numbers")

    def test_a_bug_in_a_translation(self):
        def broken(op, x):
            return [][0]

        error = self.error(Outer(), X, translations={unknown: broken})
        self.assertRegex(str(error), "the translation of errors_lib.unknown.default failed with IndexError")
        self.assertIsInstance(error.__cause__, IndexError)
        self.assertEqual(5, len(str(error).splitlines()))

    def test_torch_and_onnx_disagree(self):
        for promise, wrong in {
            "rank": lambda op, x: op.Unsqueeze(x, [0]),
            "size": lambda op, x: op.Slice(x, [0], [1], [0]),
            "dtype": lambda op, x: op.Cast(x, to=11),
        }.items():
            with self.subTest(promise):
                error = self.error(Outer(), X, translations={unknown: wrong})
                self.assertIsInstance(error, ShapeContradiction)
                self.assertRegex(str(error), r"was translated to .*, torch says float32\[2, 3\]")

    def test_inputs_that_an_onnx_operator_refuses(self):
        def wrong(op, x):
            return op.MatMul(x, op.constant([[1.0], [2.0]]))

        error = self.error(Outer(), X, translations={unknown: wrong})
        self.assertRegex(str(error), "ONNX MatMul does not accept")

    def test_an_operator_newer_than_the_opset(self):
        error = self.error(Outer(), X, translations={unknown: lambda op, x: op.Swish(x)}, target_opset=18)
        self.assertRegex(str(error), "ONNX Swish does not exist in opset 18: raise target_opset")


class TestCaptureError(ExporterTestCase):
    def test_torchs_error_is_the_cause(self):
        def branch(x):
            return x + 1 if x.sum() > 0 else x - 1

        for strict in (False, True):
            with self.subTest(strict=strict):
                with self.assertRaises(CaptureError) as caught:
                    to_onnx(branch, (X,), export_options=ExportOptions(strict=strict))
                lines = str(caught.exception).splitlines()
                self.assertRegex(lines[0], r"^torch\.export\.export failed with \w+: ")
                self.assertRegex(lines[-1], r"^  hint   .*torch\.cond")
                self.assertIsNotNone(caught.exception.__cause__)

    def test_hints(self):
        class Unknown:
            """No pytree node."""

        cases = {
            "structure of the arguments": (lambda x: x, (X,), ({0: "a"}, {0: "b"})),
            "remove it from dynamic_shapes": (
                lambda x: x.reshape(2, 3) + 1,
                (X,),
                ({0: torch.export.Dim("batch")},),
            ),
            "register_dataclass": (lambda x, other: x, (X, Unknown()), None),
        }
        for hint, (function, args, dynamic_shapes) in cases.items():
            with self.subTest(hint):
                with self.assertRaises(CaptureError) as caught:
                    to_onnx(function, args, dynamic_shapes=dynamic_shapes)
                self.assertIn(hint, str(caught.exception).splitlines()[-1])

    def test_a_failing_decomposition(self):
        def broken(*args, **kwargs):
            raise ArithmeticError("no way")

        options = ExportOptions(decomposition_table={torch.ops.aten.gelu.default: broken})
        with self.assertRaisesRegex(CaptureError, "run_decompositions failed with ArithmeticError: no way"):
            to_onnx(torch.nn.GELU(), (X,), export_options=options)


class TestWrongArguments(ExporterTestCase):
    def test_messages(self):
        cases = (
            (
                FileNotFoundError,
                "the folder of '/nowhere/model.onnx' does not exist",
                {"filename": "/nowhere/model.onnx"},
            ),
            (ValueError, "mutated_buffers is 'drop' or 'outputs', not 'keep'", {"mutated_buffers": "keep"}),
            (TypeError, "is not an operator that can be translated", {"translations": {3: lambda op, x: x}}),
            (TypeError, "is not a function but int", {"translations": {unknown: 3}}),
            (
                TypeError,
                r"has no argument \['y'\]",
                {"translations": {unknown: lambda op, y: y}},
            ),
        )
        for kind, message, options in cases:
            with self.subTest(message):
                with self.assertRaisesRegex(kind, message):
                    to_onnx(torch.nn.ReLU(), (X,), **options)


if __name__ == "__main__":
    unittest.main()
