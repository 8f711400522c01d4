"""Seeds that a model sets in forward: told where it draws numbers, which a runtime does with its own."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.randn(3, 4)


class Seeded(torch.nn.Module):
    def forward(self, x):
        torch.manual_seed(0)  # line
        return x @ torch.randn(4, 4)


class PutBack(torch.nn.Module):
    def forward(self, x):
        state = torch.get_rng_state()
        torch.random.manual_seed(1)  # line
        noise = torch.rand(4)
        torch.random.set_rng_state(state)
        return x + noise


class DrawsNothing(torch.nn.Module):
    def forward(self, x):
        torch.manual_seed(0)
        return torch.nn.functional.dropout(x, 0.5, training=False) * 2


class TestSeeds(ExporterTestCase):
    def test_the_warning(self):
        for options in (None, ExportOptions(tracing="make_fx")):
            for kind in (Seeded, PutBack):
                with self.subTest(kind.__name__, options=options), torch.random.fork_rng():
                    with self.assertLogs("experimental_experiment", "WARNING") as logs:
                        to_onnx(kind(), (X,), export_options=options)
                    (record,) = logs.records
                    told, place, code = record.getMessage().splitlines()
                    self.assertEqual(
                        "the model seeds torch's generator, and a runtime draws other numbers in each run: draw them once, in __init__, to "
                        "keep them",
                        told,
                    )
                    self.assertIn("test_seeds.py", place)
                    self.assertTrue(code.endswith("# line"), code)

    def test_what_draws_nothing(self):
        with torch.random.fork_rng(), self.assertNoLogs("experimental_experiment", "WARNING"):
            to_onnx(DrawsNothing(), (X,))
            to_onnx(lambda x: x + torch.rand_like(x), (X,))


if __name__ == "__main__":
    unittest.main()
