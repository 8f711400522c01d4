"""Splitting: split, chunk, unbind, tensor_split and its relatives, checked against eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


class TestSplitting(ExporterTestCase):
    CASES = {
        "split with a smaller last piece": (aten.split.Tensor, floats(5, 3), 2),
        "split in one piece": (aten.split.Tensor, floats(5, 3), 7),
        "split of an empty axis": (aten.split.Tensor, floats(0, 3), 2),
        "unsafe_split": (aten.unsafe_split.Tensor, floats(4, 3), 2, 0),
        "split_copy": (aten.split_copy.Tensor, floats(5, 3), 2, 1),
        "split into sizes": (aten.split.sizes, floats(5, 3), [1, 4]),
        "split_with_sizes": (aten.split_with_sizes.default, floats(5, 3), [1, 0, 2], -1),
        "unsafe_split_with_sizes": (aten.unsafe_split_with_sizes.default, floats(5, 3), [2, 3]),
        "split_with_sizes_copy": (aten.split_with_sizes_copy.default, floats(5, 3), [2, 3]),
        "chunk into fewer than asked": (aten.chunk.default, floats(5, 3), 4),
        "chunk nothing": (aten.chunk.default, floats(0, 3), 2),
        "chunk the last axis": (aten.chunk.default, floats(7, 3), 2, 1),
        "unsafe_chunk": (aten.unsafe_chunk.default, floats(7, 3), 3),
        "unbind": (aten.unbind.int, floats(3, 2)),
        "unbind the last axis": (aten.unbind.int, floats(3, 2), -1),
        "unbind_copy": (aten.unbind_copy.int, floats(2, 3)),
        "tensor_split in sections": (aten.tensor_split.sections, floats(7, 3), 3),
        "tensor_split in more sections than elements": (aten.tensor_split.sections, floats(2, 3), 4),
        "tensor_split at positions": (aten.tensor_split.indices, floats(7, 3), [2, -1]),
        "tensor_split at positions out of order": (aten.tensor_split.indices, floats(7, 3), [5, 2, 9]),
        "hsplit": (aten.hsplit.int, floats(2, 4), 2),
        "hsplit of a vector": (aten.hsplit.int, floats(4), 2),
        "hsplit at positions": (aten.hsplit.array, floats(2, 4), [1, 3]),
        "vsplit": (aten.vsplit.int, floats(4, 2), 2),
        "vsplit at positions": (aten.vsplit.array, floats(4, 2), [1]),
        "dsplit": (aten.dsplit.int, floats(2, 2, 4), 2),
        "dsplit at positions": (aten.dsplit.array, floats(2, 2, 4), [1, 2]),
        "booleans": (aten.split.Tensor, floats(5) > 2, 2),
        "float16": (aten.chunk.default, floats(5).half(), 2),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_tensor_split_at_the_positions_of_a_tensor(self):
        target = aten.tensor_split.tensor_indices_or_sections
        self.assert_same_as_eager(target, floats(7, 3), torch.tensor([2, 4]), dynamic=False)

    def test_halves_of_any_size(self):
        def halves(x):
            return x.chunk(2, -1), x.tensor_split(2, -1), x.split(x.shape[1] // 2, 1)

        self.assert_same_as_eager(halves, floats(3, 4), others=[(floats(2, 8),), (floats(2, 10),)])


if __name__ == "__main__":
    unittest.main()
