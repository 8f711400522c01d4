"""Striding: as_strided, unfold and resize_, checked against eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


class TestStriding(ExporterTestCase):
    CASES = {
        "as_strided": (aten.as_strided.default, floats(12), [3, 2], [4, 1], 1),
        "as_strided that overlaps": (aten.as_strided.default, floats(6), [4, 3], [1, 1]),
        "as_strided of a 0-d view": (aten.as_strided.default, floats(6), [], [], 4),
        "as_strided of nothing": (aten.as_strided.default, floats(6), [0, 2], [2, 1]),
        "as_strided_copy": (aten.as_strided_copy.default, floats(3, 4), [2, 2], [4, 2]),
        "as_strided_scatter": (
            aten.as_strided_scatter.default,
            floats(3, 4),
            -floats(2, 2),
            [2, 2],
            [4, 2],
            1,
        ),
        "as_strided_scatter casts": (
            aten.as_strided_scatter.default,
            floats(4),
            torch.arange(2),
            [2],
            [2],
            1,
        ),
        "unfold": (aten.unfold.default, floats(2, 7), 1, 3, 2),
        "unfold the first axis": (aten.unfold.default, floats(5, 2), 0, 2, 1),
        "unfold a 0-d tensor": (aten.unfold.default, floats(), 0, 1, 1),
        "unfold a 0-d tensor into nothing": (aten.unfold.default, floats(), 0, 0, 1),
        "unfold_copy": (aten.unfold_copy.default, floats(5), -1, 2, 2),
        "unfold_backward": (aten.unfold_backward.default, floats(2, 3, 3), [2, 7], 1, 3, 2),
        "unfold_backward of windows of all rows": (
            aten.unfold_backward.default,
            floats(1, 3, 3),
            [2, 7],
            -1,
            3,
            2,
        ),
        "unfold_backward of a number": (aten.unfold_backward.default, floats(1), [], 0, 1, 1),
        "unfold_backward that overlaps": (aten.unfold_backward.default, floats(4, 3, 2), [5, 3], 0, 2, 1),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_of_a_transposed_tensor(self):
        def strided(x):
            return x.t().as_strided((2, 2), (1, 4)), x[:, 1:].as_strided((2, 2), (4, 1), 1)

        self.assert_same_as_eager(strided, floats(3, 4), dynamic=False)

    def test_memory_that_the_tensor_does_not_have(self):
        with self.assertRaisesRegex(Exception, "elements of the memory that the tensor does not have"):
            self.assert_same_as_eager(lambda x: x[1:].as_strided((2,), (1,), 0), floats(12), dynamic=False)

    def test_of_what_the_data_select(self):
        """Nobody is asked whether they select one row or none; what nonzero gives is in memory by columns."""

        def first(found):
            return found.as_strided((found.shape[0],), (found.shape[1],))

        x, mask = floats(3, 4), torch.tensor([True, False, True])
        others = [(x, mask.logical_not()), (x, mask & False)]
        self.export_and_compare(lambda x, m: first(x[m]), (x, mask), others=others)
        with self.assertRaisesRegex(ExportError, "a tensor of symbolic sizes that is not contiguous"):
            to_onnx(lambda x: first(x.nonzero()), (x,))

    def test_a_scatter_to_one_place_twice(self):
        with self.assertRaisesRegex(Exception, "as_strided_scatter writes an element of the memory twice"):
            self.assert_same_as_eager(
                aten.as_strided_scatter.default, floats(6), floats(2, 2), [2, 2], [1, 1], dynamic=False
            )

    def test_windows_of_other_sizes(self):
        def windows(x):
            return x.unfold(1, 3, 2), x.as_strided((x.shape[0], 2), (x.shape[1], 1))

        self.assert_same_as_eager(windows, floats(2, 7), others=[(floats(3, 9),), (floats(4, 4),)])

    def test_resize_(self):
        def resized(x, y):
            a, b = x.clone(), x.clone()
            a.resize_(2, 2).add_(1)
            b.resize_as_(y)
            return a, b

        self.assert_same_as_eager(resized, floats(3, 4), floats(2, 3), dynamic=False)
        with self.assertRaisesRegex(Exception, "not initialized"):
            self.assert_same_as_eager(lambda x: x.clone().resize_(9), floats(3), dynamic=False)

    def test_resize_of_a_transposed_tensor_takes_the_first_elements_of_the_memory(self):
        def resized(x):
            y = x.clone()
            y.permute(2, 0, 1).resize_(2, 5).mul_(2)
            return y, x.clone().transpose(0, 2).resize_(3, 3), (x + 1)[1:].mT.resize_(4)

        self.assert_same_as_eager(resized, floats(2, 3, 4), dynamic=False)
        self.assert_same_as_eager(lambda x: aten.resize.default(x.t(), [2, 3]), floats(3, 4), dynamic=False)


if __name__ == "__main__":
    unittest.main()
