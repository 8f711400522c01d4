"""Weight normalization: same values as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

torch.manual_seed(0)

aten = torch.ops.aten
V = torch.randn(4, 3, 2)


class TestWeightNorm(ExporterTestCase):
    CASES = {
        "one norm a row": (aten._weight_norm.default, V, torch.rand(4, 1, 1), 0),
        "one norm an entry of the last axis": (aten._weight_norm.default, V, torch.rand(1, 1, 2), 2),
        "the norms are a result too": (aten._weight_norm_interface.default, V, torch.rand(4, 1, 1), 0),
        "the norm of everything": (aten.norm_except_dim.default, V, 2, -1),
        "another power": (aten.norm_except_dim.default, V, 3, 1),
        "float16": (aten._weight_norm.default, V.half(), torch.rand(4, 1, 1).half(), 0),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_parametrized_convolution(self):
        module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(3, 4, 2), dim=2)
        x = torch.randn(2, 3, 8)
        self.export_and_compare(module, (x,))


if __name__ == "__main__":
    unittest.main()
