"""Slicing: slice, select, narrow and the writes of slices, checked against eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
END = 9223372036854775807


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


class TestSlicing(ExporterTestCase):
    CASES = {
        "slice": (aten.slice.Tensor, floats(5, 3), 0, 1, 3),
        "slice_copy": (aten.slice_copy.Tensor, floats(5, 3), 1, 1, 3),
        "slice from the end": (aten.slice.Tensor, floats(5, 3), 0, -3, None),
        "slice to before the end": (aten.slice.Tensor, floats(5, 3), -1, None, -1),
        "slice with a step": (aten.slice.Tensor, floats(5, 3), 0, None, None, 2),
        "slice that ends before it starts": (aten.slice.Tensor, floats(5, 3), 0, 4, 2),
        "slice out of bounds": (aten.slice.Tensor, floats(5, 3), 0, -10, 10),
        "slice behind the end": (aten.slice.Tensor, floats(5, 3), 0, 7, END),
        "slice of an empty tensor": (aten.slice.Tensor, floats(0, 3), 0, 0, 2),
        "slice of booleans": (aten.slice.Tensor, floats(5) > 2, 0, 1, 4),
        "select": (aten.select.int, floats(5, 3), 0, -1),
        "select in the last axis": (aten.select.int, floats(5, 3), -1, 1),
        "select in a vector": (aten.select.int, floats(5), 0, 2),
        "select_copy": (aten.select_copy.int, floats(5, 3), 1, -3),
        "narrow": (aten.narrow.default, floats(5, 3), 0, 1, 2),
        "narrow to the end": (aten.narrow.default, floats(5, 3), 0, -2, 2),
        "narrow_copy": (aten.narrow_copy.default, floats(5, 3), 1, 0, 2),
        "select_scatter": (aten.select_scatter.default, floats(5, 3), -floats(5), 1, -1),
        "slice_scatter": (aten.slice_scatter.default, floats(5, 3), -floats(2, 3), 0, 1, 3),
        "slice_scatter with a step": (aten.slice_scatter.default, floats(5, 3), -floats(5, 2), 1, 0, None, 2),
        "slice_scatter of everything": (aten.slice_scatter.default, floats(5, 3), -floats(5, 3)),
        "slice_scatter of nothing": (aten.slice_scatter.default, floats(5, 3), floats(0, 3), 0, 4, 2),
        "slice_scatter from the end": (aten.slice_scatter.default, floats(5, 3), -floats(2, 3), 0, -3, -1),
        "slice_backward": (aten.slice_backward.default, floats(2, 3), [5, 3], 0, 1, 5, 2),
        "select_backward": (aten.select_backward.default, floats(3), [5, 3], 0, -1),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_symbolic_bounds(self):
        def cut(x, y):
            n = y.shape[0]
            return (
                x[:n],
                x[-n:],
                x[:, n - 1],
                x[n - 2 :: 2],
                x.narrow(0, n - 2, 2),
                x[: x.shape[0]],
                x[x.shape[0] - 1],
            )

        others = [(floats(9, 8), floats(4)), (floats(6, 7), floats(6))]
        self.assert_same_as_eager(cut, floats(5, 6), floats(3), others=others)

    def test_narrow_at_a_position_that_is_data(self):
        def cut(x, start):
            position = start.item()
            torch._check(position >= 0)
            torch._check(position <= 3)
            return x.narrow(0, position, 2)

        for start in (0, 1, 3):
            with self.subTest(start):
                self.assert_same_as_eager(cut, floats(5, 3), torch.tensor(start), dynamic=False)

    def test_a_slice_that_is_broadcast(self):
        """torch.export takes its size for that of the other tensor, which the data of the example contradict."""
        programs = {
            "one element": lambda x, y, start: y + x[:, start : start + 1],
            "the first elements": lambda x, y, start: y + x[:, :start],
            "after another operator": lambda x, y, start: y * x[:, start : start + 1].relu(),
            "seen as large": lambda x, y, start: x[:, start : start + 1].expand_as(y) + y,
        }
        for promise, program in programs.items():
            with self.subTest(promise):
                others = [
                    (floats(2, 7), floats(2, 7) * 2, torch.tensor(n))
                    for n in (1, 3)[: 2 - ("first" in promise)]
                ]
                self.assert_same_as_eager(
                    program, floats(2, 7), floats(2, 7), torch.tensor(1), dynamic=False, others=others
                )

    def test_a_whole_slice_writes_nothing(self):
        model = self.assert_same_as_eager(lambda x: x[:, :][:END][: x.shape[0]] + 1, floats(2, 3))
        self.assertEqual([node.op_type for node in model.graph.node], ["Add"])


if __name__ == "__main__":
    unittest.main()
