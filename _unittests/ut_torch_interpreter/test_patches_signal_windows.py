"""Windows of ``torch.signal`` of any length."""

import unittest

import torch
from torch.signal import windows
from torch.signal.windows import gaussian, hann

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

OPTIONS = {
    "bartlett": {},
    "blackman": {},
    "cosine": {},
    "exponential": {"tau": 2.0},
    "gaussian": {"std": 1.5},
    "general_cosine": {"a": [0.4, 0.3, 0.2]},
    "general_hamming": {"alpha": 0.6},
    "hamming": {},
    "hann": {},
    "kaiser": {"beta": 9.0},
    "nuttall": {},
}


class Function(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def all_of(name):
    options = OPTIONS[name]

    def function(x):
        create, n = getattr(windows, name), x.shape[1]
        return (
            create(n, **options) * x,
            create(n, sym=False, **options),
            create(n - 1, dtype=torch.float64, **options),
            create(7, **options),
        )

    return function


class TestWindowsOfSignals(ExporterTestCase):
    X = torch.randn(2, 6)
    SHAPES = ({1: "width"},)

    def test_any_length(self):
        others = [(torch.randn(2, width),) for width in (1, 2, 3, 40)]
        cases = {name: all_of(name) for name in OPTIONS}
        cases["imported by its name"] = lambda x: (gaussian(x.shape[1], sym=False), hann(x.shape[1]))
        cases["off the center"] = lambda x: windows.exponential(x.shape[1], center=2.0, sym=False)
        for promise, function in cases.items():
            with self.subTest(promise), self.assertNoLogs("experimental_experiment", "WARNING"):
                model = Function(function)
                self.export_and_compare(model, (self.X,), others=others, dynamic_shapes=self.SHAPES)

    def test_static_length(self):
        for name in ("hann", "kaiser"):
            with self.subTest(name):
                self.export_and_compare(Function(all_of(name)), (self.X,))

    def test_an_argument_that_is_none(self):
        with self.assertRaisesRegex(CaptureError, "Standard deviation must be positive"):
            to_onnx(
                Function(lambda x: windows.gaussian(x.shape[1], std=-1)),
                (self.X,),
                dynamic_shapes=self.SHAPES,
            )

    def test_a_window_that_the_model_keeps(self):
        """The function itself is none that a patch replaces: the branch of the example is told."""
        keep = windows.gaussian
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            function = Function(lambda x: keep(x.shape[1], sym=False) * x)
            to_onnx(function, (self.X,), dynamic_shapes=self.SHAPES)
        self.assertIn("those of sizes where\n  width > 1\n", logs.output[0])
        self.assertIn("keep(x.shape[1], sym=False)", logs.output[0])

    def test_refused_without_the_patch(self):
        options = ExportOptions(patches=False)
        with self.assertRaisesRegex(CaptureError, "specialized"):
            to_onnx(
                Function(lambda x: windows.kaiser(x.shape[1]) * x),
                (self.X,),
                dynamic_shapes=self.SHAPES,
                export_options=options,
            )


if __name__ == "__main__":
    unittest.main()
