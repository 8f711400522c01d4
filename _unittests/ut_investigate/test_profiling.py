"""`profile`: the times of kernels, summed by operator and by module."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import unittest
import unittest.mock

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import torch

from experimental_experiment.investigate import profile
from experimental_experiment.investigate.profiling import NodeTime, Profile, exclusive, module_of, summed
from experimental_experiment.torch_interpreter import to_onnx

LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
loop (int64 n, float[2] x) => (float[2] y)
{
    go = Constant<value=bool {1}>()
    y = Loop(n, go, x) <body = body (int64 i, bool before, float[2] a) => (bool more, float[2] b)
        { more = Identity(before) b = Sin(a) }>
}
"""


class Layers(torch.nn.Module):
    """Two layers of the same kind."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = torch.sin(layer(x))
        return x


def kernel(name: str, start: int, duration: int, op_type: str = "Add") -> dict:
    """What the profiler writes of a kernel."""
    arguments = {"op_name": op_type}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": duration, "args": arguments}


def run_of_model(start: int, duration: int) -> dict:
    """What the profiler writes of a run."""
    return {"cat": "Session", "name": "model_run", "ts": start, "dur": duration, "args": {}}


class TestProfile(unittest.TestCase):
    def test_a_model_of_layers(self):
        model = to_onnx(Layers(), (torch.randn(3, 4),))
        found = profile(model, {"x": torch.randn(3, 4)}, runs=3, warmup=1)
        calls = {share.name: share.calls for share in found.by_operator()}
        self.assertEqual(calls, {"Gemm": 2, "Sin": 2})
        self.assertEqual({share.name for share in found.by_module()}, {"layers.*", "(no module)"})
        self.assertEqual(
            {s.name for s in found.by_module(layers=True)}, {"layers.0", "layers.1", "(no module)"}
        )
        self.assertEqual({share.name for share in found.by_module(depth=1)}, {"layers", "(no module)"})
        for shares in (found.by_operator(), found.by_module()):
            self.assertAlmostEqual(sum(share.part for share in shares), 1)
            self.assertAlmostEqual(sum(share.milliseconds for share in shares), found.in_kernels)
        gemm = next(share for share in found.by_operator() if share.name == "Gemm")
        self.assertEqual(found.floor, gemm.milliseconds)
        self.assertEqual(found.runs, 3)
        self.assertGreater(found.milliseconds, 0)
        self.assertRegex(
            str(found), r"median of 3; [\d.]+ ms in kernels, [\d.]+ ms \(\d+%\) of them in products"
        )
        self.assertRegex(str(found), r"\nlayers\.\* +2 +[\d.]+ +[\d.]+% +[\d.]+%")

    def test_a_body_is_not_counted_twice(self):
        found = profile(
            onnx.parser.parse_model(LOOP), {"n": np.array(5), "x": np.zeros(2, np.float32)}, runs=2
        )
        calls = {share.name: share.calls for share in found.by_operator()}
        self.assertEqual((calls["Loop"], calls["Sin"]), (1, 5))
        self.assertIn("the nodes do not say which modules they come from", str(found))

    def test_forms_of_a_model(self):
        model = to_onnx(Layers(), (torch.randn(3, 4),))
        before = model.SerializeToString()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            ir.save(ir.from_proto(model), path, external_data="weights", size_threshold_bytes=0)
            for promise, form in {"a file": path, "onnx_ir": ir.from_proto(model), "a model": model}.items():
                with self.subTest(promise):
                    self.assertEqual(len(profile(form, runs=1, warmup=0, threads=1).nodes), 4)
        self.assertEqual(model.SerializeToString(), before)

    def test_a_fused_node_belongs_to_the_module_of_its_result(self):
        """onnxruntime calls it BiasGelu, whatever it is made of."""
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 4))
        onx = to_onnx(model, (torch.randn(2, 3, 4),), dynamic_shapes=({0: "batch", 1: "length"},))
        found = profile(onx, runs=1)
        modules = {node.op_type: node.module for node in found.nodes}
        self.assertEqual(modules["BiasGelu"], "1")

    def test_no_run(self):
        for kind, message, options in (
            (ValueError, "runs is 1 at least, not 0", {"runs": 0}),
            (TypeError, "runs is a whole number, not 1.5", {"runs": 1.5}),
            (ValueError, "warmup is 0 at least, not -1", {"warmup": -1}),
            (TypeError, "threads is a whole number, not True", {"threads": True}),
            (ValueError, "threads is 1 at least, not 0", {"threads": 0}),
        ):
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                profile(onnx.parser.parse_model(LOOP), **options)

    def test_inputs_and_what_is_no_model(self):
        model = to_onnx(Layers().to(torch.bfloat16), (torch.randn(3, 4, dtype=torch.bfloat16),))
        x = torch.randn(3, 4, dtype=torch.bfloat16, requires_grad=True)
        for given in (x, x.detach().float().numpy().astype(ml_dtypes.bfloat16)):
            self.assertEqual(1, profile(model, {"x": given}, runs=1, warmup=0).runs)
        for kind, message, arguments in (
            (TypeError, "an onnx.ModelProto, an onnx_ir.Model or the path of a file, not NoneType", (None,)),
            (TypeError, "feeds is a dict of arrays by name, not Tensor", (model, x)),
            (ValueError, "the model has no input 'z' but x", (model, {"z": x})),
            (ValueError, r"the input 'x' has the shape \[3, 4\], not \[4, 3\]", (model, {"x": x.T})),
            (TypeError, "the input 'x' is bfloat16, not float32", (model, {"x": x.float()})),
        ):
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                profile(*arguments)

    @unittest.skipIf(importlib.util.find_spec("matplotlib") is None, "matplotlib is not installed")
    def test_plot(self):
        importlib.import_module("matplotlib").use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
        self.addCleanup(pyplot.close, "all")
        nodes = [NodeTime("a", "MatMul", "layers.0", 3.0, 1), NodeTime("b", "Add", "layers.0", 1.0, 1)]
        axes = Profile((*nodes,), 5.0, 10).plot()
        self.assertEqual([label.get_text() for label in axes[0].get_yticklabels()], ["MatMul", "Add"])
        self.assertEqual([bar.get_width() for bar in axes[0].patches], [3.0, 1.0])
        self.assertEqual([label.get_text() for label in axes[1].get_yticklabels()], ["layers.*"])
        self.assertEqual(axes[0].get_title(loc="left"), "5 ms a run, 3 ms in products")
        given = pyplot.subplots(1, 2)[1]
        self.assertIs(Profile((*nodes,), 5.0, 10).plot(given), given)

    def test_plot_without_matplotlib(self):
        with (
            unittest.mock.patch.object(importlib.util, "find_spec", return_value=None),
            self.assertRaisesRegex(ImportError, "the package matplotlib is not installed: pip install"),
        ):
            Profile((), 0.0, 1).plot()


class TestTimes(unittest.TestCase):
    def test_time_without_what_is_inside(self):
        events = [
            kernel("inner", 12, 3),
            kernel("loop", 10, 20),
            kernel("inner", 20, 4),
            kernel("after", 40, 5),
        ]
        times = [(event["name"].removesuffix("_kernel_time"), time) for event, time in exclusive(events)]
        self.assertEqual(times, [("loop", 13), ("inner", 3), ("inner", 4), ("after", 5)])

    def test_medians_of_the_runs_after_the_first(self):
        events = []
        for number, duration in enumerate((900, 100, 120, 5000)):
            start = 10000 * number
            events += [run_of_model(start, 2 * duration), kernel("a", start + 1, duration, "MatMul")]
        found = summed(events, {"a": "layers.0"}, warmup=1)
        self.assertEqual((found.milliseconds, found.runs), (0.24, 3))
        self.assertEqual(found.nodes, (NodeTime("a", "MatMul", "layers.0", 0.12, 1.0),))

    def test_names_after_fusions(self):
        modules = {"node_linear_1": "layers.1", "node_linear": "layers.0", "relu_8": "act"}
        cases = {
            "node_linear_1": "layers.1",
            "node_linear_1/MatMulScaleFusion/": "layers.1",
            "node_linear/GemmActivation": "layers.0",
            "relu_8_nchwc": "act",
            "ReorderOutput": "",
            "Transpose_token_3": "",
        }
        for name, module in cases.items():
            with self.subTest(name):
                self.assertEqual(module_of(name, modules), module)

    def test_long_tables_end_with_the_others(self):
        nodes = tuple(NodeTime(f"n{k}", f"Op{k}", "", 1.0, 1) for k in range(20))
        self.assertRegex(str(Profile(nodes, 20.0, 1)), r"\n5 others +5 +5\.000 +25\.0% +100\.0%")


if __name__ == "__main__":
    unittest.main()
