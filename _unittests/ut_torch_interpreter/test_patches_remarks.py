"""What torch.export remarks about tensors decides no size."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors


class Shifted(torch.nn.Module):
    """Every row one place later."""

    def forward(self, x):
        return torch.cat([torch.zeros_like(x[:1]), x[:-1]])


class Starts(torch.nn.Module):
    """The elements of pieces of so many rows each, and where their piece begins."""

    def forward(self, counts):
        starts = torch.nn.functional.pad(counts.cumsum(0)[:-1], (1, 0))
        return torch.repeat_interleave(starts, counts)


class TestSingleElements(ExporterTestCase):
    CASES = {
        "one row of one element": (Shifted(), [torch.randn(rows, 1) for rows in (2, 5, 1)]),
        "one element": (Shifted(), [torch.randn(rows) for rows in (2, 3, 1)]),
        "beginnings": (Starts(), [torch.tensor(counts) for counts in ([2, 3], [1, 4, 2], [5])]),
    }

    def test_any_number_of_rows(self):
        for name, (model, (example, *others)) in self.CASES.items():
            with self.subTest(name):
                shapes = ({0: "rows"},)
                self.export_and_compare(
                    model, (example,), others=[(other,) for other in others], dynamic_shapes=shapes
                )
                with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
                    options = ExportOptions(patches=False)
                    to_onnx(model, (example,), dynamic_shapes=shapes, export_options=options)

    def test_what_has_more_elements_is_remarked(self):
        """A tensor that is none of one element keeps its remark, and the patch is not used."""
        x = torch.randn(3, 2)
        shapes = ({0: torch.export.Dim.DYNAMIC},)
        with bypass_export_some_errors(), self.assertNoLogs("experimental_experiment", "INFO"):
            program = torch.export.export(Shifted(), (x,), dynamic_shapes=shapes)
        formats = [
            node.meta["tensor_meta"].memory_format
            for node in program.graph.nodes
            if node.op == "call_function" and "tensor_meta" in node.meta
        ]
        self.assertEqual(set(formats), {torch.contiguous_format})


if __name__ == "__main__":
    unittest.main()
