"""Modules that forward moves to where they are, or converts."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

WAYS = {
    "to the device": lambda layer, x: layer.to(x.device),
    "to a tensor": lambda layer, x: layer.to(x),
    "to the dtype": lambda layer, x: layer.to(x.dtype),
    "to both": lambda layer, x: layer.to(device=x.device, dtype=x.dtype),
    "by name": lambda layer, x: layer.cpu().float(),
}


class Moved(torch.nn.Module):
    """Layers that are moved before they are called: recurrent ones, with buffers, in a list."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.recurrent = torch.nn.GRU(4, 6, batch_first=True)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6)])

    def forward(self, x):
        self.way(self.recurrent, x)
        y = self.recurrent(x)[0][:, -1]
        for layer in self.layers:
            y = self.way(layer, x)(y)
        return y


class Converted(torch.nn.Module):
    """A layer that becomes one of float64."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.layer.double()(x)


class Zeroed(torch.nn.Module):
    """What is applied to the parameters gives the tensor itself, and writes to it."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.layer._apply(torch.zero_)(x)


class TestMoves(ExporterTestCase):
    X = torch.randn(2, 5, 4)

    def test_modules_that_stay(self):
        shapes, others = {"x": {0: "batch", 1: "length"}}, [(torch.randn(3, 7, 4),)]
        for name, way in WAYS.items():
            with self.subTest(name):
                model = Moved(way).eval()
                self.export_and_compare(model, (self.X,), others=others, dynamic_shapes=shapes)
                self.assertIs(type(model.layers[0].weight), torch.nn.Parameter)

    def test_traced_by_make_fx(self):
        options = ExportOptions(tracing="make_fx")
        self.export_and_compare(Moved(WAYS["to a tensor"]).eval(), (self.X,), export_options=options)

    def test_torch_export_refuses_them(self):
        """The day this fails, the patch may go."""
        model = Moved(WAYS["to the device"]).eval()
        with self.assertRaisesRegex(CaptureError, "Couldn't swap"):
            to_onnx(model, (self.X,), export_options=ExportOptions(patches=False))

    def test_what_changes_is_refused(self):
        for model in (Converted(), Zeroed()):
            with self.subTest(type(model).__name__):
                before = {name: value.clone() for name, value in model.state_dict().items()}
                with self.assertRaisesRegex(
                    CaptureError,
                    "Couldn't swap(?s:.*)hint +forward converts a module, which then stays converted",
                ):
                    to_onnx(model, (self.X.double(),))
                for name, value in model.state_dict().items():
                    self.assertTrue(torch.equal(value, before[name]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
