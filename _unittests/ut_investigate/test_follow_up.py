"""``to_onnx(verify=True)`` names the first wrong output; ``to_onnx(report=...)`` tells what was done."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import tempfile
import unittest
import unittest.mock

import onnx
import torch

from _unittests.ut_investigate.holder import Deep, Layer
from _unittests.ut_torch_interpreter.test_weights import write_safetensors
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, VerificationError, to_onnx

aten = torch.ops.aten


def wrong_sum(op, self, dtype):
    """A sum that is twice what it should be."""
    return op.Mul(op.ReduceSum(self, keepdims=0), 2.0)


class Counter(torch.nn.Module):
    """A model that writes a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(1)
        x.mul_(2)
        return x + self.count


class TestVerify(ExporterTestCase):
    def test_first_wrong_output_is_named(self):
        def model(x):
            return {"half": x / 2, "total": x.sum(), "again": x.sum() + 1}

        with self.assertRaises(VerificationError) as caught:
            to_onnx(model, (torch.ones(2, 3),), translations={aten.sum.default: wrong_sum}, verify=True)
        message = str(caught.exception)
        self.assertIn(
            "the output total is not eager's: float32[], differs by 6.0e+00, relatively by 1.0e+00", message
        )
        self.assertIn("(2 of 3 outputs differ)", message)
        self.assertIn(
            "hint   experimental_experiment.investigate.discrepancies(model, args, kwargs) names", message
        )
        self.assertIsInstance(caught.exception, ExportError)
        self.assertEqual(len(to_onnx(model, (torch.ones(2, 3),), verify=True).graph.output), 3)

    def test_what_is_right_is_returned(self):
        x = torch.rand(2, 3)
        program = torch.export.export(torch.nn.ReLU(), (x,))

        def keywords(x, *, scale, shift):
            return x * scale + shift, x.shape[0]

        cases = {
            "a function": (torch.sin, (x,), None),
            "a program": (program, (), None),
            "one tensor": (torch.nn.Linear(3, 2), x, None),
            "keywords in another order": (keywords, (x,), {"shift": x * 3, "scale": x * 5}),
            "complex numbers": (lambda x: torch.complex(x, x), (x,), None),
        }
        for promise, (model, args, kwargs) in cases.items():
            with self.subTest(promise):
                to_onnx(model, args, kwargs, verify=True, export_options=ExportOptions(strict=False))

    def test_gradients_of_parameters_are_not_recorded(self):
        """torch refuses a scan in a scan that records them."""

        class Watched(torch.nn.Linear):
            def forward(self, x):
                seen.append(self.weight.requires_grad)
                return super().forward(x)

        seen, module = [], Watched(3, 2)
        to_onnx(module, (torch.rand(2, 3),), verify=True)
        self.assertEqual([seen[0], seen[-1], module.weight.requires_grad], [True, False, True])

    def test_what_the_model_writes(self):
        x = torch.rand(2, 3)
        before = x.clone()
        for mode in ("drop", "outputs"):
            with self.subTest(mode):
                model = Counter()
                written = to_onnx(model, (x,), mutated_buffers=mode, verify=True)
                self.assertEqual(len(written.graph.output), 1 if mode == "drop" else 3)
                self.assertEqual(float(model.count.sum()), 0)
                self.assertTrue(torch.equal(x, before))

    def test_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            report = os.path.join(folder, "report.md")
            to_onnx(torch.nn.Linear(3, 2), (torch.rand(2, 3),), filename=path, verify=True, report=report)
            self.assertEqual({"model.onnx", "report.md"}, {*os.listdir(folder)})
            with open(report, encoding="utf-8") as file:
                self.assertRegex(file.read(), r"\| file +\| model.onnx +\|")

    def test_a_wrong_model_takes_no_place(self):
        """Neither its file nor that of its weights, also beside the weights of a safetensors file; its report is written."""
        wrong = {
            aten.linear.default: lambda op, input, weight, bias: op.MatMul(
                input, op.Transpose(weight, perm=[1, 0])
            )
        }
        for width in (3, 2100):
            model, x = torch.nn.Linear(width, width), (torch.rand(2, width),)
            with self.subTest(width=width), tempfile.TemporaryDirectory() as folder:
                path, report = (os.path.join(folder, name) for name in ("model.onnx", "report.md"))
                given = os.path.join(folder, "model.safetensors")
                write_safetensors(model.state_dict(), given)
                for options in ({}, {"weights": given}):
                    right = to_onnx(model, x, filename=path, verify=True, **options)
                    before = {
                        name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)
                    }
                    self.assertEqual(width > 3 and not options, "model.onnx.data" in before)
                    with self.assertRaises(VerificationError):
                        to_onnx(
                            model, x, filename=path, verify=True, report=report, translations=wrong, **options
                        )
                    os.remove(report)
                    after = {
                        name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)
                    }
                    self.assertEqual(before, after)
                    self.assertEqual(right, onnx.load(path, load_external_data=False))


class TestReport(ExporterTestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def written(self, name: str, model, args, **options) -> str:
        """The text of a report."""
        path = os.path.join(self.folder, name)
        to_onnx(model, args, report=path, **options)
        with open(path, encoding="utf-8") as file:
            return file.read()

    def content(self, *arguments, **options) -> dict:
        """What a page tells."""
        page = self.written("report.html", *arguments, **options)
        return json.loads(re.search(r'<script type="application/json" id="content">(.*)</script>', page)[1])

    def test_page(self):
        page = self.written("report.html", Deep(broken=False), (torch.randn(2, 4),))
        self.assertIn("<title>Deep, exported to ONNX</title>", page)
        self.assertNotRegex(
            page.replace("http://www.w3.org/2000/svg", ""), r"https?://|@TITLE@|@CONTENT@|<link|src="
        )

    def test_content(self):
        content = self.content(
            Deep(broken=False),
            (torch.randn(2, 4),),
            dynamic_shapes=({0: "batch"},),
            modules_as_functions=True,
        )
        self.assertEqual(content["inputs"], [["x", "float32[batch, 4]"]])
        self.assertEqual(content["outputs"], [["output", "float32[batch, 2]"]])
        self.assertEqual(
            [stage for stage, _ in content["stages"]], ["capture", "translate", "optimize", "write"]
        )
        self.assertEqual(content["discrepancies"]["verdict"], "agreement")
        self.assertEqual(dict(content["summary"])["operator sets"].split(",")[0], "ai.onnx 20")

    def test_nodes_of_both_sides(self):
        content = self.content(Deep(broken=False), (torch.randn(2, 4),))
        rows = {row[0]: row for row in content["nodes"]}
        _, target, kind, module, place, code, onnx_nodes = rows["softmax_1"]
        self.assertEqual((target, kind, module), ("aten.softmax.int", "float32[2, 4]", "layers.1.attention"))
        self.assertRegex(place, r"holder.py:\d+$")
        self.assertEqual(code, "y = self.proj(x).softmax(-1)")
        self.assertEqual(onnx_nodes, [["Softmax", "softmax_1", "float32[2, 4]"]])
        tree = content["tree"]
        self.assertEqual((tree["kind"], tree["count"]), ("Deep", 13))
        layers, head = tree["items"]
        self.assertEqual((layers["times"], head["name"]), (3, "head"))
        self.assertEqual([layer["name"] for layer in layers["items"]], ["layers.0", "layers.1", "layers.2"])

    def test_layers_with_something_between_them_are_folded(self):
        class Between(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.ModuleList([Layer(4, False) for _ in range(4)])

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x).sin()
                return x.cos()

        folded, cos = self.content(Between(), (torch.randn(2, 4),))["tree"]["items"]
        self.assertEqual(
            {name: value for name, value in folded.items() if name != "items"},
            {"times": 4, "kind": "Layer", "first": "layers.0", "last": "layers.3", "count": 5},
        )
        self.assertEqual((len(folded["items"]), folded["items"][-1][0], cos[0]), (8, "Sin", "Cos"))
        self.assertEqual(cos[2], "float32[2, 4]")

    def test_what_was_done(self):
        def model(x, mask):
            mask.logical_not_()
            return x.exp().neg().neg().t() @ x[:, 0]

        with self.assertLogs("experimental_experiment", "WARNING"):
            content = self.content(model, (torch.randn(3, 4), torch.ones(2, dtype=torch.bool)))
        self.assertIn("the model writes mask", content["warnings"][0])
        self.assertGreater(content["optimizer"]["before"], content["optimizer"]["after"])
        self.assertIn(["NegNeg", 1], content["optimizer"]["rules"])
        ((row, count, because),) = content["rows"]
        self.assertEqual((row, count), ("MatMul.of_a_vector", 1))
        self.assertGreater(len(because), 0)

    def test_warnings_are_shown_without_any_logging(self):
        logger = logging.getLogger("experimental_experiment")
        shown = io.StringIO()
        with (
            unittest.mock.patch.object(logging, "lastResort", logging.StreamHandler(shown)),
            unittest.mock.patch.object(logger, "handlers", []),
            unittest.mock.patch.object(logger, "propagate", False),
        ):
            to_onnx(Counter(), (torch.rand(2, 3),))
        self.assertIn("the model writes count", shown.getvalue())

    def test_wrong_model_has_its_report_before_the_error(self):
        path = os.path.join(self.folder, "report.md")
        wrong = {"investigate_test::unknown": lambda op, x: op.Mul(x, 2.1)}
        with self.assertRaises(VerificationError):
            to_onnx(Deep(), (torch.randn(2, 4),), translations=wrong, report=path, verify=True)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("the first wrong result:\n%unknown = investigate_test.unknown.default", text)
        self.assertRegex(
            text, r"\| unknown +\| investigate_test.unknown.default +\| float32\[2, 4\] .* error"
        )
        self.assertIn("\n## Operators\n", text)

    def test_runtime_that_refuses(self):
        foreign = {aten.sin.default: lambda op, self: op.emit("Sine", (self,), domain="nobody")}
        content = self.content(torch.sin, (torch.ones(3),), translations=foreign, optimize=False)
        self.assertEqual(content["discrepancies"]["verdict"], "not compared")
        self.assertIn("nobody", content["discrepancies"]["told"])

    def test_no_text_ends_the_script(self):
        def model(x):
            return {"</script>": x + 1}

        self.assertEqual(self.content(model, (torch.ones(2),))["outputs"], [["__script_", "float32[2]"]])

    def test_wrong_arguments(self):
        x = torch.ones(2)
        with self.assertRaisesRegex(
            ValueError, r"report is a file that ends with .html or .md, not 'report.pdf'"
        ):
            to_onnx(torch.sin, (x,), report="report.pdf")
        with self.assertRaisesRegex(FileNotFoundError, r"the folder of 'nowhere/report.md' does not exist"):
            to_onnx(torch.sin, (x,), report="nowhere/report.md")
        program = torch.export.export(torch.nn.ReLU(), (x,))
        program.example_inputs = None
        with self.assertRaisesRegex(ValueError, "verify and report need the arguments of a call"):
            to_onnx(program, verify=True)


if __name__ == "__main__":
    unittest.main()
