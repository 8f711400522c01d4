"""The command line, run in this process on small models written to a temporary folder."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import textwrap
import unittest
import unittest.mock

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import torch
from safetensors.torch import save_file

from experimental_experiment.command_line import main
from experimental_experiment.comparison import run, session
from experimental_experiment.torch_interpreter import ExportError

MODELS = textwrap.dedent(
    """
    import torch


    class Affine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

        def forward(self, x, shift):
            return x * self.weight + shift


    class Unknown(torch.nn.Module):
        def forward(self, x):
            return torch.ops.command_line_test.unknown(x)


    @torch.library.custom_op("command_line_test::unknown", mutates_args=())
    def unknown(x: torch.Tensor) -> torch.Tensor:
        return x.clone()


    @unknown.register_fake
    def _(x):
        return torch.empty_like(x)


    def affine():
        return Affine(), (torch.randn(2, 3),), {"shift": torch.randn(2, 3)}


    def taller():
        return Affine(), (torch.randn(5, 3),), {"shift": torch.randn(5, 3)}


    def other_weights():
        return Affine().requires_grad_(False).apply(lambda m: m.weight.add_(1)), *taller()[1:]


    def unknown_operator():
        return Unknown(), (torch.randn(2, 3),)


    def nothing():
        return None


    def bare_model():
        return Affine()


    def with_parameters(size, depth=2):
        return Affine(), (torch.randn(size, 3),)


    def one_tensor():
        return torch.nn.ReLU(), torch.randn(2, 3)


    def wrong_arguments():
        return torch.nn.ReLU(), {"input": torch.randn(2, 3)}


    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(1)
            return self.inner(x) + self.count


    def counter():
        return Counter(), (torch.randn(2, 3),)


    def program():
        model, args = counter()
        return torch.export.export(model, args), args


    def program_with_its_example():
        return (program()[0],)


    def without_values():
        with torch.device("meta"):
            model = Affine()
        return model, *affine()[1:]


    def number(x, n):
        return x * n


    def recurrent():
        return torch.nn.GRU(3, 4, batch_first=True), (torch.randn(2, 5, 3),), {}, ({0: "batch", 1: "steps"},)


    def of_a_number():
        return number, (torch.randn(2, 3), 3)
    """
)


class TestCommandLine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.models = self.file("some_models.py", MODELS)
        self.model = os.path.join(self.folder, "model.onnx")

    def file(self, name: str, content: str) -> str:
        """Write a file into the temporary folder; its path."""
        path = os.path.join(self.folder, name)
        with open(path, "w") as stream:
            stream.write(content)
        return path

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and errors of a command."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(arguments)
            except SystemExit as stop:
                status = stop.code
        return status, out.getvalue(), err.getvalue()

    def export(self, function: str, *arguments: str) -> tuple[int, str, str]:
        """Run the export command on one of the models."""
        return self.command("export", f"{self.models}:{function}", "-o", self.model, *arguments)

    def test_export_prints_a_summary_and_checks(self):
        status, out, _ = self.export("affine", "--check", "--opset", "21")
        self.assertEqual(status, 0, out)
        self.assertIn("ai.onnx 21", out)
        self.assertIn("input: x dtype('float32') shape=[2, 3]", out)
        self.assertIn("1 Mul", out)
        self.assertIn("1 of 1 outputs agree", out)

    def test_patches_of_the_export(self):
        self.assertIn(
            "input: input dtype('float32') shape=['batch', 'steps', 3]", self.export("recurrent")[1]
        )
        status, _, err = self.export("recurrent", "--patch", "none")
        self.assertEqual(status, 1)
        self.assertIn("specialized it to be a constant", err)
        for named in ("all", "numpy_inputs", "numpy_inputs,recurrent_layers"):
            self.assertEqual(self.export("recurrent", "--patch", named)[0], 0)
        status, _, err = self.export("recurrent", "--patch", "numpy_inputs,zzz")
        self.assertEqual(status, 2)
        self.assertIn("there is no patch 'zzz'", err)

    def test_weights_of_the_export(self):
        values = torch.tensor([1.5, -2.0, 0.25])
        weights = os.path.join(self.folder, "model.safetensors")
        save_file({"weight": values}, weights)
        for given in (weights, self.folder):
            status, out, err = self.export("without_values", "--weights", given)
            self.assertEqual(status, 0, out + err)
            x, shift = torch.randn(2, 2, 3)
            (got,) = run(session(self.model), [x, shift])
            torch.testing.assert_close(got, x * values + shift)
        save_file({"weights": values}, weights)
        cases = {
            ("without_values",): (1, "meta device"),
            ("without_values", "--weights", weights): (2, "weight"),
            ("without_values", "--weights", weights + "x"): (2, "model.safetensorsx"),
            ("without_values", "--weights", weights, "--check"): (
                2,
                "--check compares with the model that the",
            ),
        }
        for arguments, (expected, sentence) in cases.items():
            with self.subTest(arguments):
                status, _, err = self.export(*arguments)
                self.assertEqual(status, expected, err)
                self.assertIn(sentence, err)

    def test_options_of_the_export(self):
        status, out, err = self.export(
            "counter", "--check", "--strict", "--input-names", "table", "--functions"
        )
        self.assertEqual(status, 0, out + err)
        self.assertIn("input: table", out)
        self.assertEqual(["Linear"], [function.name for function in onnx.load(self.model).functions])
        status, out, err = self.export("counter", "--mutated-buffers", "outputs", "--check")
        self.assertEqual(status, 0, out + err)
        self.assertIn("input: count", out)
        self.assertIn("output: count_out", out)
        self.assertIn("2 of 2 outputs agree", out)

    def test_an_exported_program_is_checked(self):
        for function in ("program", "program_with_its_example"):
            for mutated, outputs in (("drop", 1), ("outputs", 2)):
                with self.subTest(function, mutated=mutated):
                    status, out, err = self.export(function, "--check", "--mutated-buffers", mutated)
                    self.assertEqual(status, 0, out + err)
                    self.assertIn(f"{outputs} of {outputs} outputs agree", out)

    def test_strict_captures_with_dynamo(self):
        with unittest.mock.patch(
            "experimental_experiment.command_line.export.to_onnx", side_effect=ExportError("")
        ) as called:
            self.export("affine", "--strict")
            self.export("affine")
        self.assertEqual([True, False], [call.kwargs["export_options"].strict for call in called.mock_calls])

    def test_one_tensor_stands_for_a_tuple(self):
        status, out, _ = self.export("one_tensor", "--check")
        self.assertEqual(status, 0, out)

    def test_check_runs_on_other_sizes_and_tells_other_weights(self):
        status, out, _ = self.export("affine", "--dynamic", "x:0=batch", "--dynamic", "shift:0=batch")
        self.assertEqual(status, 0, out)
        self.assertIn("shape=['batch', 3]", out)
        status, out, _ = self.command("check", self.model, f"{self.models}:taller")
        self.assertEqual(status, 0, out)
        self.assertIn("float32[5, 3]", out)
        status, out, _ = self.command("check", self.model, f"{self.models}:other_weights")
        self.assertEqual(status, 1)
        self.assertIn("DIFFERS", out)
        self.assertIn("1 of 1 outputs differ", out)

    def test_optimize(self):
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20]> g (float[N,3] x) => (float[N,3] y)
            { one = Constant <value_float=1.0> () a = Identity(x) b = Mul(a, one) c = Neg(b) d = Neg(c) y = Relu(d) }"""
        )
        onnx.save(model, self.model)
        status, out, _ = self.command("optimize", self.model, "-o", self.model, "--report", "--check")
        self.assertEqual(status, 0, out)
        self.assertIn("NegNeg", out)
        self.assertIn("largest difference on random inputs: 0.0e+00", out)
        self.assertEqual("Relu", onnx.load(self.model).graph.node[-1].op_type)
        onnx.save(model, self.model)
        status, out, _ = self.command(
            "optimize", self.model, "-o", self.model, "--patterns", "default-NegNeg"
        )
        self.assertEqual(status, 0, out)
        self.assertNotIn("rule", out)
        self.assertEqual(2, [node.op_type for node in onnx.load(self.model).graph.node].count("Neg"))

    def test_check_of_optimize_finds_other_integers(self):
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20]> g (int64[3] x) => (int64[3] y)
            <int64 large = {1000000}> { y = Add(x, large) }"""
        )

        def wrong(model, options, report, progress):
            """Add one more."""
            value = model.graph.initializers["large"]
            value.const_value = onnx_ir.tensor(value.const_value.numpy() + 1)

        onnx.save(model, self.model)
        with unittest.mock.patch("experimental_experiment.command_line.optimize.rewrite", wrong):
            status, out, _ = self.command("optimize", self.model, "-o", self.model, "--check")
        self.assertEqual(1, status)
        self.assertIn("inputs: 1.0e+00, beyond the tolerance of its dtype", out)

    def test_optimize_quantizes(self):
        model = onnx.parser.parse_model(
            """<ir_version: 10, opset_import: ["" : 20]> g (float[N,64] x) => (float[N,64] y) { y = MatMul(x, W) }"""
        )
        weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "W"))
        for bits in ("int4", "int8"):
            onnx.save(model, self.model)
            status, out, _ = self.command(
                "optimize", self.model, "-o", self.model, "--quantize", bits, "--report", "--check"
            )
            self.assertEqual(status, 0, out)
            self.assertIn("relative error", out)
            self.assertRegex(out, r"largest difference on random inputs: [1-9.]+e[-+]\d+")
            self.assertEqual("MatMulNBits", onnx.load(self.model).graph.node[0].op_type)
        model.opset_import[0].version = 21
        onnx.save(model, self.model)
        status, out, _ = self.command(
            "optimize", self.model, "-o", self.model, "--quantize", "int4", "--standard"
        )
        self.assertEqual(status, 0, out)
        self.assertIn("1 weights quantized, 16384 bytes became 2560", out)
        self.assertEqual("DequantizeLinear", onnx.load(self.model).graph.node[0].op_type)

    def test_optimize_says_what_is_wrong(self):
        onnx.save(
            onnx.parser.parse_model(
                '<ir_version: 8, opset_import: ["x" : 1]> g (float[2,3] x) => (float[2,3] y) {y = x.F(x)}'
            ),
            self.model,
        )
        missing = os.path.join(os.path.dirname(self.model), "missing", "model.onnx")
        for message, status, arguments in (
            ("does not exist", 2, (missing, "-o", self.model)),
            ("the folder", 2, (self.model, "-o", missing)),
            ("did you mean NegNeg", 2, (self.model, "-o", self.model, "--patterns", "NegNegg")),
            ("is not an ONNX model", 2, (self.models, "-o", self.model)),
            (
                "--standard and --exclude belong to --quantize",
                2,
                (self.model, "-o", self.model, "--standard"),
            ),
            (
                "the model is of opset 1: export it with --opset 21, or leave --standard out",
                2,
                (self.model, "-o", self.model, "--quantize", "int4", "--standard"),
            ),
            (
                "no weight and no node is called 'W'",
                2,
                (self.model, "-o", self.model, "--quantize", "int8", "--exclude", "W"),
            ),
            ("onnxruntime does not run", 1, (self.model, "-o", self.model, "--check")),
        ):
            with self.subTest(message):
                found, _, err = self.command("optimize", *arguments)
                self.assertEqual(status, found)
                self.assertIn(message, err)

    def test_check_says_what_does_not_fit(self):
        self.export("affine")
        status, _, err = self.command("check", self.model, f"{self.models}:taller")
        self.assertEqual(status, 2)
        self.assertIn("the model does not take these arguments", err)
        status, _, err = self.command("check", self.model, f"{self.models}:unknown_operator")
        self.assertEqual(status, 2)
        self.assertIn("the model takes 2 inputs (x, shift), 1 are given", err)
        unknown = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["x" : 1]> g (float[2,3] x) => (float[2,3] y) {y = x.F(x)}'
        )
        onnx.save(unknown, self.model)
        status, _, err = self.command("check", self.model, f"{self.models}:unknown_operator")
        self.assertEqual(status, 1)
        self.assertIn("onnxruntime refuses the model", err)

    def test_print_shows_the_model(self):
        self.export("affine")
        status, out, _ = self.command("print", self.model)
        self.assertEqual(status, 0)
        self.assertIn("opset: domain='' version=20\ninput: name='x'", out)
        self.assertIn("Mul(x, weight) -> mul", out)

    def test_where_gives_file_and_line(self):
        status, out, _ = self.command("where", "aten.linear")
        self.assertEqual(status, 0)
        self.assertRegex(out, r"^aten\.linear\.default +\S+linear_algebra\.py:\d+\n")
        status, out, _ = self.command("where", "aten.add_")
        self.assertRegex(
            out, r"aten\.add_\.Tensor = aten\.add\.Tensor, written back +\S+arithmetic\.py:\d+\n"
        )
        self.assertIn("cond.py:", self.command("where", "cond")[1])
        self.assertIn("vision.py:", self.command("where", "torchvision::nms")[1])
        status, out, _ = self.command("where", "operator.add")
        self.assertRegex(out, r"symbolic\.py:\d+\n$")

    def test_a_wrong_command_is_one_sentence_and_status_2(self):
        text = self.file("text.onnx", "no model")
        broken = self.file("broken.py", "import a_package_that_is_not_there\n")
        cases = {
            ("where", "aten.linaer"): "'aten.linaer' is unknown: did you mean aten.linear",
            ("where", "aten.special_unknown"): "'aten.special_unknown' is unknown",
            ("print", "missing.onnx"): "the file 'missing.onnx' does not exist",
            ("print", text): "is not an ONNX model",
            ("check", "missing.onnx", f"{self.models}:affine"): "the file 'missing.onnx' does not exist",
            ("check", text, f"{self.models}:affine"): "is not an ONNX model",
            ("export", "affine", "-o", self.model): "'affine' is not of the form MODULE:FUNCTION",
            ("export", "missing.py:affine", "-o", self.model): "the file 'missing.py' does not exist",
            ("export", "no.such.module:f", "-o", self.model): "there is no module 'no.such.module'",
            ("export", f"{broken}:f", "-o", self.model): "needs the package 'a_package_that_is_not_there'",
            ("export", f"{self.models}:missing", "-o", self.model): "has no function 'missing'",
            ("export", f"{self.models}:nothing", "-o", self.model): "must return (model, args, kwargs",
            (
                "export",
                f"{self.models}:affine",
                "-o",
                os.path.join(self.folder, "no", "m.onnx"),
            ): "does not exist",
            ("export", f"{self.models}:affine", "-o", self.model, "--opset", "3"): "target_opset 3",
            ("export", f"{self.models}:affine", "-o", self.model, "--dynamic", "y:0=n"): "no argument 'y'",
            ("export", f"{self.models}:affine", "-o", self.model, "--dynamic", "x:2=n"): "AXIS=NAME",
            ("unknown",): "invalid choice",
            ("export", f"{self.models}:bare_model", "-o", self.model): "bare_model returns a model alone: "
            "write return model, (x,)",
            (
                "export",
                f"{self.models}:with_parameters",
                "-o",
                self.model,
            ): "with_parameters is a function with parameters (size, depth): name a function without any",
            (
                "export",
                f"{self.models}:number",
                "-o",
                self.model,
            ): "number is a function with parameters (x, n)",
            (
                "export",
                "--transformers",
                "m",
                "-o",
                self.model,
                "--weights",
                "w",
            ): "--weights goes with MODULE:FUNCTION: transformers reads the weights of its models",
            ("export", f"{self.models}:wrong_arguments", "-o", self.model): "returns args as dict, a tuple",
            (
                "export",
                f"{self.models}:affine",
                "-o",
                self.model,
                "--input-names",
                "a",
            ): "input_names has 1 names for 2 inputs",
            (
                "export",
                f"{self.models}:affine",
                "-o",
                self.model,
                "--mutated-buffers",
                "x",
            ): "invalid choice: 'x'",
            (
                "export",
                f"{self.models}:of_a_number",
                "-o",
                self.model,
                "--dynamic",
                "n:0=n",
            ): "'n' is not a tensor but int",
        }
        for arguments, sentence in cases.items():
            with self.subTest(arguments):
                status, _, err = self.command(*arguments)
                self.assertEqual(status, 2)
                self.assertIn(sentence, err)
                self.assertNotIn("Traceback", err)

    def test_an_operator_without_translation_stops_with_status_1(self):
        status, _, err = self.export("unknown_operator")
        self.assertEqual(status, 1)
        self.assertIn("command_line_test.unknown.default has no translation", err)
        self.assertIn("return torch.ops.command_line_test.unknown(x)", err)
        self.assertFalse(os.path.exists(self.model))


if __name__ == "__main__":
    unittest.main()
