"""Products of three tensors or more with dynamic sizes, where opt_einsum chooses their order."""

import importlib.util
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter.patches.contractions import orders_of_contractions
from experimental_experiment.torch_interpreter.patches.patch import applied


@unittest.skipUnless(importlib.util.find_spec("opt_einsum"), "opt_einsum is not installed")
class TestOrdersOfContractions(ExporterTestCase):
    """The order is one of the example; the product is that of any size."""

    def check(self, function, *shapes, dynamic_shapes, others):
        """Export a function of tensors of these shapes; compare for others, too."""
        torch.manual_seed(0)
        calls = [tuple(map(torch.randn, call)) for call in (shapes, *others)]
        self.export_and_compare(function, calls[0], others=calls[1:], dynamic_shapes=dynamic_shapes)

    def test_any_size(self):
        def forward(x, y, z):
            return torch.einsum("bi,ij,bj->bj", x, y, z)

        self.check(
            forward,
            (3, 4),
            (4, 5),
            (3, 5),
            dynamic_shapes=({0: "batch"}, {1: "columns"}, {0: "batch", 1: "columns"}),
            others=[((7, 4), (4, 2), (7, 2)), ((2, 4), (4, 9), (2, 9))],
        )

    def test_many_factors_are_compared_without_a_guard(self):
        def forward(x, a, b, c, core):
            return torch.einsum("nxy,ir,xs,yt,rst->nir", x, a, b, c, core)

        factors = ((5, 2), (6, 3), (7, 4), (2, 3, 4))
        self.check(
            forward,
            (3, 6, 7),
            *factors,
            dynamic_shapes=({0: "batch"}, None, None, None, None),
            others=[((40, 6, 7), *factors), ((2, 6, 7), *factors)],
        )

    def test_a_size_that_the_data_decide(self):
        class Kept(torch.nn.Module):
            def forward(self, x, y, z):
                return torch.einsum("bi,ij,jk->bk", x[x[:, 0] > 0], y, z)

        self.check(
            Kept(),
            (30, 4),
            (4, 5),
            (5, 2),
            dynamic_shapes=None,
            others=[((30, 4), (4, 5), (5, 2))],
        )

    def test_direct_calls(self):
        opt_einsum = importlib.import_module("opt_einsum")

        def forward(x, y, z):
            return opt_einsum.contract("bi,ij,jk->bk", x, y, z)

        self.check(
            forward,
            (3, 4),
            (4, 5),
            (5, 2),
            dynamic_shapes=({0: "batch"}, None, None),
            others=[((9, 4), (4, 5), (5, 2))],
        )

    def test_it_says_that_it_is_used(self):
        def forward(x, y):
            return torch.einsum("bi,ij,bj->b", x, y, x @ y)

        class Model(torch.nn.Module):
            def forward(self, x, y):
                return forward(x, y)

        args = (torch.randn(3, 4), torch.randn(4, 5))
        batch = {0: torch.export.Dim("batch")}
        with self.assertLogs("experimental_experiment", "INFO") as logs, applied([orders_of_contractions]):
            torch.export.export(Model(), args, dynamic_shapes=(batch, None))
        self.assertIn("orders_of_contractions", "\n".join(logs.output))


if __name__ == "__main__":
    unittest.main()
