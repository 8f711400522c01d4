"""The pages of the documentation: their blocks of Python run, one after the other."""

import contextlib
import importlib
import inspect
import io
import os
import re
import tempfile
import unittest

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class TestPages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        torch.manual_seed(0)

    def printed(self, page: str) -> str:
        """What the blocks of a page print."""
        with open(os.path.join(ROOT, "docs", page)) as file:
            blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
        names = {"__name__": "page"}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            for block in blocks:
                exec(block, names)
        return out.getvalue()

    def test_index(self):
        self.assertIn("shape=['batch', 10]", self.printed("index.md"))

    def test_migration(self):
        text = self.printed("migration.md")
        self.assertIn("GuardOnDataDependentSymNode", text)
        self.assertIn("is TorchScript, which torch.export does not take", text)
        self.assertEqual(os.listdir(), ["model.onnx"])

    def test_migration_has_every_option(self):
        with open(os.path.join(ROOT, "docs", "migration.md")) as file:
            rows = [row for row in file if row.startswith("| `")]
        named = set(re.findall(r"`(\w+)", " ".join(row.split("|")[1] for row in rows)))
        self.assertEqual(set(inspect.signature(torch.onnx.export).parameters) - named, set())

    def test_deploy(self):
        text = self.printed("howto/deploy.md")
        self.assertIn("['Gemm', 'Mul', 'Erf', 'Mul', 'Add', 'Mul', 'Gemm']", text)
        self.assertIn("2 weights quantized, 32768 bytes became 5120", text)
        self.assertIn("['DequantizeLinear', 'Gemm', 'Gelu', 'DequantizeLinear', 'Gemm']", text)
        self.assertIn("True\n['GroupQueryAttention'", text)

    def test_extend(self):
        text = self.printed("howto/extend.md")
        self.assertIn("a tensor becomes a numpy array in forward", text)
        self.assertRegex(text, r"\[.*'ReduceMax'.*\]")

    def test_sweeps_start(self):
        """The commands of docs/conformance.md and docs/models.md, whose whole runs take hours."""
        for name in ("tests.sweep", "tests.models"):
            self.assertTrue(callable(importlib.import_module(name).main))


if __name__ == "__main__":
    unittest.main()
