"""Python loops over a tensor whose length is a product of dynamic sizes."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, ExportOptions, to_onnx

DIM = torch.export.Dim


def looped(x):
    """Every row beside what the rows before it add up to; the last axis of the rows, the elements, a write into one of them."""
    y, total, rows = x.clone().flatten(0, 1), x[0, 0] * 0, []
    for row in y:
        total = total + row
        rows.append(torch.cat([row, total]))
    y.unbind(0)[1].zero_()
    return torch.stack(rows), x.reshape(-1, 2, 2).unbind(-1)[1], y, sum(list(x[..., 0].reshape(-1)))


class TestElementsAlongProducts(ExporterTestCase):
    def test_rows_of_flattened_axes(self):
        x = torch.arange(24.0).reshape(2, 3, 4)
        for strict in (False, True):
            self.export_and_compare(
                looped,
                (x,),
                others=[(x.reshape(3, 2, 4),)],
                dynamic_shapes=({0: DIM.AUTO, 1: DIM.DYNAMIC},),
                export_options=ExportOptions(strict=strict),
            )

    def test_refused_without_the_patch(self):
        def forward(x):
            return sum(list(x.reshape(-1)))

        options = ExportOptions(patches=False)
        with self.assertRaisesRegex(ExportError, "unbind"):
            to_onnx(forward, (torch.ones(2, 3),), dynamic_shapes=({0: "n", 1: "m"},), export_options=options)


if __name__ == "__main__":
    unittest.main()
