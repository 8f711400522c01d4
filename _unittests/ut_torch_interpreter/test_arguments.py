"""Arguments of `to_onnx` that make no sense are refused in one sentence, before anything is captured or written."""

import io
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportOptions, to_onnx

X = torch.ones(2, 3)


class TestArguments(ExporterTestCase):
    def test_kinds(self):
        cases = {
            "filename is the path of a file, not b'a.onnx'": {"filename": b"a.onnx"},
            "filename is the path of a file, not 3": {"filename": 3},
            "filename is the path of a file, not <_io.BytesIO": {"filename": io.BytesIO()},
            "report is the path of a file, not 3": {"report": 3},
            "verify is True or False, not 'foo'": {"verify": "foo"},
            "progress is a function of a stage and its number of steps, not 3": {"progress": 3},
            "inline is None, True or False, not 'no'": {"inline": "no"},
            "export_options is an ExportOptions, not the class: write ExportOptions()": {
                "export_options": ExportOptions
            },
        }
        for message, options in cases.items():
            with self.subTest(message), self.assertRaises(TypeError) as caught:
                to_onnx(torch.nn.ReLU(), (X,), **options)
            self.assertIn(message, str(caught.exception))

    def test_options(self):
        cases = {
            "strict is True or False, not 'a'": {"strict": "a"},
            "prefer_deferred_runtime_asserts_over_guards is True or False, not 1": {
                "prefer_deferred_runtime_asserts_over_guards": 1
            },
            "backed_size_oblivious is None, True or False, not 'a'": {"backed_size_oblivious": "a"},
            "preserve_module_call_signature is a tuple of names, not 'inner'": {
                "preserve_module_call_signature": "inner"
            },
            "decomposition_table holds 'aten.gelu', which is no overload, as torch.ops.aten.gelu.default is": {
                "decomposition_table": {"aten.gelu": torch.sin}
            },
            "the decomposition of aten.gelu.default is not a function but int": {
                "decomposition_table": {torch.ops.aten.gelu.default: 3}
            },
        }
        for message, options in cases.items():
            with self.subTest(message), self.assertRaises(TypeError) as caught:
                ExportOptions(**options)
            self.assertEqual(message, str(caught.exception))
        with self.assertRaisesRegex(TypeError, r"aten\.gelu'\)>, which is no overload"):
            ExportOptions(decomposition_table={torch.ops.aten.gelu: torch.sin})  # torch leaves it unread

    def test_versions_of_other_domains(self):
        cases = {
            "target_opset names version 99 of com.microsoft, which there is not": {"com.microsoft": 99},
            "target_opset names version 0 of my.domain, which there is not": {"my.domain": 0},
            "target_opset names the domain 'foo', of which the model has no operator": {"": 20, "foo": 1},
        }
        for message, target in cases.items():
            for optimize in (True, False):
                with self.subTest(message), self.assertRaises(ValueError) as caught:
                    to_onnx(torch.nn.ReLU(), (X,), target_opset=target, optimize=optimize)
                self.assertEqual(message, str(caught.exception))
        to_onnx(torch.nn.ReLU(), (X,), target_opset={"ai.onnx": 20, "ai.onnx.ml": 3, "com.microsoft": 1})


if __name__ == "__main__":
    unittest.main()
