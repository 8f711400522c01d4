"""The command ``investigate``, run in this process on models written to a temporary folder."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import textwrap
import unittest

import torch

from _unittests.ut_command_line.test_command_line import MODELS
from experimental_experiment.command_line import main

FAULTS = textwrap.dedent(
    """

    class Choice(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1


    class Guarded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(3, 3)
            self.choice = Choice()

        def forward(self, x):
            return self.choice(self.first(x))


    class Shift(torch.nn.Module):
        def forward(self, x, y=None):
            return x if y is None else x + y


    def three_arguments():
        return Shift(), (torch.ones(2, 3),) * 3


    def other_sizes():
        return Shift(), (torch.ones(2, 3), torch.ones(4))


    def other_sizes_of_a_function():
        return (lambda x: x + torch.ones(4)), (torch.ones(2, 3),)


    def beyond_the_table():
        return (lambda x, i: x[i * 2] + 1), (torch.ones(2, 3), torch.tensor([9]))


    def program_and_three_arguments():
        return torch.export.export(Shift(), (torch.ones(2, 3),)), (torch.ones(2, 3),) * 3


    def program_of_other_sizes():
        return torch.export.export(Shift(), (torch.ones(2, 3),)), (torch.ones(2, 4),)


    def a_class():
        return Shift, (torch.ones(2, 3),)


    def rows():
        return (lambda x: (x.exp(), x.shape[0])), [(torch.ones(2, 3),), (torch.ones(4, 3),)]


    def guarded():
        return Guarded(), [(torch.ones(2, 3),), (torch.ones(4, 3),)]
    """
)


class TestInvestigate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.models = self.file("investigated_models.py")
        with open(self.models, "w") as file:
            file.write(MODELS + FAULTS)

    def file(self, name: str) -> str:
        """A path in the temporary folder."""
        return os.path.join(self.folder, name)

    def command(self, *arguments: str) -> tuple[int, str]:
        """Exit status, and what was printed on both streams."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = main(arguments)
        return status, printed.getvalue()

    def test_pieces_with_script_and_page(self):
        scripts, page = self.file("scripts"), self.file("pieces.html")
        status, text = self.command(
            "investigate", f"{self.models}:guarded", "--calls", "--folder", scripts, "--html", page
        )
        self.assertEqual(status, 1)
        self.assertRegex(
            text, r"choice \(Choice\) .* torch.export failed \(a branch or a size depends on the data\)"
        )
        self.assertRegex(text, r"first \(Linear\) .* ok")
        self.assertEqual(sorted(os.listdir(scripts)), ["choice.pt", "choice.py"])
        self.assertTrue(os.path.exists(page))

    def test_model_that_is_right(self):
        for options in ([], ["--discrepancies"], ["--coverage"]):
            with self.subTest(options):
                status, text = self.command("investigate", f"{self.models}:affine", *options)
                self.assertEqual(status, 0, text)
        self.assertIn("2 calls of 2 operators, 0 cannot be translated", text)

    def test_operators(self):
        status, text = self.command("investigate", f"{self.models}:unknown_operator", "--coverage")
        self.assertEqual(status, 1)
        self.assertRegex(text, r"command_line_test.unknown.default +1 +1 refused: has no translation")

    def test_check_tells_how_to_find_the_difference(self):
        model = self.file("model.onnx")
        self.command(
            "export", f"{self.models}:affine", "-o", model, "--dynamic", "x:0=n", "--dynamic", "shift:0=n"
        )
        other = f"{self.models}:other_weights"
        status, text = self.command("check", model, other)
        self.assertEqual(status, 1)
        told = f"python -m experimental_experiment investigate {other} --onnx {model}"
        self.assertIn(f"which result is wrong first: {told}", text)
        status, text = self.command(*told.split(" ")[3:])
        self.assertEqual(status, 1)
        self.assertIn("the first wrong result:\n%mul = aten.mul.Tensor, written as Mul 'mul'", text)

    def test_report_of_an_export(self):
        model, report = self.file("model.onnx"), self.file("report.md")
        status, text = self.command("export", f"{self.models}:affine", "-o", model, "--report", report)
        self.assertEqual(status, 0, text)
        with open(report, encoding="utf-8") as file:
            self.assertIn("the outputs agree with eager", file.read())
        for name, message in (
            (self.file("report.txt"), "report is a file that ends with .html or .md, not"),
            ("nowhere/report.md", "the folder of 'nowhere/report.md' does not exist"),
        ):
            status, text = self.command("export", f"{self.models}:affine", "-o", model, "--report", name)
            self.assertEqual(status, 2)
            self.assertIn(message, text)
        status, text = self.command("export", "--transformers", "some/model", "-o", model, "--report", report)
        self.assertEqual((status, text), (2, "error: --report goes with MODULE:FUNCTION\n"))

    def test_what_fails_in_eager(self):
        """A traceback of Python was printed."""
        model = self.file("model.onnx")
        self.command("export", f"{self.models}:affine", "-o", model)
        sizes = "with RuntimeError: The size of tensor a (3) must match the size of tensor b (4)"
        index = "with IndexError: index 18 is out of bounds for dimension 0 with size 2"
        line = f'  File "{self.models}", line '
        cases = (
            ("other_sizes", ("check", model), sizes, "return x if y is None else x + y"),
            ("other_sizes", ("investigate",), sizes, "return x if y is None else x + y"),
            ("other_sizes_of_a_function", ("check", model), sizes, "return (lambda x: x + torch.ones(4))"),
            ("beyond_the_table", ("check", model), index, "return (lambda x, i: x[i * 2] + 1)"),
            ("beyond_the_table", ("investigate", "--discrepancies"), index, "x[i * 2] + 1"),
            ("beyond_the_table", ("investigate", "--discrepancies", "--at-once", "2"), index, "x[i * 2] + 1"),
            ("three_arguments", ("investigate",), "with TypeError: Shift.forward() takes from 2 to 3", ""),
            ("program_of_other_sizes", ("check", model), "with AssertionError: Guard failed: ", ""),
        )
        for name, (command, *options), sentence, code in cases:
            with self.subTest(name, command=command):
                positional = [*options, f"{self.models}:{name}"]
                status, text = self.command(command, *positional)
                self.assertEqual(status, 1, text)
                self.assertIn(f"error: eager PyTorch itself fails {sentence}", text)
                self.assertIn(code, text)
                self.assertEqual(bool(code), line in text, text)
                self.assertNotIn("Traceback", text)

    def test_arguments_that_check_refuses_as_export_does(self):
        model = self.file("model.onnx")
        self.command("export", f"{self.models}:affine", "-o", model)
        misfit = "error: the arguments do not fit forward: too many positional arguments\n  hint "
        for name, expected, message in (
            ("three_arguments", 1, misfit),
            ("program_and_three_arguments", 1, misfit),
            ("a_class", 2, "error: Shift is a class: export an instance of it"),
        ):
            with self.subTest(name):
                status, text = self.command("check", model, f"{self.models}:{name}")
                self.assertEqual(status, expected, text)
                self.assertIn(message, text)

    def test_other_sizes_than_the_models(self):
        model = self.file("model.onnx")
        self.command("export", f"{self.models}:affine", "-o", model)
        status, text = self.command("investigate", f"{self.models}:taller", "--onnx", model)
        self.assertEqual(status, 1)
        self.assertIn("error: onnxruntime refuses the model or the arguments:", text)

    def test_given_model(self):
        model = self.file("model.onnx")
        self.command(
            "export", f"{self.models}:affine", "-o", model, "--dynamic", "x:0=n", "--dynamic", "shift:0=n"
        )
        status, text = self.command(
            "investigate", f"{self.models}:other_weights", "--onnx", model, "--at-once", "2"
        )
        self.assertEqual(status, 1)
        self.assertIn("the first wrong result:\n%mul = aten.mul.Tensor, written as Mul 'mul'", text)
        with open(model, "wb") as file:
            file.write(b"nothing of this kind")
        status, text = self.command("investigate", f"{self.models}:affine", "--onnx", model)
        self.assertEqual((status, text), (2, f"error: {model!r} is not an ONNX model, or it is truncated\n"))

    def test_first_of_several_calls(self):
        status, text = self.command("investigate", f"{self.models}:rows", "--discrepancies", "--calls")
        self.assertEqual(status, 0, text)
        self.assertIn("the outputs agree with eager", text)
        status, text = self.command("investigate", f"{self.models}:rows", "--coverage", "--calls")
        self.assertEqual(status, 0, text)
        self.assertIn("calls of 2 operators, 0 cannot be translated", text)
        self.assertIn("aten.sym_size.int", text)  # the rows are dynamic

    def test_wrong_commands(self):
        cases = {
            "--folder and --html belong to the tree of modules": ["--coverage", "--html", "x.html"],
            "--at-once belongs to --onnx and --discrepancies": ["--at-once", "3"],
            "the file 'nothing.onnx' does not exist": ["--onnx", "nothing.onnx"],
            "at_once is 2 at least, not 1": ["--discrepancies", "--at-once", "1"],
            "piece_by_piece takes an nn.Module apart, not function": [],
        }
        for message, options in cases.items():
            with self.subTest(message):
                name = "of_a_number" if "nn.Module" in message else "affine"
                status, text = self.command("investigate", f"{self.models}:{name}", *options)
                self.assertEqual(status, 2)
                self.assertIn(message, text)


if __name__ == "__main__":
    torch.manual_seed(0)
    unittest.main()
