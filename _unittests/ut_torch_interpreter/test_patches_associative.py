"""Associative scans whose elements are combined by a function of PyTorch: any number of elements, any other size."""

import unittest

import torch
from torch._higher_order_ops.associative_scan import associative_scan

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx


class Weighted(torch.nn.Module):
    """Sums with a weight between each two elements, in a dict; the largest of all before, along the last axis."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 3))

    def forward(self, first, second):
        def combine(left, right):
            return {
                "sum": left["sum"] + right["sum"] + self.weight,
                "product": left["product"] * right["product"],
            }

        found = associative_scan(combine, {"sum": first, "product": second}, dim=1, combine_mode="generic")
        return found, associative_scan(torch.maximum, first, dim=-1, combine_mode="generic")


class Recurrence(torch.nn.Module):
    """The states ``decay * state + token`` of a Mamba block, over axis 1, forwards and backwards."""

    def forward(self, decay, token):
        def combine(left, right):
            return left[0] * right[0], right[0] * left[1] + right[1]

        forwards = associative_scan(combine, (decay, token), dim=1, combine_mode="generic")
        backwards = associative_scan(combine, (decay, token), dim=1, reverse=True, combine_mode="generic")
        return forwards[1], backwards[1]


def sequences(batch, tokens):
    """Arguments of `Recurrence`."""
    return torch.rand(batch, tokens, 3), torch.randn(batch, tokens, 3)


class TestAssociative(ExporterTestCase):
    def test_any_number_of_elements(self):
        others = [sequences(3, tokens) for tokens in (1, 2, 3, 7, 13, 16)]
        for tokens in (8, 5):
            with self.subTest(tokens=tokens):
                self.export_and_compare(
                    Recurrence(), sequences(3, tokens), others=others, dynamic_shapes=({1: "tokens"},) * 2
                )

    def test_any_batch(self):
        """In strict mode TorchDynamo looks into torch's own function."""
        others = [sequences(1, 8), sequences(5, 8)]
        for strict in (False, True):
            with self.subTest(strict=strict):
                self.export_and_compare(
                    Recurrence(),
                    sequences(2, 8),
                    others=others,
                    dynamic_shapes=({0: "batch"},) * 2,
                    export_options=ExportOptions(strict=strict),
                )

    def test_weights_and_dicts(self):
        others = [sequences(1, 1), sequences(5, 9)]
        shapes = ({0: "batch", 1: "tokens"},) * 2
        for tracing in ("export", "make_fx"):
            with self.subTest(tracing=tracing):
                self.export_and_compare(
                    Weighted(),
                    sequences(2, 4),
                    others=others,
                    dynamic_shapes=shapes,
                    export_options=ExportOptions(tracing=tracing),
                )

    def test_strict_refuses_another_number_of_elements(self):
        with self.assertRaisesRegex(CaptureError, "halvings of an associative_scan .* leave out strict=True"):
            to_onnx(
                Recurrence(),
                sequences(2, 8),
                dynamic_shapes=({1: "tokens"},) * 2,
                export_options=ExportOptions(strict=True),
            )

    def test_a_body_refuses_another_number_of_elements(self):
        def function(x):
            totals = lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")
            return torch.cond(x.sum() > 0, totals, lambda x: x * 2, (x,))

        message = "a strict capture, and a body of a branch or a loop, hold as many halvings .*: call it outside of the body, leave out"
        with self.assertRaisesRegex(CaptureError, message):
            to_onnx(function, (torch.randn(5, 4),), dynamic_shapes=({0: "n"},))

    def test_known_sizes_are_left_to_torch(self):
        model = self.export_and_compare(Recurrence(), sequences(2, 4))
        self.assertFalse({"Scan", "Loop"} & {node.op_type for node in model.graph.node})


if __name__ == "__main__":
    unittest.main()
