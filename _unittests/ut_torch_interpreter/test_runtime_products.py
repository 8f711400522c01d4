"""Rows of matrix products."""

import unittest

import numpy as np
import torch

from experimental_experiment.comparison import session
from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx

SQUARE, VECTOR = torch.randn(5, 5), torch.randn(5)

ROWS = {
    "MatMul.of_a_vector": (lambda a, v: a.t() @ v, SQUARE, VECTOR),
}

OTHER_ROWS = {"MatMul.over_nothing": (lambda a, b: a @ b.mT, torch.randn(2, 3, 0), torch.randn(2, 4, 0))}
"""Rows without which a result is whatever the memory held."""


class TestProducts(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_results_that_are_not_set(self):
        for name, (function, *args) in OTHER_ROWS.items():
            with self.subTest(name):
                self.assertEqual(0, float(self.over_sevens(to_onnx(function, tuple(args)), args).abs().max()))
                with without_row(name):
                    model = to_onnx(function, tuple(args))
                self.assertEqual(7, float(self.over_sevens(model, args).abs().max()))

    def over_sevens(self, model, args) -> torch.Tensor:
        """The output of a model, in memory that held the number seven."""
        runner = session(model)
        binding, held = runner.io_binding(), np.full((2, 3, 4), 7, np.float32)
        for argument, tensor in zip(runner.get_inputs(), args):
            binding.bind_cpu_input(argument.name, tensor.numpy())
        binding.bind_output("output", "cpu", 0, np.float32, held.shape, held.ctypes.data)
        runner.run_with_iobinding(binding)
        return torch.from_numpy(held)

    CASES = {
        "a transposed matrix and a vector": (lambda a, v: a.t() @ v, SQUARE, VECTOR),
        "a vector and a transposed matrix": (lambda a, v: v @ a.t(), SQUARE, VECTOR),
        "mv": (lambda a, v: a.t().mv(v), SQUARE, VECTOR),
        "addmv": (lambda a, v: torch.addmv(v, a.t(), v, beta=0.5, alpha=2.0), SQUARE, VECTOR),
        "a batch of transposed matrices": (lambda a, v: a.mT @ v, torch.randn(2, 5, 4), VECTOR),
        "two vectors": (lambda a, v: a.t()[0] @ v, SQUARE, VECTOR),
        "scaled, then transposed": (lambda a, v: (a * 0.5).t() @ v, SQUARE, VECTOR),
        "a permuted batch": (
            lambda a, v: a.permute(2, 1, 0) @ v,
            torch.randn(3, 5, 4)[:, :, :3].repeat(1, 1, 2)[:5],
            torch.randn(3),
        ),
    }

    def test_between_transpositions(self):
        self.assert_cases(self.CASES)


if __name__ == "__main__":
    unittest.main()
