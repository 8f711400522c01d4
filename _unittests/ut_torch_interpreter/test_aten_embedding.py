"""Embedding: rows of a table, read one by one or summed by bags."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten


class TestEmbedding(ExporterTestCase):
    CASES = {
        "one row an index": (aten.embedding.default, torch.randn(5, 3), torch.tensor([[4, 0, 4], [1, 2, 3]])),
        "padding_idx changes no value": (aten.embedding.default, torch.randn(5, 3), torch.tensor([1, 2]), 2),
        "gradient flags change no value": (
            aten.embedding.default, torch.randn(5, 3), torch.tensor([1, 2]), -1, True, True,
        ),
        "a 0-d index gives a row": (aten.embedding.default, torch.randn(5, 3), torch.tensor(3)),
        "no index gives no row": (aten.embedding.default, torch.randn(5, 3), torch.zeros(0, dtype=torch.int64)),
        "int32 indices": (aten.embedding.default, torch.randn(5, 3), torch.tensor([4, 1], dtype=torch.int32)),
    }  # fmt: skip

    def test_same_as_eager(self):
        for promise, (target, *args) in self.CASES.items():
            with self.subTest(promise):
                self.assert_same_as_eager(target, *args)

    def test_every_float(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            with self.subTest(dtype):
                weight = torch.randn(5, 3).to(dtype)
                self.assert_same_as_eager(aten.embedding.default, weight, torch.tensor([[4, 0]]))


if __name__ == "__main__":
    unittest.main()
