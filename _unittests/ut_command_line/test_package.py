"""The package as a whole: what importing it loads, the generated table of operators, the examples."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch

import experimental_experiment.torch_interpreter
from experimental_experiment import versions
from experimental_experiment.command_line import main
from experimental_experiment.torch_interpreter.catalog import catalog, markdown, written
from experimental_experiment.torch_interpreter.patches.patch import markdown as patches_markdown
from experimental_experiment.torch_interpreter.runtime.table import markdown as runtime_markdown
from experimental_experiment.xoptim.rules import markdown as patterns_markdown

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

NEEDLESS = (
    "experimental_experiment.torch_interpreter.translations",
    "experimental_experiment.xoptim",
    "onnx_ir",
    "onnxruntime",
    "onnxscript",
    "safetensors",
    "sympy",
    "tabulate",
    "torch._dynamo",
    "torch._inductor",
    "torch.fx.experimental.symbolic_shapes",
    "torchvision",
    "tqdm",
    "transformers",
)
"""Modules that a first export, a report or the user's model may load, but not the import of the package."""


LINEAR = ("Add", "Gemm", "MatMul", "Squeeze", "Transpose", "Unsqueeze")

UNREACHED = {
    "torch.export leaves another operator, or none": """
        aten._conj.default, aten._conj_physical.default, aten.lift_fresh.default,
        aten.lift_fresh.default (complex), aten.to.prim_Device, higher_order.invoke_quant_packed, higher_order.wrap, higher_order.wrap_activation_checkpoint,
        prims.conj.default, prims.conj_physical.default, prims.real.default, prims.view_of_dtype.default
        """,
    "an operator before it is refused": """
        torch._functorch.predispatch._enter_dual_level, torch._functorch.predispatch._exit_dual_level,
        torch._functorch.predispatch._jvp_decrement_nesting, torch._functorch.predispatch._jvp_increment_nesting,
        torch._functorch.predispatch._unpack_dual
        """,
    "registered with others for real and for complex tensors alike, without a case of its own": """
        aten.sym_numel.default (complex), aten.sym_size.int (complex), prims.amax.default (complex),
        prims.amin.default (complex), prims.cbrt.default (complex), prims.full.default (complex),
        prims.prod.default (complex), prims.scalar_tensor.default (complex), prims.svd.default (complex),
        prims.var.default (complex), prims.view_of_dtype.default (complex), prims.fft_c2c.default,
        prims.fft_c2r.default, prims.fft_r2c.default
        """,
}
"""Translations that no test calls, by reason."""


REFUSED = """import torch


class Head(torch.nn.Module):
    def forward(self, x):
        return torch.ops.mylib.rescale(x, 0.5)


@torch.library.custom_op("mylib::rescale", mutates_args=())
def rescale(x: torch.Tensor, by: float) -> torch.Tensor:
    return by * x


@rescale.register_fake
def _(x, by):
    return torch.empty_like(x)


def head():
    return Head(), (torch.randn(3, 3),)
"""


MODEL = """import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(10, 3)

    def forward(self, x):
        return self.linear(x).relu()


def build():
    return Layer(), (torch.randn(2, 10),)


def other_sizes():
    return Layer(), (torch.randn(5, 10),)
"""


def readme_blocks(language: str) -> list[str]:
    """The blocks of code of the README in one language."""
    with open(os.path.join(ROOT, "README.md")) as file:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", file.read(), re.M | re.S)
    return [code for name, code in blocks if name == language]


class TestImport(unittest.TestCase):
    def test_the_import_loads_little_beyond_torch_and_onnx(self):
        code = (
            "import sys, torch, onnx; before = set(sys.modules)\n"
            "import experimental_experiment.torch_interpreter\n"
            "print(*(set(sys.modules) - before))"
        )
        result = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
        loaded = set(result.stdout.split())
        self.assertEqual(loaded.intersection(NEEDLESS), set())
        foreign = {name for name in loaded if not name.startswith("experimental_experiment")}
        self.assertLess(len(foreign), 30, sorted(foreign))

    def test_a_users_translation_before_the_first_export_is_checked_against_ours(self):
        code = (
            "import torch\n"
            "from experimental_experiment.torch_interpreter import translates\n"
            "@translates(torch.ops.aten.sin.default)\n"
            "def sine(op, self):\n"
            "    return op.Sin(self)\n"
        )
        result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        self.assertRegex(result.stderr, "aten.sin.default is translated twice, first at .*/aten/.*py:[0-9]+")

    def test_a_name_that_the_package_lacks(self):
        with self.assertRaisesRegex(AttributeError, "torch_interpreter' has no attribute 'to_onx'"):
            experimental_experiment.torch_interpreter.to_onx  # noqa: B018


class TestVersions(unittest.TestCase):
    def test_an_old_package_is_refused_in_one_sentence(self):
        with unittest.mock.patch.object(torch, "__version__", "2.8.1+cpu"):
            versions.require("onnx")
            with self.assertRaisesRegex(
                ImportError,
                r"^experimental_experiment needs torch 2\.9 or later, and 2\.8\.1\+cpu is installed: pip",
            ):
                versions.require("onnx", "torch")
        versions.require("onnx", "onnx_ir", "onnxruntime", "torch")

    def test_the_oldest_versions_are_those_of_the_package(self):
        with open(os.path.join(ROOT, "setup.cfg")) as file:
            written = dict(re.findall(r"^    (\w+)>=([\d.]+)$", file.read(), re.M))
        self.assertEqual(
            {name: ".".join(map(str, numbers)) for name, numbers in versions.OLDEST.items()}, written
        )


def pinned(package: str) -> str:
    """The version of a package in ``constraints.txt``."""
    with open(os.path.join(ROOT, "constraints.txt")) as file:
        return dict(line.strip().split("==") for line in file if "==" in line)[package]


OF_THE_PINNED_TORCH = unittest.skipUnless(
    torch.__version__.partition("+")[0] == pinned("torch"), "another torch has other operators"
)


class TestOperators(unittest.TestCase):
    @OF_THE_PINNED_TORCH
    def test_the_table_of_operators_is_current(self):
        with open(os.path.join(ROOT, "docs", "operators.md")) as file:
            written = file.read().splitlines()
        missing = [row for row in markdown().splitlines() if row not in written]
        self.assertEqual(missing, [], "run: python -m experimental_experiment operators > docs/operators.md")
        self.assertEqual(len(written), len(markdown().splitlines()))

    def test_the_table_of_the_runtime_is_current(self):
        with open(os.path.join(ROOT, "docs", "runtime.md")) as file:
            written = file.read()
        self.assertEqual(
            written, runtime_markdown(), "run: python -m experimental_experiment runtime > docs/runtime.md"
        )

    def test_the_table_of_rules_is_current(self):
        with open(os.path.join(ROOT, "docs", "patterns.md")) as file:
            written = file.read()
        self.assertEqual(
            written, patterns_markdown(), "run: python -m experimental_experiment patterns > docs/patterns.md"
        )

    def test_the_table_of_patches_is_current(self):
        with open(os.path.join(ROOT, "docs", "patches.md")) as file:
            written = file.read()
        self.assertEqual(
            written, patches_markdown(), "run: python -m experimental_experiment patches > docs/patches.md"
        )

    def test_known_operators_are_described(self):
        entries = {item.name: item for item in catalog()}
        self.assertEqual(entries["aten.linear.default"].operators, LINEAR)
        self.assertEqual(entries["aten.linear.default"].file, "aten/linear_algebra.py")
        self.assertEqual(entries["aten.sin.default"].operators, ("Sin",))
        self.assertEqual(entries["aten.sin.default (complex)"].file, "aten/complex.py")
        self.assertEqual(entries["aten.to.dtype"].operators, ("Cast",))
        self.assertTrue(all(13 <= item.opset <= 26 for item in entries.values()))

    @OF_THE_PINNED_TORCH
    def test_what_translations_write_is_measured(self):
        names = {item.name for item in catalog()}
        again = "run: python -m tests.written, with the names of the test files that reach them"
        self.assertEqual(set(written()) - names, set(), again)
        unreached = {name.strip() for listed in UNREACHED.values() for name in listed.split(",")}
        self.assertEqual(names - set(written()), unreached, again)


class TestExamples(unittest.TestCase):
    """The other examples are run in tests/test_tutorials.py."""

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "needs the package transformers")
    def test_llama_decoder_agrees_on_sizes_it_was_not_exported_with(self):
        example = os.path.join(ROOT, "examples", "llama_decoder.py")
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
            model = os.path.join(folder, "llama.onnx")
            self.assertEqual(main(["export", f"{example}:decoder", "-o", model, "--check"]), 0)
            self.assertEqual(main(["check", model, f"{example}:other_sizes"]), 0)
        self.assertIn(
            "input: past_key_values_0_key dtype('float32') shape=['batch', 2, 'past', 16]", out.getvalue()
        )
        self.assertIn("output: present_3_value", out.getvalue())


class TestReadme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def test_the_quickstart_runs(self):
        (code,) = readme_blocks("python")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, {"__name__": "quickstart"})
        self.assertIn("input: name='input' type=dtype('float32') shape=['batch', 10]", out.getvalue())
        self.assertEqual(os.listdir(), ["mlp.onnx"])

    def test_the_commands_run(self):
        """As they stand, one after the other; the first two commands, which install, are those of `.ci/run`."""
        with open("model.py", "w") as file:
            file.write(MODEL)
        prefix = "python -m experimental_experiment "
        blocks = [block for block in readme_blocks("bash") if block.startswith(prefix)]
        commands = [shlex.split(line, comments=True)[3:] for block in blocks for line in block.splitlines()]
        self.assertGreater(len(commands), 8)
        for arguments in commands:
            with (
                self.subTest(" ".join(arguments)),
                contextlib.redirect_stdout(io.StringIO()) as out,
                contextlib.redirect_stderr(io.StringIO()) as err,
            ):
                self.assertEqual(main(arguments), 0, err.getvalue())
                self.assertNotEqual(out.getvalue(), "")

    def test_the_error_is_the_one_shown(self):
        (shown,) = [block for block in readme_blocks("") if block.startswith("error")]
        with open("model.py", "w") as file:
            file.write(REFUSED)
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(main(["export", "model.py:head", "-o", "model.onnx"]), 1)
        self.assertEqual(err.getvalue().replace(os.getcwd() + os.sep, ""), shown)


if __name__ == "__main__":
    unittest.main()
