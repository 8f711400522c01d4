"""What is removed from a model after the walk."""

import unittest

import torch

from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.xoptim import OptimizationOptions, P, var
from experimental_experiment.xoptim.rules import Rule


class TestPasses(unittest.TestCase):
    def operators(self, function, x: torch.Tensor, **options) -> list[str]:
        """The operators of the model of a function of one tensor, sorted."""
        return sorted(node.op_type for node in to_onnx(function, (x,), **options).graph.node)

    def test_what_is_unused_goes(self):
        # the product is written twice, the second time with factors that keep their digits
        matrix = torch.ones(3, 3, dtype=torch.float64)
        for optimize in (True, False):
            found = self.operators(lambda x: (x * 0.3) @ x, matrix, optimize=optimize)
            self.assertEqual(["MatMul", "Mul"], found)

    def test_what_stands_twice_goes_with_optimize(self):
        def twice(x):
            return x.sin() + x.sin()

        self.assertEqual(["Add", "Sin"], self.operators(twice, torch.ones(3)))
        self.assertEqual(["Add", "Sin", "Sin"], self.operators(twice, torch.ones(3), optimize=False))

    def test_options(self):
        def twice(x):
            return x.sin() + (-x.sin())

        x = torch.ones(3)
        self.assertEqual(["Sin", "Sub"], self.operators(twice, x))
        for options, expected in {
            OptimizationOptions("default-AddNeg"): ["Add", "Neg", "Sin"],
            OptimizationOptions(None, common_subexpressions=False): ["Add", "Neg", "Sin", "Sin"],
        }.items():
            self.assertEqual(expected, self.operators(twice, x, optimize=options))

    def test_wrong_options(self):
        with self.assertRaisesRegex(
            TypeError, "optimize is True, False or OptimizationOptions, not 'default'"
        ):
            to_onnx(torch.sin, (torch.ones(3),), optimize="default")

        foreign = Rule(P.Relu(var("x")), lambda op, x: None, ("x",), "onnxruntime")
        with self.assertRaisesRegex(ValueError, "the rule <lambda> writes operators of com.microsoft: give"):
            to_onnx(torch.sin, (torch.ones(3),), optimize=OptimizationOptions([foreign]))


if __name__ == "__main__":
    unittest.main()
