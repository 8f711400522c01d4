"""Files that hold no model: all that read one say so in the same sentence."""

import os
import tempfile
import unittest

import onnx
import onnx.parser
import torch

from experimental_experiment.helpers import pretty_onnx
from experimental_experiment.investigate import discrepancies, profile
from experimental_experiment.plotting import plot_dot
from experimental_experiment.protos import load
from experimental_experiment.reading import read
from experimental_experiment.reference import ExtendedReferenceEvaluator

MODEL = '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Relu(x) }'


class TestReading(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name: str, content: bytes) -> str:
        """Write a file; its path."""
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def test_what_is_no_model(self):
        content = onnx.parser.parse_model(MODEL).SerializeToString()
        for name in ("model.onnx", "model.json", "model.textproto"):
            for data in (b"", b"no model", b"{", b"\xff\xfe", content[:20]):
                with self.subTest(name=name, data=data):
                    with self.assertRaisesRegex(
                        ValueError, f"{name}' is not an ONNX model, or it is truncated"
                    ):
                        read(self.file(name, data))

    def test_all_say_it(self):
        path = self.file("model.onnx", b"no model")
        readers = (
            pretty_onnx,
            load,
            ExtendedReferenceEvaluator,
            profile,
            lambda path: plot_dot(path, filename=os.path.join(self.folder, "model.dot")),
            lambda path: discrepancies(torch.nn.ReLU(), (torch.ones(2),), onnx=path),
        )
        for reader in readers:
            with self.subTest(reader):
                with self.assertRaisesRegex(
                    ValueError, "model.onnx' is not an ONNX model, or it is truncated"
                ):
                    reader(path)

    def test_a_model(self):
        model = onnx.parser.parse_model(MODEL)
        path = os.path.join(self.folder, "model.onnx")
        onnx.save(model, path)
        self.assertEqual(model, read(path))


if __name__ == "__main__":
    unittest.main()
