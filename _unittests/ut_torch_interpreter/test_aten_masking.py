"""Masking: where, masked operators, nonzero, triangles, checked against eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


NAN = torch.tensor([[0.0, -0.0, float("nan")], [float("inf"), 1e-45, 2.0]])
MASK = torch.tensor([[True, False, True], [False, False, True]])


class TestMasking(ExporterTestCase):
    CASES = {
        "where": (aten.where.self, MASK, floats(3), -floats(2, 3)),
        "where promotes": (aten.where.self, MASK, torch.tensor(1), floats(2, 3)),
        "where of two numbers": (aten.where.Scalar, MASK, 1.5, 2),
        "where of a number": (aten.where.ScalarOther, MASK, floats(3), 2),
        "where of a number first": (aten.where.ScalarSelf, MASK, 2.5, torch.tensor([1, 2, 3])),
        "where of booleans": (aten.where.self, MASK, MASK, ~MASK),
        "where of float16": (aten.where.self, MASK, NAN.half(), floats(3).half()),
        "where as positions": (aten.where.default, MASK),
        "masked_fill": (aten.masked_fill.Scalar, floats(3), MASK, float("-inf")),
        "masked_fill of ints": (aten.masked_fill.Scalar, torch.tensor([1, 2, 3]), MASK, -7),
        "masked_fill of booleans": (aten.masked_fill.Scalar, MASK, ~MASK, True),
        "masked_fill with a tensor": (aten.masked_fill.Tensor, floats(2, 3), MASK[0], torch.tensor(2)),
        "masked_select": (aten.masked_select.default, NAN, MASK),
        "masked_select broadcasts": (aten.masked_select.default, floats(4, 3), MASK[0]),
        "masked_select of nothing": (aten.masked_select.default, floats(3), torch.zeros(3, dtype=torch.bool)),
        "masked_select of a 0-d tensor": (aten.masked_select.default, floats(), torch.tensor(True)),
        "masked_scatter": (aten.masked_scatter.default, floats(2, 3), MASK, -floats(7)),
        "masked_scatter broadcasts the mask": (
            aten.masked_scatter.default,
            floats(2, 3),
            MASK[0],
            -floats(2, 3),
        ),
        "gradient of masked_scatter": (
            lambda x, mask: aten.masked_scatter_backward.default(x, mask, [4, 2]),
            floats(2, 3),
            MASK,
        ),
        "masked_scatter of a 0-d tensor": (
            aten.masked_scatter.default,
            floats(),
            torch.tensor(True),
            -floats(2) - 1,
        ),
        "nonzero": (aten.nonzero.default, NAN),
        "nonzero of ints": (aten.nonzero.default, torch.tensor([[0, 2], [-1, 0]], dtype=torch.int16)),
        "nonzero of a 0-d tensor": (aten.nonzero.default, torch.tensor(2.0)),
        "nonzero of 0": (aten.nonzero.default, torch.tensor(0)),
        "nonzero of a tiny float64": (aten.nonzero.default, torch.tensor([0.0, 5e-324], dtype=torch.float64)),
        "argwhere": (aten.argwhere.default, MASK),
        "nonzero_numpy": (aten.nonzero_numpy.default, floats(2, 2)),
        "nonzero_static": (aten.nonzero_static.default, MASK, {"size": 5}),
        "nonzero_static of too many": (aten.nonzero_static.default, MASK, {"size": 2, "fill_value": 7}),
        "tril": (aten.tril.default, NAN),
        "tril of a batch": (aten.tril.default, floats(2, 3, 4), -1),
        "tril of booleans": (aten.tril.default, torch.ones(3, 3, dtype=torch.bool), 1),
        "triu": (aten.triu.default, floats(3, 4), 1),
        "triu of ints": (aten.triu.default, torch.ones(3, 2, dtype=torch.int32), -5),
        "triu of float16": (aten.triu.default, floats(3, 3).half(), 9),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)


if __name__ == "__main__":
    unittest.main()
