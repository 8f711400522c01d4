"""Rows of Scan: without them, a session raises."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx

RUN = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print(session.run(None, {"x": numpy.zeros((0, 3), numpy.float32)})[0].shape)
"""

OTHER_ROWS = {"Scan.when_there_are_rows": (lambda x: x.logcumsumexp(0), torch.ones(2, 3))}
"""Rows without which a session raises."""


class TestScans(ExporterTestCase):
    def test_rows(self):
        axes = ({0: torch.export.Dim.AUTO},)
        with tempfile.TemporaryDirectory() as folder:
            for name, (function, x) in OTHER_ROWS.items():
                model, bare = (str(Path(folder) / file) for file in ("model.onnx", "bare.onnx"))
                to_onnx(function, (x,), dynamic_shapes=axes, filename=model)
                with without_row(name):
                    to_onnx(function, (x,), dynamic_shapes=axes, filename=bare)
                with self.subTest(name):
                    ran, ended = (
                        subprocess.run([sys.executable, "-c", RUN, file], capture_output=True, text=True)
                        for file in (model, bare)
                    )
                    self.assertEqual("(0, 3)", ran.stdout.strip())
                    self.assertNotEqual(0, ended.returncode)

    def test_nothing(self):
        for axis in (0, 1):
            self.assert_same_as_eager(
                lambda x, axis=axis: (x.logcumsumexp(axis), x.cummax(axis)),
                torch.randn(2, 3),
                others=[(torch.zeros(0, 3),), (torch.zeros(2, 0),)],
            )

    def test_a_row_and_others(self):
        """There is one whatever the sizes: nothing is chosen."""
        model = self.assert_same_as_eager(
            lambda x, y: torch.cat([x[:1].exp().sum(0, keepdim=True), y]).logcumsumexp(0),
            torch.randn(2, 3),
            torch.randn(4, 3),
            others=[(torch.randn(2, 3), torch.zeros(0, 3)), (torch.randn(1, 5), torch.randn(7, 5))],
        )
        self.assertNotIn("If", [node.op_type for node in model.graph.node])

    def test_a_number_and_one(self):
        """A number among the inputs may be negative, and the sum of it and one 0."""

        class Rows(torch.nn.Module):
            def forward(self, x, n):
                return (torch.ones(n + 1) * x).logcumsumexp(0)

        dynamic = torch.export.Dim.DYNAMIC
        model = self.export_and_compare(
            Rows(),
            (torch.tensor(2.0), 3),
            others=[(torch.tensor(3.0), -1), (torch.tensor(3.0), 6)],
            dynamic_shapes=(None, dynamic),
        )
        self.assertIn("If", [node.op_type for node in model.graph.node])

    def test_static_nothing(self):
        self.assert_same_as_eager(lambda x: (x.cumprod(0), x.cummin(0)), torch.zeros(0, 3), dynamic=False)

    def test_an_int64_product_of_nothing(self):
        self.assert_same_as_eager(
            lambda x: x.prod(0),
            torch.ones(2, 3).long(),
            others=[(torch.ones(0, 4).long(),)],
            special_values=True,
        )

    def test_halves_added_over_no_batch(self):
        self.assert_same_as_eager(
            lambda x, a, b: torch.addbmm(x, a, b, beta=0.5),
            *(torch.randn(size).half() for size in ((3, 3), (2, 3, 3), (2, 3, 3))),
            others=[tuple(torch.randn(size).half() for size in ((3, 3), (0, 3, 3), (0, 3, 3)))],
        )


if __name__ == "__main__":
    unittest.main()
