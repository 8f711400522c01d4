"""Commands on a model that is a file: lighten, unlighten, run, compare, find, plot."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import shutil
import tempfile
import unittest
import unittest.mock

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from experimental_experiment.command_line import main, weights
from experimental_experiment.comparison import session
from experimental_experiment.investigate.onnx_side import loaded

PRODUCT = """
<ir_version: 8, opset_import: ["" : 18]>
product (float[batch,64] x, bool c) => (float[batch,8] y)
<float[8] bias = {1,2,3,4,5,6,7,8}>
{
    h = MatMul(x, weight)
    s = Add(h, bias)
    picked = Gather(s, columns)
    y = If(c) <then_branch = yes () => (float[n,8] a) { a = Relu(picked) },
               else_branch = no () => (float[n,8] b) { t = Neg(picked) b = Abs(t) }>
}
"""


def product() -> onnx.ModelProto:
    """A model with a large weight of floats and one of integers."""
    generator = np.random.default_rng(0)
    model = onnx.parser.parse_model(PRODUCT.replace("Gather(s, columns)", "Gather<axis=1>(s, columns)"))
    weight = generator.normal(3, 0.5, (64, 8)).astype(np.float32)
    columns = generator.integers(0, 8, 8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(columns, "columns"))
    return model


class ModelCommandsTestCase(unittest.TestCase):
    """Runs commands in this process, in a temporary folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = self.path("model.onnx")
        onnx.save(product(), self.model)
        self.x = np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)

    def path(self, name: str) -> str:
        """A file of the temporary folder."""
        return os.path.join(self.folder, name)

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and errors of a command."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(arguments)
            except SystemExit as stop:
                status = stop.code
        return status, out.getvalue(), err.getvalue()

    def succeeds(self, *arguments: str) -> str:
        """The output of a command that ends with 0."""
        status, out, err = self.command(*arguments)
        self.assertEqual((status, err), (0, ""), out)
        return out

    def fails(self, message: str, *arguments: str, status: int = 2) -> None:
        """A command ends with a status and one sentence."""
        found, _, err = self.command(*arguments)
        self.assertEqual(found, status, err)
        self.assertRegex(err, f"^error: {message}")
        self.assertNotIn("Traceback", err)

    def output(self, path: str) -> np.ndarray:
        """What a model gives on the same inputs."""
        return session(path).run(None, {"x": self.x, "c": np.array(True)})[0]


class TestFiles(ModelCommandsTestCase):
    def test_each_command_says_what_is_wrong_with_a_file(self):
        with open(self.model, "rb") as file:
            content = file.read()
        for name, data in {
            "empty.onnx": b"",
            "truncated.onnx": content[:-100],
            "text.onnx": b"no model",
        }.items():
            with open(self.path(name), "wb") as file:
                file.write(data)
        out = self.path("out.onnx")
        commands = {
            "lighten": ["-o", out],
            "unlighten": ["-o", out],
            "run": [],
            "profile": [],
            "print": [],
            "find": ["x"],
            "plot": ["-o", self.path("out.dot")],
            "compare": [self.model],
        }
        for command, more in commands.items():
            with self.subTest(command):
                self.fails("the file '.*' does not exist", command, self.path("missing.onnx"), *more)
                self.fails("'.*' is a folder, not an ONNX model", command, self.folder, *more)
                for name in ("empty.onnx", "truncated.onnx", "text.onnx"):
                    message = "'.*' is not an ONNX model, or it is truncated"
                    self.fails(message, command, self.path(name), *more)
        self.assertFalse(os.path.exists(out))

    def test_a_node_that_contradicts_its_operator(self):
        text = """<ir_version: 8, opset_import: ["" : 18]> g (float[2] x, int64[2] i) => (float[2] y) { y = Add(x, i) }"""
        path, out = self.path("bad.onnx"), self.path("out.onnx")
        onnx.save(onnx.parser.parse_model(text), path)
        self.fails("'.*bad.onnx': the node 'y' .Add. is invalid: B has", "optimize", path, "-o", out)
        self.assertFalse(os.path.exists(out))

    def test_a_graph_that_shares_its_weights(self):
        """A copy of it keeps them: what writes a file replaces, or removes, the weights that it had."""
        external = {"save_as_external_data": True, "location": "model.onnx.data", "size_threshold": 100}
        onnx.save(product(), self.model, **external)
        copied = self.path("copied.onnx")
        shutil.copy(self.model, copied)
        expected = self.output(copied)
        message = "'.*copied.onnx' reads its weights from '.*model.onnx.data', which belongs to '.*model.onnx': write to another file"
        self.fails(message, "optimize", copied, "-o", self.model)
        self.fails(message, "lighten", copied, "-o", self.model, "--weights", self.path("weights.bin"))
        light = self.path("light.onnx")
        self.succeeds("lighten", copied, "-o", light)
        self.fails(message, "unlighten", light, "--weights", copied, "-o", self.model)
        np.testing.assert_array_equal(self.output(copied), expected)
        self.succeeds("optimize", copied, "-o", self.path("other.onnx"))
        self.succeeds("optimize", self.model, "-o", self.model)
        for path in (self.path("other.onnx"), self.model):
            np.testing.assert_allclose(self.output(path), expected, rtol=1e-6)

    def test_where_to_write(self):
        for command in ("lighten", "plot"):
            nowhere = os.path.join(self.folder, "nowhere", "out.onnx")
            self.fails("the folder '.*nowhere' does not exist", command, self.model, "-o", nowhere)
            self.fails("'.*' is a folder", command, self.model, "-o", self.folder)


class TestLighten(ModelCommandsTestCase):
    def test_weights_out_and_back(self):
        light, full, weights = self.path("light.onnx"), self.path("full.onnx"), self.path("weights.bin")
        self.assertIn(
            "without 1 weights", self.succeeds("lighten", self.model, "-o", light, "--weights", weights)
        )
        self.assertLess(os.path.getsize(light), os.path.getsize(self.model))
        # its weights are beside it
        np.testing.assert_array_equal(self.output(light), self.output(self.model))
        self.succeeds("unlighten", light, "-o", full, "--weights", weights)
        os.remove(weights)
        np.testing.assert_array_equal(self.output(full), self.output(self.model))

    def test_weights_of_another_model(self):
        light, full = self.path("light.onnx"), self.path("full.onnx")
        self.succeeds("lighten", self.model, "-o", light)
        self.assertEqual(sorted(os.listdir(self.folder)), ["light.onnx", "model.onnx"])
        self.succeeds("unlighten", light, "-o", full, "--weights", self.model)
        np.testing.assert_array_equal(self.output(full), self.output(self.model))

    def test_a_full_disk(self):
        light = self.path("light.onnx")
        self.succeeds("lighten", self.model, "-o", light)
        with unittest.mock.patch.object(weights, "save", side_effect=OSError("no space left on device")):
            self.fails("no space left", "unlighten", light, "-o", self.path("full.onnx"), status=1)

    def test_random_weights_resemble_those_that_were(self):
        light, full, again = (self.path(name) for name in ("light.onnx", "full.onnx", "again.onnx"))
        self.succeeds("lighten", self.model, "-o", light, "--larger-than", "0")
        self.succeeds("unlighten", light, "-o", full)
        self.succeeds("unlighten", light, "-o", again)
        drawn = {
            tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(full).graph.initializer
        }
        self.assertAlmostEqual(float(drawn["weight"].mean()), 3, delta=0.1)
        self.assertAlmostEqual(float(drawn["weight"].std()), 0.5, delta=0.1)
        self.assertTrue(((drawn["columns"] >= 0) & (drawn["columns"] < 8)).all())
        np.testing.assert_array_equal(self.output(full), self.output(again))
        self.assertFalse(np.array_equal(self.output(full), self.output(self.model)))

    def test_external_data_and_every_dtype(self):
        dtypes = ["BFLOAT16", "FLOAT16", "DOUBLE", "INT8", "UINT8", "BOOL", "INT4", "UINT64"]
        values = {}
        for name in dtypes:
            dtype = ir.DataType[name]
            array = np.arange(8).reshape(2, 4).astype(dtype.numpy())
            if name == "UINT64":
                array += np.uint64(2**63)
            tensor = ir.Tensor(array, dtype=dtype, name=name)
            values[name] = ir.Value(
                name=name, type=ir.TensorType(dtype), shape=ir.Shape([2, 4]), const_value=tensor
            )
        nodes = [ir.node("Identity", [value], name=f"of_{name}") for name, value in values.items()]
        graph = ir.Graph(
            [], [node.outputs[0] for node in nodes], nodes=nodes, initializers=list(values.values())
        )
        for node in nodes:
            node.outputs[0].type, node.outputs[0].shape = node.inputs[0].type, node.inputs[0].shape
        path, light, full = self.path("dtypes.onnx"), self.path("light.onnx"), self.path("full.onnx")
        graph.opset_imports[""] = 21
        ir.save(ir.Model(graph, ir_version=10), path, external_data="dtypes.data", size_threshold_bytes=0)
        weights = self.path("w.bin")
        self.succeeds("lighten", path, "-o", light, "--weights", weights, "--larger-than", "1")
        os.remove(self.path("dtypes.data"))
        self.succeeds("unlighten", light, "-o", full, "--weights", weights)
        os.remove(weights)
        for name, value in ir.load(full).graph.initializers.items():
            np.testing.assert_array_equal(value.const_value.numpy(), values[name].const_value.numpy(), name)
        self.succeeds("unlighten", light, "-o", full)

    def test_what_would_be_left_out(self):
        model, path, light = product(), self.path("model.onnx"), self.path("light.onnx")
        model.training_info.add().algorithm.name = "none"
        sparse = product()
        sparse.graph.sparse_initializer.add().values.name = "unread"
        for content, said in ((model, "the model has training_info"), (sparse, "'unread' is sparse")):
            onnx.save(content, path)
            self.succeeds("lighten", path, "-o", light)
            message = f"'.*light.onnx': .*{said}, which onnx-ir does not read"
            self.fails(message, "unlighten", light, "-o", self.path("out.onnx"))
            self.assertFalse(os.path.exists(self.path("out.onnx")))
            with self.assertRaisesRegex(ValueError, said):
                loaded(content)

    def test_what_is_wrong(self):
        light, out = self.path("light.onnx"), self.path("out.onnx")
        self.succeeds("lighten", self.model, "-o", light)
        self.fails("'.*' is not light: all its weights are in it", "unlighten", self.model, "-o", out)
        self.fails("the file 'none' does not exist", "unlighten", light, "-o", out, "--weights", "none")
        with open(self.path("w.bin"), "wb") as file:
            file.write(bytes(10))
        self.fails(
            "'.*w.bin' has no 2048 bytes at 0 for 'weight'",
            "unlighten",
            light,
            "-o",
            out,
            "--weights",
            self.path("w.bin"),
        )
        other = product()
        other.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.zeros((64, 8)), "weight"))
        onnx.save(other, self.path("other.onnx"))
        message = r"the weight 'weight' is float\[64, 8\] in the light model, double\[64, 8\] in"
        self.fails(message, "unlighten", light, "-o", out, "--weights", self.path("other.onnx"))
        other.graph.initializer[1].name = "kernel"
        for node in other.graph.node:
            node.input[:] = ["kernel" if name == "weight" else name for name in node.input]
        onnx.save(other, self.path("other.onnx"))
        self.fails(
            "'.*' has no weight 'weight'", "unlighten", light, "-o", out, "--weights", self.path("other.onnx")
        )
        for key, value, said in (
            ("mean", "?", "the mean of the weight 'weight' is '\\?', which is no number"),
            ("highest", str(2**64), "the weight 'weight' has no numbers between its lowest and its highest"),
            ("lowest", "5", "the weight 'weight' has no numbers between its lowest and its highest"),
        ):
            broken = onnx.load(light, load_external_data=False)
            tensor = next(tensor for tensor in broken.graph.initializer if tensor.name == "weight")
            del tensor.metadata_props[:]
            tensor.metadata_props.add(key=key, value=value)
            onnx.save(broken, self.path("broken.onnx"))
            self.fails(said, "unlighten", self.path("broken.onnx"), "-o", out)
        next(entry for entry in tensor.external_data if entry.key == "offset").value = "-1"
        onnx.save(broken, self.path("broken.onnx"))
        message = "'.*broken.onnx' is malformed: the weight 'weight' stands at '-1'"
        self.fails(message, "unlighten", self.path("broken.onnx"), "-o", out)
        self.fails(message, "unlighten", light, "-o", out, "--weights", self.path("broken.onnx"))
        message = (
            "'.*light.onnx' is malformed: the weight 'weight' is in the file 'light.onnx.data', which does"
        )
        self.fails(message, "lighten", light, "-o", out)
        self.fails(
            "the weights have to stand beside the output",
            "lighten",
            self.model,
            "-o",
            out,
            "--weights",
            "w.bin",
        )
        self.assertFalse(os.path.exists(out))


class TestRun(ModelCommandsTestCase):
    def test_arrays_of_files(self):
        np.savez(self.path("feeds.npz"), x=self.x)
        np.save(self.path("c.npy"), np.array(False))
        saved = self.path("results.npz")
        out = self.succeeds(
            "run", self.model, "--inputs", self.path("feeds.npz"), "--inputs", f"c={self.path('c.npy')}",
            "--save", saved, "--repeat", "2",
        )  # fmt: skip
        self.assertRegex(out, r"result +y +float32\[2, 8\] min=")
        self.assertRegex(out, r"2 runs: median [\d.]+ ms, from [\d.]+ to [\d.]+ ms, \d+ threads")
        results = np.load(saved)
        expected = session(self.model).run(None, {"x": self.x, "c": np.array(False)})[0]
        np.testing.assert_array_equal(results["y"], expected)
        np.testing.assert_array_equal(results["x"], self.x)
        again = self.path("again.npz")
        self.succeeds("run", self.model, "--inputs", saved, "--save", again)
        np.testing.assert_array_equal(np.load(again)["y"], expected)

    def test_saved_values_are_inputs(self):
        """Results are left out, and an input of bfloat16 is one again."""
        short = "short (bfloat16[2] z) => (bfloat16[2] y) { w = Cast<to=1>(z) y = Cast<to=16>(w) }"
        names = """
            names (float[3] z) => (string[3] y, seq(float[3]) several) {
                y = Cast<to=8>(z)
                several = SequenceConstruct(z, z)
            }
        """
        saved, again = self.path("results.npz"), self.path("again.npz")
        for text, results in ((short, {"y"}), (names, {"y", "several_0", "several_1"})):
            onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}'), self.model)
            self.succeeds("run", self.model, "--seed", "5", "--save", saved)
            self.succeeds("run", self.model, "--inputs", saved, "--save", again)
            with np.load(saved) as first, np.load(again) as second:
                self.assertEqual({"z", *results}, {*first})
                for name in first:
                    np.testing.assert_array_equal(first[name], second[name])

    def test_saved_values(self):
        """Names that are arguments of numpy.savez, sequences, texts, and dtypes that numpy reads no file of."""
        names = """
            names (float[3] file) => (float[3] allow_pickle, string[3] text, seq(float[3]) several) {
                allow_pickle = Neg(file)
                text = Cast<to=8>(file)
                several = SequenceConstruct(file, allow_pickle)
            }
        """
        short = "short (float[3] file) => (bfloat16[3] y) { y = Cast<to=16>(file) }"
        x, saved = np.array([1.5, -2, 3], np.float32), self.path("results.npz")
        np.save(self.path("x.npy"), x)
        several = {"several_0": x, "several_1": -x}
        cases = {names: {"allow_pickle": -x, "text": ["1.5", "-2", "3"], **several}, short: {"y": x}}
        for text, expected in cases.items():
            onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}'), self.model)
            self.succeeds("run", self.model, "--inputs", f"file={self.path('x.npy')}", "--save", saved)
            with np.load(saved) as results:
                self.assertEqual(set(results), {"file", *expected})
                for name, values in expected.items():
                    with self.subTest(name):
                        np.testing.assert_array_equal(results[name], values)

    def test_a_map_is_not_saved(self):
        mapped = """
            <ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
            mapped (float[1, 2] x) => (seq(map(int64, float)) y) { y = ai.onnx.ml.ZipMap<classlabels_int64s=[5, 7]>(x) }
        """
        onnx.save(onnx.parser.parse_model(mapped), self.model)
        saved = self.path("results.npz")
        self.fails(f"--save {saved}: y_0 is a dict, and no array", "run", self.model, "--save", saved)
        self.assertFalse(os.path.exists(saved))

    def test_random_arrays_of_given_sizes(self):
        self.assertRegex(self.succeeds("run", self.model, "--size", "batch=5"), r"result +y +float32\[5, 8\]")
        self.assertRegex(self.succeeds("run", self.model), r"result +y +float32\[3, 8\]")
        first, second = (self.succeeds("run", self.model, "--seed", seed) for seed in "12")
        self.assertNotEqual(first, second)

    def test_every_result(self):
        out = self.succeeds("run", self.model, "--intermediate")
        for name in ("h", "s", "picked", "y"):
            self.assertRegex(out, rf"result +{name} +float32\[3, 8\]")

    def test_bfloat16(self):
        text = """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n,2] x, bfloat16[2] z) => (bfloat16[n,2] y, float[n,2] w)
        { y = Cast<to=16>(x) wide = Cast<to=1>(z) w = Add(x, wide) }
        """
        path = self.path("bfloat16.onnx")
        onnx.save(onnx.parser.parse_model(text), path)
        out = self.succeeds("run", path, "--repeat", "1")
        self.assertRegex(out, r"input +z +bfloat16\[2\] min=")
        self.assertRegex(out, r"result +y +bfloat16\[3, 2\] min=")
        self.assertIn("2 of 2 outputs agree", self.succeeds("compare", path, path))
        self.assertIn("Add", self.succeeds("profile", path, "--runs", "1"))
        out = self.succeeds("optimize", path, "-o", self.path("optimized.onnx"), "--check")
        self.assertIn("largest difference on random inputs: 0.0e+00", out)

    def test_the_reference_evaluator(self):
        with self.assertLogs("experimental_experiment", "INFO") as logs:
            status, out, _ = self.command("run", self.model, "--reference", "--intermediate")
        self.assertEqual(status, 0)
        self.assertRegex(out, r"result +picked +float32\[3, 8\]")
        self.assertIn("MatMul(x, weight) -> h", [record.getMessage() for record in logs.records])

    def test_weights_beside_the_model(self):
        path = self.path("external.onnx")
        ir.save(ir.load(self.model), path, external_data="external.data", size_threshold_bytes=0)
        self.assertRegex(self.succeeds("run", path, "--intermediate"), r"result +h +float32\[3, 8\]")
        os.remove(self.path("external.data"))
        self.fails("'.*external.onnx' is malformed: .* 'external.data', which does not exist", "run", path)

    def test_what_is_wrong(self):
        np.save(self.path("z.npy"), self.x)
        np.save(self.path("x.npy"), self.x[:, :3])
        with open(self.path("bad.npz"), "w") as file:
            file.write("no archive")
        cases = {
            "the model has no input 'z' but x, c": ["--inputs", f"z={self.path('z.npy')}"],
            "--inputs .*: say which input it is, NAME=": ["--inputs", self.path("z.npy")],
            "--inputs a.csv: a .npz or a .npy file is needed": ["--inputs", "a.csv"],
            "the file 'a.npz' does not exist": ["--inputs", "a.npz"],
            "'.*bad.npz' holds no arrays of numbers": ["--inputs", self.path("bad.npz")],
            "--size batch: DIMENSION=SIZE is needed": ["--size", "batch"],
            "the model has no dimension 'rows' but batch": ["--size", "rows=2"],
            "--save a.txt: a .npz file is needed": ["--save", "a.txt"],
            "--repeat takes a positive number": ["--repeat", "-1"],
        }
        for message, arguments in cases.items():
            with self.subTest(message):
                self.fails(message, "run", self.model, *arguments)
        message = "onnxruntime does not run the model on these inputs"
        self.fails(message, "run", self.model, "--inputs", f"x={self.path('x.npy')}", status=1)


class TestProfile(ModelCommandsTestCase):
    def test_tables(self):
        out = self.succeeds("profile", self.model, "--runs", "2", "--threads", "1", "--size", "batch=2")
        self.assertIn("median of 2", out)
        self.assertRegex(out, r"Gemm +1 +[\d.]+")

    @unittest.skipIf(importlib.util.find_spec("matplotlib") is None, "matplotlib is not installed")
    def test_bars(self):
        path = self.path("bars.png")
        self.succeeds("profile", self.model, "--runs", "1", "--plot", path)
        self.assertTrue(os.path.exists(path))
        self.fails(
            "--plot .*bars.onnx: ", "profile", self.model, "--runs", "1", "--plot", self.path("bars.onnx")
        )

    def test_bars_without_matplotlib(self):
        real = importlib.util.find_spec
        with unittest.mock.patch(
            "importlib.util.find_spec", lambda name: None if name == "matplotlib" else real(name)
        ):
            self.fails(
                r"--plot .*bars.png: the package matplotlib is not installed: pip install 'experimental_experiment\[plot\]'",
                "profile", self.model, "--plot", self.path("bars.png"),
            )  # fmt: skip

    def test_no_run(self):
        self.fails("--runs takes a positive number", "profile", self.model, "--runs", "0")


class TestFind(ModelCommandsTestCase):
    def test_a_result(self):
        lines = self.succeeds("find", self.model, "picked").splitlines()
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[0], r"^given by: Gather\(s, columns, axis=1\) -> \*\*picked\*\*")
        self.assertRegex(lines[1], r"^read by in If then_branch: Relu\(\*\*picked\*\*\) -> a")
        self.assertRegex(lines[2], r"^read by in If else_branch: Neg\(\*\*picked\*\*\) -> t")

    def test_inputs_weights_outputs(self):
        self.assertRegex(self.succeeds("find", self.model, "x"), r"^input: name='x' type=dtype\('float32'\)")
        self.assertRegex(self.succeeds("find", self.model, "weight"), r"^weight: name='weight'")
        self.assertIn("output: name='y'", self.succeeds("find", self.model, "y"))

    def test_names_that_contain_it(self):
        self.fails("'.*' has no 'pick'; these contain it: picked$", "find", self.model, "pick", status=1)
        self.fails("'.*' has no 'nothing'$", "find", self.model, "nothing", status=1)


class TestCompare(ModelCommandsTestCase):
    def test_the_same(self):
        out = self.succeeds("compare", self.model, self.model)
        self.assertIn("the graphs have the same inputs, outputs, operators and weights", out)
        self.assertIn("1 of 1 outputs agree", out)

    def test_other_numbers(self):
        other = product()
        other.graph.initializer[0].float_data[:] = [100] * 8
        onnx.save(other, self.path("other.onnx"))
        status, out, _ = self.command("compare", self.model, self.path("other.onnx"))
        self.assertEqual(status, 1)
        self.assertIn("1 of 1 outputs differ", out)
        self.assertEqual(self.command("compare", self.model, self.path("other.onnx"), "--no-run")[0], 0)

    def test_large_integers_that_differ_by_one(self):
        text = '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (int64[2] y) {{ z = Cast<to=7>(x) o = Sub(z, z) y = Add(o, c) }}'
        for name, number in {"a": 100000, "b": 100001}.items():
            model = onnx.parser.parse_model(text.format())
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(number), "c"))
            onnx.save(model, self.path(f"{name}.onnx"))
        status, out, _ = self.command("compare", self.path("a.onnx"), self.path("b.onnx"))
        self.assertEqual(1, status)
        self.assertRegex(out, r"1\.0e\+00 +DIFFERS")

    def test_within_the_rounding_of_bfloat16(self):
        text = '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (bfloat16[2] y) {{ z = Mul(x, c) y = Cast<to=16>(z) }}'
        for name, factor in {"a": 1.0, "b": 1.004, "c": 3.0}.items():
            model = onnx.parser.parse_model(text.format())
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(factor, np.float32), "c"))
            onnx.save(model, self.path(f"{name}.onnx"))
        self.assertIn(
            "1 of 1 outputs agree", self.succeeds("compare", self.path("a.onnx"), self.path("b.onnx"))
        )
        self.assertEqual(self.command("compare", self.path("a.onnx"), self.path("c.onnx"))[0], 1)

    def test_sequences(self):
        text = """
        <ir_version: 8, opset_import: ["" : 18]>
        g (float[n,2] x) => (seq(float[n,1]) y) { y = SplitToSequence<axis=1, keepdims=1>(x) }
        """
        model = onnx.parser.parse_model(text)
        onnx.save(model, self.path("a.onnx"))
        self.assertIn(
            "1 of 1 outputs agree", self.succeeds("compare", self.path("a.onnx"), self.path("a.onnx"))
        )

    def test_inputs_of_a_check(self):
        """A mask of past and new tokens has a dimension of its own."""
        text = """
        <ir_version: 8, opset_import: ["" : 18]>
        g (float[past] keys, float[new] x, float[total] mask) => (float[total] y)
        { all = Concat<axis=0>(keys, x) a = Identity(all) y = Add(a, mask) }
        """
        model, written = self.path("a.onnx"), self.path("b.onnx")
        onnx.save(onnx.parser.parse_model(text), model)
        optimize = "optimize", model, "-o", written
        self.fails(
            "onnxruntime does not run '.*a.onnx' on these inputs, --size and --inputs give it others: ",
            *optimize, "--check", status=1,
        )  # fmt: skip
        out = self.succeeds(*optimize, "--check", "--size", "total=6")
        self.assertIn("largest difference on random inputs: 0.0e+00", out)
        np.savez(
            self.path("a.npz"),
            keys=np.float32([1]),
            x=np.float32([2, 3]),
            mask=np.float32([0, 1, 0]),
        )
        out = self.succeeds(*optimize, "--check", "--inputs", self.path("a.npz"))
        self.assertIn("largest difference on the inputs: 0.0e+00", out)
        self.fails("--inputs, --size and --seed belong to --check", *optimize, "--size", "total=6")

    def test_maps(self):
        """What scikit-learn's classifiers end with; `optimize --check` compares it too."""
        text = """
        <ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 1]>
        g (float[n,2] x) => (seq(map(int64, float)) y)
        { t = Neg(x) p = Neg(t) y = ai.onnx.ml.ZipMap<classlabels_int64s=[4, 5]>(p) }
        """
        onnx.save(onnx.parser.parse_model(text), self.path("a.onnx"))
        out = self.succeeds("optimize", self.path("a.onnx"), "-o", self.path("b.onnx"), "--check")
        self.assertIn("largest difference on random inputs: 0.0e+00", out)
        onnx.save(
            onnx.parser.parse_model(text.replace("p = Neg", "p = Exp").replace("[4, 5]", "[4, 6]")),
            self.path("c.onnx"),
        )
        self.assertIn(
            "1 of 1 outputs agree", self.succeeds("compare", self.path("a.onnx"), self.path("b.onnx"))
        )
        self.assertIn("DIFFERS", self.command("compare", self.path("a.onnx"), self.path("c.onnx"))[1])

    def test_other_nodes_and_interfaces(self):
        other = product()
        other.graph.node[1].op_type = "Sub"
        other.graph.input[0].name = "images"
        other.graph.node[0].input[0] = "images"
        onnx.save(other, self.path("other.onnx"))
        status, out, _ = self.command("compare", self.model, self.path("other.onnx"))
        self.assertEqual(status, 1)
        self.assertRegex(out, r"nodes +Add +1 +-\n")
        self.assertRegex(out, r"nodes +Sub +- +1\n")
        self.assertRegex(out, r"input +images +- ")
        self.assertIn("the numbers are not compared: the names of inputs or outputs differ", out)


class TestPlot(ModelCommandsTestCase):
    def test_the_text_of_graphviz(self):
        self.succeeds("plot", self.model, "-o", self.path("model.dot"), "--fold")
        with open(self.path("model.dot")) as file:
            self.assertIn("<B>MatMul</B>", file.read())

    def test_another_format(self):
        self.fails(
            "a drawing is a file of svg, png, pdf, dot", "plot", self.model, "-o", self.path("model.bmp")
        )


if __name__ == "__main__":
    unittest.main()
