"""linear_cross_entropy: the loss of chunks is that of the whole batch."""

import unittest

import torch
import torch.nn.modules.linear_cross_entropy  # defines the operators

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

torch.manual_seed(0)

CHUNKED = torch.ops.torch_nn._linear_cross_entropy_batch_chunked.default
OPERATORS = {
    "mean": CHUNKED,
    "sum": CHUNKED,
    "none": torch.ops.torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default,
}
EXAMPLE = torch.randn(5, 4), torch.tensor([0, 2, -100, 1, 2])


class TestLinearCrossEntropy(ExporterTestCase):
    def test_the_reference(self):
        for reduction in OPERATORS:
            with self.subTest(reduction):
                self.export_and_compare(torch.nn.LinearCrossEntropyLoss(4, 3, reduction=reduction), EXAMPLE)

    def test_chunks(self):
        options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
        forms = {
            "plain": {},
            "a bias, class weights": {"bias": True, "weight": torch.tensor([1.0, 2.0, 0.5])},
        }
        for reduction, operator in OPERATORS.items():
            for promise, form in forms.items():
                with self.subTest(promise, reduction=reduction):
                    module = torch.nn.LinearCrossEntropyLoss(
                        4, 3, reduction=reduction, options=options, **form
                    )
                    program = torch.export.export(module, EXAMPLE)
                    self.assertIn(operator, [node.target for node in program.graph.nodes])
                    self.assert_matches(to_onnx(program), module, EXAMPLE)


if __name__ == "__main__":
    unittest.main()
