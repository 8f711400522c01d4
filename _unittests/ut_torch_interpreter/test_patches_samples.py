"""Samples of Dirichlet and of what is made of it: shapes and dtypes as eager, the means of the distribution."""

import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import Call, ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

kinds = torch.distributions
ROWS = {"dynamic_shapes": (({0: "rows"},),)}

FUNCTIONS = {
    "Dirichlet": lambda x: kinds.Dirichlet(x).rsample(),
    "Dirichlet, several": lambda x: kinds.Dirichlet(x).sample((3,)),
    "Beta": lambda x: kinds.Beta(x, x * 2).sample(),
    "LKJCholesky": lambda x: kinds.LKJCholesky(3, x[:, 0]).sample(),
}


class TestSamples(ExporterTestCase):
    def test_other_sizes(self):
        for promise, function in FUNCTIONS.items():
            for dtype in (torch.float32, torch.float64):
                weights = torch.tensor([[0.5, 1.0, 4.0]], dtype=dtype)
                module = Call(function, (weights.repeat(3, 1),), {})
                runner = session(to_onnx(module, module.tensors(), **ROWS))
                for rows in (1, 6000):
                    with self.subTest(promise, dtype=dtype, rows=rows):
                        given = weights.repeat(rows, 1)
                        got, expected = run(runner, [given])[0], function(given)
                        self.assertEqual((got.dtype, got.shape), (expected.dtype, expected.shape))
                        if rows > 1:
                            axis = got.dim() - 2 if promise != "LKJCholesky" else 0
                            means = got.mean(axis), expected.mean(axis)
                            torch.testing.assert_close(*means, rtol=0, atol=0.04)
                            self.assertLess(float((got.std(axis) - expected.std(axis)).abs().max()), 0.04)

    def test_without_the_patch(self):
        options = ExportOptions(patches=False)
        self.addCleanup(kinds.Distribution.set_default_validate_args, kinds.Distribution._validate_args)
        kinds.Distribution.set_default_validate_args(False)  # which other patches get through
        for promise, function in FUNCTIONS.items():
            with self.subTest(promise), self.assertRaisesRegex(CaptureError, "_sample_dirichlet"):
                module = Call(function, (torch.ones(3, 3),), {})
                to_onnx(module, module.tensors(), export_options=options, **ROWS)


if __name__ == "__main__":
    unittest.main()
