"""Arguments that make no sense: each command says so in one sentence, before it does anything."""

from __future__ import annotations

import textwrap
import unittest

import onnx

from _unittests.ut_command_line.test_faults import FaultsTestCase

MODELS = textwrap.dedent(
    """
    import torch


    class Shift(torch.nn.Module):
        def forward(self, x, y=None):
            return x if y is None else x + y


    def dims_in_a_tuple():
        return Shift(), (torch.ones(2, 3),), {}, {"x": (torch.export.Dim("rows"), None)}


    def dims_of_the_last_axis():
        return Shift(), (torch.ones(2, 3),), {}, [{-1: "columns"}]


    def a_text():
        return Shift(), (torch.ones(2, 3),), {}, "rows"


    def one_dim_too_few():
        return Shift(), (torch.ones(2, 3),), {}, {"x": ["rows"]}


    def three_arguments():
        return Shift(), (torch.ones(2, 3),) * 3


    def sine():
        return torch.sin, (torch.ones(2, 3),)


    def a_class():
        return Shift, (torch.ones(2, 3),)


    def program():
        return (torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),), dynamic_shapes=({0: torch.export.Dim("rows")},)),)
    """
)


class RefusedTestCase(FaultsTestCase):
    """Runs commands on the models above."""

    def setUp(self):
        super().setUp()
        with open("shapes.py", "w") as file:
            file.write(MODELS)

    def assert_says(self, sentence: str, *arguments: str) -> None:
        """A command ends with 2 and one line, which holds the sentence."""
        with self.subTest(arguments):
            status, _, err = self.command(*arguments)
            self.assertEqual(2, status, err)
            self.assertTrue(err.startswith("error: "), err)
            self.assertEqual(1, err.count("\n"), err)
            self.assertIn(sentence, err)


class TestDynamic(RefusedTestCase):
    def shapes(self, function: str, *dynamic: str) -> list[str]:
        """The dimensions of the input of an exported model."""
        entries = [word for entry in dynamic for word in ("--dynamic", entry)]
        status, _, err = self.command("export", f"shapes.py:{function}", "-o", "out.onnx", *entries)
        self.assertEqual(0, status, err)
        dims = onnx.load("out.onnx").graph.input[0].type.tensor_type.shape.dim
        return [dim.dim_param or str(dim.dim_value) for dim in dims]

    def test_is_added_to_what_the_function_says(self):
        self.assertEqual(["rows", "n"], self.shapes("dims_in_a_tuple", "x:1=n"))
        self.assertEqual(["rows", "columns"], self.shapes("dims_of_the_last_axis", "x:0=rows"))
        self.assertEqual(["2", "n"], self.shapes("dims_of_the_last_axis", "x:1=n"))

    def test_a_function_whose_arguments_have_no_names(self):
        self.assertEqual(["n", "3"], self.shapes("sine", "args[0]:0=n"))
        self.assert_says(
            "the model has no argument 'x' but args[0]",
            *("export", "shapes.py:sine", "-o", "out.onnx", "--dynamic", "x:0=n"),
        )

    def test_names_of_a_program(self):
        self.assertEqual(["n", "3"], self.shapes("program", "input:0=n"))

    def test_what_does_not_fit(self):
        cases = {
            "a_text": "dynamic_shapes does not fit the arguments: it is 'rows', not a dict of arguments, a tuple or a list",
            "one_dim_too_few": "dynamic_shapes does not fit the arguments: x has 2 dimensions, its entry has 1",
            "three_arguments": "the arguments do not fit forward: too many positional arguments",
            "a_class": "Shift is a class: export an instance of it",
        }
        for function, sentence in cases.items():
            self.assert_says(
                sentence, "export", f"shapes.py:{function}", "-o", "out.onnx", "--dynamic", "x:0=n"
            )

    def test_axes_that_are_no_numbers(self):
        for axis in ("\N{SUPERSCRIPT TWO}", "--1", "1" * 5000):
            self.assert_says(
                "is not AXIS=NAME with an axis of 2",
                *("export", "shapes.py:dims_in_a_tuple", "-o", "out.onnx", "--dynamic", f"x:{axis}=n"),
            )


if __name__ == "__main__":
    unittest.main()
