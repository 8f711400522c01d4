"""Files that are no models, models that make no sense, a disk that is full: each command says it in one sentence."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pathlib
import random
import re
import tempfile
import textwrap
import unittest
import unittest.mock
from collections.abc import Iterator

import numpy as np
import onnx
import onnx.parser
import onnx_ir

from experimental_experiment import __version__
from experimental_experiment.command_line import main, parser
from experimental_experiment.logs import logger
from experimental_experiment.torch_interpreter.files import save
from experimental_experiment.whole import whole

try:
    import resource
except ImportError:  # not on Windows
    resource = None

PRODUCT = """
<ir_version: 8, opset_import: ["" : 18]>
product (float[batch,8] x) => (float[batch,4] y)
{
    h = MatMul(x, weight)
    y = Relu(h)
}
"""

MODELS = textwrap.dedent(
    """
    import torch

    def product():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 4, bias=False), torch.nn.ReLU()), (torch.ones(2, 8),)

    def interrupted():
        raise KeyboardInterrupt
    """
)


def product() -> onnx.ModelProto:
    """A small model with a weight of 128 bytes."""
    model = onnx.parser.parse_model(PRODUCT)
    weight = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    return model


def external(location: str, **entries: str) -> onnx.ModelProto:
    """The same, its weight in another file."""
    model = product()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return model


@contextlib.contextmanager
def limited(size: int) -> Iterator[None]:
    """No file is written further than *size* bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def changed(change) -> onnx.ModelProto:
    """A model after *change*."""
    model = product()
    change(model.graph)
    return model


class FaultsTestCase(unittest.TestCase):
    """Runs commands in this process, in a temporary folder that is the current one."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        os.mkdir("inside")
        os.chdir("inside")
        onnx.save(product(), "model.onnx")
        with open("models.py", "w") as file:
            file.write(MODELS)

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and errors of a command."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(arguments)
        return status, out.getvalue(), err.getvalue()

    def commands(self, model: str) -> dict[str, list[str]]:
        """Every command that reads a model."""
        return {
            "check": [model, "models.py:product"],
            "compare": [model, "model.onnx"],
            "find": [model, "y"],
            "investigate": ["models.py:product", "--onnx", model],
            "lighten": [model, "-o", "out.onnx"],
            "optimize": [model, "-o", "out.onnx", "--quantize", "int8"],
            "plot": [model, "-o", "out.dot"],
            "print": [model],
            "profile": [model, "--runs", "1"],
            "run": [model],
            "unlighten": [model, "-o", "out.onnx"],
        }

    def assert_refused(self, model: str, *but: str, message: str = "") -> None:
        """Each command ends with 1 or 2 and one sentence."""
        for name, arguments in self.commands(model).items():
            if name in but:
                continue
            with self.subTest(command=name):
                status, out, err = self.command(name, *arguments)
                self.assertIn(status, (1, 2), out)
                self.assertRegex(err, rf"\Aerror: .*{message}")
                self.assertEqual(err.count("error: "), 1)
                self.assertFalse(os.path.exists("out.onnx"))


class TestMalformed(FaultsTestCase):
    def test_what_is_no_model(self):
        content = product().SerializeToString()
        generator = random.Random(0)
        contents = {
            "empty": b"",
            "text": b"no model",
            "random": generator.randbytes(200),
            "zeros": bytes(100),
            **{f"first {end} bytes": content[:end] for end in (1, 7, 20, 60, 150, len(content) - 1)},
        }
        for kind, data in contents.items():
            with self.subTest(kind):
                with open("bad.onnx", "wb") as file:
                    file.write(data)
                self.assert_refused("bad.onnx", message="'bad.onnx' is not an ONNX model, or it is truncated")

    def test_what_makes_no_sense(self):
        def unknown_dtype(graph):
            graph.initializer[0].data_type = 99

        def unknown_input(graph):
            graph.input[0].type.tensor_type.elem_type = 99

        def circle(graph):
            graph.node[0].input[0] = "y"

        def nothing_gives(graph):
            graph.node[0].input[0] = "lost"

        def second_time(graph):
            graph.node.add().CopyFrom(graph.node[0])

        def no_output(graph):
            graph.output[0].name = "lost"

        def short(graph):
            graph.initializer[0].raw_data = b"1234"

        def negative(graph):
            graph.initializer[0].dims[0] = -8

        cases = {
            circle: "the node '' \\(MatMul\\) reads 'y' before it is computed",
            negative: "the weight 'weight' has the shape \\[-8, 4\\]",
            no_output: "nothing gives the output 'lost'",
            nothing_gives: "reads 'lost' which nothing gives",
            second_time: "gives 'h' a second time",
            short: "holds 4 bytes, and its shape \\[8, 4\\] has 128",
            unknown_dtype: "'weight' has the unknown dtype 99",
            unknown_input: "'x' has the unknown dtype 99",
        }
        for change, message in cases.items():
            with self.subTest(change.__name__):
                onnx.save(changed(change), "bad.onnx")
                showing = ("find", "plot", "print", "unlighten")
                self.assert_refused("bad.onnx", *showing, message=f"'bad.onnx' is malformed: .*{message}")
                for name in showing:
                    self.assertIn(self.command(name, *self.commands("bad.onnx")[name])[0], (0, 2))

    def test_what_is_no_text(self):
        model = product()
        model.graph.node[0].name, model.producer_name = "first", "maker"
        content = model.SerializeToString()
        cases = {
            b"first": r"b'firs\xff' is the name of a NodeProto, and no text",
            b"maker": r"b'make\xff' is the producer_name of a ModelProto, and no text",
            b"MatMul": r"b'MatMu\xff' is the op_type of a NodeProto, and no text",
        }
        for word, message in cases.items():
            with self.subTest(word):
                pathlib.Path("bad.onnx").write_bytes(content.replace(word, word[:-1] + b"\xff"))
                self.assert_refused("bad.onnx", message=f"'bad.onnx' is malformed: {re.escape(message)}")

    def test_weights_that_are_elsewhere(self):
        with open("../outside.bin", "wb") as file:
            file.write(bytes(128))
        os.symlink("../outside.bin", "link.bin")
        with open("short.bin", "wb") as file:
            file.write(bytes(100))
        outside = "which is outside of the folder of the model"
        cases = {
            "climbs": (external("../outside.bin"), outside),
            "absolute": (external(os.path.abspath("../outside.bin")), outside),
            "a link": (external("link.bin"), outside),
            "missing": (external("missing.bin"), "is in the file 'missing.bin', which does not exist"),
            "too short": (external("short.bin"), "up to the byte 128, and the file has 100"),
            "too far": (external("short.bin", offset="64", length="128"), "up to the byte 192"),
            "another length": (external("short.bin", length="64"), "has 64 bytes, and its shape"),
            "no number": (external("short.bin", offset="far"), "which are no numbers"),
        }
        for kind, (model, message) in cases.items():
            with self.subTest(kind):
                onnx.save(model, "bad.onnx")
                self.assert_refused("bad.onnx", "find", "plot", "print", "unlighten", message=message)

    def test_a_sound_model_is_taken(self):
        with open("weights.bin", "wb") as file:
            file.write(bytes(128))
        onnx.save(external("weights.bin"), "model.onnx")
        for name, arguments in self.commands("model.onnx").items():
            with self.subTest(name):
                if name == "check" or name == "investigate":
                    continue  # other weights
                status, _, err = self.command(name, *arguments)
                self.assertEqual((status, err), (0, ""))


class TestSystem(FaultsTestCase):
    def test_a_full_disk(self):
        full = OSError(errno.ENOSPC, "No space left on device", "out.onnx")
        with unittest.mock.patch("os.replace", side_effect=full):
            for name in ("optimize", "unlighten"):
                onnx.save(product() if name == "optimize" else external("lost.bin"), "model.onnx")
                status, _, err = self.command(name, *self.commands("model.onnx")[name])
                self.assertIn("No space left on device", err)
                self.assertIn(status, (1, 2))
            status, _, err = self.command("export", "models.py:product", "-o", "out.onnx")
        self.assertEqual((status, err), (1, "error: No space left on device: 'out.onnx'\n"))
        self.assertNotIn("out.onnx", os.listdir())

    @unittest.skipIf(resource is None, "needs a limit of the system on files")
    def test_a_file_that_cannot_be_written_to_its_end(self):
        """The system stops every file after some bytes: what was there stays as it was, and nothing else is left."""
        small, out = ["model.onnx", "-o", "out.onnx"], ["-o", "out.onnx"]
        cases = {
            "export": (100, ["models.py:product", *out]),
            "export with a report": (5000, ["models.py:product", "-o", "new.onnx", "--report", "out.html"]),
            "investigate": (100, ["models.py:product", "--html", "out.html"]),
            "lighten": (100, [*small, "--larger-than", "1000"]),
            "lighten with weights": (100, [*small, "--larger-than", "1", "--weights", "out.data"]),
            "optimize": (100, small),
            "plot": (100, ["model.onnx", "-o", "out.dot"]),
            "run": (100, ["model.onnx", "--save", "out.npz"]),
            "unlighten": (100, ["light.onnx", *out]),
        }
        self.assertEqual(
            self.command("lighten", "model.onnx", "-o", "light.onnx", "--larger-than", "1")[0], 0
        )
        for name in ("out.onnx", "out.data", "out.html", "out.dot", "out.svg", "out.npz"):
            pathlib.Path(name).write_text("what was there")
        before = {*os.listdir(), "__pycache__", "new.onnx"}
        for name, (limit, arguments) in cases.items():
            with self.subTest(name):
                with limited(limit):
                    status, _, err = self.command(name.partition(" ")[0], *arguments)
                self.assertEqual((status, err), (1, "error: File too large\n"))
                self.assertEqual(set(os.listdir()) - before, set())
                for path in pathlib.Path().glob("out.*"):
                    self.assertEqual(path.read_text(), "what was there")

        with limited(100):
            status, _, err = self.command("profile", "model.onnx", "--plot", "out.svg")
        self.assertEqual(status, 1)
        self.assertRegex(err, r"\Aerror: onnxruntime did not write its profile to the end in '.*'\n\Z")
        self.assertEqual(pathlib.Path("out.svg").read_text(), "what was there")

    def test_a_device_is_not_replaced(self):
        for name, *arguments in (
            ("export", "models.py:product"),
            ("lighten", "model.onnx"),
            ("plot", "model.onnx"),
        ):
            with self.subTest(name):
                status, _, err = self.command(name, *arguments, "-o", os.devnull)
                self.assertEqual((status, err), (2, f"error: {os.devnull!r} is a device, not a file\n"))
        with self.assertRaisesRegex(OSError, "is a device, not a file"):
            save(onnx_ir.from_proto(product()), os.devnull)
        with self.assertRaisesRegex(OSError, "is a device, not a file"), whole(os.devnull):
            pass

    def test_a_light_model_beside_weights_that_are_not_its_own(self):
        """It would run with them, or the model would with those of the light one."""
        onnx.save(
            product(), "other.onnx", save_as_external_data=True, location="other.onnx.data", size_threshold=0
        )
        before = {path.name: path.read_bytes() for path in pathlib.Path().glob("*.onnx*")}
        light = ["--larger-than", "1", "-o"]
        taken = "is a file of the model: name another one for the weights"
        for message, *arguments in (
            (
                "'model.onnx' would lose its weights: name another output",
                "model.onnx",
                *light,
                "./model.onnx",
            ),
            (
                "would take 'other.onnx.data', which is there, for its weights",
                "model.onnx",
                *light,
                "other.onnx",
            ),
            (
                f"'./other.onnx.data' {taken}",
                "other.onnx",
                *light,
                "out.onnx",
                "--weights",
                "./other.onnx.data",
            ),
            (f"'out.onnx' {taken}", "model.onnx", *light, "out.onnx", "--weights", "out.onnx"),
            (f"'model.onnx' {taken}", "model.onnx", *light, "out.onnx", "--weights", "model.onnx"),
        ):
            with self.subTest(message):
                status, _, err = self.command("lighten", *arguments)
                self.assertEqual(status, 2)
                self.assertRegex(err, rf"\Aerror: .*{message}")
                self.assertEqual(
                    before, {path.name: path.read_bytes() for path in pathlib.Path().glob("*.onnx*")}
                )

    def test_a_light_model_and_its_weights_replace_another_pair(self):
        lighten = [
            "lighten",
            "model.onnx",
            "-o",
            "light.onnx",
            "--larger-than",
            "1",
            "--weights",
            "light.bin",
        ]
        for seed in range(2):
            model = product()
            weight = np.random.default_rng(seed).normal(size=(8, 4)).astype(np.float32)
            model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "weight"))
            onnx.save(model, "model.onnx")
            self.assertEqual(self.command(*lighten)[0], 0)
            found = onnx.numpy_helper.to_array(onnx.load("light.onnx").graph.initializer[0])
            np.testing.assert_array_equal(found, weight)
            self.assertEqual({*os.listdir()}, {"light.bin", "light.onnx", "model.onnx", "models.py"})
        status, _, err = self.command(
            "unlighten", "light.onnx", "--weights", "light.bin", "-o", "./light.bin"
        )
        self.assertEqual(
            (status, err), (2, "error: 'light.bin' holds the weights that are read: name another output\n")
        )

    def test_where_nothing_can_be_written(self):
        for name in ("export", "lighten", "optimize", "unlighten"):
            onnx.save(external("lost.bin") if name == "unlighten" else product(), "model.onnx")
            first = "models.py:product" if name == "export" else "model.onnx"
            for target, expected, message in (
                ("../inside", 2, "'../inside' is a folder"),
                ("nowhere/out.onnx", 2, "the folder '.*nowhere' does not exist"),
                ("/proc/out.onnx", 1, ""),
            ):
                with self.subTest(name, target=target):
                    status, _, err = self.command(name, first, "-o", target)
                    self.assertRegex(err, rf"\Aerror: {message}.*\n\Z")
                    self.assertIn(status, (expected, 2))

    def test_a_disk_that_fails_to_read(self):
        with unittest.mock.patch("onnx_ir.serde.deserialize_tensor", side_effect=OSError("a bad sector")):
            status, _, err = self.command("lighten", "model.onnx", "-o", "out.onnx")
        message = "error: the weight 'weight' of 'model.onnx' cannot be read: a bad sector\n"
        self.assertEqual((status, err), (2, message))

    def test_an_interruption(self):
        before = set(os.listdir())
        status, _, err = self.command("export", "models.py:interrupted", "-o", "out.onnx")
        self.assertEqual((status, err), (130, "interrupted\n"))
        self.assertEqual(set(os.listdir()) - before - {"__pycache__"}, set())


class TestAmount(FaultsTestCase):
    def test_quiet_and_verbose(self):
        export = ["export", "models.py:product", "-o", "out.onnx"]
        status, out, err = self.command(*export)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("input: input", out)
        self.assertEqual(self.command(*export, "--quiet"), (0, "", ""))
        status, _, err = self.command(*export, "--verbose")
        for stage in ("capture", "translate", "optimize", "write"):
            self.assertRegex(err, rf"(?m)^{stage}: [\d.]+ s$")
        self.assertEqual((logger.level, logger.handlers), (0, []))
        optimize = ["optimize", "model.onnx", "-o", "out.onnx"]
        self.assertIn("out.onnx: ", self.command(*optimize)[1])
        self.assertEqual(self.command(*optimize, "-q"), (0, "", ""))
        _, _, err = self.command(*optimize, "-v", "--quantize", "int8")
        self.assertEqual(re.findall(r"(?m)^(\w+): [\d.]+ s$", err), ["optimize", "quantize", "write"])
        _, _, err = self.command("investigate", "models.py:product", "-v")
        stages = re.findall(r"(?m)^(\w+): [\d.]+ s$", err)
        self.assertEqual((stages[0], stages[-1]), ("run", "export"))
        _, _, err = self.command("investigate", "models.py:product", "--coverage", "-v")
        self.assertEqual(re.findall(r"(?m)^(\w+): [\d.]+ s$", err), ["capture", "translate"])
        _, _, err = self.command("investigate", "models.py:product", "--discrepancies", "-v")
        stages = re.findall(r"(?m)^(\w+): [\d.]+ s$", err)
        self.assertEqual(stages[-4:], ["write", "run", "compare", "explain"])

    def test_every_command_takes_them(self):
        commands = parser()._subparsers._group_actions[0].choices
        self.assertGreater(len(commands), 15)
        for name, command in commands.items():
            with self.subTest(name):
                self.assertLess({"-q", "--quiet", "-v", "--verbose"}, set(command._option_string_actions))

    def test_the_version(self):
        with self.assertRaises(SystemExit) as caught, contextlib.redirect_stdout(io.StringIO()) as out:
            main(["--version"])
        self.assertEqual((caught.exception.code, out.getvalue()), (0, f"{__version__}\n"))

    def test_the_statuses_are_those_of_the_documents(self):
        page = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "command_line.md"
        found = re.findall(r"^\| (\d+) \|", page.read_text(), re.M)
        self.assertEqual(found, ["0", "1", "2", "130"])
        self.assertEqual(re.findall(r"\b(0|1|2|130)\b", parser().epilog), found)

    def test_verbose_shows_where_an_error_comes_from(self):
        status, _, err = self.command("print", "missing.onnx", "-v")
        self.assertEqual(status, 2)
        self.assertRegex(err, r"\ATraceback [\s\S]*\nerror: the file 'missing.onnx' does not exist\n\Z")


if __name__ == "__main__":
    unittest.main()
