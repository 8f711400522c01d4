"""Rows of random numbers: the distributions after opset 21."""

import unittest

import numpy as np
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented

from experimental_experiment.comparison import session
from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx

WEIGHTS = torch.tensor([[0.2, 0.0, 0.8, 1.0], [0.0, 2.0, 0.0, 0.0]])

OTHER_ROWS = {
    "Multinomial.where_the_sum_passes": (lambda x: torch.multinomial(x, 6000, True), WEIGHTS),
    "RandomNormalLike.of_two_uniform_numbers": (torch.randn_like, torch.zeros(100, 60)),
    "RandomUniformLike.of_coins": (torch.rand_like, torch.zeros(100, 60)),
}
"""Functions that write the operators."""

DRAWN = {
    "uniform": (torch.rand_like, 0.5, 12**-0.5),
    "a range": (lambda x: x.uniform_(-3, 5), 1.0, 8 * 12**-0.5),
    "normal": (torch.randn_like, 0.0, 1.0),
    "a mean and a deviation": (lambda x: x.normal_(3.0, 0.25), 3.0, 0.25),
    "halves": (lambda x: torch.randn_like(x.half()), 0.0, 1.0),
    "doubles": (lambda x: torch.randn_like(x.double()), 0.0, 1.0),
    "without an input": (lambda x: torch.rand(100, 60) + x * 0, 0.5, 12**-0.5),
    "dropout": (lambda x: torch.nn.functional.dropout(x + 1, 0.2, True), 1.0, 0.5),
    "integers": (lambda x: torch.randint(0, 5, x.shape), 2.0, 2**0.5),
}
"""A function, the mean and the deviation of what it gives."""


def drawn(model, *tensors: torch.Tensor) -> np.ndarray:
    """The first output of one run."""
    names = [value.name for value in model.graph.input]
    return session(model).run(None, dict(zip(names, (tensor.numpy() for tensor in tensors))))[0]


class TestRandom(ExporterTestCase):
    def test_without_the_row_there_is_no_kernel(self):
        for name, (function, x) in OTHER_ROWS.items():
            with self.subTest(name):
                with without_row(name):
                    model = to_onnx(function, (x,), target_opset=22)
                with self.assertRaises(NotImplemented):
                    session(model)
                operator = name.partition(".")[0]
                for options in ({"target_opset": 21}, {"target_opset": 22, "runtime": "onnx"}):
                    model = to_onnx(function, (x,), **options)
                    self.assertIn(operator, [node.op_type for node in model.graph.node])

    def test_distributions(self):
        """Of known sizes and of dynamic ones, other numbers at every run, independent of each other."""
        x = torch.zeros(100, 60)
        for promise, (function, mean, deviation) in DRAWN.items():
            for shapes in (None, {0: "rows", 1: "columns"}):
                if shapes and promise == "without an input":
                    continue
                with self.subTest(promise, shapes=shapes):
                    model = to_onnx(function, (x.clone(),), dynamic_shapes=(shapes,), target_opset=23)
                    first, second = (drawn(model, x).astype(np.float64) for _ in range(2))
                    self.assertEqual(first.shape, (100, 60))
                    self.assertAlmostEqual(first.mean(), mean, delta=0.1 * deviation)
                    self.assertAlmostEqual(first.std(), deviation, delta=0.06 * deviation)
                    together = np.stack([first.ravel(), second.ravel(), np.roll(first.ravel(), 1)])
                    self.assertLess(np.abs(np.corrcoef(together) - np.eye(3)).max(), 0.08)

    def test_two_draws_of_one_model(self):
        model = to_onnx(
            lambda x: torch.rand_like(x) - torch.rand_like(x), (torch.zeros(50),), target_opset=23
        )
        self.assertGreater(np.abs(drawn(model, torch.zeros(50))).max(), 0.2)

    def test_a_translation_with_a_seed(self):
        """The dtype is that of the input, and two sessions draw the same."""

        def seeded(op, self):
            return op.Add(op.RandomUniformLike(self, seed=3.0), op.RandomNormalLike(self, seed=5.0))

        x = torch.zeros(50, dtype=torch.float64)
        options = {"translations": {torch.ops.aten.sin.default: seeded}, "target_opset": 22}
        model = to_onnx(torch.sin, (x,), **options)
        first, again = drawn(model, x), drawn(model, x)
        self.assertEqual(first.dtype, np.float64)
        np.testing.assert_array_equal(first, again)
        self.assertGreater(first.std(), 0.2)

    def test_shapes(self):
        for shape in ((), (0, 3), (1,), (2, 3, 1, 4)):
            x = torch.zeros(shape)
            for function in (torch.rand_like, torch.randn_like):
                self.assertEqual(shape, drawn(to_onnx(function, (x,), target_opset=22), x).shape)

    def test_classes(self):
        function, weights = OTHER_ROWS["Multinomial.where_the_sum_passes"]
        found = drawn(to_onnx(function, (weights,), target_opset=23), weights)
        self.assertEqual(found.dtype, np.int64)
        for row, chances in zip(found, weights / weights.sum(1, keepdim=True)):
            shares = np.bincount(row, minlength=4) / 6000
            np.testing.assert_allclose(shares, chances.numpy(), atol=0.03)
            self.assertEqual((shares == 0).tolist(), (chances == 0).tolist())


if __name__ == "__main__":
    unittest.main()
