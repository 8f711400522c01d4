"""Calls of modules that raise an exception, which the model catches."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx


class Scaled(torch.nn.Module):
    """A layer that takes lengths."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, lengths):
        return self.linear(x) * lengths[:, None]


class Refuses(torch.nn.Module):
    """A layer whose own layer has worked when it raises."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.strict = Strict()

    def forward(self, x, lengths=None):
        return self.strict(self.linear(x), lengths)


class Strict(torch.nn.Module):
    def forward(self, x, lengths):
        if lengths is not None:
            raise ValueError("no lengths")
        return x.tanh()


class Layers(torch.nn.Module):
    """Layers some of which take lengths, which is found by a trial."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x, lengths):
        for layer in self.layers:
            try:
                x = layer(x, lengths=lengths)
            except (TypeError, ValueError):
                x = layer(x)
        return x


def inputs(batch):
    return torch.randn(batch, 4), torch.rand(batch)


class TestCallsThatRaise(ExporterTestCase):
    def test_a_layer_that_does_not_take_an_argument(self):
        layers = Layers(torch.nn.Linear(4, 4), Scaled(), torch.nn.Sequential(torch.nn.ReLU()))
        with self.assertLogs("experimental_experiment", "INFO") as log:
            self.export_and_compare(
                layers, inputs(3), others=[inputs(1)], dynamic_shapes=({0: "batch"}, {0: "batch"})
            )
        self.assertIn("patch calls_that_raise was used", "\n".join(log.output))

    def test_a_layer_inside_of_the_one_that_is_called(self):
        model = self.export_and_compare(Layers(Refuses(), Scaled(), Refuses()), inputs(3))
        self.assertEqual(3, sum(node.op_type == "Gemm" for node in model.graph.node))

    def test_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "Unexpected key"):
            to_onnx(Layers(Refuses()), inputs(3), export_options=ExportOptions(patches=False))

    def test_an_exception_that_is_not_caught(self):
        with self.assertRaisesRegex(CaptureError, "no lengths"):
            to_onnx(Refuses(), inputs(3))


if __name__ == "__main__":
    unittest.main()
