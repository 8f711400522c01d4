"""Blt's hashes, which wrap around."""

import unittest

import torch
from transformers.models.blt import modeling_blt

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


class Hashes(torch.nn.Module):
    """Hashes of the groups that end at each byte."""

    def forward(self, ids):
        return [modeling_blt.byte_group_hash_function(ids, size, 1000000007, 500) for size in (2, 3, 8)]


def call(batch, length):
    """Random bytes."""
    torch.manual_seed(length)
    return (torch.randint(0, 260, (batch, length)),)


class TestHashes(ExporterTestCase):
    SHAPES = ({0: "batch", 1: "length"},)

    def test_any_text(self):
        self.export_and_compare(Hashes(), call(2, 9), others=[call(3, 40)], dynamic_shapes=self.SHAPES)

    def test_the_same_without_it(self):
        options = ExportOptions(patches=False)
        model = to_onnx(Hashes(), call(2, 9), dynamic_shapes=self.SHAPES, export_options=options)
        self.assert_matches(model, Hashes(), call(3, 40))

    def test_undone(self):
        before = modeling_blt.rolling_polynomial_hash
        with bypass_export_some_errors(patch_transformers=True):
            self.assertIsNot(modeling_blt.rolling_polynomial_hash, before)
        self.assertIs(modeling_blt.rolling_polynomial_hash, before)


if __name__ == "__main__":
    unittest.main()
