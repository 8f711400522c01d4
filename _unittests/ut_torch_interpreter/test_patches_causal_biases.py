"""``torch.nn.attention.bias``: a subclass of Tensor, made in forward or beforehand."""

import unittest

import torch
from torch.nn.attention.bias import CausalBias, causal_lower_right, causal_upper_left

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

attention = torch.nn.functional.scaled_dot_product_attention


class Made(torch.nn.Module):
    """A bias of the sizes of the inputs."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, q, k):
        return attention(q, k, k, self.make(q.shape[2], k.shape[2]))


KEPT = {make: make(5, 12) for make in (causal_lower_right, causal_upper_left)}
"""Made beforehand; they cannot be copied as the modules of the tests are."""


class Kept(torch.nn.Module):
    """A bias of fixed sizes."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, q, k):
        return attention(q, k, k, attn_mask=KEPT[self.make], scale=0.5)


def qk(queries, keys, batch=2):
    return torch.randn(batch, 2, queries, 8), torch.randn(batch, 2, keys, 8)


class TestCausalBiases(ExporterTestCase):
    def test_made_in_forward(self):
        for make in (causal_lower_right, causal_upper_left):
            with self.subTest(make.__name__):
                self.export_and_compare(Made(make), qk(5, 12))
                self.export_and_compare(
                    Made(make),
                    qk(5, 12),
                    others=[qk(1, 9), qk(7, 8, batch=3), qk(6, 6), qk(9, 4)],
                    dynamic_shapes=({0: "batch", 2: "rows"}, {0: "batch", 2: "columns"}),
                )

    def test_of_one_length_they_are_both_is_causal(self):
        nodes = [
            [node.op_type for node in self.export_and_compare(Made(make), qk(6, 6)).graph.node]
            for make in (causal_lower_right, causal_upper_left)
        ]
        causal = [
            node.op_type
            for node in to_onnx(lambda q, k: attention(q, k, k, is_causal=True), qk(6, 6)).graph.node
        ]
        self.assertEqual([causal, causal], nodes)

    def test_kept(self):
        shapes = ({0: "batch"}, {0: "batch"})
        for make in (causal_lower_right, causal_upper_left):
            with self.subTest(make.__name__):
                with self.assertLogs("experimental_experiment", "INFO") as log:
                    self.export_and_compare(
                        Kept(make), qk(5, 12), others=[qk(5, 12, batch=1)], dynamic_shapes=shapes
                    )
                self.assertIn("patch causal_biases was used", "\n".join(log.output))

    def test_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "Tensor subclass CausalBias"):
            to_onnx(Made(causal_lower_right), qk(5, 12), export_options=ExportOptions(patches=False))

    def test_no_function_but_an_attention_takes_it(self):
        with self.assertRaisesRegex(CaptureError, "for 'torch.add'"):
            to_onnx(lambda q, k: torch.add(causal_lower_right(5, 12), 1), qk(5, 12))

    def test_beside_is_causal(self):
        def forward(q, k):
            return attention(q, k, k, causal_lower_right(5, 12), is_causal=True)

        message = "is_causal=True stands beside a CausalBias: one of both is enough"
        with self.assertRaisesRegex(CaptureError, message):
            to_onnx(forward, qk(5, 12))

    def test_undone(self):
        before = CausalBias.__torch_function__
        with bypass_export_some_errors(patch_torch=True):
            self.assertNotIsInstance(causal_lower_right(2, 3), torch.Tensor)
        self.assertEqual(before, CausalBias.__torch_function__)
        self.assertIsInstance(causal_lower_right(2, 3), CausalBias)


if __name__ == "__main__":
    unittest.main()
