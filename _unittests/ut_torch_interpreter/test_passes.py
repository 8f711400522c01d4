"""What is changed after the walk: float64 keeps its digits, what is left over goes."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

torch.manual_seed(0)

aten = torch.ops.aten
LEFT, RIGHT, SQUARE = (torch.randn(*shape, dtype=torch.float64) for shape in ((2, 5, 7), (2, 7, 6), (5, 5)))
TO_ROUNDING = 1e-5
"""1e-12 instead of the 1e-7 of float64."""


class TestKeepDigits(ExporterTestCase):
    CASES = {
        "a product that is scaled": (lambda a, b: (a @ b) * 0.3, LEFT, RIGHT),
        "a product that is divided": (lambda a, b: (a @ b) / 7**0.5, LEFT, RIGHT),
        "an operand that is scaled": (lambda a, b: (a * 0.3) @ b, LEFT, RIGHT),
        "an operand that is scaled, then transposed": (lambda a, b: (a * 0.3).mT @ b, RIGHT, RIGHT),
        "a matrix and a vector": (lambda a, b: 0.3 * (a @ b[0, :, 0]), LEFT, RIGHT),
        "a column": (lambda a, b: (a @ b[..., :1]) * 0.3, LEFT, RIGHT),
        "addmm": (torch.addmm, SQUARE, SQUARE + 1, SQUARE + 2, {"alpha": 0.3, "beta": 0.7}),
        "baddbmm": (torch.baddbmm, LEFT, LEFT[:, :, :5], LEFT, {"alpha": 0.3, "beta": 0.7}),
        "attention": (torch.nn.functional.scaled_dot_product_attention, LEFT, LEFT, LEFT, {"scale": 0.3}),
    }

    def test_factors_beside_a_matrix_product(self):
        self.assert_cases(self.CASES, scale=TO_ROUNDING)

    def test_in_a_branch(self):
        def branches(a, b):
            return torch.cond(
                a.sum() > 0, lambda a, b: (a @ b) * 0.3, lambda a, b: (a @ b) * 0.7, [a.clone(), b.clone()]
            )

        self.assert_same_as_eager(branches, LEFT, RIGHT, scale=TO_ROUNDING)

    def test_numbers_that_float32_holds_stay_scalars(self):
        model = to_onnx(lambda a, b: (a @ b) * 0.5 + 0.3, (LEFT, RIGHT))
        self.assertEqual([list(tensor.dims) for tensor in model.graph.initializer], [[], []])


if __name__ == "__main__":
    unittest.main()
