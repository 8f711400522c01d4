"""Rows of normalization and attention that onnxruntime needs."""

import contextlib
import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx

F = torch.nn.functional
sdpa = F.scaled_dot_product_attention
HEADS = torch.randn(2, 3, 4, 5)
IMAGE = torch.randn(2, 6, 4, 5)

ROWS = {
    "Attention.of_halves": (sdpa, *[HEADS.bfloat16()] * 3, {"target_opset": 23}),
    "Attention.where_eager_differs": (
        lambda x, low: sdpa(x, x, x, low),
        HEADS,
        torch.full((4, 4), torch.finfo(torch.float32).min),
        {"target_opset": 23},
    ),
    "RMSNormalization.squares_of_halves": (
        lambda x: F.rms_norm(x, (6,)),
        torch.randn(4, 6).bfloat16(),
        {"target_opset": 23},
    ),
}

OTHER_ROWS = {"GroupNormalization.groups_as_instances": (lambda x: F.group_norm(x, 3), IMAGE)}
"""Rows that only save time."""


class TestNormalizationRows(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_groups_of_channels(self):
        function, x = OTHER_ROWS["GroupNormalization.groups_as_instances"]
        for row, expected in (
            (None, ["Reshape", "InstanceNormalization", "Reshape"]),
            ("GroupNormalization.groups_as_instances", ["GroupNormalization"]),
        ):
            with self.subTest(row), without_row(row) if row else contextlib.nullcontext():
                model = to_onnx(function, (x,), target_opset=21)
                self.assertEqual(expected, [node.op_type for node in model.graph.node])

    def test_groups_of_any_size(self):
        module = torch.nn.GroupNorm(3, 6)
        torch.nn.init.normal_(module.weight)
        others = [(torch.randn(3, 6, 2, 7),), (torch.randn(0, 6, 2, 7),)]
        sizes = ({0: "batch", 2: "height", 3: "width"},)
        model = self.export_and_compare(module, (IMAGE,), others=others, dynamic_shapes=sizes)
        self.assertEqual(
            ["Unsqueeze", "Reshape", "InstanceNormalization", "Reshape", "Squeeze", "BatchNormalization"],
            [node.op_type for node in model.graph.node],
        )

    def test_halves_are_no_further_from_float64_than_eager(self):
        tensors = [torch.randn(1, 2, 64, 64) * 4 for _ in range(3)]
        exact = sdpa(*(x.half().double() for x in tensors))
        halves = tuple(x.half() for x in tensors)
        (got,) = run(session(to_onnx(sdpa, halves, target_opset=23)), list(halves))
        self.assertLessEqual(
            (got.double() - exact).abs().max(), 1.01 * (sdpa(*halves).double() - exact).abs().max()
        )


if __name__ == "__main__":
    unittest.main()
