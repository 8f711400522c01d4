"""Normalization: same values, statistics, shapes and dtypes as eager."""

import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import Call, ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.versions import numbers

F = torch.nn.functional
aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    """Normal numbers, the same at every run."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


IMAGE = normal(3, 6, 5, 4)
WEIGHT, BIAS, MEAN, VAR = normal(6), normal(6), normal(6), torch.rand(6, generator=GENERATOR) + 0.5
STATISTICS = WEIGHT, BIAS, MEAN, VAR
FAR = normal(3, 6, 5) + 1000.0


def in_training(input, mean, var, weight=None):
    """batch_norm by the statistics of the batch."""
    return F.batch_norm(input, mean, var, weight, training=True)


class TestNormalization(ExporterTestCase):
    CASES = {
        "batch, running statistics": (aten.batch_norm.default, IMAGE, *STATISTICS, False, 0.1, 1e-5, True),
        "batch, two axes": (aten.batch_norm.default, IMAGE[..., 0, 0], *STATISTICS, False, 0.1, 1e-5, True),
        "batch, no weight": (aten.batch_norm.default, IMAGE, None, None, MEAN, VAR, False, 0.1, 1e-3, True),
        "batch, its own statistics": (
            aten.batch_norm.default, IMAGE, WEIGHT, BIAS, None, None, True, 0.1, 1e-5, True),
        "batch, float64": (
            aten.batch_norm.default, IMAGE.double(), *(x.double() for x in STATISTICS), False, 0.1, 1e-5,
            True),
        "batch, float16": (
            aten.batch_norm.default, IMAGE.half(), *(x.half() for x in STATISTICS), False, 0.1, 1e-5, True),
        "batch, bfloat16 with float32 statistics": (
            aten.batch_norm.default, IMAGE.bfloat16(), *STATISTICS, False, 0.1, 1e-5, True),
        "batch, one empty axis": (torch.nn.functional.batch_norm, *[torch.ones(0)] * 3),
        "batch, one empty axis, training": (
            torch.nn.functional.batch_norm, *[torch.ones(0)] * 3, None, None, True),
        "batch, empty": (aten.batch_norm.default, IMAGE[:0], *STATISTICS, False, 0.1, 1e-5, True),
        "native, running statistics": (aten.native_batch_norm.default, IMAGE, *STATISTICS, False, 0.1, 1e-5),
        "native, training": (
            aten.native_batch_norm.default, IMAGE, WEIGHT, BIAS, None, None, True, 0.1, 1e-5),
        "legit, no statistics": (
            aten._native_batch_norm_legit.no_stats, IMAGE, WEIGHT, BIAS, True, 0.1, 1e-5),
        "legit, no training": (
            aten._native_batch_norm_legit_no_training.default, IMAGE, *STATISTICS, 0.1, 1e-5),
        "functional, training": (
            aten._native_batch_norm_legit_functional.default, IMAGE, *STATISTICS, True, 0.1, 1e-5),
        "no update": (aten._batch_norm_no_update.default, IMAGE, *STATISTICS, 0.1, 1e-5),
        "functional update": (aten._batch_norm_with_update_functional.default, IMAGE, *STATISTICS, 0.1, 1e-5),
        "layer": (aten.layer_norm.default, IMAGE, [4], normal(4), normal(4), 1e-5),
        "layer, two axes, no bias": (aten.layer_norm.default, IMAGE, [5, 4], normal(5, 4), None, 1e-3),
        "layer, no weight": (aten.layer_norm.default, IMAGE, [6, 5, 4], None, None, 1e-5),
        "layer, float64": (aten.layer_norm.default, IMAGE.double(), [4], normal(4).double(), None, 1e-5),
        "layer, float16": (
            aten.layer_norm.default, IMAGE.half(), [4], normal(4).half(), normal(4).half(), 1e-5),
        "layer, bfloat16 with a float32 weight": (
            aten.layer_norm.default, IMAGE.bfloat16(), [4], normal(4), normal(4), 1e-5),
        "layer, empty": (aten.layer_norm.default, IMAGE[:0], [4], normal(4), None, 1e-5),
        "native layer": (aten.native_layer_norm.default, IMAGE, [5, 4], normal(5, 4), None, 1e-5),
        "native layer, float16": (aten.native_layer_norm.default, IMAGE.half(), [4], None, None, 1e-5),
        "native layer, bfloat16": (aten.native_layer_norm.default, IMAGE.bfloat16(), [5, 4], None, None, 1e-5),
        "native layer, float64": (aten.native_layer_norm.default, IMAGE.double(), [4], None, None, 1e-5),
        "root mean square": (aten.rms_norm.default, IMAGE, [4], normal(4), 1e-6),
        "root mean square, no eps": (aten.rms_norm.default, IMAGE, [5, 4]),
        "root mean square, two axes": (aten.rms_norm.default, IMAGE, [5, 4], normal(5, 4)),
        "root mean square, float16": (aten.rms_norm.default, IMAGE.half(), [4], normal(4).half()),
        "root mean square, float64": (aten.rms_norm.default, IMAGE.double(), [4], normal(4).double()),
        "root mean square and its factor": (aten._fused_rms_norm.default, IMAGE, [4], normal(4), 1e-6),
        "group": (aten.group_norm.default, IMAGE, 3, WEIGHT, BIAS, 1e-5),
        "group, no weight, two axes": (aten.group_norm.default, IMAGE[..., 0, 0], 2),
        "group, one channel each": (aten.group_norm.default, IMAGE, 6, WEIGHT, BIAS, 1e-5),
        "group, one channel each, no weight, two axes": (aten.group_norm.default, IMAGE[..., 0, 0], 6),
        "group, one channel each, float64": (
            aten.group_norm.default, IMAGE.double(), 6, WEIGHT.double(), BIAS.double()),
        "group, one channel each, float16": (aten.group_norm.default, IMAGE.half(), 6, WEIGHT.half(), BIAS.half()),
        "group, float64": (aten.group_norm.default, IMAGE.double(), 3, WEIGHT.double(), BIAS.double()),
        "group, float16": (aten.group_norm.default, IMAGE.half(), 3, WEIGHT.half(), BIAS.half()),
        "native group, one channel each": (aten.native_group_norm.default, IMAGE, WEIGHT, BIAS, 3, 6, 20, 6, 1e-5),
        "native group": (aten.native_group_norm.default, IMAGE, WEIGHT, BIAS, 3, 6, 20, 2, 1e-5),
        "instance": (aten.instance_norm.default, IMAGE, WEIGHT, BIAS, None, None, True, 0.1, 1e-5, True),
        "instance, one element a channel": (
            aten.instance_norm.default, normal(2, 3), WEIGHT[:3], BIAS[:3], None, None, True, 0.1, 1e-5, True),
        "instance, running statistics": (
            aten.instance_norm.default, IMAGE, *STATISTICS, False, 0.1, 1e-5, True),
        "instance, float64": (
            aten.instance_norm.default, IMAGE.double(), None, None, None, None, True, 0.1, 1e-5, True),
        "instance, bfloat16": (
            aten.instance_norm.default, IMAGE.bfloat16(), None, None, None, None, True, 0.1, 1e-5, True),
    }  # fmt: skip

    def test_groups_of_any_space(self):
        spaces = [(7, 9), (1, 1)]
        if numbers(torch.__version__) < numbers("2.14"):  # which takes no images without pixels
            spaces.append((0, 5))
        model = self.export_and_compare(
            Call(lambda x, w, b: torch.nn.functional.group_norm(x, 3, w, b), (IMAGE, WEIGHT, BIAS), {}),
            (IMAGE, WEIGHT, BIAS),
            dynamic_shapes=(({2: "height", 3: "width"}, {}, {}),),
            others=[(normal(3, 6, *space), WEIGHT, BIAS) for space in spaces],
            target_opset=20,
        )
        self.assertEqual(4, len(model.graph.node))

    def test_halves_are_as_near_as_eager(self):
        for dtype in (torch.float16, torch.bfloat16):
            values = (torch.randn(6, 6, 7) * 5 + 3).to(dtype)
            for weight in ([torch.randn(6).to(dtype)], []):
                for norm in (F.instance_norm, in_training):
                    with self.subTest(dtype=dtype, weight=weight, norm=norm):
                        self.assert_as_near_as_eager(norm, values, None, None, *weight)

    def test_numbers_far_from_zero_are_no_further_from_float64_than_in_eager(self):
        layer = torch.nn.LayerNorm(5, elementwise_affine=False)
        exact = layer(FAR.double())
        for opset in (13, 17, 20):
            with self.subTest(opset):
                (got,) = run(session(to_onnx(layer, (FAR,), target_opset=opset)), [FAR])
                self.assertLessEqual((got - exact).abs().max(), 1.01 * (layer(FAR) - exact).abs().max())

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_new_running_statistics(self):
        calls = {
            "batch": lambda x, m, v: (
                aten.batch_norm.default(x, WEIGHT, BIAS, m, v, True, 0.3, 1e-5, True),
                m,
                v,
            ),
            "native": lambda x, m, v: (
                *aten.native_batch_norm.default(x, WEIGHT, BIAS, m, v, True, 0.3, 1e-5),
                m,
                v,
            ),
            "legit": lambda x, m, v: (
                *aten._native_batch_norm_legit.default(x, WEIGHT, BIAS, m, v, True, 0.3, 1e-5),
                m,
                v,
            ),
            "update": lambda x, m, v: (
                *aten._batch_norm_with_update.default(x, WEIGHT, BIAS, m, v, 0.3, 1e-5)[:3],
                m,
                v,
            ),
            "instance": lambda x, m, v: (
                aten.instance_norm.default(x, WEIGHT, BIAS, m, v, True, 0.3, 1e-5, True),
                m,
                v,
            ),
        }
        for promise, call in calls.items():
            with self.subTest(promise):
                written = lambda x, m, v, call=call: call(x, m + 0, v + 0)
                self.assert_same_as_eager(written, IMAGE, MEAN, VAR, others=[(normal(5, 6, 2, 3), BIAS, VAR)])

    def test_statistics_of_layers_are_of_the_same_node(self):
        target = aten.native_layer_norm.default
        far = IMAGE * 3 + 1000
        others = [(far[:, :1],), (far[:0],)]
        # before opset 17 the result is nearer to float64 than that of eager
        normalized = lambda x: target(x, [4], None, None, 1e-5)
        model = self.assert_same_as_eager(normalized, far, others=others, target_opset=17)
        self.assertEqual(["LayerNormalization"], [node.op_type for node in model.graph.node])
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
            with self.subTest("before LayerNormalization", dtype=dtype):
                normalized = lambda x, w, b: target(x, [5, 4], w, b, 1e-5)
                tensors = [x.to(dtype) for x in (IMAGE * 3 + 4, normal(5, 4), normal(5, 4))]
                self.assert_same_as_eager(normalized, *tensors, target_opset=13)


if __name__ == "__main__":
    unittest.main()
