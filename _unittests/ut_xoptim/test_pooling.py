"""Rules of pools."""

import unittest

import numpy as np
import onnxruntime

from _unittests.ut_xoptim.cases import RuleTestCase, operators, parsed
from experimental_experiment.comparison import session
from experimental_experiment.xoptim import Report, optimize


def pool(attributes, shape="N,2,H,W"):
    """A row of the table."""
    return (
        f"float[{shape}] x",
        "float[N,2,P,Q]",
        f"y = AveragePool <strides=[640, 640], ceil_mode=1{attributes}> (x)",
    )


class TestAverageOfLargeWindows(RuleTestCase):
    LARGE = ", kernel_shape=[640, 640]"
    BECOME = {"AverageOfLargeWindows": [(*pool(LARGE), ["AveragePool"])]}
    STAY = {
        "AverageOfLargeWindows": [
            pool(", kernel_shape=[640, 500]"),
            pool(f"{LARGE}, count_include_pad=1"),
            pool(f"{LARGE}, pads=[1, 1, 1, 1]"),
            pool(f'{LARGE}, auto_pad="VALID"', "N,2,700,700"),
            pool(f"{LARGE}, dilations=[1, 2]"),
            tuple(part.replace(", ceil_mode=1", "") for part in pool(LARGE, "N,2,700,700")),
        ]
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)

    def test_images_of_several_sizes(self):
        """Smaller than the window, as large, larger by less than one and by more."""
        nodes = "y = AveragePool <kernel_shape=[512, 512], strides=[512, 512], ceil_mode=1> (x)"
        model = parsed(f"agraph (float[N,1,H,W] x) => (float[N,1,P,Q] y) {{ {nodes} }}")
        optimized = optimize(model)
        self.assertEqual(
            1, {item.name: item.i for item in optimized.graph.node[0].attribute}["count_include_pad"]
        )
        before, after = session(model), session(optimized)
        for size in ((1, 1), (3, 512), (513, 7), (600, 1100)):
            x = np.random.default_rng(0).normal(size=(2, 1, *size)).astype(np.float32)
            wanted, got = before.run(None, {"x": x})[0], after.run(None, {"x": x})[0]
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(
                got[:, 0, 0, 0], x[:, 0, :512, :512].mean((1, 2)), rtol=1e-3, atol=1e-5
            )


class TestMaximumOfPadded(unittest.TestCase):
    """onnxruntime's own rewriting is wrong for the models as they are written: they are run without it."""

    SIDES = "p = Constant <value = int64[8] {0,0,1,1,0,0,1,0}> ()"
    PADDED = f"{SIDES} u = Pad(x, p)"
    POOL = "y = MaxPool <kernel_shape=[3, 2]> (u)"
    BECOME = {
        "plain": (f"{PADDED} {POOL}", ["Pad", "MaxPool"]),
        "the last windows begin in the image": (
            f"{PADDED} y = MaxPool <kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1> (u)",
            ["Pad", "Pad", "MaxPool"],
        ),
        "it pads as well": (
            f"{PADDED} y = MaxPool <kernel_shape=[3, 2], pads=[1, 0, 1, 1], storage_order=1> (u)",
            ["Pad", "Pad", "MaxPool"],
        ),
        "windows with gaps": (
            f"{PADDED} y = MaxPool <kernel_shape=[3, 2], dilations=[2, 1]> (u)",
            ["Pad", "MaxPool"],
        ),
        "cast between": (
            f"{PADDED} h = Cast<to=10>(u) z = MaxPool <kernel_shape=[3, 2]> (h) y = Cast<to=1>(z)",
            ["Pad", "Cast", "MaxPool", "Cast"],
        ),
        "a window in the padding alone": (
            f"{SIDES.replace('1,1', '3,1')} r = Relu(x) u = Pad(r, p) {POOL}",
            ["Relu", "Pad", "MaxPool"],
        ),
        "another rule brings the Pad there": (
            f"{SIDES.replace('0,0,1,1,0,0,1,0', '0,1,1,0,0,1,0,0')} t = Transpose <perm=[0, 2, 3, 1]> (x) u = Pad(t, p) "
            "v = Transpose <perm=[0, 3, 1, 2]> (u) y = MaxPool <kernel_shape=[3, 2]> (v)",
            ["Pad", "MaxPool"],
        ),
        "onnxruntime brings the Pad there": (
            f"{SIDES.replace('0,0,1,1,0,0,1,0', '0,1,1,0,0,1,0,0')} t = Transpose <perm=[0, 2, 3, 1]> (x) u = Pad(t, p) "
            "v = Transpose <perm=[0, 3, 1, 2]> (u) w = MaxPool <kernel_shape=[3, 2]> (v) m = ReduceMax <keepdims=0> (t) y = Add(w, m)",
            ["Transpose", "Pad", "Transpose", "MaxPool", "ReduceMax", "Add"],
        ),
    }
    STAY = {
        "no element is less than 0": f"{SIDES.replace('1,1', '1,0')} r = Relu(x) u = Pad(r, p) {POOL}",
        "the edge": f"{PADDED} {POOL}".replace("Pad(x", 'Pad <mode="edge"> (x'),
        "nothing is padded": f"{PADDED} {POOL}".replace("1,1,0,0,1,0", "0,0,0,0,0,0"),
        "another number": f"v = Constant <value_float=-9.0> () {PADDED} {POOL}".replace(
            "(x, p)", "(x, p, v)"
        ),
        "as it becomes": f"{PADDED} {POOL}".replace("3, 2]", '3, 2], auto_pad="VALID"'),
    }

    def test_it_fires(self):
        for promise, (nodes, expected) in self.BECOME.items():
            with self.subTest(promise):
                self.assert_written(nodes, expected, 1)

    def test_it_does_not(self):
        for promise, nodes in self.STAY.items():
            with self.subTest(promise):
                self.assert_written(nodes, None, 0)

    def assert_written(self, nodes, expected, count):
        """What a model becomes, with the same results for images below 0, and nothing more the second time."""
        model = parsed(f"agraph (float[N,2,H,W] x) => (float[N,2,P,Q] y) {{ {nodes} }}")
        report, again = Report(), Report()
        optimized = optimize(model, report=report)
        self.assertEqual(count, [name for name, _ in report.applications].count("MaximumOfPadded"))
        if expected is not None:
            self.assertEqual(expected, operators(optimized))
        optimize(optimized, report=again)
        self.assertEqual([], again.applications)
        x = -1 - np.random.default_rng(0).random((2, 2, 7, 6), np.float32)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        plain = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        np.testing.assert_array_equal(session(optimized).run(None, {"x": x})[0], plain.run(None, {"x": x})[0])

    def test_other_runtimes_and_positions(self):
        graph = f"agraph (float[N,2,H,W] x) => (float[N,2,P,Q] y) {{ {self.PADDED} {self.POOL} }}"
        (_, pool) = optimize(parsed(graph), runtime="onnx").graph.node
        self.assertNotIn("auto_pad", [item.name for item in pool.attribute])
        graph = graph.replace("P,Q] y)", "P,Q] y, int64[N,2,P,Q] z)").replace("y = Max", "y, z = Max")
        (_, pool) = optimize(parsed(graph)).graph.node
        self.assertNotIn("auto_pad", [item.name for item in pool.attribute])


class TestFlattenedAverage(RuleTestCase):
    POOL = "p = GlobalAveragePool (x) y = Flatten (p)"
    CONV = "c = Conv (x, w) p = GlobalAveragePool (c) y = Flatten (p)"
    BECOME = {
        "FlattenedAverage": [
            ("float[N,3,5] x", "float[N,3]", POOL, ["ReduceMean"]),
            ("float[N,3,5,H] x", "float[N,3]", POOL, ["ReduceMean"]),
            (
                "float[2,3,5,4] x",
                "float[2,3]",
                "s = Constant <value_ints=[2, 3]> () p = GlobalAveragePool (x) y = Reshape (p, s)",
                ["ReduceMean"],
            ),
            (
                "float[N,3,2,5,4] x",
                "float[N,3]",
                "a = Constant <value_ints=[2, 3, 4]> () p = GlobalAveragePool (x) y = Squeeze (p, a)",
                ["ReduceMean"],
            ),
            ("float[2,9,4] x, float[6,9,3] w", "float[2,6]", CONV, ["Conv", "ReduceMean"]),
        ]
    }
    STAY = {
        "FlattenedAverage": [
            ("float[2,9,4,4] x, float[6,9,3,3] w", "float[2,6]", CONV),
            (
                "float[N,3,5,H] x",
                "float[N,3,1]",
                "a = Constant <value_ints=[3]> () p = GlobalAveragePool (x) y = Squeeze (p, a)",
            ),
            ("float16[N,3,5] x", "float16[N,3]", POOL),
        ]
    }

    def test_table(self):
        self.assert_table(self.BECOME, self.STAY)


if __name__ == "__main__":
    unittest.main()
