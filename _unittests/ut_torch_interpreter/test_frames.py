"""Whose line it is: functions that are in no file, as those of ``python -c``, and those that Python writes itself."""

import dataclasses
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.randn(4, 6)
ROWS = ({0: "rows", 1: "columns"},)
MODES = (ExportOptions(), ExportOptions(strict=True), ExportOptions(tracing="make_fx"))

TEXT = """
def branch(x):
    return x * 2 if x.shape[0] > 2 else x - 1

def half(x):
    return x[:, : int(x.shape[1] * 0.5)]

def data(x):
    return x.data
"""


@dataclasses.dataclass
class Length:
    """A class whose comparison Python writes."""

    value: int


def compared(x):
    return x * 2 if Length(x.shape[0] > 2) == Length(True) else x - 1  # the comparison


class TestFunctionsWithoutFile(ExporterTestCase):
    def setUp(self):
        super().setUp()
        self.functions = {}
        exec(TEXT, self.functions)

    def test_their_branches_are_told(self):
        for options in MODES:
            with self.subTest(options), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(self.functions["branch"], (X,), dynamic_shapes=ROWS, export_options=options)
                self.assertRegex(
                    logs.records[0].getMessage(), r'rows > 2\n  File "<string>", line 3, in \w+$'
                )

    def test_the_line_of_an_error_has_no_code(self):
        function = eval("lambda x: x * 2 if x.shape[0] == 4 else x")
        for options in MODES:
            with self.subTest(options), self.assertRaises(RuntimeError) as raised:
                to_onnx(function, (X,), dynamic_shapes=ROWS, export_options=options)
            self.assertRegex(str(raised.exception), r'\n  File "<string>", line 1, in \S+\n  hint ')

    def test_their_sizes_stay_dynamic(self):
        for name in ("half", "data"):
            with self.subTest(name):
                self.assert_same_as_eager(self.functions[name], X, others=[(torch.randn(3, 9),)])


class TestFunctionsOfPython(ExporterTestCase):
    def test_comparisons_of_dataclasses_are_told(self):
        for options in MODES:
            with self.subTest(options), self.assertLogs("experimental_experiment", "WARNING") as logs:
                to_onnx(compared, (X,), dynamic_shapes=ROWS, export_options=options)
            self.assertRegex(logs.records[0].getMessage(), r"rows > 2\n.*test_frames.*\n.*# the comparison$")


if __name__ == "__main__":
    unittest.main()
