"""Lists that are repeated as often as a size."""

import copy
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

DIM = torch.export.Dim


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


def numbers(x):
    """As Chroma makes its guidance."""
    batch, width = x.shape
    pairs = torch.tensor(width * [[0, 1]], dtype=torch.float64)
    return torch.tensor([0] * batch), torch.tensor([1.5, 2] * batch), torch.tensor([True] * batch), pairs


def sizes(x):
    return torch.tensor([x.shape[1], 2] * x.shape[0])


def tensors(x):
    batch = x.shape[0]
    return (
        torch.cat([x, x + 1] * batch),
        torch.cat([x] * batch, dim=-1),
        torch.concat([x] * batch, 1),
        torch.stack([x[0], x[1]] * batch),
        torch.stack([x] * batch, -1),
    )


def elements(x):
    """As Lumina keeps the size of each image, and reads the first."""
    batch, width = x.shape
    images = [(batch, width)] * batch
    rows, columns = images[0]
    return torch.full((2,), rows + columns), torch.full((2,), images[-1][1]), x + len(images[0])


def as_a_list(x):
    """What needs all elements, of which there are as many as in the example."""
    n = x.shape[0]
    added = [1] + [2] * n
    added += [3] * n
    grown = [4] * n
    grown.append(5)
    first, *others = [6] * n
    flags = 7 in [7] * n, [8] * n == [8, 8], [9, 9] == [9] * n, bool([10] * n), [] == [11] * n
    kept = copy.deepcopy([12] * n), list([13] * n), sorted([14, 3] * n), tuple([15] * n)
    parts = x.repeat(2, 1).split([2] * n)
    zipped = [left + right for left, right in zip([16] * n, [17] * n)]
    values = [*added, *grown, first, *others, *flags, *(value for part in kept for value in part), *zipped]
    return torch.tensor([float(value) for value in values]), torch.vstack([x] * n), *parts


class TestRepetitions(ExporterTestCase):
    EXAMPLE = (torch.randn(2, 3),)
    OTHERS = tuple((torch.randn(*size),) for size in ((3, 5), (4, 2), (7, 1)))

    def shapes(self):
        return ({0: "batch", 1: "width"},)

    def test_any_size(self):
        for function in (numbers, sizes, tensors, elements):
            with self.subTest(function.__name__):
                self.export_and_compare(
                    Function(function), self.EXAMPLE, others=self.OTHERS, dynamic_shapes=self.shapes()
                )

    def test_a_batch_of_one(self):
        for function in (numbers, sizes, elements):
            with self.subTest(function.__name__):
                self.export_and_compare(
                    Function(function),
                    self.EXAMPLE,
                    others=[(torch.randn(1, 4),)],
                    dynamic_shapes=self.shapes(),
                )

    def test_a_list_with_the_length_of_the_example(self):
        shapes = ({0: DIM.AUTO, 1: DIM.AUTO},)
        self.export_and_compare(
            Function(as_a_list), self.EXAMPLE, others=[(torch.randn(2, 6),)], dynamic_shapes=shapes
        )
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(Function(as_a_list), self.EXAMPLE, dynamic_shapes=self.shapes())

    def test_an_element_that_is_not_there(self):
        def beyond(x):
            return x + ([1] * x.shape[0])[2]

        with self.assertRaisesRegex(CaptureError, "list index out of range"):
            to_onnx(Function(beyond), self.EXAMPLE, dynamic_shapes=self.shapes())

    def test_refused_without_the_patch(self):
        for function in (numbers, sizes, tensors, elements):
            with self.subTest(function.__name__), self.assertRaisesRegex(CaptureError, "specialized"):
                to_onnx(
                    Function(function),
                    self.EXAMPLE,
                    dynamic_shapes=self.shapes(),
                    export_options=ExportOptions(patches=False),
                )


if __name__ == "__main__":
    unittest.main()
