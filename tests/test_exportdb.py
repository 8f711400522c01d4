"""ExportDB: every example of ``torch._export.db`` that torch.export supports exports and agrees, strict or not; one more does."""

import unittest

import torch
from torch._export.db.case import SupportLevel
from torch._export.db.examples import all_examples

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

PROVEN = "dynamic_shape_round"
"""The example whose sizes torch.export cannot prove and this exporter can."""


class TestExportDB(ExporterTestCase):
    def test_supported_examples_are_the_same_as_eager(self):
        for name, case in all_examples().items():
            if case.support_level != SupportLevel.SUPPORTED:
                continue
            for strict in (False, True):
                with self.subTest(name, strict=strict):
                    self.export_and_compare(
                        case.model,
                        case.example_args,
                        case.example_kwargs,
                        others=[] if case.extra_args is None else [case.extra_args],
                        dynamic_shapes=case.dynamic_shapes,
                        export_options=ExportOptions(strict=strict),
                    )

    def test_the_others_are_refused_by_the_capture(self):
        for name, case in all_examples().items():
            if case.support_level == SupportLevel.SUPPORTED or name == PROVEN:
                continue
            with self.subTest(name), self.assertRaises(CaptureError) as caught:
                to_onnx(
                    case.model, case.example_args, case.example_kwargs, dynamic_shapes=case.dynamic_shapes
                )
            self.assertIsInstance(caught.exception.__cause__, Exception)

    def test_sizes_that_torch_cannot_prove(self):
        case = all_examples()[PROVEN]
        others = [(torch.randn(size, 2),) for size in (2, 4, 5, 9)]
        self.export_and_compare(
            case.model, case.example_args, others=others, dynamic_shapes=case.dynamic_shapes
        )


if __name__ == "__main__":
    unittest.main()
