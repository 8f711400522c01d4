"""Errors: five lines, the first culprit, the user's line."""

import functools
import inspect
import re
import unittest
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch._higher_order_ops import scan

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import (
    CaptureError,
    ExportError,
    ExportOptions,
    messages,
    to_onnx,
)
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


def helper(x):
    """A function that forward calls."""
    return unknown(x * 2)  # the helper's line


class Calling(torch.nn.Module):
    """Leaves its work to a function."""

    def forward(self, x):
        return helper(x)


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

    def test_the_line_of_a_function_that_forward_calls(self):
        for options in (ExportOptions(), ExportOptions(strict=True)):
            lines = str(self.error(Calling(), X, export_options=options)).splitlines()
            self.assertRegex(lines[2], r'^  File ".*test_errors\.py", line \d+, in helper$')
            self.assertEqual("  return unknown(x * 2)  # the helper's line", lines[3])

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

    def test_weights_without_values(self):
        class Held(torch.nn.Module):
            """A buffer that may be used."""

            def __init__(self, buffer, is_used=True):
                super().__init__()
                self.register_buffer("table", buffer)
                self.is_used = is_used

            def forward(self, x):
                return self.table @ x if self.is_used else x * 2

        with torch._subclasses.FakeTensorMode():
            fake = torch.ones(2, 2)
        cases = {
            r"the weight table is torch\.sparse_coo: ONNX models hold dense tensors, as tensor\.to_dense\(\)": (
                torch.eye(2).to_sparse(),
                X,
            ),
            r"the weight table has no values: give to_onnx\(weights=\.\.\.\) if it was made on the meta device": (
                torch.ones(2, 2, device="meta"),
                X.to("meta"),
            ),
            r"the weight table has no values: give to_onnx\(weights=\.\.\.\) if it was made on": (fake, X),
        }
        for message, (buffer, x) in cases.items():
            with self.subTest(message):
                self.assertRegex(str(self.error(Held(buffer), x)), f"^{message}")
                self.assertTrue(to_onnx(Held(buffer, is_used=False), (x,)).graph.node)

    def test_no_output(self):
        for function in (lambda x: None, lambda x: (), lambda x: {"a": None}):
            self.assertRegex(
                str(self.error(function, X)),
                "^function returns no tensor and no number: an ONNX model has an output",
            )

    def test_two_float_dtypes(self):
        error = self.error(torch.nn.Linear(3, 4), X.double())
        self.assertRegex(
            str(error),
            r"^aten\.linear\.default takes one dtype, not float64 and float32\n(.|\n)*"
            r"hint   give the example the dtype of the weights, or the model that of the example: model\.to\(torch\.float64\)",
        )

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

    def test_modules_that_dynamo_calls_unspecialized(self):
        """Its context names their kind, which says nothing of sizes."""

        class Kept(torch.nn.Module):
            def forward(self, x):
                def kept(x):
                    self.last = x.sum()
                    return x + 1

                return torch.cond(x.sum() > 0, kept, lambda x: x - 1, (x,))

        with self.assertRaisesRegex(CaptureError, "Unsafe side effect") as caught:
            to_onnx(Kept(), (torch.randn(4, 2),))
        self.assertIn("UnspecializedNNModuleVariable", str(caught.exception.__cause__))
        self.assertNotIn("dynamic_shapes", str(caught.exception))

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
            "use torch.cond": (lambda x, y: x if torch.equal(x, y) else y, (X, X + 1), None),
        }
        for hint, (function, args, dynamic_shapes) in cases.items():
            with self.subTest(hint):
                with self.assertRaises(CaptureError) as caught:
                    to_onnx(function, args, dynamic_shapes=dynamic_shapes)
                (line,) = re.findall("^  hint .*", str(caught.exception), re.M)
                self.assertIn(hint, line)

    def test_a_shortcut_names_the_patch_that_takes_the_other_side(self):
        def of_a_mask(x):
            if (x > 0).all():
                return x
            return x * (x > 0)

        def of_what_was_found(x):
            found = x[x > 0]
            if len(found) == 0:
                return found
            return found * 2

        def of_a_sum(x):
            if x.sum() > 0:
                return x
            return x * 2

        for function in (of_a_mask, of_what_was_found):
            with self.subTest(function.__name__):
                self.assertIn("  hint   the data decide a branch: ", self.refused(function, (X,)))
                to_onnx(function, (X,), export_options=ExportOptions(patches={"shortcuts"}))
        self.assertNotIn("shortcuts", self.refused(of_a_sum, (X,)))

    def test_a_function_of_autograd_takes_no_gradient(self):
        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                if x.sum() > 0:  # line
                    return x * 2
                return x

            @staticmethod
            def backward(ctx, grad):
                return grad

        text = self.refused(lambda x: Doubled.apply(x), (X,))
        self.assertRegex(text, r"# line\n  hint   a branch or a size depends on the data")
        self.assertNotIn("gradients", text)

    def test_sizes_that_are_keys(self):
        @functools.lru_cache
        def table(length):
            return torch.arange(length)

        cases = (
            lambda x: x * len({x.shape[0], x.shape[1]}),  # line
            lambda x: x * {2: 3}.get(x.shape[0], 4),  # line
            lambda x: x + table(x.shape[0])[:, None],  # line
        )
        for function in cases:
            text = self.refused(function, (X,), dynamic_shapes=({0: "batch"},))
            self.assertRegex(
                text, r"# line\n  hint   a size is a key: of a dict, of a set, of a function's cache"
            )

    def test_sizes_that_are_texts(self):
        cases = (
            lambda x: x * {"(3, 4)": 2.0}[str(tuple(x.shape))],  # line
            lambda x: x * float(f"{x.shape[0]}"),  # line
        )
        for function in cases:
            text = self.refused(function, (X,), dynamic_shapes=({0: "batch"},))
            self.assertRegex(text, r"# line\n  hint   a size is written as a text")
        text = self.refused(
            lambda x: x[:, None].permute(2, 0, 1).view(2, 6), (X,), dynamic_shapes=({0: "batch"},)
        )
        self.assertNotIn("as a text", text)

    def test_numpy_s_functions_of_sizes(self):
        def scaled(x):
            return x * float(np.cbrt(x.shape[0]))  # line

        text = self.refused(scaled, (X,), dynamic_shapes=({0: "batch"},))
        self.assertRegex(
            text, r"# line\n  hint   numpy computes with numbers of Python, not with dynamic sizes"
        )

    def test_inequalities_that_torch_cannot_solve(self):
        layers = (
            torch.nn.Conv2d(1, 1, 7, stride=2, padding=3),
            torch.nn.MaxPool2d(3, stride=2, ceil_mode=True),
            torch.nn.Conv2d(1, 1, 3, stride=2, padding=1),
            torch.nn.AvgPool2d(7, stride=1),
        )
        text = self.refused(
            lambda x: torch.nn.Sequential(*layers)(x).view(x.shape[0], -1),
            (torch.randn(2, 1, 56, 56),),
            dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
            export_options=ExportOptions(patches=False),
        )
        self.assertIn("  hint   torch cannot solve what the model asks of a dynamic size: leave", text)

    def test_a_branch_for_some_sizes_of_a_dim(self):
        def doubled(x):
            power = 1
            while power < x.shape[0]:  # line
                power *= 2
            return x * power

        text = self.refused(doubled, (X.repeat(4, 1),), dynamic_shapes=({0: torch.export.Dim("batch")},))
        self.assertIn("Suggested fixes: batch = Dim('batch', min=5, max=8)", text)
        self.assertRegex(
            text, r"# line\n  hint   the branch is taken for some sizes only: give the Dim the bounds"
        )

    def test_several_branches_that_fix_a_size(self):
        def in_rows(x):
            rows, start = [], 0
            while start < x.shape[0]:  # line
                rows.append(x.sum(0) * start)
                start += 1
            return torch.stack(rows)

        text = self.refused(in_rows, (X.repeat(4, 1),), dynamic_shapes=({0: "batch"},))
        self.assertRegex(text, r"# line\n  hint   ")

    def test_a_carry_in_another_layout(self):
        def columns(x):
            def step(state, row):
                state = state.tanh() + row
                return state, state * 2

            return scan(step, x[:, 0], x.transpose(0, 1))[0]

        text = self.refused(columns, (torch.randn(2, 5, 3),))
        self.assertIn("  hint   a carry keeps the layout of its memory from turn to turn", text)

    def test_converted_modules_of_quantization(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(3, 3)))
        text = self.refused(model, (X,))
        self.assertIn("  hint   the weights of torch.ao.quantization's converted modules are packed", text)
        self.assertNotIn("contextlib.py", text)

    def test_a_branch_that_compares_a_multiple_of_a_dynamic_size(self):
        def few_or_many(x):
            return x + 1 if x.shape[0] * 3 <= 7000 else x * 2

        text = self.refused(few_or_many, (X,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        self.assertIn("  hint   a branch compares a dynamic size with a number", text)
        shapes = ({0: torch.export.Dim("batch", max=2333)},)
        self.assertEqual(
            [node.op_type for node in to_onnx(few_or_many, (X,), dynamic_shapes=shapes).graph.node], ["Add"]
        )

    def refused(self, model, args, kwargs=None, **options):
        with self.assertRaises(CaptureError) as caught:
            to_onnx(model, args, kwargs, **options)
        return str(caught.exception)

    def test_the_line_of_the_model_and_the_hint_of_its_family(self):
        class DynamicCache:
            """A class of this name that torch does not know."""

        class OtherCache(DynamicCache):
            """Another one."""

        def float_tokens(x):
            return F.embedding(x, x)  # line

        with torch.device("meta"):
            without_values = torch.nn.Linear(3, 4)
        cases = {
            "torch.cond": (lambda x: x + 1 if x.sum() > 0 else x, (X,), True),  # line
            "use torch's functions instead": (lambda x: x + torch.from_numpy(x.numpy()), (X,), True),  # line
            "a set has no order": (lambda x: {x, x + 1}, (X,), False),
            "call register_dynamic_cache_export_support": (lambda x, y: x, (X, DynamicCache()), False),
            "call register_pytree_node(OtherCache)": (lambda x, y: x, (X, OtherCache()), False),
            "a class among the inputs is unknown to torch: register it with torch.export.register_dataclass": (
                lambda x, y: x,
                (X, object()),
                False,
            ),
            "give torch.as_tensor(value)": (lambda x, y: x * y, (X, X.numpy()), False),
            "bind it, to_onnx(functools.partial(model, dtype=": (
                lambda x, y: x.to(y),
                (X, torch.half),
                False,
            ),
            "to_onnx(weights=...) gives those of": (lambda x: without_values(x), (X,), True),  # line
            "cast the inputs, or the model": (float_tokens, (X,), True),
            "ONNX has no nested tensors": (
                lambda x: x * 2,
                (torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged),),
                False,
            ),
        }
        for advice, (function, args, has_line) in cases.items():
            with self.subTest(advice):
                text = self.refused(function, args)
                self.assertIn(advice, text.splitlines()[-1])
                if has_line:
                    self.assertRegex(
                        text, r'\n  File ".*test_errors\.py", line \d+, in forward\n  .*# line\n'
                    )

    def test_constants_of_python_among_the_arguments(self):
        for constant in (slice(0, 1), range(2)):
            self.assertIn(
                "hint   no input of a model can be that: bind it", self.refused(lambda x, y: x, (X, constant))
            )

    def test_a_written_input_requires_grad(self):
        asking = torch.ones(2, 3, requires_grad=True)
        text = self.refused(lambda x, held: held.add_(x), (X, asking))
        self.assertIn("hint   a tensor that the model writes requires grad: fill a cache under", text)
        with torch.no_grad():
            to_onnx(lambda x, held: held.add_(x), (X, asking))

    def test_two_dynamic_sizes_that_meet(self):
        dims = ({0: "rows"}, {0: "others"})
        text = self.refused(lambda x, y: x + y, (X[:1], torch.cat([X, X])), dynamic_shapes=dims)
        self.assertRegex(text, r"\(s\d+ is x\.shape\[0\], s\d+ is y\.shape\[0\]\)")
        self.assertIn("hint   two sizes meet here, one of them dynamic: give equal dimensions one name", text)

    def test_outputs_that_torch_does_not_know(self):
        class Result:
            """A class that torch does not know."""

        for options in (ExportOptions(), ExportOptions(strict=True), ExportOptions(tracing="make_fx")):
            for advice, function in {
                "a set has no order: take and return tensors in tuples": lambda x: {x, x + 1},
                "a class among the outputs is unknown to torch: return tensors in tuples, lists or dicts": lambda x: (
                    Result()
                ),
            }.items():
                with self.subTest(advice, options=options):
                    self.assertIn(
                        advice, self.refused(function, (X,), export_options=options).splitlines()[-1]
                    )

    def test_a_layer_of_torch_is_a_line_of_the_model(self):
        text = self.refused(torch.nn.Conv1d(3, 4, 1), (torch.randn(1, 3, 5).double(),))
        self.assertRegex(
            text, r'conv\.py", line \d+(.|\n)*hint   the example has another dtype than the model'
        )

    def test_dynamo_s_line(self):
        def branch(x):
            return x + 1 if x.sum() > 0 else x  # line

        text = self.refused(branch, (X,), export_options=ExportOptions(strict=True))
        self.assertRegex(text, r"Data-dependent branching Explanation: Detected data-dependent branching")
        self.assertRegex(text, r'test_errors\.py", line \d+, in forward\n  .*# line\n  hint   .*torch\.cond')

    def test_a_number_made_of_a_size(self):
        def counted(x):
            return x * len(x)  # line

        def repeated(x):
            queries = torch.ones(1, 3).repeat(len(x), 1)  # line
            return x + queries

        dims, strict = ({0: "batch"},), ExportOptions(strict=True)
        without = ExportOptions(patches=False)
        for function in (counted, repeated):
            with self.subTest(function.__name__):
                written = to_onnx(function, (X,), dynamic_shapes=dims)
                self.assert_matches(written, function, (torch.randn(5, 3),))
                self.assertRegex(
                    self.refused(function, (X,), dynamic_shapes=dims, export_options=without),
                    r"# line\n  hint   len\(\) and int\(\) make a number of the size: .*ExportOptions\(strict=True\)",
                )
                self.assertTrue(
                    to_onnx(function, (X,), dynamic_shapes=dims, export_options=strict).graph.node
                )

    def test_a_typed_tensor_of_sizes(self):
        def typed(x):
            return x * torch.FloatTensor([x.shape[0], 2, 3])  # line

        def general(x):
            return x * torch.tensor([x.shape[0], 2, 3], dtype=torch.float32)

        dims = ({0: "batch"},)
        self.assertRegex(
            self.refused(typed, (X,), dynamic_shapes=dims),
            r"# line\n  hint   torch\.LongTensor, .* torch\.tensor\(",
        )
        written = to_onnx(general, (X,), dynamic_shapes=dims)
        self.assert_matches(written, general, (torch.randn(5, 3),))

    def test_a_class_among_the_outputs(self):
        """Not one that TorchDynamo puts there itself, and fails on."""
        text = "NotImplementedError: argument of type: <class '{}'>"
        self.assertIn("a class among the outputs is unknown", messages.advice(text.format("models.Boxes")))
        self.assertEqual("", messages.advice(text.format("torch._dynamo.output_graph.LazyProxy")))

    def test_hint_for_torchscript_is_none_for_a_line_that_asks_whether_it_runs(self):
        """TorchDynamo quotes the line of the model."""
        self.assertIn("was scripted", messages.advice("torch.jit._script.RecursiveScriptModule"))
        self.assertEqual("", messages.advice("if torch.jit.is_tracing() and is_causal:"))

    def test_a_size_that_the_model_remembers(self):
        """Rotary embeddings keep the tables of their last length."""

        class Rotary(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.length_cached = None

            def forward(self, x):
                if x.shape[0] != self.length_cached:  # line
                    self.length_cached = x.shape[0]
                    self.table = torch.arange(x.shape[0])
                return x * self.table[:, None]

        model, dims = Rotary(), ({0: "length"},)
        model(X)
        self.assertRegex(
            self.refused(model, (X,), dynamic_shapes=dims),
            r"# line\n  hint   the model compares the size with one that it keeps from an earlier call",
        )
        model.length_cached = None
        written = to_onnx(model, (X,), dynamic_shapes=dims)
        self.assertIsNone(model.length_cached)
        self.assert_matches(written, Rotary(), (torch.randn(5, 3),))

    def test_sizes_that_the_model_keeps(self):
        """Heads of YOLO keep the grid of their last images; a size that the module was made with is another matter."""

        class Head(torch.nn.Module):
            def __init__(self, given=None):
                super().__init__()
                self.shape = given

            def forward(self, x):
                if self.shape != x.shape:  # line
                    self.grid = torch.arange(x.shape[0])
                    self.shape = x.shape
                return x * self.grid[:, None]

        class Given(Head):
            def forward(self, x):
                if x.shape != self.shape:  # line
                    raise ValueError("the size is another")
                return x * 2

        model, dims = Head(), ({0: "rows"},)
        written = to_onnx(model, (X,), dynamic_shapes=dims)
        self.assert_matches(written, Head(), (torch.randn(5, 3),))
        model(X)
        kept = r"# line\n  hint   the model compares the size with one that it keeps from an earlier call"
        self.assertRegex(self.refused(model, (X,), dynamic_shapes=dims), kept)
        self.assertNotRegex(self.refused(Given(X.shape), (X,), dynamic_shapes=dims), kept)

    def test_all_of_torchs_sentence_and_nothing_for_its_developers(self):
        text = self.refused(lambda x: x.reshape(2, 3) + 1, (X,), dynamic_shapes=({0: "batch"},))
        self.assertIn("You marked L['x'].size()[0] as dynamic but your code specialized it to be", text)
        for noise in ("TORCH_LOGS", "draft_export", "The error above"):
            self.assertNotIn(noise, text)

    def test_a_class_that_dynamic_shapes_describes(self):
        class StaticCache:
            """A class of this name that torch does not know."""

        text = self.refused(lambda x, y: x, (X, StaticCache()), dynamic_shapes=({}, [{0: "batch"}]))
        self.assertRegex(
            text,
            r"dynamic_shapes describes y, a StaticCache, which torch cannot look into\n"
            r"  hint   a StaticCache is unknown to torch: call register_pytree_node\(StaticCache\)",
        )

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
                ValueError,
                "'aten.linear' names no operator: give the operator itself, torch.ops..., or its name, as in 'aten::linear'",
                {"translations": {"aten.linear": lambda op, x: x}},
            ),
            (
                ValueError,
                "'aten::linaer' names no operator: ATen has none of this name",
                {"translations": {"aten::linaer": lambda op, x: x}},
            ),
            (
                ValueError,
                "'aten::add.tensor' names no operator",
                {"translations": {"aten::add.tensor": lambda op, x: x}},
            ),
            (
                TypeError,
                "Linear'> is not an operator that can be translated",
                {"translations": {torch.nn.Linear: lambda op, x: x}},
            ),
            (
                TypeError,
                "gelu is a function of torch, not an operator, as torch.ops.aten.gelu.default is",
                {"translations": {torch.nn.functional.gelu: lambda op, x: x}},
            ),
            (
                TypeError,
                "add is a function of torch, not an operator, as torch.ops.aten.add.Tensor is",
                {"translations": {torch.add: lambda op, x, y: x}},
            ),
            (
                TypeError,
                "to_onnx has no argument opset_version: write target_opset=18",
                {"opset_version": 18},
            ),
            (
                TypeError,
                "to_onnx has no argument export_modules_as_functions: write modules_as_functions=True",
                {"export_modules_as_functions": True},
            ),
            (
                TypeError,
                r"to_onnx has no argument dynamic_axes: write dynamic_shapes={\"x\": {0: \"batch\"}}, by argument",
                {"dynamic_axes": {"x": {0: "batch"}}},
            ),
            (
                TypeError,
                r"export_options is an ExportOptions, not a dict: write ExportOptions\(strict=True\)",
                {"export_options": {"strict": True}},
            ),
            (TypeError, "export_options is an ExportOptions, not bool", {"export_options": True}),
            (TypeError, "unexpected keyword argument 'anything'", {"anything": 1}),
            (TypeError, "output_names is a list of names, not \\[1\\]", {"output_names": [1]}),
            (
                ValueError,
                "output_names holds an empty name, which in ONNX stands for nothing",
                {"output_names": [""]},
            ),
            (ValueError, "input_names holds an empty name", {"input_names": [""]}),
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

    def test_arguments_that_forward_does_not_take(self):
        """With the arguments of forward, with and without dynamic sizes."""
        for args, kwargs, told in (
            ((), {}, "missing a required argument: 'input'"),
            ((X, X), {}, "too many positional arguments"),
            ((), {"inputs": X}, "missing a required argument: 'input'"),
            ((X,), {"inputs": X}, "got an unexpected keyword argument 'inputs'"),
        ):
            for shapes in (None, ({0: "batch"},)):
                with self.subTest(told, shapes=shapes):
                    with self.assertRaises(CaptureError) as caught:
                        to_onnx(torch.nn.ReLU(), args, kwargs, dynamic_shapes=shapes)
                    self.assertEqual(
                        str(caught.exception),
                        f"the arguments do not fit forward: {told}\n"
                        "  hint   to_onnx(model, args, kwargs) takes what forward does: input",
                    )

    def test_by_position(self):
        for message, arguments in {
            "the third argument is the model's keyword arguments: write filename='model.onnx'": (
                "model.onnx",
            ),
            r"kwargs is a dict of keyword arguments, not list": ([X],),
            "to_onnx takes the model, args and kwargs by position: write the others by name": (
                None,
                ({0: "n"},),
            ),
        }.items():
            with self.subTest(message):
                with self.assertRaisesRegex(TypeError, message):
                    to_onnx(torch.nn.ReLU(), (X,), *arguments)

    def test_the_signature_is_documented(self):
        parameters = inspect.signature(to_onnx).parameters
        self.assertEqual(["mod", "args", "kwargs", "dynamic_shapes"], list(parameters)[:4])
        self.assertIn("Convert a model into ONNX", to_onnx.__doc__)


if __name__ == "__main__":
    unittest.main()
