"""The runtime table: every row is needed, says what it is, and only works for its target."""

import importlib
import pkgutil
import unittest

import torch

import _unittests.ut_torch_interpreter as room
from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.runtime import table

X = torch.randn(4, 4)


def tested_rows() -> set[str]:
    """The rows that a table ``ROWS`` or ``OTHER_ROWS`` of a file ``test_runtime_*`` has a case of."""
    found: set[str] = set()
    for module in pkgutil.iter_modules(room.__path__):
        if module.name.startswith("test_runtime_"):
            tests = importlib.import_module(f"{room.__name__}.{module.name}")
            found.update(getattr(tests, "ROWS", {}), getattr(tests, "OTHER_ROWS", {}))
    return found


class TestTable(ExporterTestCase):
    def test_every_row_has_a_case(self):
        self.assertEqual(set(), {row.name for row in table.ROWS} - tested_rows())

    def test_names_are_unique(self):
        with self.assertRaisesRegex(ValueError, r"the row MatMul.of_a_vector stands twice in the table"):
            row = next(row for row in table.ROWS if row.name == "MatMul.of_a_vector")
            table.repairs("MatMul", when="", because="", nodes=0)(row.rewrite)

    def test_the_plain_standard_has_no_repair(self):
        model = to_onnx(lambda x: x @ x[0], (X,), runtime="onnx")
        self.assertEqual(["Gather", "MatMul"], [node.op_type for node in model.graph.node])

    def test_the_plain_standard_keeps_halves(self):
        model = to_onnx(lambda x: x @ x + 1, (X.to(torch.bfloat16),), runtime="onnx")
        self.assertEqual(["MatMul", "Add"], [node.op_type for node in model.graph.node])

    def test_special_values_are_asked_for(self):
        for special_values, expected in (
            (False, ["ReduceMax"]),
            (True, ["ReduceMax", "ReduceL1", "IsNaN", "Where"]),
        ):
            model = to_onnx(lambda x: x.amax(1), (X,), special_values=special_values)
            self.assertEqual(expected, [node.op_type for node in model.graph.node])

    def test_another_runtime(self):
        with self.assertRaisesRegex(ValueError, "runtime is 'onnxruntime' or 'onnx', not 'tensorrt'"):
            to_onnx(lambda x: x + 1, (X,), runtime="tensorrt")

    def test_special_values_that_are_no_bool(self):
        with self.assertRaisesRegex(TypeError, "special_values is True or False, not 'yes'"):
            to_onnx(lambda x: x + 1, (X,), special_values="yes")

    def test_a_row_that_does_not_exist(self):
        with (
            self.assertRaisesRegex(KeyError, "the runtime table has no row MatMul.other"),
            without_row("MatMul.other"),
        ):
            pass


class TestRegions(ExporterTestCase):
    """Operators without a kernel for bfloat16 that follow each other are cast once around."""

    def test_a_chain(self):
        x = X.to(torch.bfloat16)
        model = self.assert_same_as_eager(lambda x: torch.tanh(x @ x + x) * 2, x, dynamic=False)
        self.assertEqual(2, [node.op_type for node in model.graph.node].count("Cast"))

    def test_comparisons_see_the_rounded_values(self):
        x = torch.tensor([1.0, 1.0 + 2**-7], dtype=torch.bfloat16)
        self.assert_same_as_eager(lambda x: (x * 1.01 == (x * 1.01).reshape(2, 1), (x / 3).sort()), x)

    def test_the_rounding_that_the_model_asks_for(self):
        x = torch.tensor([1.0, 3.0], dtype=torch.bfloat16)
        self.assert_same_as_eager(lambda x: (x / 3).float() * 3, x)


if __name__ == "__main__":
    unittest.main()
