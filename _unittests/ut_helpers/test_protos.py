"""Between protobuf and onnx-ir: sizes whose names stand apart from the types of results, weights that tell their types once."""

import tempfile
import unittest

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx.helper import make_node
from onnxruntime.quantization import quantize_dynamic

from _unittests.ut_xoptim.cases import parsed
from experimental_experiment.comparison import session
from experimental_experiment.protos import SIZES, from_proto, load, to_proto, type_of
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.files import save
from experimental_experiment.xoptim import optimize, quantize_weights

NAMES = {"batch", "sequence"}
MICROSOFT = "com.microsoft"
IMPORTS = [
    onnx.helper.make_opsetid(domain, version) for domain, version in (("", 17), (MICROSOFT, 1), ("my", 1))
]
WEIGHTS = {"table": (10, 8), "ones": (8,)}


class Sums(torch.nn.Module):
    """A product, what a branch makes of it, and its sum."""

    def forward(self, x, w):
        y = torch.cond(x.sum() > 0, lambda y: y.exp().sin(), lambda y: y.neg().cos(), ((x @ w).tanh(),))
        return y.sum(-1)


def exported(**options) -> onnx.ModelProto:
    """The model of `Sums`, two sizes of which have names."""
    args = torch.randn(2, 3, 4), torch.randn(4, 5)
    return to_onnx(Sums(), args, dynamic_shapes=({0: "batch", 1: "sequence"}, None), **options)


def declared(model: onnx.ModelProto, apart: bool) -> dict[str, list[int | str]]:
    """The sizes of the results that nodes of the main graph and of bodies give each other, 0 for those without name and number."""
    graphs = [model.graph]
    for node in model.graph.node:
        graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    kinds = {
        value.name: type_of(value) if apart else value.type for graph in graphs for value in graph.value_info
    }
    return {
        name: [size.dim_param or size.dim_value for size in kind.tensor_type.shape.dim]
        for name, kind in kinds.items()
    }


class TestSizes(unittest.TestCase):
    def test_types_of_results_name_no_sizes(self):
        """Those of inputs and outputs do; what a branch gives to its next node has none either."""
        for optimized in (True, False):
            with self.subTest(optimize=optimized):
                model = exported(optimize=optimized)
                sizes = declared(model, apart=False)
                self.assertFalse([name for name, shape in sizes.items() if NAMES.intersection(shape)])
                three = [name for name, shape in sizes.items() if shape == [0, 0, 5]]
                self.assertLess(3, len(three))
                self.assertEqual(
                    [["batch", "sequence", 5]] * len(three), [declared(model, True)[name] for name in three]
                )
                kinds = [value.type.tensor_type for value in (model.graph.input[0], *model.graph.output)]
                told = [[size.dim_param or size.dim_value for size in kind.shape.dim] for kind in kinds]
                self.assertEqual([["batch", "sequence", 4], ["batch", "sequence"]], told)
                onnx.checker.check_model(model, full_check=True)

    def test_the_plain_standard_names_them(self):
        model = exported(runtime="onnx")
        self.assertIn(["batch", "sequence", 5], declared(model, apart=False).values())
        self.assertFalse([value for value in model.graph.value_info if value.metadata_props])
        self.assertFalse(model.graph.metadata_props)
        again = optimize(exported(), runtime="onnx")
        self.assertEqual(
            sorted(declared(again, True).values(), key=str), sorted(declared(again, False).values(), key=str)
        )

    def test_who_reads_the_model_has_the_names(self):
        """From a proto, from a file, and rules that are given what onnx-ir reads; what is written again is the same."""
        model = exported()
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.onnx"
            onnx.save(model, path)
            for read in (from_proto(model), load(path)):
                found = {node.op_type: node.outputs[0] for node in read.graph}
                self.assertEqual(["batch", "sequence", 5], sizes_of(found["MatMul"]))
                self.assertNotIn(SIZES, found["MatMul"].metadata_props)
                self.assertEqual(model, to_proto(read))
                self.assertEqual(["batch", "sequence", 5], sizes_of(found["MatMul"]))
        read = optimize(ir.from_proto(model))
        found = {node.op_type: node.outputs[0] for node in read.graph}
        self.assertEqual(["batch", "sequence", 5], sizes_of(found["MatMul"]))

    def test_numbers_that_changed_since_count(self):
        """Another tool, which knows no metadata of the graph, has fixed a size, or changed the rank, of what stands beside its names."""
        text = "agraph (float[N,4] x) => (float[N,4] y) { h = Exp(x) y = Sin(h) }"
        for sizes, names, expected in (
            ([None, 4], '["N", 4]', ["N", 4]),
            ([3, 4], '["N", 4]', [3, 4]),
            ([3, None], '["N", 4]', [3, None]),
            ([None], '["N", 4]', [None]),
        ):
            with self.subTest(sizes=sizes):
                model = parsed(text)
                info = onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, sizes)
                info.metadata_props.add(key=SIZES, value=names)
                model.graph.value_info.append(info)
                self.assertEqual(expected, sizes_of(from_proto(model).graph[0].outputs[0]))


class TestEnds(unittest.TestCase):
    """Nodes that end with a result without a name: onnxruntime refuses calls and operators of its own that lack it."""

    def test_results_without_a_name(self):
        """In the graph, a body, a function; of an operator of onnxruntime, which wants two."""
        two = onnx.helper.make_function(
            "my",
            "Two",
            ["x"],
            ["a", "b"],
            [make_node("Neg", ["x"], ["a"]), make_node("Abs", ["x"], ["b"])],
            IMPORTS,
        )
        one = onnx.helper.make_function("my", "One", ["x"], ["y"], [call_of_two("x", "y")], IMPORTS)
        bodies = [
            onnx.helper.make_graph([call_of_two(name, "c")], name, [], [float_info("c")])
            for name in ("a", "x")
        ]
        nodes = [
            make_node(
                "EmbedLayerNormalization",
                ["i", "", "table", "table", "", "ones", "ones"],
                ["e", ""],
                domain=MICROSOFT,
            ),
            call_of_two("e", "x"),
            make_node("One", ["x"], ["a"], domain="my"),
            make_node("If", ["which"], ["y"], then_branch=bodies[0], else_branch=bodies[1]),
        ]
        weights = [
            onnx.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in WEIGHTS.items()
        ]
        given = [
            onnx.helper.make_tensor_value_info("i", 6, ["n", 4]),
            onnx.helper.make_tensor_value_info("which", 9, []),
        ]
        graph = onnx.helper.make_graph(nodes, "calls", given, [float_info("y")], weights)
        model = onnx.helper.make_model(graph, functions=[two, one], opset_imports=IMPORTS, ir_version=10)
        feeds = {"i": np.arange(8, dtype=np.int32).reshape(2, 4), "which": np.array(True)}
        (expected,) = session(model).run(None, feeds)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.onnx"
            save(from_proto(model), path)
            for name, written in {
                "read and written": to_proto(from_proto(model)),
                "a file": path,
                "optimize": optimize(model),
                "quantize_weights": quantize_weights(model),
            }.items():
                with self.subTest(name):
                    (got,) = session(written).run(None, feeds)
                    np.testing.assert_array_equal(expected, got)
        again = to_proto(from_proto(model))
        self.assertEqual(list(model.graph.node), list(again.graph.node))
        self.assertEqual(list(model.functions), list(again.functions))

    def test_optional_results_of_onnx_go(self):
        model = parsed("agraph (float[3] x) => (float[3] y) { y = Dropout(x) }")
        model.graph.node[0].output.append("")
        self.assertEqual(["y"], optimize(model).graph.node[0].output)


class TestWeightsToldOnce(unittest.TestCase):
    """A weight tells its type itself: onnxruntime's quantization transposes it under its name, and refuses another shape beside it."""

    def test_no_weight_stands_among_the_results(self):
        model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.ReLU(), torch.nn.Linear(10, 4)).eval()
        x = torch.randn(2, 6)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.onnx"
            exported = to_onnx(model, (x,), filename=path)
            for name, written in {
                "to_onnx": exported,
                "a file": onnx.load(path),
                "optimize": optimize(exported),
                "read and written": to_proto(load(path)),
            }.items():
                with self.subTest(name):
                    weights = {tensor.name for tensor in written.graph.initializer}
                    self.assertEqual(4, len(weights))
                    self.assertFalse(weights & {value.name for value in written.graph.value_info})
            read = load(path)
            self.assertEqual([10, 6], list(read.graph.initializers["0.weight"].shape))
            quantize_dynamic(path, f"{folder}/quantized.onnx")
            (got,) = session(f"{folder}/quantized.onnx").run(None, {"input": x.numpy()})
        np.testing.assert_allclose(model(x).detach().numpy(), got, atol=0.05)  # of 8 bits

    def test_weights_that_are_inputs_or_outputs_or_in_bodies(self):
        text = """agraph (float[2] w, bool c) => (float[2] y, float[2] v) <float[2] w = {1, 2}, float[2] v = {3, 4}> {
            y = If (c) <then_branch = g () => (float[2] a) <float[2] u = {5, 6}> { a = Add(u, w) }, else_branch = h () => (float[2] b) { b = Neg(v) }> }"""
        model = parsed(text)
        written = to_proto(from_proto(model))
        feeds = {"c": np.array(True), "w": np.array([1, 1], np.float32)}
        for expected, got in zip(session(model).run(None, feeds), session(written).run(None, feeds)):
            np.testing.assert_array_equal(expected, got)


def call_of_two(given: str, result: str) -> onnx.NodeProto:
    """A call of a function of two results, whose second one has no name."""
    return make_node("Two", [given], [result, ""], domain="my")


def float_info(name: str) -> onnx.ValueInfoProto:
    """A value of floats of any shape."""
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)


def sizes_of(value: ir.Value) -> list[int | str | None]:
    """The sizes of a value, by number or name."""
    return [size if isinstance(size, int) else size.value for size in value.shape]


if __name__ == "__main__":
    unittest.main()
