"""Qwen 4: the tokens that each token attends to, in texts of any number and length, under any mask."""

import unittest

import torch
from transformers.models.qwen4_exp import modeling_qwen4_exp as qwen

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

WIDTH = 8


class Indexer(torch.nn.Module):
    """The choice of 3 blocks of tokens at most."""

    def __init__(self, ratio=2):
        super().__init__()
        config = qwen.Qwen4ExpTextConfig(
            hidden_size=16, head_dim=8, indexer_n_heads=64, indexer_kv_heads=1, indexer_head_dim=WIDTH, indexer_budget=3 * ratio,
            indexer_compress_ratio=ratio,
        )  # fmt: skip
        torch.manual_seed(0)
        self.indexer = qwen.Qwen4ExpTextQSAIndexer(config, 0)

    def forward(self, states, cos, sin, mask):
        return self.indexer(states, (cos, sin), mask, None)


def call(batch, length, hidden=0, dtype=torch.bool):
    """States, angles and a causal mask; the first text begins with some hidden tokens, the last one has holes."""
    mask = torch.ones(length, length).tril().bool().expand(batch, 1, -1, -1).clone()
    mask[0, ..., :hidden] = False
    mask[-1, ..., 1::3] = False
    if dtype != torch.bool:
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
    angles = torch.randn(batch, length, WIDTH // 2)
    return torch.randn(batch, length, 16), angles.cos(), angles.sin(), mask


class TestChosenBlocks(ExporterTestCase):
    AXES = {0: "batch", 1: "length"}
    SHAPES = (AXES, AXES, AXES, {0: "batch", 2: "length", 3: "length"})

    def test_any_text(self):
        """Fewer blocks than are wanted, none, and more; a token that sees nothing."""
        for ratio, dtype in ((2, torch.bool), (3, torch.float32)):
            with self.subTest(ratio=ratio, dtype=dtype):
                sizes = ((2, 9, 3), (3, 20, 2), (1, 1), (2, 2, 1), (2, 5, 0), (1, 33, 7))
                example, *others = (call(*size, dtype=dtype) for size in sizes)
                self.export_and_compare(
                    Indexer(ratio).eval(), example, others=others, dynamic_shapes=self.SHAPES, target_opset=20
                )

    def test_refused_without(self):
        with self.assertRaises(CaptureError):
            options = ExportOptions(patches=False)
            to_onnx(Indexer().eval(), call(2, 9), dynamic_shapes=self.SHAPES, export_options=options)

    def test_undone(self):
        before = qwen.Qwen4ExpTextQSAIndexer.forward
        with bypass_export_some_errors(patch_transformers=True):
            self.assertIsNot(qwen.Qwen4ExpTextQSAIndexer.forward, before)
        self.assertIs(qwen.Qwen4ExpTextQSAIndexer.forward, before)


if __name__ == "__main__":
    unittest.main()
