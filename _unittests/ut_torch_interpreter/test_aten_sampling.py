"""Sampling at the points of a grid: same values, shapes and dtypes as eager."""

import itertools
import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE, GRID = normal(2, 3, 5, 6), normal(2, 4, 3, 2)
VOLUME, POINTS = normal(2, 2, 4, 3, 5), normal(2, 2, 3, 2, 3)
THETA = normal(2, 2, 3)


class TestSampling(ExporterTestCase):
    CASES = {
        "an image": (aten.grid_sampler.default, IMAGE, GRID, 0, 0, False),
        "a volume": (aten.grid_sampler.default, VOLUME, POINTS, 0, 1, True),
        "grid_sampler_2d": (aten.grid_sampler_2d.default, IMAGE, GRID, 2, 2, False),
        "grid_sampler_3d": (aten.grid_sampler_3d.default, VOLUME, POINTS, 1, 0, False),
        "far outside": (aten.grid_sampler_2d.default, IMAGE, GRID * 1e10, 0, 1, False),
        "far outside, nearest": (aten.grid_sampler_2d.default, IMAGE, GRID * 1e10, 1, 0, True),
        "far outside a volume": (aten.grid_sampler_3d.default, VOLUME, POINTS * 1e10, 0, 0, False),
        "infinitely far": (aten.grid_sampler_2d.default, IMAGE, GRID * float("inf"), 0, 1, True),
        "one element": (aten.grid_sampler_2d.default, IMAGE[..., :1, :1].double(), GRID.double(), 0, 2, True),
        "affine grid": (aten.affine_grid_generator.default, THETA, [2, 3, 4, 5], False),
        "affine grid, corners": (aten.affine_grid_generator.default, THETA, [2, 3, 4, 5], True),
        "affine grid, one element": (aten.affine_grid_generator.default, THETA, [2, 3, 1, 5], True),
        "affine grid, three axes": (
            aten.affine_grid_generator.default,
            normal(2, 3, 4),
            [2, 3, 4, 5, 2],
            True,
        ),
        "affine grid, one element of three axes": (
            aten.affine_grid_generator.default,
            normal(2, 3, 4),
            [2, 3, 4, 1, 1],
            True,
        ),
        "affine grid, float64": (aten.affine_grid_generator.default, THETA.double(), [2, 3, 4, 5], False),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_every_mode(self):
        modes = list(itertools.product((0, 1, 2), (0, 1, 2), (False, True)))

        def samples(image, grid, volume, points):
            for mode, padding, corners in modes:
                yield aten.grid_sampler.default(image, grid, mode, padding, corners)
                if mode < 2:
                    yield aten.grid_sampler.default(volume, points, mode, padding, corners)

        every = lambda *tensors: list(samples(*tensors))
        tensors = IMAGE, GRID, VOLUME, POINTS
        for dtype in (torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                self.assert_same_as_eager(every, *(x.to(dtype) for x in tensors), dynamic=False)

    def test_points_that_are_not_numbers(self):
        nowhere = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30])
        grid, points = GRID.clone(), POINTS.clone()
        grid[:, :, 0, 0], grid[:, :, 1, 1] = nowhere, nowhere
        points[:, 0, :, 0, 0], points[:, 1, :, 1, 2] = nowhere[:3], nowhere[1:]

        def samples(image, grid, volume, points):
            for mode, padding in itertools.product((0, 1, 2), (0, 1, 2)):
                # what a reflection gives far outside is made of rounding
                near = [
                    x.where(x.isinf() | (x.abs() < 1e9) | x.isnan(), 0.1) if padding == 2 else x
                    for x in (grid, points)
                ]
                yield aten.grid_sampler.default(image, near[0], mode, padding, False)
                if mode < 2:
                    yield aten.grid_sampler.default(volume, near[1], mode, padding, False)

        for dtype in (torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                given = [x.to(dtype) for x in (IMAGE, grid, VOLUME, points)]
                every = lambda *tensors: list(samples(*tensors))
                self.assert_same_as_eager(every, *given, dynamic=False, special_values=True)

    def test_infinite_points_along_one_element(self):
        points = torch.tensor([[float("inf"), 0.3, 0.1], [0.2, -float("inf"), 0.4], [0.5, 0.1, -0.2]])
        image, volume = IMAGE[..., :1], VOLUME[..., :1, :]

        def samples(image, volume, points):
            yield aten.grid_sampler.default(image, points[:, :, 0, :, :2], 1, 0, True)
            for mode in (0, 1):
                yield aten.grid_sampler.default(volume, points, mode, 0, True)

        every = lambda *tensors: list(samples(*tensors))
        for dtype in (torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                given = [x.to(dtype) for x in (image, volume, points.expand(2, 1, 1, 3, 3))]
                self.assert_same_as_eager(every, *given, dynamic=False, special_values=True)

    def test_halves_are_nearer_than_eager(self):
        """Eager rounds every step to a half; the measure is the distance to what float64 gives."""
        image, grid = normal(1, 2, 40, 50), torch.rand(1, 30, 40, 2, generator=GENERATOR) * 2.4 - 1.2
        volume, points = normal(1, 2, 9, 8, 7), torch.rand(1, 9, 9, 9, 3, generator=GENERATOR) * 2.4 - 1.2
        modes = list(itertools.product((0, 1, 2), (0, 1, 2), (False, True)))

        def samples(image, grid, volume, points):
            images = [aten.grid_sampler.default(image, grid, *mode) for mode in modes]
            return images + [
                aten.grid_sampler.default(volume, points, *mode) for mode in modes if mode[0] < 2
            ]

        for dtype, opset in itertools.product((torch.float16, torch.bfloat16), (18, 20)):
            with self.subTest(dtype=dtype, opset=opset):
                given = [x.to(dtype) for x in (image, grid, volume, points)]
                model = to_onnx(samples, tuple(given), target_opset=opset)
                exact = [x.double() for x in samples(*(x.double() for x in given))]
                for ours, eager, right in zip(run(session(model), given), samples(*given), exact):
                    self.assertEqual(dtype, ours.dtype)
                    gaps = [(x.double() - right).abs() for x in (ours, eager)]
                    self.assertLessEqual(float(gaps[0].max()), float(gaps[1].max()))
                    self.assertLessEqual(float(gaps[0].mean()), float(gaps[1].mean()))

    def test_one_node_and_one_that_keeps_points_near(self):
        dtypes = (torch.float32, 0), (torch.float64, 0), (torch.float16, 0), (torch.bfloat16, 3)
        for dtype, casts in dtypes:
            for padding, expected in enumerate(
                (["Clip", "GridSample"], ["Clip", "GridSample"], ["GridSample"])
            ):
                with self.subTest(dtype=dtype, padding=padding):
                    sample = lambda x, grid, padding=padding: aten.grid_sampler.default(
                        x, grid, 0, padding, False
                    )
                    model = to_onnx(sample, (IMAGE.to(dtype), GRID.to(dtype)))
                    found = [node.op_type for node in model.graph.node]
                    self.assertEqual(expected, [name for name in found if name != "Cast"])
                    self.assertEqual(casts, found.count("Cast"))

    def test_gradients_of_volumes(self):
        # with dynamic sizes among the gradients of layers
        gradient = aten.grid_sampler_3d_backward.default
        tensors = normal(1, 2, 2, 3, 4), normal(1, 2, 3, 4, 5), normal(1, 2, 3, 4, 3).clamp(-1, 1)
        self.assert_same_as_eager(
            gradient, *tensors, 0, 1, True, [True, True], dynamic=False, target_opset=20
        )

    def test_image_of_its_own_grid(self):
        def sample(x, theta):
            grid = aten.affine_grid_generator.default(theta, list(x.shape), False)
            return aten.grid_sampler.default(x, grid, 0, 0, False)

        self.assert_same_as_eager(sample, IMAGE, THETA)

    def test_grids_of_dynamic_sizes(self):
        for corners, axes, opset in itertools.product((False, True), (2, 3), (13, 20)):

            def places(theta, x, corners=corners):
                return aten.affine_grid_generator.default(theta, list(x.shape), corners)

            with self.subTest(corners=corners, axes=axes, opset=opset):
                model = self.export_and_compare(
                    places,
                    (normal(2, axes, axes + 1), normal(2, 3, *[4, 5, 6][:axes])),
                    others=[
                        (normal(3, axes, axes + 1), normal(3, 1, *sizes[:axes]))
                        for sizes in ([1, 7, 2], [2, 1, 1], [9, 8, 3])
                    ],
                    dynamic_shapes=(
                        {0: "n"},
                        {0: "n", **{axis: f"size{axis}" for axis in range(1, axes + 2)}},
                    ),
                    target_opset=opset,
                )
                if opset == 20:
                    self.assertEqual("AffineGrid", model.graph.node[-1].op_type)


if __name__ == "__main__":
    unittest.main()
