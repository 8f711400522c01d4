"""The scripts of the folder examples, which are the tutorials of the documentation: each one is run, and says what it shows."""

import contextlib
import importlib.util
import io
import os
import re
import runpy
import shutil
import sys
import tempfile
import unittest

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLES = os.path.join(ROOT, "examples")


def needs(*packages: str):
    """Skip a test when a package is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"needs {', '.join(missing)}")


def printed(name: str) -> str:
    """What a script prints."""
    out = io.StringIO()
    path = list(sys.path)
    sys.path.insert(0, EXAMPLES)
    torch._dynamo.reset()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_path(os.path.join(EXAMPLES, name), run_name="__main__")
    finally:
        sys.path[:] = path
    return out.getvalue()


class TestTutorials(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        if importlib.util.find_spec("matplotlib"):
            import matplotlib.pyplot

            matplotlib.use("agg")
            self.addCleanup(matplotlib.pyplot.close, "all")

    def assert_close(self, text: str, pattern: str, count: int, largest: float = 1e-5):
        """The numbers that a script prints after a pattern."""
        found = [float(number) for number in re.findall(pattern + r" ?([0-9.e+-]+)", text)]
        self.assertEqual(len(found), count, text)
        self.assertLessEqual(max(found), largest)

    def test_dynamic_shapes(self):
        text = printed("dynamic_shapes.py")
        self.assertIn("input: name='x' type=dtype('float32') shape=['batch', 10]", text)
        self.assert_close(text, "largest difference", 6)
        self.assertIn("output_0 ['left + right', 'width']", text)
        self.assertIn("y ['2*half', 5]", text)
        self.assertIn("hint   a dimension declared dynamic is not", text)
        self.assertIn("['x']\n['x', 'exponent']", text)

    def test_strict_or_not(self):
        text = printed("strict_or_not.py")
        self.assertEqual(len(re.findall(r"ScatterElements'\], 0.0", text)), 2)
        self.assertIn("strict=False: tensor([12., 15., 18.]), eager tensor([12., 15., 18.])", text)
        self.assertIn("hint   a strict capture takes torch._higher_order_ops.scan", text)
        self.assertIn("strict=False: a model with a constant in it", text)
        self.assertIn("strict=False: exported, difference 0.0", text)
        self.assertEqual(text.count("strict=True: torch.export.export failed with"), 3)

    def test_control_flow(self):
        text = printed("control_flow.py")
        self.assertIn("hint   a branch or a size depends on the data: use torch.cond", text)
        self.assert_close(text, "largest difference", 5)

    @needs("matplotlib")
    def test_export_a_loop(self):
        text = printed("export_a_loop.py")
        self.assertEqual(text.count("discrepancy of the ONNX model: 0.0"), 2)
        self.assertIn("discrepancy of scan: 0.0", text)
        self.assertIn("object of type 'Node' has no len()", text)
        self.assertIn("['simple_loop_for']", text)

    def test_custom_operators(self):
        text = printed("custom_operators.py")
        self.assertIn("example.soft_sign.default has no translation", text)
        self.assertIn("Softsign(", text)
        self.assertIn("output: name='output' type=dtype('float32') shape=['batch', 4]", text)
        self.assert_close(text, "rows:", 2)
        self.assertIn("['Mul', 'Abs', 'Add', 'Div', 'Slice', 'Add', 'Slice', 'Concat']", text)

    def test_submodules_as_functions(self):
        text = printed("submodules_as_functions.py")
        self.assertIn("['LayerNorm', 'Linear', 'Block']\n['Block', 'Block', 'Block', 'Linear']", text)
        self.assert_close(text, "rows:", 3)
        self.assertIn("0 ['LayerNormalization', 'Gemm'", text)

    @needs("matplotlib", "transformers")
    def test_caches_and_decoding(self):
        text = printed("caches_and_decoding.py")
        self.assertIn("['batch', 2, 'past', 16]", text)
        self.assert_close(text, "9 outputs, largest difference", 1)
        self.assertIn("the same as transformers: True", text)
        self.assertIn("104 tokens in the cache", text)

    @unittest.skipIf(shutil.which("dot") is None, "needs graphviz's program dot")
    @needs("graphviz", "matplotlib", "sklearn")
    def test_torch_compile_backend(self):
        text = printed("torch_compile_backend.py")
        self.assert_close(text, "largest relative difference of the losses:", 3, 1e-3)
        self.assertEqual(re.findall(r"(\d) were created", text), ["4", "2"])
        self.assertIn("input: name='input_dim_2' type=dtype('int64') shape=[1]", text)
        self.assertIn("output: name='output_NONE_3'", text)

    @needs("matplotlib")
    def test_rules(self):
        text = printed("rules.py")
        self.assertIn("16 nodes, 11 afterwards", text)
        self.assertIn("['ReshapeReshape', 'NegNeg', 'QuickGelu', 'ReshapeNothing']", text)
        self.assert_close(text, r"\d, 16\)", 3)
        self.assertIn("Culprit(rule='ForgetsTheFactor'", text)
        self.assertTrue(text.endswith("None\n"))

    def test_refused_models(self):
        text = printed("refused_models.py")
        self.assertIn("specialized it to be a constant (5)", text)
        self.assertIn("'LSTM']", text)
        self.assert_close(text, r"length \d+:", 3)
        self.assert_close(text, r"float32\[3, 7, 8\],", 1)
        self.assert_close(text, r"(?:energy: \(\)|forces: \(9, 3\)),", 2)
        self.assertEqual(text.count("['point_left', 'point_right']"), 2)

    def test_investigate(self):
        text = printed("investigate.py")
        self.assertIn("investigated.rescale.default has no translation", text)
        self.assertIn("3 calls of 3 operators, 1 cannot be translated", text)
        self.assertIn("('gate', 'a branch or a size depends on the data')", text)
        self.assertIn("error\n%rescale = investigated.rescale.default", text)
        self.assertIn("the outputs agree with eager", text)
        self.assertIn("%linear = aten.linear.default, written as Gemm 'linear'", text)

    @needs("matplotlib")
    def test_profile_a_model(self):
        text = printed("profile_a_model.py")
        self.assertRegex(text, r"median of 20; [\d.]+ ms in kernels, [\d.]+ ms \(\d+%\) of them in products")
        self.assertRegex(text, r"\nMatMul +12 +[\d.]+ ")
        self.assertRegex(text, r"\nlayers\.\*\.inner +\d+ +[\d.]+ ")
        self.assertRegex(text, r"\nlayers\.\d(\.\w+)?: [\d.]+ ms")

    def test_every_example_is_run(self):
        found = {name.removesuffix(".py") for name in os.listdir(EXAMPLES) if name.endswith(".py")}
        tested = {name.removeprefix("test_") for name in dir(self) if name.startswith("test_")}
        self.assertEqual(
            found - tested,
            {"llama_decoder"},
            "llama_decoder is run by _unittests.ut_command_line.test_package",
        )
        with open(os.path.join(EXAMPLES, "index.rst")) as file:
            listed = set(file.read().split())
        self.assertEqual(found - listed, {"llama_decoder"}, "the others are in examples/index.rst")


if __name__ == "__main__":
    unittest.main()
