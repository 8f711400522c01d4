"""Weight normalization: same values as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx

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
        "a vector": (aten._weight_norm.default, V[:, 0, 0], torch.rand(4), 0),
        "a vector, divided by its whole norm": (aten._weight_norm.default, V[:, 0, 0], torch.rand(()), -1),
        "a vector of float16": (aten._weight_norm.default, V[:, 0, 0].half(), torch.rand(4).half(), 0),
        "the norms of a vector": (aten.norm_except_dim.default, V[:, 0, 0], 2, 0),
        "the nonzeros of a vector": (aten.norm_except_dim.default, torch.tensor([0.0, 3.0, -2.0]), 0, 0),
        "an axis from the end": (aten._weight_norm.default, V, torch.rand(1, 3, 1), -2),
        "an axis from the end, the first one": (aten._weight_norm.default, V[:, 0], torch.rand(4, 1), -2),
        "the norms of an axis from the end": (aten.norm_except_dim.default, V[:, 0], 2, -2),
        "the norms of bfloat16 are float32": (
            aten._weight_norm_interface.default,
            V.bfloat16(),
            torch.rand(4, 1, 1).bfloat16(),
            0,
        ),
        "float16": (aten._weight_norm.default, V.half(), torch.rand(4, 1, 1).half(), 0),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_parametrized_convolution(self):
        module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(3, 4, 2), dim=2)
        x = torch.randn(2, 3, 8)
        self.export_and_compare(module, (x,))

    def test_layers_whose_weight_is_a_vector(self):
        for layer in (torch.nn.PReLU(4), torch.nn.BatchNorm1d(4), torch.nn.LayerNorm(4)):
            torch.nn.init.normal_(layer.weight)
            with self.subTest(type(layer).__name__):
                module = torch.nn.utils.parametrizations.weight_norm(layer.eval(), "weight")
                self.export_and_compare(module, (torch.randn(2, 4),))

    def test_axis_from_the_end_of_a_layer(self):
        module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 5), dim=-2)
        self.export_and_compare(module, (torch.randn(2, 4),))

    def test_norms_of_a_vector_are_refused_in_training(self):
        with self.assertRaisesRegex(ExportError, "the norms of a vector, which torch takes for one number"):
            to_onnx(lambda v, g: aten._weight_norm_interface.default(v, g, 0), (V[:, 0, 0], torch.rand(4)))

    def test_halves_traced_by_make_fx(self):
        """It sees the operator that gives the norms too."""
        for dtype in (torch.bfloat16, torch.float16):
            module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(3, 6, 3)).to(dtype)
            with self.subTest(dtype):
                self.export_and_compare(
                    module, (torch.randn(2, 3, 9).to(dtype),), export_options=ExportOptions(tracing="make_fx")
                )


if __name__ == "__main__":
    unittest.main()
