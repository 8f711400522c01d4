"""Resizing: same values, shapes and dtypes as eager."""

import functools
import itertools
import math
import unittest

import torch
from onnx.reference import ReferenceEvaluator

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase, each
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.torch_versions import installed

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


SIGNAL, IMAGE, VOLUME = normal(2, 3, 7), normal(2, 3, 7, 5), normal(1, 2, 3, 4, 5)
NEAREST = (
    (aten.upsample_nearest1d.default, SIGNAL, [10]),
    (aten.upsample_nearest2d.default, IMAGE, [14, 8]),
    (aten.upsample_nearest3d.default, VOLUME, [5, 2, 9]),
    (aten._upsample_nearest_exact1d.default, SIGNAL, [10]),
    (aten._upsample_nearest_exact2d.default, IMAGE, [14, 8]),
    (aten._upsample_nearest_exact3d.default, VOLUME, [5, 2, 9]),
)
WEIGHTED = (
    (aten.upsample_linear1d.default, SIGNAL, [10]),
    (aten.upsample_bilinear2d.default, IMAGE, [14, 3]),
    (aten.upsample_trilinear3d.default, VOLUME, [5, 2, 9]),
    (aten.upsample_bicubic2d.default, IMAGE, [14, 3]),
    (aten._upsample_bilinear2d_aa.default, IMAGE, [14, 3]),
    (aten._upsample_bicubic2d_aa.default, IMAGE, [14, 3]),
)

CORNERS = (
    lambda packet, x, size: packet.vec(x, size, False, None),
    lambda packet, x, size: packet.vec(x, size, True, None),
)
OF_BYTES = (
    aten.upsample_bilinear2d,
    aten.upsample_bicubic2d,
    aten._upsample_bilinear2d_aa,
    aten._upsample_bicubic2d_aa,
)


class TestResize(ExporterTestCase):
    CASES = {
        "nearest, twice": (aten.upsample_nearest2d.vec, IMAGE, None, [2.0, 2.0]),
        "nearest, factors that are not whole": (aten.upsample_nearest1d.vec, SIGNAL, None, [1.7]),
        "nearest, smaller": (aten.upsample_nearest3d.vec, VOLUME, None, [0.5, 0.4, 1.0]),
        "nearest, size": (aten.upsample_nearest2d.vec, IMAGE, [21, 3], None),
        "nearest, integers": (aten.upsample_nearest2d.vec, (IMAGE * 9).to(torch.uint8), [21, 3], None),
        "nearest, float64": (aten.upsample_nearest2d.vec, IMAGE.double(), None, [2.0, 3.0]),
        "nearest-exact, one axis": (aten._upsample_nearest_exact1d.vec, SIGNAL, None, [1.7]),
        "nearest-exact, two axes": (aten._upsample_nearest_exact2d.vec, IMAGE, [10, 3], None),
        "nearest-exact, three axes": (aten._upsample_nearest_exact3d.vec, VOLUME, None, [2.0, 2.0, 2.0]),
        "nearest-exact, float16": (aten._upsample_nearest_exact1d.vec, SIGNAL.half(), None, [1.7]),
        "linear": (aten.upsample_linear1d.vec, SIGNAL, None, False, [1.7]),
        "linear, an axis that keeps its size": (aten.upsample_linear1d.vec, SIGNAL, None, False, [1.1]),
        "bilinear, twice": (aten.upsample_bilinear2d.vec, IMAGE, None, False, [2.0, 2.0]),
        "bilinear, corners": (aten.upsample_bilinear2d.vec, IMAGE, [11, 1], True, None),
        "bilinear, float64": (aten.upsample_bilinear2d.vec, IMAGE.double(), [11, 3], False, None),
        "bilinear, float64, corners": (aten.upsample_bilinear2d.vec, IMAGE.double(), [11, 1], True, None),
        "bilinear, float16": (aten.upsample_bilinear2d.vec, IMAGE.half(), [11, 3], False, None),
        "bilinear, bfloat16, factors": (
            aten.upsample_bilinear2d.vec,
            IMAGE.bfloat16(),
            None,
            False,
            [1.3, 2.2],
        ),
        "bilinear, empty": (aten.upsample_bilinear2d.vec, IMAGE[:0], [11, 3], False, None),
        "trilinear, float16": (
            aten.upsample_trilinear3d.vec,
            VOLUME.half() * 9,
            None,
            False,
            [1.7, 1.3, 0.6],
        ),
        "linear, bfloat16": (aten.upsample_linear1d.vec, SIGNAL.bfloat16() * 9, None, True, [1.7]),
        "trilinear": (aten.upsample_trilinear3d.vec, VOLUME, None, True, [1.5, 2.0, 0.5]),
        "bicubic": (aten.upsample_bicubic2d.vec, IMAGE, [11, 3], False, None),
        "bicubic, factors": (aten.upsample_bicubic2d.vec, IMAGE, None, False, [1.1, 2.3]),
        "bicubic, float64, corners": (aten.upsample_bicubic2d.vec, IMAGE.double(), [11, 3], True, None),
        "antialiased, smaller": (aten._upsample_bilinear2d_aa.vec, normal(1, 2, 20, 30), [7, 9], False, None),
        "antialiased, corners": (aten._upsample_bilinear2d_aa.vec, normal(1, 2, 20, 30), [7, 40], True, None),
        "antialiased, corners, one row": (
            aten._upsample_bilinear2d_aa.vec,
            normal(1, 2, 20, 30),
            [1, 4],
            True,
            None,
        ),
        "antialiased, factors": (aten._upsample_bilinear2d_aa.vec, IMAGE, None, False, [1.1, 0.6]),
        "antialiased cubic": (aten._upsample_bicubic2d_aa.vec, normal(1, 2, 20, 30), [7, 40], False, None),
        "antialiased cubic, float64": (aten._upsample_bicubic2d_aa.vec, IMAGE.double(), [3, 4], True, None),
    }
    if installed("_upsample_lanczos2d_aa.vec"):  # torch 2.9 lacks it
        CASES |= {
            "lanczos": (aten._upsample_lanczos2d_aa.vec, normal(1, 2, 20, 30), [7, 40], False, None),
            "lanczos, factors": (aten._upsample_lanczos2d_aa.vec, IMAGE, None, False, [1.1, 0.6]),
            "lanczos, float64, corners": (aten._upsample_lanczos2d_aa.default, IMAGE.double(), [3, 9], True),
        }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_sizes_that_stay(self):
        """What keeps its sizes is no Resize: tables of positions at the resolution that they were trained for."""
        size, interpolate = tuple(IMAGE.shape[2:]), torch.nn.functional.interpolate
        for mode in ("bilinear", "bicubic"):
            every = each(
                lambda x, mode=mode: interpolate(x * 2, size=size, mode=mode),
                lambda x, mode=mode: interpolate(x * 2, scale_factor=1.0, mode=mode),
                lambda x, mode=mode: interpolate(x * 2, size=size, mode=mode, align_corners=True),
                lambda x, mode=mode: interpolate(x * 2, size=size, mode=mode, antialias=True),
            )
            model = self.assert_same_as_eager(every, IMAGE, dynamic=False)
            self.assertEqual({"Mul", "Identity"}, {node.op_type for node in model.graph.node})
        signal = self.assert_same_as_eager(
            lambda x: interpolate(x * 2, scale_factor=1.0, mode="linear"), SIGNAL, others=[(normal(1, 2, 5),)]
        )
        self.assertEqual(["Mul"], [node.op_type for node in signal.graph.node])

    def test_infinities_between_elements(self):
        x = IMAGE.where(IMAGE < 1.5, float("inf"))
        for packet in (aten.upsample_bilinear2d, aten.upsample_bicubic2d):
            self.assert_same_as_eager(packet.vec, x, None, False, [0.5, 1.5])

    def test_elements_that_are_not_finite(self):
        """They reach the same outputs as in eager, also where their weight is 0 and along an axis that keeps its size."""

        def resized(image, volume):
            for scale in ((1, 2), (3, 1)):
                yield torch.nn.functional.interpolate(image, scale_factor=scale, mode="bilinear")
            yield torch.nn.functional.interpolate(image, scale_factor=(1, 2), mode="bicubic")
            yield torch.nn.functional.interpolate(image, (5, 10), mode="bilinear", align_corners=True)
            yield torch.nn.functional.interpolate(volume, scale_factor=(1, 2, 1), mode="trilinear")

        image, volume = normal(1, 2, 5, 5), normal(1, 1, 3, 3, 3)
        image[0, 0, 2, 2] = volume[0, 0, 1, 1, 1] = float("inf")
        image[0, 1, 2, 2] = float("nan")
        self.assert_same_as_eager(lambda *x: list(resized(*x)), image, volume, special_values=True)

    def test_sizes_that_a_float32_hardly_gives(self):
        """90 * 0.7 is 62 in float64; an axis that keeps its size is copied by a linear interpolation, not by a cubic one."""

        def resized(x):
            for scale in (0.7, 1.1, 1.25, 1.4, 0.3, 1 / 3, 2.9):
                for mode in ("bilinear", "bicubic"):
                    yield torch.nn.functional.interpolate(x, scale_factor=scale, mode=mode)
                yield torch.nn.functional.interpolate(x, scale_factor=scale, mode="nearest")

        others = [(normal(1, 2, *size) / 10,) for size in ((4, 90), (5, 4), (8, 9))]
        self.assert_same_as_eager(lambda x: list(resized(x)), normal(1, 2, 90, 5) / 10, others=others)

    def test_corners_of_factors(self):
        """One Resize by the factor where float32 gives the sizes by it, by the sizes otherwise, also of axes of one element."""
        modes = ((SIGNAL, "linear"), (IMAGE, "bilinear"), (IMAGE, "bicubic"), (VOLUME, "trilinear"))
        for (x, mode), factor in itertools.product(modes, (3, 1.7, 1 / 3, 0.7)):
            with self.subTest(mode, factor=factor):
                layer = torch.nn.Upsample(scale_factor=factor, mode=mode, align_corners=True)
                axes = (0, *range(2, x.dim()))
                least = math.ceil(1 / factor)
                model = self.export_and_compare(
                    layer,
                    (x,),
                    dynamic_shapes=({axis: f"size_{axis}" for axis in axes},),
                    others=[
                        (x[:1, :, :least],),
                        (normal(3, x.shape[1], *(9, 4, least)[: x.dim() - 2]),),
                        (normal(1, x.shape[1], *(10, 30, 5)[: x.dim() - 2]),),
                    ],
                )
                kinds = {node.op_type for node in model.graph.node}
                self.assertIn("Resize", kinds)
                self.assertEqual(factor == 0.7, "Shape" in kinds)
                if factor != 0.7:
                    self.assertLessEqual(kinds, {"Unsqueeze", "Resize", "Squeeze", "Reshape"})

    def test_corners_of_factors_in_any_runtime(self):
        """Corners are aligned with a whole length: 7 * 1.7 is 11, not 11.9."""
        dynamic = (None, ({2: "height", 3: "width"},), ({3: "width"},))
        for factor, sizes in itertools.product((2, 1.7, 0.6), dynamic):
            with self.subTest(factor=factor, dynamic=sizes):
                layer = torch.nn.Upsample(scale_factor=factor, mode="bilinear", align_corners=True)
                model = to_onnx(layer, (IMAGE,), dynamic_shapes=sizes, runtime="onnx")
                for x in (IMAGE, normal(2, 3, 7, 9)) if sizes else (IMAGE,):
                    (got,) = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x.numpy()})
                    torch.testing.assert_close(torch.from_numpy(got), layer(x), rtol=1e-4, atol=1e-4)
                if factor == 2 or not sizes:
                    self.assertEqual(["Resize"], [node.op_type for node in model.graph.node])

    def test_nearest_neighbours_of_static_sizes(self):
        """One Resize, or a Gather an axis where it may read a neighbour."""
        for size, others in ((7, range(1, 20)), (64, (13, 32, 63, 65, 96, 127)), (224, (112, 150, 300, 301))):
            image = (torch.arange(size * size) % 199).reshape(1, 1, size, size)
            resized = each(
                *(
                    functools.partial(torch.nn.functional.interpolate, size=pair)
                    for pair in zip(others, reversed(others))
                )
            )
            for dtype in (torch.float32, torch.uint8):
                with self.subTest(dtype=dtype, size=size):
                    model = self.assert_same_as_eager(
                        resized, image.to(dtype), dynamic=False, target_opset=20
                    )
                    kinds = [node.op_type for node in model.graph.node]
                    self.assertGreaterEqual(kinds.count("Resize"), len(others) // 2)
                    self.assertEqual(2 * (len(others) - kinds.count("Resize")), kinds.count("Gather"))

    def test_nearest_neighbours_of_dynamic_sizes(self):
        """By Resize where each size is kept, doubled or divided by a power of 2, otherwise in rows: of the transposed images, unless these have few."""
        sizes = ({0: "batch", 2: "height", 3: "width"}, {2: "tall", 3: "wide"})
        images = self.export_and_compare(
            lambda x, y: torch.nn.functional.interpolate(x, y.shape[-2:]),
            (normal(2, 3, 9, 11), normal(1, 1, 13, 25)),
            dynamic_shapes=sizes,
            others=[
                (normal(1, 3, *before), normal(1, 1, *after))
                for before, after in (
                    *(((1, 1), (4, 5)), ((35, 70), (5, 2)), ((4, 6), (1, 60)), ((14, 20), (2, 12))),
                    *(((2, 3), (82, 123)), ((7, 14), (1, 2)), ((2047, 3), (4093, 7)), ((2, 2095), (4, 4189))),
                    *(
                        ((5, 6), (10, 12)),
                        ((5, 6), (11, 11)),
                        ((8, 64), (8, 2)),
                        ((5, 8), (5, 1)),
                        ((8, 5), (3, 5)),
                    ),
                )
            ],
        )
        nodes = {node.op_type: node for node in images.graph.node}
        at_once, along_each_axis = sorted(nodes["If"].attribute, key=lambda item: item.name == "else_branch")
        self.assertEqual("Resize", at_once.g.node[-1].op_type)
        written = [node.op_type for node in along_each_axis.g.node]
        self.assertEqual(["Gather", "Transpose", "Gather", "Transpose"], written[-4:])
        rows = self.export_and_compare(
            lambda x: torch.nn.functional.interpolate(x, (13,)),
            (normal(2, 3, 9),),
            dynamic_shapes=({2: "length"},),
            others=[(normal(2, 3, length),) for length in (1, 35, 130)],
        )
        self.assertNotIn("Transpose", [node.op_type for node in rows.graph.node])

    def test_nearest_neighbours_by_a_factor_of_dynamic_sizes(self):
        """One Resize where it reads what torch reads in an axis of any size: not for 1.1, which keeps axes below 10."""
        for factor, resizes in (
            (0.5, True),
            (1.5, True),
            ((2, 2.5), True),
            (0.25, True),
            (1.1, False),
            (0.7, False),
        ):
            for dims, dtype in ((1, torch.float32), (2, torch.float32), (2, torch.uint8), (3, torch.float32)):
                if isinstance(factor, tuple) and dims != 2:
                    continue
                with self.subTest(factor=factor, dims=dims, dtype=dtype):
                    shapes = ((2, 3, 8, 12, 8), (1, 3, 4, 5, 9), (1, 3, 31, 7, 4), (2, 3, 5, 100, 6))
                    if isinstance(factor, tuple) or factor > 1:
                        shapes += ((1, 3, 1, 2, 3), (1, 3, 2, 1, 1))
                    x, *others = (
                        (torch.arange(math.prod(shape[: 2 + dims])) % 251)
                        .reshape(shape[: 2 + dims])
                        .to(dtype)
                        for shape in shapes
                    )
                    model = self.export_and_compare(
                        torch.nn.Upsample(scale_factor=factor),
                        (x,),
                        dynamic_shapes=(
                            {0: "batch", **{axis: f"size_{axis}" for axis in range(2, 2 + dims)}},
                        ),
                        others=[(other,) for other in others],
                    )
                    kinds = [node.op_type for node in model.graph.node if node.op_type != "Cast"]
                    self.assertEqual(resizes, kinds == ["Resize"])

    def test_sizes_that_are_a_multiple(self):
        """``size=(x.shape[2] * 2, ...)`` is what ``scale_factor=2`` is, up to the factors that float32 keeps apart."""

        def resized(factor, mode, x):
            images = (x, x[:, :, ::2])
            sizes = [[factor * size for size in image.shape[2:]] for image in images]
            return [torch.nn.functional.interpolate(*pair, mode=mode) for pair in zip(images, sizes)]

        modes = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}
        for dims, own in modes.items():
            for mode in ("nearest", "nearest-exact", *own):
                for factor in (1, 2, 41, 64, 65) if dims == 1 else (3,):
                    with self.subTest(dims=dims, mode=mode, factor=factor):
                        written = self.export_and_compare(
                            functools.partial(resized, factor, mode),
                            (normal(1, 2, *(5, 4, 3)[:dims]),),
                            dynamic_shapes=({axis: f"size_{axis}" for axis in range(2, 2 + dims)},),
                            others=[(normal(1, 2, *sizes[:dims]),) for sizes in ((9, 1, 2), (1, 3, 7))],
                        )
                        kinds = {node.op_type for node in written.graph.node} - {
                            "Slice",
                            "Identity",
                            "Squeeze",
                            "Unsqueeze",
                        }
                        is_one = factor < 65 and (factor != 41 or mode != "nearest")
                        self.assertEqual(is_one, kinds <= {"Resize"}, kinds)

    def test_the_precision_of_nearest_neighbours(self):
        """Bytes are found in float32; float64 is, too, where it is floored, and its gradient everywhere."""

        def resized(x):
            for factor in (41, 47, 49, 55, 61):
                yield torch.nn.functional.interpolate(x, factor * x.shape[2] if factor != 47 else 5 * 47)
                yield torch.nn.functional.interpolate(x, scale_factor=factor)

        def shared(gradient, factor):
            sizes = [gradient.shape[2]], [1, 1, gradient.shape[2] // factor]
            return torch.ops.aten.upsample_nearest1d_backward(gradient, *sizes)

        for dtype in (torch.uint8, torch.float64):
            with self.subTest(dtype=dtype):
                x, other = (torch.arange(size).to(dtype).reshape(1, 1, size) for size in (5, 7))
                self.assert_same_as_eager(lambda x: list(resized(x)), x)
                self.assert_same_as_eager(
                    lambda x: torch.nn.functional.interpolate(x, 5 * 49), x, others=[(other,)]
                )
        for factor in (41, 49):
            gradient = normal(1, 1, 5 * factor, dtype=torch.float64)
            self.assert_same_as_eager(functools.partial(shared, factor=factor), gradient, dynamic=False)

    def test_axes_that_a_factor_keeps_or_doubles(self):
        """ATen's kernel of two axes reads whole elements then, those of one and of three axes do not."""

        def resized(signal, image, volume):
            for x in (signal, image, volume):
                for scale in (1.1, 2.1, 2.3):
                    for mode in ("nearest", "nearest-exact"):
                        yield torch.nn.functional.interpolate(x, scale_factor=scale, mode=mode)

        others = [(normal(1, 2, 3), normal(1, 2, 9, 4), normal(1, 2, 6, 2, 3))]
        self.assert_same_as_eager(lambda *x: list(resized(*x)), SIGNAL, IMAGE, VOLUME, others=others)

    def test_halves_are_nearer_than_eager(self):
        """Eager rounds the weights of one and of three axes; the measure is the distance to what float64 gives."""
        signal, volume = normal(1, 2, 300), normal(1, 2, 9, 14, 11)

        def resized(signal, image, volume):
            for x, mode in (
                (signal, "linear"),
                (image, "bilinear"),
                (image, "bicubic"),
                (volume, "trilinear"),
            ):
                yield torch.nn.functional.interpolate(x, scale_factor=1.7, mode=mode)

        for dtype in (torch.float16, torch.bfloat16):
            given = [x.to(dtype) for x in (signal, normal(1, 2, 40, 30), volume)]
            model = to_onnx(lambda *x: list(resized(*x)), tuple(given))
            exact = resized(*(x.double() for x in given))
            for ours, eager, right in zip(run(session(model), given), resized(*given), exact):
                with self.subTest(dtype=dtype, axes=ours.dim() - 2):
                    self.assertEqual(dtype, ours.dtype)
                    gaps = [(x.double() - right).abs() for x in (ours, eager)]
                    self.assertLessEqual(float(gaps[0].max()), float(gaps[1].max()))
                    self.assertLessEqual(float(gaps[0].mean()), 1.01 * float(gaps[1].mean()))

    def test_bytes(self):
        """ATen interpolates them in integers on the CPUs that have AVX2, in floats elsewhere."""
        if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
            self.skipTest("ATen has integer kernels for AVX2 only")
        every = each(*(functools.partial(resized, packet) for packet in OF_BYTES for resized in CORNERS))
        sizes = (((9, 14), [20, 5]), ((40, 33), [11, 33]), ((1, 60), [3, 7]))
        for (size, out), channels in zip(sizes, (3, 5, 4)):
            with self.subTest(size=size, out=out, channels=channels):
                image = torch.randint(0, 256, (2, channels, *size), dtype=torch.uint8)
                self.assert_same_as_eager(every, image, out, dynamic=False)
                last = ((image > 99).byte() * 255).contiguous(memory_format=torch.channels_last)
                self.assert_same_as_eager(every, last, out, dynamic=False)
        # 7 rows times 1.05 are 7 rows: copied
        factors = (torch.arange(98).byte().reshape(1, 1, 7, 14), None, False, [1.05, 1.3])
        self.assert_cases({str(packet): (packet.vec, *factors) for packet in OF_BYTES})

    def test_sizes_without_factors(self):
        for target, x, size in NEAREST:
            with self.subTest(target):
                self.assert_same_as_eager(target, x, size)
                scales = [out / old for out, old in zip(size, x.shape[2:])]
                self.assert_same_as_eager(target, x, size, *scales)
        for target, x, size in WEIGHTED:
            with self.subTest(target):
                self.assert_same_as_eager(target, x, size, False)
                self.assert_same_as_eager(target, x, size, True)

    def test_other_sizes(self):
        modes = ("nearest", "nearest-exact", "bilinear", "bicubic")

        def resized(x, y):
            for mode in modes:
                yield torch.nn.functional.interpolate(x, size=y.shape[2:], mode=mode)
                yield torch.nn.functional.interpolate(x, scale_factor=(2, 1.5), mode=mode)
                if mode not in ("nearest", "nearest-exact"):
                    yield torch.nn.functional.interpolate(x, size=y.shape[2:], mode=mode, antialias=True)

        for dtype, scale in ((torch.float32, 1), (torch.float64, 1), (torch.uint8, 99)):
            with self.subTest(dtype=dtype):
                others = [((normal(3, 3, 3, 4) * scale).to(dtype), normal(1, 1, 5, 3))]
                x, y = (IMAGE * scale).to(dtype), normal(1, 1, 9, 11)
                every = lambda x, y: list(resized(x, y))
                self.assert_same_as_eager(every, x, y, others=others)

    def test_sizes_that_the_factors_do_not_tell(self):
        # ATen takes both: places by the factors, as many as the sizes say
        others = [(normal(3, 3, 5, 8), normal(1, 1, 4, 2))]
        for packet in (aten.upsample_bilinear2d, aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa):
            with self.subTest(packet=packet):
                for sizes in ((3, 3), None):

                    def resized(x, y):
                        return packet.default(x, sizes or [*y.shape[2:]], False, 1.7, 0.9)  # noqa: B023

                    self.assert_same_as_eager(resized, IMAGE, normal(1, 1, 3, 4), others=others)

    def test_sizes_that_the_factors_tell_are_one_node(self):
        class Resized(torch.nn.Module):
            def forward(self, x):
                resize = functools.partial(torch.nn.functional.interpolate, x, mode="bicubic", antialias=True)
                return resize(scale_factor=2), resize(scale_factor=1.7)

        axes = {axis: torch.export.Dim.DYNAMIC for axis in (0, 2, 3)}
        program = torch.export.export(
            Resized(), (normal(2, 3, 9, 8),), dynamic_shapes=(axes,)
        ).run_decompositions()
        self.assertEqual(["Resize"] * 2, [node.op_type for node in to_onnx(program).graph.node])


if __name__ == "__main__":
    unittest.main()
