"""Creation: constant tensors, ranges and triangles, checked against eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


INTS = torch.tensor([3, -1])


class TestCreation(ExporterTestCase):
    CASES = {
        "zeros": (lambda x: (aten.zeros.default([2, 3]), x), floats(2)),
        "zeros of a dtype": (lambda x: aten.zeros.default([2, x.shape[0]], dtype=torch.bool), floats(2)),
        "zeros of complex": (lambda x: aten.zeros.default([x.shape[0]], dtype=torch.complex64), floats(2)),
        "zeros that torch does not store": (
            lambda x: aten._efficientzerotensor.default([x.shape[0], 3]) + x[0],
            floats(2),
        ),
        "ones": (lambda x: aten.ones.default([x.shape[0], 3]), floats(2)),
        "nothing": (lambda x: aten.ones.default([0, x.shape[0]]), floats(2)),
        "full of a float": (lambda x: aten.full.default([x.shape[0]], 2.5), floats(2)),
        "full of an int": (lambda x: aten.full.default([2], 7) + x, INTS),
        "full of a bool": (lambda x: aten.full.default([x.shape[0]], True), floats(2)),
        "full of a size": (lambda x: aten.full.default([x.shape[0]], x.shape[0]), floats(2)),
        "full of complex": (lambda x: aten.full.default([x.shape[0]], 1 + 2j), floats(2)),
        "full of a dtype": (lambda x: aten.full.default([x.shape[0]], 2.9, dtype=torch.uint8), floats(2)),
        "scalar_tensor": (lambda x: aten.scalar_tensor.default(3) + x, floats(2)),
        "scalar_tensor of a size": (
            lambda x: aten.scalar_tensor.default(x.shape[0], dtype=torch.int64),
            floats(2),
        ),
        "zeros_like": (aten.zeros_like.default, floats(2, 3)),
        "zeros_like of a dtype": (aten.zeros_like.default, floats(2, 3), {"dtype": torch.int64}),
        "ones_like": (aten.ones_like.default, INTS),
        "full_like truncates": (aten.full_like.default, INTS, 3.7),
        "full_like of a dtype": (aten.full_like.default, INTS, 3.7, {"dtype": torch.float16}),
        "new_zeros": (aten.new_zeros.default, INTS, [2, 2]),
        "new_ones": (aten.new_ones.default, floats(2).half(), [3]),
        "new_full": (aten.new_full.default, INTS, [2], 1.5),
        "arange": (lambda x: aten.arange.default(x.shape[0]), floats(4)),
        "arange of floats": (lambda x: aten.arange.default(2.5) + x, floats()),
        "arange.start": (lambda x: aten.arange.start(1, x.shape[0]), floats(4)),
        "arange.start_step": (
            lambda x: aten.arange.start_step(0, x.shape[0], 2, dtype=torch.float32),
            floats(5),
        ),
        "arange backwards": (lambda x: aten.arange.start_step(x.shape[0], 0, -2), floats(5)),
        "arange by tenths": (lambda x: aten.arange.start_step(0.1, 5, 0.3) + x, floats()),
        "arange of many floats": (lambda x: aten.arange.start_step(0, 500, 0.1) + x, floats()),
        "arange of a size by halves": (lambda x: aten.arange.start_step(0, x.shape[0], 0.5), floats(5)),
        "arange of nothing": (lambda x: aten.arange.start(3, 3) + x, INTS[:0]),
        "arange of float16": (lambda x: aten.arange.start_step(0, 3, 0.25, dtype=torch.float16), floats(2)),
        "range": (lambda x: [aten.range.default(-1, 3), aten.range.step(0, 1, 0.3) + x.sum()], floats()),
        "range of ints": (lambda x: aten.range.step(9, 0, -2, dtype=torch.int64) + x.sum(), INTS),
        "linspace": (lambda x: aten.linspace.default(0, 1, 5) + x, floats()),
        "linspace of many": (lambda x: aten.linspace.default(-3, 7, 2001) + x, floats()),
        "linspace of ints": (lambda x: aten.linspace.default(0, 10, 4, dtype=torch.int64) + x, INTS[0]),
        "logspace": (lambda x: aten.logspace.default(0, 2, 5) + x, floats()),
        "logspace of many": (lambda x: aten.logspace.default(0, 2, 1100, 2.0) + x, floats()),
        "eye": (lambda x: aten.eye.default(x.shape[0]), floats(3)),
        "eye that is not square": (lambda x: aten.eye.m(2, x.shape[0], dtype=torch.int64), floats(3)),
        "tril_indices": (lambda x: aten.tril_indices.default(3, 4) + x, INTS[0]),
        "triu_indices": (lambda x: aten.triu_indices.default(3, 4, -1, dtype=torch.int32) + x, floats()),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_bounds_that_are_tensors(self):
        low, high = torch.tensor(1.0), torch.tensor(4)
        cases = {
            "both": lambda a, b: (aten.linspace.Tensor_Tensor(a, b, 5), aten.logspace.Tensor_Tensor(a, b, 5)),
            "start": lambda a, b: (
                aten.linspace.Tensor_Scalar(a, 3, 1),
                aten.logspace.Tensor_Scalar(a, 3, 4, 2.0),
            ),
            "end": lambda a, b: (aten.linspace.Scalar_Tensor(0, b, 4), aten.logspace.Scalar_Tensor(0, b, 3)),
            "ints": lambda a, b: aten.linspace.Tensor_Tensor(a, b, 3, dtype=torch.int64),
        }
        for promise, function in cases.items():
            with self.subTest(promise):
                self.assert_same_as_eager(function, low, high)

    def test_what_torch_leaves_uninitialized_has_the_shape_and_the_dtype(self):
        cases = {
            "empty": lambda x: aten.empty.memory_format([2, x.shape[0]]).fill_(1),
            "empty_like": lambda x: aten.empty_like.default(x, dtype=torch.int64).fill_(1),
            "new_empty": lambda x: aten.new_empty.default(x, [3]).zero_(),
            "new_empty_strided": lambda x: aten.new_empty_strided.default(x, [2, 3], [1, 2]).fill_(2),
            "empty_strided": lambda x: aten.empty_strided.default([2, 3], [1, 2]).fill_(2) + x[0],
            "empty_permuted": lambda x: aten.empty_permuted.default([2, 3], [1, 0]).fill_(2) + x[0],
        }
        for promise, function in cases.items():
            with self.subTest(promise):
                self.assert_same_as_eager(function, floats(3))

    def test_other_sizes(self):
        def created(x):
            n = x.shape[0]
            return torch.zeros(n, 2), torch.arange(n), torch.eye(n), torch.arange(1, n, 2), torch.ones_like(x)

        self.assert_same_as_eager(created, floats(3), others=[(floats(8),), (floats(2),)])

    def test_one_shape_has_all_sizes_of_another_tensor(self):
        def gates(x):
            weights = x[..., :4].softmax(-1)
            values, places = weights.topk(2)
            return torch.zeros_like(weights).scatter(-1, places, values)

        model = self.export_and_compare(
            gates,
            (torch.randn(2, 5, 8),),
            dynamic_shapes=({0: "batch", 1: "length"},),
            others=[(torch.randn(3, 1, 8),)],
        )
        operators = [node.op_type for node in model.graph.node]
        self.assertEqual(["Slice", "Softmax", "TopK", "Shape", "Expand", "ScatterElements"], operators)

    def test_into_a_tensor_whose_dtype_is_kept(self):
        def created(x):
            n = x.shape[0]
            made = [torch.empty(n, dtype=torch.int64), torch.empty(n), torch.empty(4, dtype=torch.float64)]
            torch.arange(n, out=made[0])
            torch.arange(0.5, n, out=made[1])
            torch.linspace(0, n, 4, out=made[2])
            square = torch.empty(n, n, dtype=torch.int32)
            torch.eye(n, out=square)
            filled, zeros, none = torch.empty(n, 2), torch.ones(n).half(), torch.empty(0)
            torch.full((n, 2), 1 / n, out=filled)
            torch.zeros(n, out=zeros)
            torch.arange(1, n, 2, out=none)
            return *made, square, filled, zeros, none

        self.assert_same_as_eager(created, floats(3), others=[(floats(8),), (floats(2),)])

    def test_whole_floats_count_as_integers(self):
        def counted(x):
            n = x.shape[0]
            down, halves = torch.arange(n - 1, -1, -1.0), torch.arange(1.0, n, dtype=torch.float16)
            return down, halves, torch.arange(0.0, n, 2.0, dtype=torch.int32), torch.arange(0.0, 1e19, 4e18)

        model = self.assert_same_as_eager(counted, floats(3), others=[(floats(8),), (floats(1),)])
        operators = [node.op_type for node in model.graph.node]
        self.assertEqual((3, 0), (operators.count("Range"), operators.count("Ceil")))

    def test_positions_of_pixels_are_counted_with_integers(self):
        """As in the rotary embeddings of DINOv3: a size less a half, rounded up, is the size."""

        def pixels(x):
            n = x.shape[0]
            return (
                torch.arange(0.5, n),
                torch.arange(-1.25, n + 1, dtype=torch.float64),
                torch.arange(2.5, n + 2),
            )

        model = self.assert_same_as_eager(pixels, floats(3), others=[(floats(8),), (floats(1),)])
        operators = [node.op_type for node in model.graph.node]
        self.assertEqual((2, 0), (operators.count("Range"), operators.count("Ceil")))

        def fractions(x):
            n = x.shape[0]
            return torch.arange(0.1, n), torch.arange(0.5, n, 0.5), torch.arange(n / 2, n)

        model = self.assert_same_as_eager(fractions, floats(3), others=[(floats(8),), (floats(1),)])
        self.assertIn("Ceil", [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
