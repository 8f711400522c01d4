"""``len`` of a tensor in a model of transformers."""

import sys
import textwrap
import types
import unittest

import torch
import transformers  # noqa: F401 (its patches apply when it is imported)

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors

NAME = "transformers.models.of_lengths.modeling_of_lengths"
MODEL = textwrap.dedent(
    """
    import torch


    class Model(torch.nn.Module):
        def forward(self, x, names):
            return torch.arange(len(names)) + torch.zeros(len(x), len(names)), x.new_full((len(x),), len(x.shape))
    """
)


class TestLengths(ExporterTestCase):
    def setUp(self):
        super().setUp()
        self.module = types.ModuleType(NAME)
        exec(MODEL, vars(self.module))
        sys.modules[NAME] = self.module
        self.addCleanup(sys.modules.pop, NAME)

    def test_any_batch(self):
        model, shapes = self.module.Model(), ({0: "batch"}, None)
        example, others = (torch.randn(2, 3), "abc"), [(torch.randn(rows, 3), "abc") for rows in (5, 1)]
        self.export_and_compare(model, example, others=others, dynamic_shapes=shapes)
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(model, example, dynamic_shapes=shapes, export_options=ExportOptions(patches=False))

    def test_undone(self):
        with bypass_export_some_errors(patch_transformers=True):
            self.assertEqual(self.module.len("abc"), 3)
            self.assertEqual(self.module.len(torch.ones(4, 2)), 4)
            with self.assertRaisesRegex(TypeError, "len\\(\\) of a 0-d tensor"):
                self.module.len(torch.ones(()))
        self.assertNotIn("len", vars(self.module))


if __name__ == "__main__":
    unittest.main()
