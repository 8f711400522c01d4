"""Models that the optimizer and onnxruntime rewrote, run by the reference evaluator."""

from __future__ import annotations

import os
import tempfile
import unittest

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch

from experimental_experiment.comparison import session
from experimental_experiment.reference import ExtendedReferenceEvaluator
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.xoptim import quantize_weights

MICROSOFT = {"": 20, "com.microsoft": 1}


class Attention(torch.nn.Module):
    """Attention of two heads, a Gelu, and a product that is scaled."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x):
        heads = self.inner(x).reshape(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(*heads.unbind(0))
        y = x + torch.nn.functional.gelu(self.outer(y.transpose(1, 2).reshape(x.shape)))
        return torch.matmul(y, y.transpose(1, 2)) * 0.25


class Heads(torch.nn.Module):
    """Attention alone, of heads that stand side by side."""

    def forward(self, *rows):
        q, k, v = (x.reshape(*x.shape[:2], 2, 16).transpose(1, 2) for x in rows)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).reshape(rows[0].shape)


def convolutions() -> torch.nn.Module:
    """Two convolutions with their activations."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 2, 3),
        torch.nn.Sigmoid(),
    )


def domains(model: onnx.ModelProto) -> set[str]:
    """The operators of com.microsoft."""
    return {node.op_type for node in model.graph.node if node.domain == "com.microsoft"}


class TestSavedModels(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def assert_runs_alike(self, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
        """Both runtimes give the same outputs."""
        got = ExtendedReferenceEvaluator(model).run(None, feeds)
        for expected, found in zip(session(model).run(None, feeds), got, strict=True):
            np.testing.assert_allclose(found, expected, 1e-4, 1e-5)

    def saved(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """What onnxruntime makes of a model when it loads it, without the forms of one processor."""
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        with tempfile.TemporaryDirectory() as folder:
            options.optimized_model_filepath = os.path.join(folder, "saved.onnx")
            onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return onnx.load(options.optimized_model_filepath)

    def test_what_onnxruntime_saves(self):
        cases = {
            "attention": (Attention(), torch.randn(2, 5, 32), {"FusedMatMul"}),
            "convolutions": (convolutions(), torch.randn(2, 3, 8, 8), {"FusedConv"}),
        }
        for promise, (module, x, fused) in cases.items():
            with self.subTest(promise):
                model = self.saved(to_onnx(module, (x,), target_opset=18))
                self.assertLessEqual(fused, domains(model))
                self.assert_runs_alike(model, {model.graph.input[0].name: x.numpy()})

    def test_what_the_optimizer_writes(self):
        rows = tuple(torch.randn(3, 2, 5, 32))
        model = to_onnx(Heads(), rows, target_opset=MICROSOFT)
        self.assertEqual(domains(model), {"MultiHeadAttention"})
        self.assert_runs_alike(model, {value.name: x.numpy() for value, x in zip(model.graph.input, rows)})

    def test_weights_in_blocks(self):
        x = torch.randn(2, 5, 32)
        model = ir.from_proto(to_onnx(Attention(), (x,), target_opset=MICROSOFT))
        # onnxruntime rounds *x* as well otherwise
        quantize_weights(model, 8, block_size=16, accuracy_level=1)
        model = ir.to_proto(model)
        self.assertIn("MatMulNBits", domains(model))
        self.assert_runs_alike(model, {model.graph.input[0].name: x.numpy()})


if __name__ == "__main__":
    unittest.main()
