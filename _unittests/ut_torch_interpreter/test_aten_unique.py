"""Distinct elements, runs of equal elements, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
NUMBERS = torch.tensor([[3.0, 0.5, 1.0], [INF, 0.5, 3.0], [1.0, -INF, 0.0]])
FLOATS = torch.tensor([[3.0, NAN, 1.0], [INF, NAN, 3.0], [1.0, -INF, 0.0]])
INTS = torch.tensor([[2**53 + 1, 2**53, 3], [3, 3, 2**53]])
ROWS = torch.tensor([[1, 2], [1, 2], [0, 5], [1, 2]])


class TestUnique(ExporterTestCase):
    CASES = {
        "floats": (aten._unique2.default, NUMBERS, True, True, True),
        "only the elements": (aten._unique2.default, NUMBERS),
        "one element": (aten._unique2.default, torch.tensor(3.0), True, True, True),
        "no element": (aten._unique2.default, NUMBERS[:0], True, True, True),
        "integers": (aten._unique2.default, INTS, True, True, True),
        "booleans": (aten._unique2.default, INTS > 3, True, False, True),
        "bytes": (aten._unique2.default, ROWS.to(torch.uint8), False, True, False),
        "halves": (aten._unique2.default, NUMBERS.half(), True, True, True),
        "short floats": (aten._unique2.default, NUMBERS.bfloat16(), True, True, True),
        "numbers": (aten._unique2.default, INTS.to(torch.int16), True, True, True),
        "without counts": (aten._unique.default, ROWS, True, True),
        "runs": (aten.unique_consecutive.default, torch.tensor([1, 1, 2, 2, 2, 1]), True, True),
        "runs with NaN": (
            aten.unique_consecutive.default,
            torch.tensor([[1.0, 1.0], [NAN, NAN]]),
            True,
            True,
        ),
        "runs of rows": (aten.unique_consecutive.default, ROWS, True, True, 0),
        "nothing": (aten.unique_consecutive.default, torch.zeros(0), True, True),
        "rows": (aten.unique_dim.default, ROWS, 0, True, True, True),
        "columns of floats": (aten.unique_dim.default, ROWS.half().t(), 1),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    SPECIAL_VALUES = {
        "NaN differs from NaN": (aten._unique2.default, FLOATS, True, True, True),
        "halves": (aten._unique2.default, FLOATS.half(), True, True, True),
        "only the elements": (aten._unique2.default, FLOATS.double()),
        "nothing": (aten._unique2.default, FLOATS[:0], True, True, True),
        "one element": (aten._unique2.default, torch.tensor(NAN), True, True, True),
    }

    def test_special_values(self):
        self.assert_cases(self.SPECIAL_VALUES, special_values=True)

    def test_a_call_for_each_result(self):
        """One node gives all of them, in the place of several that onnxruntime does not load."""

        def results(x):
            inverse, counts = torch.unique(x, return_inverse=True)[1], torch.unique(x, return_counts=True)[1]
            return inverse, counts, torch.unique(x)

        self.assert_same_as_eager(results, torch.tensor([3, 1, 3, 2]), others=[(torch.tensor([5, 5, 4]),)])

    def test_the_shape_that_torch_declares_for_the_last_axis_is_wrong(self):
        with self.assertRaisesRegex(ExportError, "declares a wrong shape for dim=-1"):
            to_onnx(lambda x: torch.unique_consecutive(x, dim=-1), (ROWS,))


if __name__ == "__main__":
    unittest.main()
