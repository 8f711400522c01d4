"""Pooling over windows: same values, positions, shapes and dtypes as eager."""

import itertools
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE, SIGNAL, VOLUME = normal(2, 3, 9, 8), normal(2, 3, 9), normal(2, 3, 5, 6, 4)
TIES = torch.tensor([[[[1.0, 1.0, 0.0, -0.0], [1.0, float("inf"), float("inf"), 0.0]]]])
INTS = torch.randint(-(2**62), 2**62, (2, 3, 6, 5), generator=GENERATOR)


class TestPooling(ExporterTestCase):
    CASES = {
        "maximum, one axis": (aten.max_pool1d.default, SIGNAL, [3], [2], [1]),
        "maximum, two axes": (aten.max_pool2d.default, IMAGE, [3, 2], [2, 1], [1, 0], [1, 2]),
        "maximum, three axes": (aten.max_pool3d.default, VOLUME, [2, 3, 2], [1, 2, 2]),
        "the stride is the kernel by default": (aten.max_pool2d.default, IMAGE, [3, 2]),
        "no batch": (aten.max_pool2d.default, IMAGE[0], [3, 2]),
        "an empty batch": (aten.max_pool2d.default, IMAGE[:0], [3, 2]),
        "only minus infinity": (aten.max_pool2d.default, torch.full((1, 1, 4, 4), float("-inf")), [2, 2]),
        "a window with a gap wider than the kernel": (
            aten.max_pool1d.default, SIGNAL, [2], [3], [1], [4], True),
        "int64 stays exact": (aten.max_pool2d.default, INTS, [2, 3], [1, 2], [1, 1], [1, 1], True),
        "uint8": (aten.max_pool2d.default, (INTS % 256).to(torch.uint8), [2, 2]),
        "float16": (aten.max_pool2d.default, IMAGE.half(), [2, 2]),
        "bfloat16": (aten.max_pool2d.default, IMAGE.bfloat16(), [2, 2]),
        "positions, one axis": (aten.max_pool1d_with_indices.default, SIGNAL, [3], [2], [1]),
        "positions are flat in their channel": (
            aten.max_pool2d_with_indices.default, IMAGE, [3, 2], [2, 1], [1, 0], [2, 1]),
        "positions, three axes": (
            aten.max_pool3d_with_indices.default, VOLUME, [2, 3, 2], [1, 2, 2], [1, 1, 0], [1, 1, 1], True),
        "the first of equals": (aten.max_pool2d_with_indices.default, TIES, [2, 2], [1, 1]),
        "positions in integers": (
            aten.max_pool2d_with_indices.default, INTS, [2, 3], [1, 2], [1, 1], [1, 1], True),
        "positions without a batch": (aten.max_pool2d_with_indices.default, IMAGE[0], [3, 3], [2, 2]),
        "mean, one axis": (aten.avg_pool1d.default, SIGNAL, [3], [2], [1]),
        "mean, two axes": (aten.avg_pool2d.default, IMAGE, [3, 2], [2, 1], [1, 1]),
        "mean, three axes": (aten.avg_pool3d.default, VOLUME, [2, 3, 2], [1, 2, 2], [1, 1, 1]),
        "mean without the padding": (aten.avg_pool2d.default, IMAGE, [3, 2], [2, 1], [1, 1], True, False),
        "a divisor of one's own": (aten.avg_pool2d.default, IMAGE, [3, 2], [2, 1], [1, 1], True, True, 5),
        "a divisor, three axes": (
            aten.avg_pool3d.default, VOLUME, [2, 3, 2], [1, 2, 2], [1, 1, 1], True, False, -3),
        "mean, float64": (aten.avg_pool2d.default, IMAGE.double(), [3, 2], [2, 3], [1, 1], True),
        "mean of integers truncates": (aten.avg_pool2d.default, INTS >> 20, [3, 2], [2, 3], [1, 1], True),
        "mean, float16": (aten.avg_pool2d.default, IMAGE.half(), [3, 2], [2, 3], [1, 1], True),
        "mean, no batch": (aten.avg_pool2d.default, IMAGE[0], [3, 2]),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_a_kernel_larger_than_the_input(self):
        """Eager needs no memory for the rest of the window, nor does the model: 1.6 million elements a channel would show."""
        others = {torch.float32: [(normal(2, 3, 5, 6),), (normal(1, 3, 7, 4),)]}
        cases = {
            "mean": (aten.avg_pool2d.default, IMAGE, [1280, 1280], [], [0, 0], True),
            "mean, float64": (aten.avg_pool2d.default, IMAGE.double(), [1280, 1280], [], [0, 0], True),
            "mean, float16": (aten.avg_pool2d.default, IMAGE.half(), [1280, 1280], [], [0, 0], True),
            "mean with padding": (aten.avg_pool2d.default, IMAGE, [1280, 1280], [], [600, 640], True),
            "mean without the padding": (
                aten.avg_pool2d.default, IMAGE, [1280, 1280], [], [600, 640], True, False),
            "a divisor": (aten.avg_pool2d.default, IMAGE, [1280, 1280], [], [600, 0], True, True, 7),
            "along one axis": (aten.avg_pool2d.default, IMAGE, [1280, 3], [1280, 2], [1, 1], True),
            "maximum": (aten.max_pool2d.default, IMAGE, [1280, 1280], [], [0, 600], [1, 1], True),
            "maximum of integers": (aten.max_pool2d.default, INTS, [1280, 1280], [], [0, 0], [1, 1], True),
            "positions": (aten.max_pool2d_with_indices.default, IMAGE, [1280, 1280], [], [0, 0], [1, 1], True),
        }  # fmt: skip
        for promise, (function, *args) in cases.items():
            with self.subTest(promise):
                sizes = [(x[0], *args[1:]) for x in others.get(args[0].dtype, []) if args[0].dim() == 4]
                model = self.assert_same_as_eager(function, *args, others=sizes)
                self.assertNotIn("Pad", [node.op_type for node in model.graph.node if args[0] is IMAGE])

    def test_integers_of_dynamic_sizes_with_special_values(self):
        arguments = [3, 3], [2, 1], [1, 1], [1, 1], True
        for size in (5, 2):
            with self.subTest(size):
                self.assert_same_as_eager(
                    aten.max_pool2d_with_indices.default,
                    INTS[..., :size],
                    *arguments,
                    others=[(INTS.repeat(1, 1, 2, 1), *arguments)],
                    special_values=True,
                )

    def test_ceil_mode_is_one_node(self):
        cases = {
            "mean": (aten.avg_pool2d.default, IMAGE, [3, 3], [2, 2], [0, 0], True),
            "mean with padding": (aten.avg_pool2d.default, IMAGE, [3, 3], [2, 2], [1, 1], True),
            "mean without the padding": (aten.avg_pool2d.default, IMAGE, [3, 3], [2, 2], [1, 1], True, False),
            "maximum": (aten.max_pool2d.default, IMAGE, [3, 3], [2, 2], [1, 1], [1, 1], True),
            "maximum of windows apart": (
                aten.max_pool2d.default,
                IMAGE,
                [2, 2],
                [3, 3],
                [1, 1],
                [1, 1],
                True,
            ),
            "mean of windows apart": (aten.avg_pool2d.default, IMAGE, [2, 2], [3, 3], [1, 1], True),
        }
        for promise, (function, *args) in cases.items():
            with self.subTest(promise):
                others = [(normal(1, 3, *sizes), *args[1:]) for sizes in ((8, 11), (7, 12), (9, 10))]
                model = self.assert_same_as_eager(function, *args, others=others)
                self.assertEqual(len(model.graph.node), 1)

    def test_ceil_mode_that_adds_a_window_to_some_axes_is_one_node(self):
        for function, sizes in (
            (aten.avg_pool2d.default, (1, 2, 9, 8)),
            (aten.avg_pool2d.default, (1, 2, 8, 11)),
            (aten.avg_pool3d.default, (1, 2, 5, 6, 6)),
        ):
            for opset in (18, 20, 23):
                with self.subTest(sizes=sizes, opset=opset):
                    model = self.assert_same_as_eager(
                        function, normal(*sizes), [3], [2], [1], True, dynamic=False, target_opset=opset
                    )
                    self.assertEqual(["AveragePool"], [node.op_type for node in model.graph.node])

    def test_last_window_of_ceil_mode(self):
        corners = list(itertools.product((2, 3), (1, 2, 3, 5), (0, 1)))

        def pools(x):
            for kernel, stride, padding in corners:
                window = [kernel], [stride], [padding]
                yield aten.avg_pool1d.default(x, *window, True, True)
                yield aten.avg_pool1d.default(x, *window, True, False)
                yield from aten.max_pool1d_with_indices.default(x, *window, [1], True)

        every = lambda x: list(pools(x))
        for size in (5, 6):
            with self.subTest(size=size):
                self.assert_same_as_eager(every, normal(2, 2, size), others=[(normal(3, 2, size + 4),)])

    def test_a_divisor_takes_one_factor_more(self):
        for x, kernel, larger in ((IMAGE, [3, 2], (4, 3, 12, 7)), (VOLUME, [2, 3, 2], (1, 3, 9, 7, 8))):
            pool = aten.avg_pool2d.default if len(kernel) == 2 else aten.avg_pool3d.default
            with self.subTest(kernel=kernel):
                model = self.assert_same_as_eager(
                    lambda x, k=kernel, p=pool: p(x, k, [2], [1], False, False, 5),
                    x,
                    others=[(normal(*larger),)],
                )
                self.assertEqual(["AveragePool", "Mul"], [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
