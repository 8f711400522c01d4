"""Arguments that make no sense: each command says so in one sentence, before it does anything."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import textwrap
import unittest
import unittest.mock

import numpy as np
import onnx

from _unittests.ut_command_line.test_faults import FaultsTestCase
from experimental_experiment.command_line import parser

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


    def kwargs_of_a_number():
        return Shift(), (torch.ones(2, 3),), 3


    def kwargs_of_a_list():
        return Shift(), (torch.ones(2, 3),), [1]


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


class TestInputs(RefusedTestCase):
    """Of `run`, as of every command that runs a model; model.onnx takes float32[batch, 8]."""

    def test_files_that_hold_no_inputs(self):
        rows = np.ones((2, 8), np.float32)
        np.savez_compressed("whole.npz", x=np.random.default_rng(0).normal(size=(50, 8)))
        damaged = bytearray(pathlib.Path("whole.npz").read_bytes())
        damaged[200:260] = bytes(60)
        pathlib.Path("damaged.npz").write_bytes(damaged)
        arrays = {
            "texts": np.array(["a", "b"]),
            "structures": np.array([(1.0,)], [("a", "<f4")]),
            "dates": np.array(["2020-01-01"], "datetime64[s]"),
            "complex": np.ones((2, 8), np.complex64),
        }
        for name, array in arrays.items():
            np.save(f"{name}.npy", array)
            self.assert_says(
                f"'{name}.npy' holds no arrays of numbers: {array.dtype} is no dtype of an input",
                *("run", "model.onnx", "--inputs", f"x={name}.npy"),
            )
        self.assert_says(
            "'damaged.npz' holds no arrays of numbers: ", "run", "model.onnx", "--inputs", "damaged.npz"
        )
        np.save("one.npy", rows)
        os.rename("one.npy", "one.npz")
        self.assert_says(
            "'one.npz' holds one array, as a .npy file does", "run", "model.onnx", "--inputs", "one.npz"
        )
        os.rename("whole.npz", "whole.npy")
        self.assert_says(
            "'whole.npy' holds several arrays, as a .npz file does",
            *("run", "model.onnx", "--inputs", "x=whole.npy"),
        )

    def test_the_order_of_bytes_of_a_file(self):
        """They were read in that of the machine, without a word."""
        rows = np.arange(16, dtype=np.float32).reshape(2, 8)
        results = []
        for order in "<>":
            np.save("x.npy", rows.astype(f"{order}f4"))
            status, out, err = self.command("run", "model.onnx", "--inputs", "x=x.npy")
            self.assertEqual(0, status, err)
            results.append(out)
        self.assertEqual(*results)

    def test_sizes_and_seeds(self):
        for size in ("\N{SUPERSCRIPT TWO}", "-3", "1" * 5000):
            self.assert_says("DIMENSION=SIZE is needed", "run", "model.onnx", "--size", f"batch={size}")
        self.assert_says(
            "random inputs of these sizes do not fit into memory: ",
            *("run", "model.onnx", "--size", "batch=9999999999999"),
        )
        sentence = "--seed -1: a number that is not negative is needed"
        self.assert_says(sentence, "run", "model.onnx", "--seed", "-1")
        self.command("lighten", "model.onnx", "-o", "light.onnx", "--larger-than", "10")
        self.assert_says(sentence, "unlighten", "light.onnx", "-o", "out.onnx", "--seed", "-1")

    def test_the_reference_evaluator(self):
        for array, sentence in (
            (np.ones((2, 7), np.float32), "the input 'x' has the shape ['batch', 8], not [2, 7]"),
            (np.ones((2, 8), np.int64), "the input 'x' is float32, not int64"),
        ):
            np.save("x.npy", array)
            self.assert_says(
                f"the reference evaluator does not run the model on these inputs: {sentence}",
                *("run", "model.onnx", "--reference", "--inputs", "x=x.npy"),
            )


class TestEmpty(RefusedTestCase):
    """``--save "$FILE"`` of a variable that is not set: some options counted as not given then."""

    def test_every_text_of_every_command(self):
        seen = set()
        for command, arguments in parser()._subparsers._group_actions[0].choices.items():
            texts = [
                action
                for action in arguments._actions
                if action.nargs != 0 and action.type is None and action.choices is None
            ]
            needed = [action for action in texts if action.required and not action.option_strings]
            for action in texts:
                name = "/".join(action.option_strings) or action.metavar or action.dest
                seen.add(name)
                if name == "--patterns":
                    continue
                words = ["" if positional is action else "something" for positional in needed]
                if action.option_strings:
                    words += [action.option_strings[0], ""]
                if name != "-o/--output" and "-o" in arguments._option_string_actions:
                    words += ["-o", "out.onnx"]
                if command == "export" and name == "MODULE:FUNCTION":
                    words.append("")
                self.assert_says(f"{name} '': a text that is not empty is needed", command, *words)
        self.assertLess({"-o/--output", "--weights", "--save", "--plot", "--html", "--inputs", "NAME"}, seen)
        self.assertFalse(os.path.exists("out.onnx"))

    def test_no_patterns_are_no_rules(self):
        arguments = ("optimize", "model.onnx", "-o", "out.onnx", "--patterns", "")
        status, out, err = self.command(*arguments)
        self.assertEqual(0, status, err)
        self.assertIn(" after 0 rewritings", out)


class TestOthers(RefusedTestCase):
    def test_models(self):
        for source, sentence in {
            "shapes.py:kwargs_of_a_number": "returns kwargs as int, a dict of arguments by name is needed",
            "shapes.py:kwargs_of_a_list": "returns kwargs as list, a dict of arguments by name is needed",
            ".shapes:sine": "there is no module '.shapes'",
        }.items():
            self.assert_says(sentence, "export", source, "-o", "out.onnx")

    def test_patterns(self):
        for patterns, sign in {"++": "+", "default-": "-", "default+ -NegNeg": "+"}.items():
            self.assert_says(
                f"patterns is {patterns!r}, with no name of a set or a rule behind a {sign}",
                *("optimize", "model.onnx", "-o", "out.onnx", "--patterns", patterns),
            )

    @unittest.skipIf(importlib.util.find_spec("matplotlib") is None, "matplotlib is not installed")
    def test_plots_before_the_runs(self):
        with unittest.mock.patch("experimental_experiment.command_line.profiling.profile") as runs:
            for name in ("bars.xyz", "bars"):
                self.assert_says(
                    f"--plot {name}: a bar chart is a file of ", "profile", "model.onnx", "--plot", name
                )
        runs.assert_not_called()


if __name__ == "__main__":
    unittest.main()
