"""Arithmetic: same values, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
INTS = torch.tensor([[-7, 3], [0, 5]])
FLOATS = torch.tensor([[-1.5, 2.0], [0.0, float("inf")]])


class TestArithmetic(ExporterTestCase):
    CASES = {
        "alpha scales the second operand": (aten.add.Tensor, FLOATS, FLOATS.t(), {"alpha": 2}),
        "an int and a float number make a float": (aten.add.Tensor, INTS, 0.5),
        "integers divide to a float": (aten.div.Tensor, INTS, torch.tensor(2)),
    }

    def test_same_as_eager(self):
        for promise, (target, *args) in self.CASES.items():
            with self.subTest(promise):
                kwargs = args.pop() if isinstance(args[-1], dict) else {}
                self.assert_same_as_eager(target, *args, kwargs=kwargs)


if __name__ == "__main__":
    unittest.main()
