"""Rows of normalization and attention that onnxruntime needs."""

import contextlib
import unittest

import torch
from torch._subclasses import FakeTensorMode

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

OTHER_ROWS = {
    "GroupNormalization.groups_as_instances": (lambda x: F.group_norm(x, 3), IMAGE),
    "InstanceNormalization.instances_by_deviation": "test_instances_on_a_gpu",
    "LayerNormalization.layers_of_bfloat16": "test_layers_of_bfloat16",
}
"""Rows that only save time."""


def on_a_gpu(model, *tensors):
    """The program of a model whose tensors are on a GPU, which nothing needs to have."""
    with FakeTensorMode():
        fakes = tuple(torch.empty(x.shape, dtype=x.dtype, device="cuda") for x in tensors)
    return torch.export.export(model, fakes)


class TestNormalizationRows(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_layers_of_bfloat16(self):
        """In float32, also the three results that a training needs; one node without the row, and on a GPU."""

        class Normalized(torch.nn.Module):
            def forward(self, x, weight, bias):
                return F.layer_norm(x, (6,), weight, bias)

        def three(x, weight, bias):
            return torch.ops.aten.native_layer_norm(x * 3, (6,), weight, bias, 1e-5)

        tensors = tuple(torch.randn(size).bfloat16() for size in ((4, 6), (6,), (6,)))
        self.assert_same_as_eager(Normalized(), *tensors)
        self.assert_same_as_eager(three, *tensors)

        def written(model, *given):
            return [node.op_type for node in to_onnx(model, *given).graph.node]

        self.assertEqual([*["Cast"] * 3, "LayerNormalization", "Cast"], written(Normalized(), tensors))
        with without_row("LayerNormalization.layers_of_bfloat16"):
            self.assertEqual(["LayerNormalization"], written(Normalized(), tensors))
        self.assertEqual(["LayerNormalization"], written(on_a_gpu(Normalized(), *tensors)))

    def test_groups_of_channels(self):
        function, x = OTHER_ROWS["GroupNormalization.groups_as_instances"]
        for row, expected in (
            (None, ["Reshape", "InstanceNormalization", "Reshape"]),
            ("GroupNormalization.groups_as_instances", ["GroupNormalization"]),
        ):
            with self.subTest(row), without_row(row) if row else contextlib.nullcontext():
                model = to_onnx(function, (x,), target_opset=21)
                self.assertEqual(expected, [node.op_type for node in model.graph.node])

    def test_groups_of_float64(self):
        """Without a runtime the node itself says that the statistics are of float64."""
        module, x = torch.nn.GroupNorm(3, 6).double(), IMAGE.double() + 1
        torch.nn.init.normal_(module.weight)
        model = to_onnx(module, (x,), target_opset=21, runtime="onnx")
        self.assertEqual(["GroupNormalization"], [node.op_type for node in model.graph.node])
        (got,) = run(session(model), [x])
        torch.testing.assert_close(got, module(x).detach(), rtol=1e-12, atol=1e-12)

    def test_groups_of_any_size(self):
        module = torch.nn.GroupNorm(3, 6)
        torch.nn.init.normal_(module.weight)
        others = [(torch.randn(3, 6, 2, 7),), (torch.randn(0, 6, 2, 7),)]
        sizes = ({0: "batch", 2: "height", 3: "width"},)
        model = self.export_and_compare(module, (IMAGE,), others=others, dynamic_shapes=sizes)
        self.assertEqual(
            ["Reshape", "InstanceNormalization", "Reshape", "BatchNormalization"],
            [node.op_type for node in model.graph.node],
        )

    def test_groups_of_one_channel(self):
        module = torch.nn.GroupNorm(6, 6)
        for tensor in (module.weight, module.bias):
            torch.nn.init.normal_(tensor)
        others = [(torch.randn(3, 6, 2, 7),), (torch.randn(0, 6, 2, 7),), (torch.randn(2, 6, 1, 3),)]
        sizes = ({0: "batch", 2: "height", 3: "width"},)
        model = self.export_and_compare(module, (IMAGE,), others=others, dynamic_shapes=sizes)
        self.assertEqual(["InstanceNormalization"], [node.op_type for node in model.graph.node])

    def test_halves_are_no_further_from_float64_than_eager(self):
        tensors = [torch.randn(1, 2, 64, 64) * 4 for _ in range(3)]
        exact = sdpa(*(x.half().double() for x in tensors))
        halves = tuple(x.half() for x in tensors)
        (got,) = run(session(to_onnx(sdpa, halves, target_opset=23)), list(halves))
        self.assertLessEqual(
            (got.double() - exact).abs().max(), 1.01 * (sdpa(*halves).double() - exact).abs().max()
        )

    def test_instances_on_a_gpu(self):
        """From ai.onnx 22 on CUDA's provider lacks the operator; a test on a CPU compares the numbers."""

        class Normalized(torch.nn.Module):
            def forward(self, x, weight, bias):
                return F.group_norm(x, 3), F.instance_norm(x, None, None, weight, bias)

        row = "InstanceNormalization.instances_by_deviation"
        tensors = IMAGE * 3 + 1, torch.randn(6), torch.randn(6)
        for program, opset, is_written in (
            (on_a_gpu(Normalized(), *tensors), 22, False),
            (on_a_gpu(Normalized(), *tensors), 21, True),
            (torch.export.export(Normalized(), tensors), 22, True),
        ):
            with self.subTest(opset=opset, is_written=is_written):
                model = to_onnx(program, target_opset=opset)
                self.assertEqual(
                    is_written, "InstanceNormalization" in {node.op_type for node in model.graph.node}
                )
                for ours, theirs in zip(run(session(model), tensors), Normalized()(*tensors), strict=True):
                    torch.testing.assert_close(ours, theirs)
        with without_row(row):
            model = to_onnx(on_a_gpu(Normalized(), *tensors), target_opset=22)
            self.assertIn("InstanceNormalization", {node.op_type for node in model.graph.node})

    def test_attention_of_halves_on_a_gpu(self):
        """CUDA's provider computes attention of halves as exactly as eager where there is no mask and heads are of eights."""

        class Attended(torch.nn.Module):
            def __init__(self, masked=False, **given):
                super().__init__()
                self.masked, self.given = masked, given

            def forward(self, query, key, mask):
                return sdpa(query, key, key, mask if self.masked else None, **self.given)

        heads, longer = torch.randn(2, 3, 4, 16).half(), torch.randn(2, 3, 5, 16).half()
        mask = torch.ones(4, 4, dtype=torch.bool)
        for query, key, given, casts in (
            (heads, heads, {}, 0),
            (heads, longer, {}, 0),
            (heads, heads, {"is_causal": True}, 0),
            (heads, longer, {"is_causal": True}, 4),
            (heads, heads, {"masked": True}, 4),
            (HEADS.half(), HEADS.half(), {}, 4),
        ):
            with self.subTest(sizes=key.shape, **given):
                model = to_onnx(
                    on_a_gpu(Attended(**given), query, key, mask), target_opset=23, optimize=False
                )
                found = [node.op_type for node in model.graph.node]
                self.assertEqual((1, casts), (found.count("Attention"), found.count("Cast")))
        for model, opset in ((Attended(), 20), (Attended(scale=-1.0), 23)):
            found = to_onnx(on_a_gpu(model, heads, heads, mask), target_opset=opset, optimize=False)
            self.assertIn("Cast", [node.op_type for node in found.graph.node])


if __name__ == "__main__":
    unittest.main()
