"""Variance and standard deviation: corrections, empty and half-precision tensors, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
CUBE = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
SPECIAL = torch.tensor([[1.0, float("nan"), 2.0], [float("inf"), 0.0, 1.0], [4.0, 4.0, 4.0]])
HALVES = CUBE.half() * 100 + 300


class TestVariance(ExporterTestCase):
    CASES = {
        "of everything": (aten.var.default, CUBE),
        "biased": (aten.var.default, CUBE, False),
        "along axes": (aten.var.dim, CUBE, [0, -1], False, True),
        "NaN and inf": (aten.var.dim, SPECIAL, [1]),
        "a correction": (aten.var.correction, CUBE, [1], {"correction": 0}),
        "a fractional correction": (aten.var.correction, CUBE, [1], {"correction": 0.5, "keepdim": True}),
        "a correction of the size": (aten.var.correction, CUBE, [1], {"correction": 3}),
        "a correction above the size": (aten.var.correction, CUBE, [1], {"correction": 5}),
        "one element": (aten.var.correction, torch.tensor(2.0)),
        "no element": (aten.var.correction, torch.zeros(2, 0), [1]),
        "std of everything": (aten.std.default, HALVES),
        "std along axes": (aten.std.dim, CUBE.double(), [1]),
        "std with a correction": (aten.std.correction, CUBE, None, {"correction": 2}),
        "std and mean": (aten.std_mean.default, CUBE),
        "std and mean along axes": (aten.std_mean.dim, CUBE, [-1], True, True),
        "std and mean, corrected": (aten.std_mean.correction, HALVES, [0, 2], {"correction": 0}),
        "var and mean": (aten.var_mean.default, CUBE),
        "var and mean along axes": (aten.var_mean.dim, CUBE, [0]),
        "var and mean, corrected": (aten.var_mean.correction, CUBE.bfloat16(), [0], {"correction": 1}),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_other_sizes(self):
        others = [(torch.randn(4, 1, 5),), (torch.randn(1, 2, 3),), (torch.zeros(2, 0, 3),)]
        self.assert_same_as_eager(aten.var_mean.correction, CUBE, [1], others=others, special_values=True)
        for function in (
            lambda x: x.var(1, correction=0),
            lambda x: torch.std_mean(x, (0, 2), correction=0),
            lambda x: (*torch.var_mean(x), *torch.std_mean(x, None, correction=2, keepdim=True)),
            lambda x: (x - x.mean()) / (x.std() + 1e-3),
        ):
            self.assert_same_as_eager(function, CUBE, others=others, special_values=True)

    def test_the_mean_of_all_is_computed_once(self):
        model = self.assert_same_as_eager(lambda x: (x - x.mean()) / x.std(), CUBE, dynamic=False)
        written = [node.op_type for node in model.graph.node]
        self.assertEqual(written, ["ReduceMean", "Sub", "Mul", "ReduceSum", "Div", "Sqrt", "Div"])

    def test_a_layer_norm_by_hand_is_one_node(self):
        def norm(x):
            distance = x - x.mean(-1, keepdim=True)
            return distance / torch.sqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)

        model = self.assert_same_as_eager(norm, CUBE, dynamic=False)
        self.assertEqual([node.op_type for node in model.graph.node], ["LayerNormalization"])


if __name__ == "__main__":
    unittest.main()
