"""Powers of two that are computed from sizes."""

import math
import unittest

import numpy as np
import sympy
import torch
import torch.nn.functional as F

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
from experimental_experiment.torch_interpreter.patches.powers import of_number, shifted

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 129)


class Numbers(torch.nn.Module):
    """Exponents and powers, some of them of what is computed from a size."""

    def forward(self, x):
        n = x.shape[0]
        numbers = (
            math.ceil(math.log2(n)),
            math.floor(math.log2(n)),
            int(math.log2(n)),
            math.ceil(math.log(n, 2)),
            math.floor(math.log(3 * n, 2)),
            math.ceil(math.log2(n) / 2),
            2 ** math.ceil(math.log2(2 * n - 1)),
            1 << (n - 1).bit_length(),
            n.bit_length() + (n * 3).bit_length(),
            2 ** (n - 1).bit_length(),
            int(2 ** np.ceil(np.log2(n))),
            int(np.sqrt(n) * 10),
            int(math.pow(2, math.ceil(math.log2(n)))),
        )
        return [torch.full((), number) for number in numbers]


class Padded(torch.nn.Module):
    """A sequence that is padded to a power of two, as scans do it, unless it has that length."""

    def forward(self, x):
        length = x.shape[1]
        power = 2 ** math.ceil(math.log2(length))
        x = F.pad(x, (0, 0, 0, power - length))
        return x.reshape(x.shape[0], power, 3).flip(1).cumsum(1)[:, -length:]


class Convolved(torch.nn.Module):
    """A long convolution by Fourier transforms of the next power of two."""

    def forward(self, x, kernel):
        length = x.shape[-1]
        points = 2 ** math.ceil(math.log2(2 * length))
        product = torch.fft.rfft(x, n=points) * torch.fft.rfft(kernel, n=points)
        return torch.fft.irfft(product, n=points)[..., :length] + x


class TestPowers(ExporterTestCase):
    def test_the_numbers(self):
        others = [(torch.zeros(size),) for size in SIZES]
        with self.assertNoLogs("experimental_experiment", "WARNING"):
            self.export_and_compare(Numbers(), (torch.zeros(13),), others=others, dynamic_shapes=({0: "n"},))

    def test_padded(self):
        others = [(torch.randn(batch, size, 3),) for batch, size in ((1, 1), (3, 8), (2, 9), (1, 33))]
        self.export_and_compare(
            Padded(), (torch.randn(2, 13, 3),), others=others, dynamic_shapes=({0: "batch", 1: "time"},)
        )

    def test_convolved(self):
        def signals(batch, size):
            return torch.randn(batch, 2, size), torch.randn(2, size)

        self.export_and_compare(
            Convolved(),
            signals(2, 13),
            others=[signals(1, 16), signals(3, 17), signals(1, 2)],
            dynamic_shapes=({0: "batch", 2: "time"}, {1: "time"}),
        )

    def test_a_loop_over_exponents_is_told(self):
        def doubled(x):
            for _ in range(int(math.log2(x.shape[0]))):
                x = x * 2
            return x

        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            self.export_and_compare(doubled, (torch.randn(13),), dynamic_shapes=({0: "n"},))
        self.assertIn("for _ in range(int(math.log2(x.shape[0]))):", "".join(logs.output))

    def test_refused_without_it(self):
        options = ExportOptions(patches=False)
        with self.assertRaises(CaptureError):
            to_onnx(
                Padded(),
                (torch.randn(2, 13, 3),),
                dynamic_shapes=({1: "time"},),
                export_options=options,
            )

    def test_numbers_of_python(self):
        for size in SIZES:
            self.assertEqual(math.ceil(math.log2(size)), of_number(size))
            self.assertEqual(of_number(size), torch.ops.experimental_experiment.ceil_log2.default(size))

    def test_shifts(self):
        n, base = sympy.Symbol("n", integer=True, nonnegative=True), sympy.Integer(3)
        self.assertEqual(3 * 2**n, shifted(sympy.Function, base, n))
        with self.assertRaisesRegex(ValueError, "negative shift count"):
            shifted(sympy.Function, base, sympy.Integer(-1))

    def test_undone(self):
        before = math.log2, math.log, torch.SymFloat.__ceil__, torch.SymInt.bit_length
        with bypass_export_some_errors(patch_torch=True):
            self.assertIsNot(before[0], math.log2)
        self.assertEqual(before, (math.log2, math.log, torch.SymFloat.__ceil__, torch.SymInt.bit_length))
        self.assertFalse(hasattr(torch.SymInt, "log2"))


if __name__ == "__main__":
    unittest.main()
