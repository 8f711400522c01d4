"""The whole model in onnxruntime, optimized and as it is written, and in onnx.reference: who gives what eager gives."""

from __future__ import annotations

import os
import tempfile
import unittest
from unittest import mock

import onnx
import torch

from experimental_experiment.investigate import discrepancies, piece_by_piece, ways
from experimental_experiment.investigate.written import is_large, tensors_of
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

aten = torch.ops.aten
WRONG = {aten.softmax.int: lambda op, self, dim: op.Softmax(op.Mul(self, 0.5), axis=dim)}


class Probabilities(torch.nn.Module):
    """A layer and a softmax."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).softmax(-1) * 10


class TestWays(ExporterTestCase):
    def agreeing(self, found) -> list[bool]:
        """Whether each way agrees with eager: optimized, as written, onnx.reference."""
        self.assertEqual([way.name for way in found.ways], [*NAMES])
        return [way.agrees for way in found.ways]

    def test_translation_that_is_wrong_differs_everywhere(self):
        for dtype in (torch.float32, torch.bfloat16):
            found = discrepancies(
                Probabilities().to(dtype), (3 * torch.eye(4).to(dtype),), translations=WRONG
            )
            self.assertEqual(self.agreeing(found), [False, False, False])
            self.assertIn("the whole model in onnx.reference: output differs, ", str(found))

    def test_kernel_that_is_wrong_agrees_in_the_reference(self):
        found = discrepancies(lambda x: x.mean(0) + 1, (torch.ones(0, 3),), runtime="onnx")
        self.assertEqual(self.agreeing(found), [False, False, True])
        self.assertIn("the whole model in onnx.reference: agrees with eager\n", str(found))

    def test_fusion_that_is_wrong_agrees_as_written(self):
        found = discrepancies(
            lambda matrix, vector: (matrix.sin().t() @ vector).relu(),
            (torch.randn(3, 4), torch.randn(3)),
            runtime="onnx",
        )
        self.assertEqual(self.agreeing(found), [False, True, True])

    def test_nothing_is_run_when_all_agrees(self):
        self.assertEqual(discrepancies(Probabilities(), (torch.rand(2, 4),)).ways, [])

    def test_weights_beside_the_model(self):
        module, x = Probabilities(), torch.rand(2, 4)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(
                to_onnx(module, (x,), translations=WRONG), path, save_as_external_data=True, size_threshold=0
            )
            found = discrepancies(module, (x,), onnx=path)
        self.assertEqual((self.agreeing(found), found.first.name), ([False] * 3, "softmax"))
        self.assertIn("onnx.reference agrees with onnxruntime", found.first.note)

    def test_weights_beyond_what_protobuf_holds(self):
        x = torch.rand(2, 4)
        with mock.patch("experimental_experiment.investigate.written.PROTOBUF_LIMIT", 10):
            self.assertTrue(is_large(tensors_of(Probabilities())))
            self.assertTrue(is_large(tensors_of(torch.export.export(Probabilities(), (x,)))))
            self.assertFalse(is_large(tensors_of(torch.sin)))
            found = discrepancies(Probabilities(), (x,), translations=WRONG)
            self.assertEqual((found.first.name, len(found.ways)), ("softmax", 3))
            (failure,) = piece_by_piece(Probabilities(), x, translations=WRONG).failures
            self.assertEqual((failure.status, failure.verdict, failure.nodes), ("differs", "error", 3))
        weight = torch.zeros(2**20)
        with mock.patch("experimental_experiment.investigate.written.PROTOBUF_LIMIT", 6 * 2**20):
            self.assertFalse(is_large([weight, weight]))  # one memory
            self.assertTrue(is_large([weight, weight.clone()]))

    def test_what_the_reference_does_not_run(self):
        arguments = (torch.rand(2, 4),)
        with mock.patch.object(ways, "SECONDS", 0.0):
            found = discrepancies(Probabilities(), arguments, translations=WRONG)
            self.assertEqual(str(found.ways[2]), "onnx.reference: stopped after 0 seconds, it is slow")
        with mock.patch.object(ways, "LARGEST", 10):
            found = discrepancies(Probabilities(), arguments, translations=WRONG)
            self.assertEqual(
                str(found.ways[2]), "onnx.reference: not run, it copies weights and these are 0.0 GB"
            )

        self.assertEqual(
            str(ways.compared("onnx.reference", {}, {}, 1.0)),
            "onnx.reference: no output is a result of the program",
        )

        def foreign(op, self, dim):
            return op.emit("QuickGelu", (op.emit("NhwcMaxPool", (self,), domain="nobody"),), domain="nobody")

        model = to_onnx(Probabilities(), arguments, translations={aten.softmax.int: foreign}, optimize=False)
        inputs, expected = list(arguments), {"output": torch.ones(2, 4)}
        stops, _, reference = ways.ways(model, inputs, expected, 1.0)
        self.assertRegex(str(stops), "^onnxruntime, optimized: stops: .*nobody")
        self.assertRegex(str(reference), "^onnx.reference: does not run it, .*nobody")


NAMES = ("onnxruntime, optimized", "onnxruntime, as written", "onnx.reference")


if __name__ == "__main__":
    unittest.main()
