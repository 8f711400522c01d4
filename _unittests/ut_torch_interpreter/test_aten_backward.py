"""Gradients: same values, shapes and dtypes as eager."""

import itertools
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter.torch_versions import installed

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE, VOLUME = normal(2, 3, 7, 8), normal(2, 3, 5, 6, 4)
BIG = normal(2, 3, 11, 4)
FLAT, WEIGHT = normal(2, 6, 5), normal(6)
WINDOW = [3, 2], [2, 2], [1, 1]
LARGEST = aten.max_pool2d_with_indices.default(IMAGE, *WINDOW, [1, 1], True)[1]
LARGEST3 = aten.max_pool3d_with_indices.default(VOLUME, [2, 3, 2], [2, 2, 1])[1]
ADAPTED = aten.adaptive_max_pool2d.default(IMAGE, [5, 3])[1]
ADAPTED3 = aten.adaptive_max_pool3d.default(VOLUME, [3, 3, 3])[1]
FRACTION = aten.fractional_max_pool2d.default(IMAGE, [2, 3], [4, 3], torch.full((2, 3, 2), 0.3))[1]
FRACTION3 = aten.fractional_max_pool3d.default(VOLUME, [2, 3, 2], [3, 3, 2], torch.full((2, 3, 3), 0.3))[1]
BY_LAYER = aten.native_layer_norm.default(FLAT, [5], None, None, 1e-5)[1:]
BY_GROUP = aten.native_group_norm.default(FLAT, WEIGHT, None, 2, 6, 5, 3, 1e-5)[1:]
BY_BATCH = aten.native_batch_norm.default(FLAT, WEIGHT, None, None, None, True, 0.1, 1e-5)[1:]
EVERY = [True, True, True]
PADDED = (
    (normal(2, 3, 11), normal(2, 3, 6), [2, 3]),
    (normal(3, 7, 6), normal(3, 6, 5), [2, -1, 1, 0]),
    (normal(2, 2, 6, 6, 6), normal(2, 2, 4, 5, 3), [1, 2, 0, 1, 1, 1]),
)


def like(indices):
    """Gradients of outputs that have the shape of *indices*."""
    return normal(*indices.shape)


class TestBackward(ExporterTestCase):
    CASES = {
        "weight_norm": (
            aten._weight_norm_interface_backward.default, IMAGE, IMAGE * 2, normal(2, 1, 1, 1),
            aten.norm_except_dim.default(IMAGE * 2, 2, 0), 0),
        "weight_norm of a vector": (
            aten._weight_norm_interface_backward.default, WEIGHT, WEIGHT * 2, WEIGHT + 3,
            aten.norm_except_dim.default(WEIGHT * 2, 2, 0), 0),
        "weight_norm of the last axis, halves": (
            aten._weight_norm_interface_backward.default, FLAT.bfloat16(), (FLAT * 2).bfloat16(),
            normal(1, 1, 5).bfloat16(), aten.norm_except_dim.default(FLAT * 2, 2, 2), 2),
        "convolution with groups": (
            aten.convolution_backward.default, normal(2, 6, 4, 3), normal(2, 4, 9, 8), normal(6, 2, 3, 2),
            [6], [2, 3], [1, 0], [2, 1], False, [0, 0], 2, EVERY),
        "convolution of each channel": (
            aten.convolution_backward.default, normal(2, 3, 4, 3), normal(2, 3, 9, 8), normal(3, 1, 3, 2),
            [3], [2, 3], [1, 0], [2, 1], False, [0, 0], 3, EVERY),
        "convolution, several filters of each channel": (
            aten.convolution_backward.default, normal(2, 6, 5), normal(2, 3, 9), normal(6, 1, 3), [6], [2],
            [1], [1], False, [0], 3, EVERY),
        "convolution, transposed, of each channel": (
            aten.convolution_backward.default, normal(2, 3, 11), normal(2, 3, 5), normal(3, 1, 3), [3], [2],
            [0], [1], True, [0], 3, EVERY),
        "convolution, only the weight": (
            aten.convolution_backward.default, normal(2, 6, 5), normal(2, 4, 9), normal(6, 4, 3), [6], [2],
            [1], [1], False, [0], 1, [False, True, False]),
        "convolution, float64": (
            aten.convolution_backward.default, normal(2, 6, 5).double(), normal(2, 4, 9).double(),
            normal(6, 4, 3).double(), [6], [2], [1], [1], False, [0], 1, EVERY),
        "convolution whose stride leaves elements": (
            aten.convolution_backward.default, normal(2, 6, 4, 2), normal(2, 4, 9, 8), normal(6, 4, 2, 3),
            [6], [2, 2], [0, 0], [1, 2], False, [0, 0], 1, EVERY),
        "convolution of volumes": (
            aten.convolution_backward.default, normal(2, 6, 4, 3, 3), normal(2, 4, 6, 5, 5),
            normal(6, 4, 3, 3, 3), [6], [1, 1, 1], [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 1, EVERY),
        "convolution of single elements": (
            aten.convolution_backward.default, normal(2, 6, 9, 8), normal(2, 4, 9, 8), normal(6, 4, 1, 1),
            [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, EVERY),
        "transposed convolution, one group": (
            aten.convolution_backward.default, normal(2, 3, 10, 12), normal(2, 4, 9, 10),
            normal(4, 3, 2, 3), [3], [1, 1], [0, 0], [1, 1], True, [0, 0], 1, EVERY),
        "transposed convolution": (
            aten.convolution_backward.default, normal(2, 6, 18, 23), normal(2, 4, 9, 8), normal(4, 3, 2, 2),
            [6], [2, 3], [0, 0], [1, 1], True, [0, 0], 2, EVERY),
        "transposed convolution, an output padding wider than the stride": (
            aten.convolution_backward.default, normal(2, 3, 13, 20), normal(2, 4, 5, 6), normal(4, 3, 2, 3),
            [3], [2, 2], [1, 0], [4, 4], True, [2, 1], 1, EVERY),
        "rows of an embedding": (
            aten.embedding_dense_backward.default, normal(3, 4, 5),
            torch.randint(0, 7, (3, 4), generator=GENERATOR), 7, 2, False),
        "rows over their uses": (
            aten.embedding_dense_backward.default, normal(3, 4, 5),
            torch.randint(0, 7, (3, 4), generator=GENERATOR), 7, -1, True),
        "largest elements": (
            aten.max_pool2d_with_indices_backward.default, like(LARGEST), IMAGE, *WINDOW, [1, 1], True,
            LARGEST),
        "largest elements, float16": (
            aten.max_pool2d_with_indices_backward.default, like(LARGEST).half(), IMAGE.half(), *WINDOW,
            [1, 1], True, LARGEST),
        "largest elements, three axes": (
            aten.max_pool3d_with_indices_backward.default, like(LARGEST3), VOLUME, [2, 3, 2], [2, 2, 1],
            [0] * 3, [1] * 3, False, LARGEST3),
        "adaptive largest": (aten.adaptive_max_pool2d_backward.default, like(ADAPTED), IMAGE, ADAPTED),
        "adaptive largest, three axes": (
            aten.adaptive_max_pool3d_backward.default, like(ADAPTED3), VOLUME, ADAPTED3),
        "fractional largest": (
            aten.fractional_max_pool2d_backward.default, like(FRACTION), IMAGE, [2, 3], [4, 3], FRACTION),
        "mean": (aten.avg_pool2d_backward.default, like(LARGEST), IMAGE, *WINDOW, True, True, None),
        "mean without the padding": (
            aten.avg_pool2d_backward.default, like(LARGEST), IMAGE, *WINDOW, True, False, None),
        "mean, a divisor": (aten.avg_pool2d_backward.default, like(LARGEST), IMAGE, *WINDOW, True, False, 5),
        "mean, three axes": (
            aten.avg_pool3d_backward.default, like(LARGEST3), VOLUME, [2, 3, 2], [2, 2, 1], [0] * 3, False,
            True, None),
        "adaptive mean": (aten._adaptive_avg_pool2d_backward.default, normal(2, 3, 5, 3), IMAGE),
        "adaptive mean, three axes": (
            aten._adaptive_avg_pool3d_backward.default, normal(2, 3, 3, 3, 3), VOLUME),
        "mirrored, one axis": (aten.reflection_pad1d_backward.default, *PADDED[0]),
        "mirrored, two axes": (aten.reflection_pad2d_backward.default, *PADDED[1]),
        "mirrored, three axes": (aten.reflection_pad3d_backward.default, *PADDED[2]),
        "repeated, one axis": (aten.replication_pad1d_backward.default, *PADDED[0]),
        "repeated, two axes": (aten.replication_pad2d_backward.default, *PADDED[1]),
        "repeated, three axes": (aten.replication_pad3d_backward.default, *PADDED[2]),
        "layer": (
            aten.native_layer_norm_backward.default, normal(2, 6, 5), FLAT, [5], *BY_LAYER, normal(5),
            normal(5), EVERY),
        "group": (
            aten.native_group_norm_backward.default, normal(2, 6, 5), FLAT, *BY_GROUP, WEIGHT, 2, 6, 5, 3,
            EVERY),
        "batch": (
            aten.native_batch_norm_backward.default, normal(2, 6, 5), FLAT, WEIGHT, None, None, *BY_BATCH,
            True, 1e-5, EVERY),
        "batch, as _batch_norm_with_update": (
            aten.batch_norm_backward.default, normal(2, 6, 5), FLAT, WEIGHT, None, None, *BY_BATCH,
            True, 1e-5, EVERY, torch.zeros(0, dtype=torch.uint8)),
        "nearest, one axis": (aten.upsample_nearest1d_backward.default, normal(2, 3, 11), [11], [2, 3, 5]),
        "nearest, two axes": (aten.upsample_nearest2d_backward.default, BIG, [11, 4], [2, 3, 5, 7]),
        "nearest, three axes": (
            aten.upsample_nearest3d_backward.default, normal(1, 2, 5, 4, 9), [5, 4, 9], [1, 2, 3, 5, 4]),
        "nearest-exact, one axis": (
            aten._upsample_nearest_exact1d_backward.default, normal(2, 3, 11), [11], [2, 3, 5]),
        "nearest-exact, two axes": (
            aten._upsample_nearest_exact2d_backward.default, BIG, [11, 4], [2, 3, 5, 7]),
        "nearest-exact, three axes": (
            aten._upsample_nearest_exact3d_backward.default, normal(1, 2, 5, 4, 9), [5, 4, 9],
            [1, 2, 3, 5, 4]),
        "linear": (aten.upsample_linear1d_backward.default, normal(2, 3, 11), [11], [2, 3, 5], False),
        "bilinear": (aten.upsample_bilinear2d_backward.default, BIG, [11, 4], [2, 3, 5, 7], True),
        "bilinear, float64": (
            aten.upsample_bilinear2d_backward.default, BIG.double(), [11, 4], [2, 3, 5, 7], False),
        "trilinear": (
            aten.upsample_trilinear3d_backward.default, normal(1, 2, 5, 4, 9), [5, 4, 9], [1, 2, 3, 5, 4],
            False),
        "antialiased": (aten._upsample_bilinear2d_aa_backward.default, BIG, [11, 4], [2, 3, 5, 13], False),
        "antialiased with corners": (
            aten._upsample_bilinear2d_aa_backward.default, BIG, [11, 4], [2, 3, 15, 7], True),
        "antialiased by factors": (
            aten._upsample_bilinear2d_aa_backward.default, BIG, [11, 4], [2, 3, 5, 13], False, 2.2, 0.3),
        "antialiased bicubic": (
            aten._upsample_bicubic2d_aa_backward.default, BIG, [11, 4], [2, 3, 5, 13], False),
        "antialiased bicubic, float64": (
            aten._upsample_bicubic2d_aa_backward.default, BIG.double(), [11, 4], [2, 3, 25, 13], True),
        "bicubic": (aten.upsample_bicubic2d_backward.default, BIG, [11, 4], [2, 3, 5, 7], False),
    }  # fmt: skip
    if installed("_upsample_lanczos2d_aa_backward.default"):  # torch 2.9 lacks it
        lanczos = aten._upsample_lanczos2d_aa_backward.default
        CASES["antialiased lanczos"] = (lanczos, BIG, [11, 4], [2, 3, 25, 9], False)

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_fractional_largest_of_a_volume(self):
        """For known sizes: torch has no other shape of it."""
        self.assert_same_as_eager(
            aten.fractional_max_pool3d_backward.default,
            *(like(FRACTION3), VOLUME, [2, 3, 2], [3, 3, 2], FRACTION3),
            dynamic=False,
        )


PLACES = torch.tensor([[0, 2, 1, 1], [2, 2, 0, 1], [1, 0, 0, 2]])
NUMBERS = normal(3, 4)


class TestTakenApart(ExporterTestCase):
    """Gradients that only a trace of them before autograd shows: afterwards torch has taken them apart."""

    CASES = {
        "cummax": (
            aten.cummaxmin_backward.default, normal(3, 4), NUMBERS, torch.cummax(NUMBERS, 1)[1], 1),
        "cumprod": (aten.cumprod_backward.default, normal(3, 4), NUMBERS, 1, NUMBERS.cumprod(1)),
        "embedding": (aten.embedding_backward.default, normal(3, 4, 5), PLACES, 7, 1, False, False),
        "gather": (aten.gather_backward.default, normal(3, 4), normal(3, 5), 1, PLACES, False),
        "index_select": (aten.index_select_backward.default, normal(3, 4), [3, 5], 1, PLACES[0]),
        "masked_select": (aten.masked_select_backward.default, normal(5), NUMBERS, torch.arange(12).reshape(3, 4) < 5),
        "trace": (aten.trace_backward.default, normal(1)[0], [3, 4]),
        "max": (aten.value_selecting_reduction_backward.default, normal(3), 1, PLACES[0, :3], [3, 4], False),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)


class TestHalfPrecision(ExporterTestCase):
    """Input, weight, then stride, padding, dilation, transposed, output_padding, groups."""

    CONVOLUTIONS = {
        "plain": (normal(2, 8, 12, 11), normal(16, 8, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        "stride": (normal(2, 8, 12, 11), normal(6, 8, 3, 2), [2, 3], [1, 0], [1, 1], False, [0, 0], 1),
        "dilation": (normal(2, 8, 9), normal(6, 8, 3), [1], [2], [2], False, [0], 1),
        "groups": (normal(2, 8, 12, 11), normal(16, 2, 5, 5), [2, 2], [2, 2], [1, 1], False, [0, 0], 4),
        "depthwise volumes": (normal(1, 6, 6, 5, 5), normal(6, 1, 3, 3, 3), [1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 6),
        "transposed": (normal(2, 8, 6, 7), normal(8, 6, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
        "transposed with groups": (normal(2, 8, 9), normal(8, 3, 4), [3], [0], [2], True, [0], 2),
    }  # fmt: skip

    def test_as_near_as_eager(self):
        for promise, (x, weight, *geometry) in self.CONVOLUTIONS.items():
            channels = [weight.shape[1] * geometry[-1] if geometry[3] else weight.shape[0]]
            gradient = torch.randn_like(aten.convolution.default(x, weight, None, *geometry))
            for dtype, position in itertools.product((torch.float16, torch.bfloat16), range(3)):

                def function(*tensors, position=position, settings=(channels, *geometry)):
                    mask = [place == position for place in range(3)]
                    return aten.convolution_backward.default(*tensors, *settings, mask)[position]

                with self.subTest(promise, dtype=dtype, position=position):
                    self.assert_as_near_as_eager(function, *(t.to(dtype) for t in (gradient, x, weight)))


if __name__ == "__main__":
    unittest.main()
