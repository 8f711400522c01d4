"""Adaptive pooling: same values, positions, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE, SIGNAL, VOLUME = normal(2, 3, 9, 8), normal(2, 3, 9), normal(2, 3, 5, 6, 4)
INFINITE = torch.tensor([[[1.0, float("inf"), 2.0, float("nan"), 3.0]]])


class TestAdaptivePooling(ExporterTestCase):
    CASES = {
        "mean, one axis": (aten.adaptive_avg_pool1d.default, SIGNAL, [4]),
        "mean of everything": (aten.adaptive_avg_pool2d.default, IMAGE, [1, 1]),
        "mean of everything, no batch": (aten.adaptive_avg_pool2d.default, IMAGE[0], [1, 1]),
        "mean of everything, float64": (aten.adaptive_avg_pool2d.default, IMAGE.double(), [1, 1]),
        "mean of equal windows": (aten.adaptive_avg_pool2d.default, IMAGE, [3, 2]),
        "mean of windows that overlap": (aten.adaptive_avg_pool2d.default, IMAGE, [4, 5]),
        "mean of windows larger than the input": (aten.adaptive_avg_pool2d.default, IMAGE, [11, 3]),
        "mean, three axes": (aten.adaptive_avg_pool3d.default, VOLUME, [3, 3, 4]),
        "mean, no batch": (aten.adaptive_avg_pool3d.default, VOLUME[0], [2, 5, 3]),
        "an empty batch": (aten.adaptive_avg_pool2d.default, IMAGE[:0], [4, 5]),
        "a window without the infinity": (aten.adaptive_avg_pool1d.default, INFINITE, [3]),
        "mean of windows of one length, one axis": (aten.adaptive_avg_pool1d.default, normal(2, 3, 8), [6]),
        "mean of windows of one length, no batch": (
            aten.adaptive_avg_pool2d.default,
            IMAGE[0, :, :8],
            [6, 3],
        ),
        "mean of windows of one length, three axes": (
            aten.adaptive_avg_pool3d.default,
            normal(1, 2, 8, 5, 10),
            [6, 5, 4],
        ),
        "mean of windows of one length, float16": (
            aten.adaptive_avg_pool2d.default,
            IMAGE[:, :, :8].half(),
            [6, 6],
        ),
        "mean of windows of one length, float64": (
            aten.adaptive_avg_pool2d.default,
            IMAGE[:, :, :8].double(),
            [6, 6],
        ),
        "each element repeated": (aten.adaptive_avg_pool2d.default, IMAGE, [18, 8]),
        "each element repeated, no batch": (aten.adaptive_avg_pool1d.default, SIGNAL[0], [27]),
        "each element repeated, three axes": (aten.adaptive_avg_pool3d.default, VOLUME, [10, 6, 12]),
        "each element repeated, bfloat16": (aten.adaptive_avg_pool2d.default, IMAGE.bfloat16(), [9, 24]),
        "each element repeated, float64": (aten.adaptive_avg_pool2d.default, IMAGE.double(), [9, 24]),
        "infinities, repeated": (aten.adaptive_avg_pool1d.default, INFINITE, [10]),
        "mean, float64": (aten.adaptive_avg_pool2d.default, IMAGE.double(), [4, 5]),
        "mean, float16": (aten.adaptive_avg_pool2d.default, IMAGE.half(), [4, 5]),
        "mean, bfloat16": (aten.adaptive_avg_pool1d.default, SIGNAL.bfloat16(), [4]),
        "the operators behind them": (aten._adaptive_avg_pool2d.default, IMAGE, [4, 5]),
        "the operators behind them, three axes": (aten._adaptive_avg_pool3d.default, VOLUME, [2, 3, 3]),
        "maximum, one axis": (aten.adaptive_max_pool1d.default, SIGNAL, [4]),
        "maximum, two axes": (aten.adaptive_max_pool2d.default, IMAGE, [4, 5]),
        "maximum, three axes": (aten.adaptive_max_pool3d.default, VOLUME, [3, 4, 3]),
        "maximum, no batch": (aten.adaptive_max_pool2d.default, IMAGE[0], [4, 5]),
        "the first of equals": (aten.adaptive_max_pool2d.default, torch.ones(1, 1, 5, 5), [3, 2]),
        "a window of minus infinity": (
            aten.adaptive_max_pool1d.default,
            INFINITE.nan_to_num(1.0) * -float("inf"),
            [2],
        ),
        "maximum, float64": (aten.adaptive_max_pool2d.default, IMAGE.double(), [1, 3]),
        "the largest of all": (aten.adaptive_max_pool2d.default, IMAGE, [1, 1]),
        "the largest of all, no batch": (aten.adaptive_max_pool1d.default, SIGNAL[0], [1]),
        "the largest of all, three axes": (aten.adaptive_max_pool3d.default, VOLUME, [1, 1, 1]),
        "all are minus infinity": (aten.adaptive_max_pool2d.default, IMAGE * 0 - 1e38 * 1e38, [1, 1]),
        "windows that divide": (aten.adaptive_max_pool2d.default, normal(2, 3, 6, 8), [2, 4]),
        "windows that divide, float16": (aten.adaptive_max_pool1d.default, normal(2, 3, 6).half(), [3]),
        "windows that divide, no batch": (aten.adaptive_max_pool3d.default, normal(3, 4, 6, 2), [2, 2, 1]),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_the_last_nan(self):
        x = torch.cat([INFINITE, INFINITE], 2)
        self.assert_same_as_eager(aten.adaptive_max_pool1d.default, x, [2], special_values=True)

    def test_other_sizes(self):
        for target in (aten.adaptive_avg_pool2d.default, aten.adaptive_max_pool2d.default):
            for size in ([1, 1], [3, 2], [5, 5], [7, 12]):
                with self.subTest(target=target, size=size):
                    self.assert_same_as_eager(
                        target, IMAGE, size, others=[(normal(4, 3, 6, 7), size), (normal(4, 3, 14, 24), size)]
                    )

    def test_nan_is_the_largest_of_all(self):
        x = torch.cat([INFINITE, INFINITE], 2)
        self.assert_same_as_eager(aten.adaptive_max_pool1d.default, x, [1], special_values=True)

    def test_windows_of_the_size_of_another_tensor(self):
        pooled = torch.nn.functional.adaptive_avg_pool2d
        others = [(normal(4, 3, 6, 7), normal(5, 3)), (normal(4, 3, 5, 5), normal(3, 9))]
        for sizes in (lambda y: y.shape, lambda y: (y.shape[0], 3), lambda y: (y.shape[1], y.shape[1])):
            self.assert_same_as_eager(
                lambda x, y, sizes=sizes: pooled(x, sizes(y)), IMAGE, normal(2, 4), others=others
            )

    def test_axes_of_one_size_share_their_windows(self):
        pooled = torch.nn.functional.adaptive_avg_pool2d
        model = self.assert_same_as_eager(lambda x: pooled(x, 5), IMAGE, target_opset=20)
        self.assertEqual(28, len(model.graph.node))

    def test_windows_along_the_last_axis_are_rows(self):
        """Those of the transposed images, unless they have few rows."""
        for size, read in (
            ((5, 4), ["Transpose", "Gather", "ReduceSum", "Transpose"]),
            ((3, 4), ["Gather", "ReduceSum"]),
        ):
            with self.subTest(size):
                model = self.export_and_compare(
                    torch.nn.AdaptiveAvgPool2d(size),
                    (normal(2, 3, 8, 10),),
                    others=[(normal(5, 3, 8, 10),)],
                    dynamic_shapes=({0: "batch"},),
                )
                self.assertEqual(
                    ["Pad", "Gather", "ReduceSum", *read, "Div"], [node.op_type for node in model.graph.node]
                )

    def test_windows_of_one_length_are_pools(self):
        """Picked where their steps differ; windows of one element are repeated elements."""
        pool, functional = ["AveragePool"], torch.nn.functional
        for size, sizes, operators in (
            ((3, 4), (7, 9), pool),
            ((3, 3), (16, 12), pool),
            ((2, 9), (5, 9), pool),
            ((3, 1), (7, 9), pool),
            ((3, 4), (7, 10), ["AveragePool", "Transpose", "Gather", "Transpose"]),
            ((6, 6), (8, 8), ["AveragePool", "Gather", "Transpose", "Gather", "Transpose"]),
            ((6, 8), (8, 8), ["AveragePool", "Gather"]),
            ((6, 9), (3, 3), ["Resize"]),
            ((7, 7), (1, 1), ["Resize"]),
            (
                (4, 4),
                (22, 22),
                ["Pad", "Gather", "ReduceSum", "Transpose", "Gather", "ReduceSum", "Transpose", "Div"],
            ),
            ((3, 6), (5, 8), ["Pad", "Gather", "ReduceSum", "Gather", "ReduceSum", "Div"]),
        ):
            with self.subTest(size=size, sizes=sizes):
                others = [(normal(4, 3, *sizes),)]
                for function in (functional.adaptive_avg_pool2d, functional.adaptive_max_pool2d_with_indices):
                    model = self.export_and_compare(
                        lambda x, function=function, size=size: function(x, size),
                        (normal(2, 3, *sizes),),
                        others=others,
                        dynamic_shapes=({0: "batch"},),
                    )
                    if function is functional.adaptive_avg_pool2d:
                        self.assertEqual(operators, [node.op_type for node in model.graph.node])

    def test_windows_that_divide_any_size_are_a_pool(self):
        functional = torch.nn.functional
        others = [(normal(4, 3, 7, 5),), (normal(1, 3, 2, 11),)]
        for promise, function, operators in (
            (
                "a multiple of another image",
                lambda x: functional.adaptive_avg_pool2d(x.repeat(1, 1, 3, 2), x.shape[2:]),
                ["Tile", "AveragePool"],
            ),
            (
                "the areas of what was doubled",
                lambda x: functional.interpolate(torch.cat([x, x], 3), scale_factor=(1, 0.5), mode="area"),
                ["Concat", "AveragePool"],
            ),
        ):
            with self.subTest(promise):
                model = self.assert_same_as_eager(function, IMAGE, others=others)
                self.assertEqual(operators, [node.op_type for node in model.graph.node])
        self.assert_same_as_eager(
            lambda x: functional.adaptive_max_pool2d(x.repeat(1, 1, 3, 2), x.shape[2:]), IMAGE, dynamic=False
        )
        area = lambda x: functional.interpolate(x, scale_factor=0.5, mode="area")
        self.assert_same_as_eager(area, IMAGE, others=others)

    def test_an_axis_that_keeps_its_size_is_not_pooled(self):
        mean, largest = torch.nn.functional.adaptive_avg_pool2d, torch.nn.functional.adaptive_max_pool2d
        others = [(normal(4, 3, 6, 7),), (normal(1, 3, 1, 2),)]
        for size, operators in (
            ((None, None), ["Identity"]),
            ((None, 1), ["ReduceMean"]),
            ((1, None), ["ReduceMean"]),
        ):
            with self.subTest(size=size):
                model = self.assert_same_as_eager(lambda x, size=size: mean(x, size), IMAGE, others=others)
                self.assertEqual(operators, [node.op_type for node in model.graph.node])
        for size in ((None, 4), (3, None)):
            with self.subTest(size=size):
                self.assert_same_as_eager(lambda x, size=size: mean(x, size), IMAGE, others=others)
                # torch fixes the sizes of the other one
                self.assert_same_as_eager(lambda x, size=size: largest(x, size), IMAGE, dynamic=False)


if __name__ == "__main__":
    unittest.main()
