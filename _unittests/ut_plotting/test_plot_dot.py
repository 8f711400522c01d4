"""`plot_dot`: the text for graphviz, layers that are folded, the files and axes where graphviz and matplotlib are installed."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shutil
import tempfile
import unittest
import unittest.mock

import onnx
import onnx.parser
import onnx_ir as ir
import torch

from experimental_experiment.helpers import module_path
from experimental_experiment.plotting import dot_source, drawing, plot_dot
from experimental_experiment.plotting.folding import Step, folded
from experimental_experiment.torch_interpreter import to_onnx

PERCEPTRON = """
<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
perceptron (float[batch,4] x) => (float[batch,2] y, float z)
<float[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[2] b = {1.5, -2}, float z = {3}, float[batch,3] h>
{ h = Gemm<transB=1, alpha=1.0, beta=0.5>(x, w) g = com.microsoft.Gelu(h) k = Constant<value_float=0.25>() y = Gemm(g, k, b) }
"""

BRANCHES = """
<ir_version: 8, opset_import: ["" : 18]>
branches (bool c, float[n] x) => (float[n] y)
<float one = {1}>
{
    y = If(c) <then_branch = yes () => (float[n] a) { a = Add(x, one) },
               else_branch = no () => (float[n] b) { t = Neg(x) b = Abs(t) }>
}
"""

LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
loop (int64 n, float[2] x) => (float[2] y)
{
    none = Constant<value=bool {1}>()
    y = Loop(n, none, x) <body = body (int64 i, bool go, float[2] before) => (bool more, float[2] after)
        { more = Identity(go) after = Sin(before) }>
}
"""

FUNCTIONS = """
<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
main (float[2] x) => (float[2] y) { t = local.twice<by=2>(x) y = local.twice<by=3>(t) }
<domain: "local", opset_import: ["" : 18]>
twice <by> (x) => (y) { k = Constant<value_int=@by>() f = CastLike(k, x) y = Mul(x, f) }
"""


class Block(torch.nn.Module):
    """A layer with a residual."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x):
        return x + self.outer(torch.relu(self.inner(x)))


class Blocks(torch.nn.Module):
    """Layers between two that are not of them."""

    def __init__(self, count: int):
        super().__init__()
        self.layers = torch.nn.Sequential(*(Block() for _ in range(count)))

    def forward(self, x):
        return torch.sigmoid(self.layers(torch.tanh(x)))


def titles(source: str) -> list[str]:
    """The first line of each box, in order."""
    return re.findall(r"<B>(.*?)</B>", source)


def arrows(source: str) -> list[tuple[str, str]]:
    """The titles of both boxes of each arrow."""
    names = dict(re.findall(r"(n\d+) \[label=<<FONT[^>]*><B>(.*?)</B>", source))
    return [(names[a], names[b]) for a, b in re.findall(r"(n\d+) -> (n\d+)", source)]


class TestSource(unittest.TestCase):
    def source(self, text: str, fold: bool = False) -> str:
        """The drawing of a model that is written as text."""
        return dot_source(onnx.parser.parse_model(text), fold)

    def test_boxes_and_arrows(self):
        source = self.source(PERCEPTRON)
        self.assertEqual(titles(source), ["x", "Gemm", "Gelu", "Gemm", "y", "z", "Constant"])
        self.assertEqual(
            arrows(source),
            [("x", "Gemm"), ("Gemm", "Gelu"), ("Gelu", "Gemm"), ("Gemm", "y"), ("Constant", "z")],
        )

    def test_a_box_tells_what_is_not_usual(self):
        source = self.source(PERCEPTRON)
        for line in ("transB = 1", "beta = 0.5", "B ⟨3×4⟩", "com.microsoft", "B = 0.25", "C = [1.5, -2]"):
            with self.subTest(line):
                self.assertIn(f">{line}</FONT>", source)
        self.assertNotIn("alpha", source)
        self.assertIn('label=" float32 batch×3 "', source)

    def test_sizes_whose_names_stand_apart(self):
        """The types of results between nodes name no sizes."""
        layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        model = to_onnx(layers, (torch.ones(3, 4),), dynamic_shapes=({0: "batch"},))
        self.assertEqual(2, dot_source(model).count('label=" float32 batch×8 "'))

    def test_bodies_stand_in_frames(self):
        source = self.source(BRANCHES)
        self.assertIn('label="If then_branch"', source)
        self.assertEqual(titles(source), ["c", "x", "Add", "Neg", "Abs", "If", "y"])
        expected = [
            ("x", "Add"),
            ("x", "Neg"),
            ("Neg", "Abs"),
            ("Add", "If"),
            ("Abs", "If"),
            ("c", "If"),
            ("If", "y"),
        ]
        self.assertEqual(arrows(source), expected)
        self.assertIn(">B = 1</FONT>", source)

    def test_a_loop_carries_into_its_body(self):
        source = self.source(LOOP)
        self.assertEqual(titles(source), ["n", "x", "go", "before", "Identity", "Sin", "Loop", "y"])
        self.assertIn(("x", "before"), arrows(source))
        self.assertNotIn(("x", "Loop"), arrows(source))

    def test_functions_stand_in_frames(self):
        source = self.source(FUNCTIONS)
        self.assertIn('label="function local.twice"', source)
        self.assertEqual(titles(source), ["x", "twice", "twice", "y", "x", "CastLike", "Mul", "y"])

    def test_what_can_be_drawn(self):
        model = onnx.parser.parse_model(PERCEPTRON)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            onnx.save(model, path)
            for promise, form in {
                "graph": model.graph,
                "onnx_ir": ir.from_proto(model),
                "path": path,
            }.items():
                with self.subTest(promise):
                    self.assertEqual(titles(dot_source(form)), titles(dot_source(model)))
        function = onnx.parser.parse_model(FUNCTIONS).functions[0]
        self.assertEqual(titles(dot_source(function)), ["x", "CastLike", "Mul", "y"])
        with self.assertRaisesRegex(
            TypeError, "a model, a graph, a function or a path can be drawn, not int"
        ):
            dot_source(3)

    def test_a_name_cannot_break_the_drawing(self):
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Neg", ['a"<b>&'], ["y"], name='n"\\')],
            "g",
            [onnx.helper.make_tensor_value_info('a"<b>&', 1, [2])],
            [onnx.helper.make_tensor_value_info("y", 1, [2])],
        )
        source = dot_source(graph)
        self.assertIn("a&quot;&lt;b&gt;&amp;", source)
        self.assertIn('tooltip="n\\"\\\\"', source)

    def test_large_drawings_have_no_types_beside_arrows(self):
        text = " ".join(f"x{k + 1} = Sin(x{k})" for k in range(200))
        source = self.source(
            f'<ir_version: 8, opset_import: ["" : 18]> g (float[2] x0) => (float[2] x200) <float[2] x1> {{ {text} }}'
        )
        self.assertNotIn(" -> n3 [label", source)
        self.assertIn("nslimit", source)


class TestFolding(unittest.TestCase):
    def steps(self, text: str) -> list[Step]:
        """``a(x)y`` is a node of signature a that reads x and gives y."""
        return [
            Step(kind, tuple(inputs), tuple(outputs))
            for kind, inputs, outputs in re.findall(r"(\w)\((\w*)\)(\w*)", text)
        ]

    def test_layers_of_a_module(self):
        model = to_onnx(Blocks(5), (torch.randn(2, 4),))
        source = dot_source(model, fold=True)
        self.assertIn('label="layers.0 … layers.4, 5 times"', source)
        self.assertEqual(titles(source).count("Gemm"), 2)
        self.assertEqual(titles(source)[:2], ["x", "Tanh"])
        self.assertEqual(titles(source)[-2:], ["Sigmoid", "output"])
        self.assertEqual(source.count("style=dashed color"), 2)

    def test_layers_of_a_model_without_modules(self):
        model = to_onnx(Blocks(5), (torch.randn(2, 4),))
        for node in model.graph.node:
            del node.metadata_props[:]
        source = dot_source(model, fold=True)
        self.assertIn("5 times", source)
        self.assertEqual(titles(source).count("Gemm"), 2)

    def test_not_folded_unless_asked(self):
        source = dot_source(to_onnx(Blocks(5), (torch.randn(2, 4),)))
        self.assertEqual(titles(source).count("Gemm"), 10)
        self.assertNotIn("times", source)

    def test_inputs_and_outputs_of_layers_are_one_box(self):
        layers = " ".join(
            f"a{k} = Mul(h{k}, p{k}) b{k} = Sin(a{k}) h{k + 1} = Add(b{k}, a{k})" for k in range(4)
        )
        inputs = ", ".join(f"float[2] p{k}" for k in range(4))
        outputs = ", ".join(f"float[2] b{k}" for k in range(4))
        model = onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["" : 18]> g (float[2] h0, {inputs}) => ({outputs}, float[2] h4) {{ {layers} }}'
        )
        source = dot_source(model, fold=True)
        self.assertEqual(titles(source), ["h0", "p0 … p3", "Mul", "Sin", "Add", "b0 … b3", "h4"])

    def test_copies_that_read_otherwise_are_not_folded(self):
        four = "a(x)p b(p)q c(q)r a(r)s b(s)t c(t)u a(u)v b(v)w c(w)y a(y)f b(f)g c(g)h"
        cases = {
            "each reads the copy before": (four, [(0, 4)]),
            "the last reads the first": (four.replace("a(y)", "a(r)"), [(0, 3)]),
            "the first reads otherwise": (four.replace("c(q)", "c(p)"), [(2, 3)]),
            "the others read the first": (four.replace("a(u)", "a(r)").replace("a(y)", "a(r)"), [(3, 3)]),
        }
        for promise, (text, expected) in cases.items():
            with self.subTest(promise):
                layers = folded(self.steps(text)).layers
                self.assertEqual([(layer.start, layer.copies) for layer in layers], expected)

    def test_two_layers_are_folded_when_they_are_two_modules(self):
        steps = self.steps("a(x)p b(p)q c(q)r a(r)s b(s)t c(t)u")
        self.assertEqual(folded(steps).layers, [])
        named = [
            dataclasses.replace(step, module=f"layers.{position // 3}") for position, step in enumerate(steps)
        ]
        self.assertEqual([layer.copies for layer in folded(named).layers], [2])

    def test_nothing_repeats(self):
        self.assertEqual(folded(self.steps("a(x)y b(y)z")).layers, [])
        self.assertEqual(folded([]).layers, [])

    def test_module_path(self):
        model = to_onnx(Blocks(1), (torch.randn(2, 4),))
        paths = {node.op_type: module_path(node) for node in model.graph.node}
        self.assertEqual(
            paths,
            {"Tanh": "", "Gemm": "layers.0.outer", "Relu": "layers.0", "Add": "layers.0", "Sigmoid": ""},
        )
        self.assertEqual(module_path(onnx.helper.make_node("Neg", ["x"], ["y"])), "")


class TestPlotDot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = onnx.parser.parse_model(PERCEPTRON)

    def path(self, name: str) -> str:
        """A file of the temporary folder."""
        return os.path.join(self.folder, name)

    def test_the_text_needs_no_graphviz(self):
        with unittest.mock.patch.object(importlib.util, "find_spec", return_value=None):
            self.assertIsNone(plot_dot(self.model, filename=self.path("m.dot")))
        with open(self.path("m.dot")) as file:
            self.assertEqual(file.read(), dot_source(self.model))

    def test_another_format(self):
        with self.assertRaisesRegex(
            ValueError, r"a drawing is a file of svg, png, pdf, dot, not '.*model\.onnx'"
        ):
            plot_dot(self.model, filename=self.path("model.onnx"))

    def test_a_package_is_missing(self):
        with (
            unittest.mock.patch.object(importlib.util, "find_spec", return_value=None),
            self.assertRaisesRegex(ImportError, "the package graphviz is not installed: pip install"),
        ):
            plot_dot(self.model, filename=self.path("model.svg"))
        with (
            unittest.mock.patch.object(importlib.util, "find_spec", return_value=None),
            self.assertRaisesRegex(ImportError, "the package matplotlib is not installed: pip install"),
        ):
            drawing.on_axes(b"", None)

    @unittest.skipIf(importlib.util.find_spec("graphviz") is None, "the package graphviz is not installed")
    def test_the_program_is_missing(self):
        with (
            unittest.mock.patch.dict(os.environ, {"PATH": self.folder}),
            self.assertRaisesRegex(
                RuntimeError, "the program dot of graphviz is not installed or not on PATH"
            ),
        ):
            plot_dot(self.model, filename=self.path("model.svg"))
        self.assertEqual(os.listdir(self.folder), [])

    @unittest.skipIf(shutil.which("dot") is None, "the program dot is not installed")
    def test_files(self):
        for suffix, begin in {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}.items():
            with self.subTest(suffix):
                path = self.path(f"model.{suffix}")
                self.assertIsNone(plot_dot(self.model, filename=path))
                with open(path, "rb") as file:
                    self.assertTrue(file.read().startswith(begin))

    @unittest.skipIf(shutil.which("dot") is None, "the program dot is not installed")
    @unittest.skipIf(importlib.util.find_spec("matplotlib") is None, "matplotlib is not installed")
    def test_axes(self):
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
        self.addCleanup(pyplot.close, "all")
        ax = plot_dot(self.model)
        self.assertEqual(len(ax.images), 1)
        given = pyplot.subplots()[1]
        self.assertIs(plot_dot(self.model, ax=given, filename=self.path("m.svg")), given)
        self.assertEqual((len(given.images), os.listdir(self.folder)), (1, ["m.svg"]))


if __name__ == "__main__":
    unittest.main()
