"""Arithmetic on sizes and on elements of tensors: Python's results, Python's rounding."""

import math
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx

D = torch.export.Dim.DYNAMIC


class OfSizes(torch.nn.Module):
    """Calls a function on the sizes of x."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x.shape[0], x.shape[1]), x + 1


class OfElements(OfSizes):
    """Calls a function on two elements."""

    def forward(self, x):
        a, b = x.tolist()
        return self.function(a, b)


class OfInputs(OfSizes):
    """Calls a function on tensors."""

    def forward(self, x, y):
        return self.function(x, y)


class TestSymbolic(ExporterTestCase):
    SIZES = {
        "sums and products": lambda a, b: (a + b, a - b, b - a, a * b, 3 - a, -a, abs(b - a)),
        "floor division and remainder": lambda a, b: (
            a // 3,
            (a - 9) // 4,
            (a - 9) % 4,
            (3 - a) // b,
            -a % b,
        ),
        "true division is a float": lambda a, b: (a / b, a / 3, 1 / a),
        "rounding": lambda a, b: (
            math.floor(a / b),
            math.ceil(a / b),
            math.trunc(-a / b),
            round(a / 2),
            round(-b / 2),
        ),
        "minimum, maximum, sum, choice": lambda a, b: (
            torch.sym_min(a, b),
            torch.sym_max(a, b),
            torch.sym_max(a, 5),
            torch.sym_min(a * 2, b + 1),
            torch.sym_sum([a, b, 2]),
        ),
        "powers": lambda a, b: (a**2, a**3, a**0, (a / b) ** 2),
        "floats": lambda a, b: (a * 0.5, torch.sym_float(a), a / b - 1, torch.sym_sqrt(a)),
        "chains": lambda a, b: ((a + b) // 2 * 2 + (a % 2), a * b // (a + 1), -(-a // b)),
    }

    ELEMENTS = {
        "sums and products": lambda a, b: (a + b, a - b, a * b, -a, abs(a)),
        "quotients": lambda a, b: (a // b, a % b, a / b),
        "comparisons": lambda a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b),
        "minimum, maximum": lambda a, b: (torch.sym_min(a, b), torch.sym_max(a, b), torch.sym_sum([a, b, 1])),
        "choice": lambda a, b: torch.sym_ite(a < b, a, b + 1),
        "not": lambda a, b: torch.sym_not(a < b),
    }

    def test_sizes(self):
        others = [(torch.ones(2, 9),), (torch.ones(12, 5),), (torch.ones(9, 9),), (torch.ones(30, 4),)]
        for promise, function in self.SIZES.items():
            with self.subTest(promise):
                self.export_and_compare(
                    OfSizes(function), (torch.ones(7, 3),), others=others, dynamic_shapes=({0: D, 1: D},)
                )

    def test_integer_elements(self):
        pairs = [(-7, 3), (7, -3), (-7, -3), (6, 3), (0, 5), (2**40 + 1, 2**20)]
        others = [(torch.tensor(pair),) for pair in pairs]
        for promise, function in self.ELEMENTS.items():
            with self.subTest(promise):
                self.export_and_compare(OfElements(function), (torch.tensor([7, 3]),), others=others)

    def test_float_elements(self):
        # not 1.0 // 0.1, which is 9 in Python: torch.export captures floor(1.0 / 0.1), which is 10
        pairs = [(-7.5, 2.0), (7.5, -2.0), (0.7, 0.1), (6.0, -3.0), (0.0, 5.0)]
        others = [(torch.tensor(pair, dtype=torch.float64),) for pair in pairs]
        for promise, function in self.ELEMENTS.items():
            with self.subTest(promise):
                example = torch.tensor([7.5, 2.0], dtype=torch.float64)
                self.export_and_compare(OfElements(function), (example,), others=others)

    def test_data_dependent_sizes(self):
        def checked(x, y):
            a = x.item()
            torch._check(a >= 0)
            torch._check(a < y.shape[0])
            return y[a]

        def repeated(x, y):
            a = x.item()
            torch._check(a >= 0)
            return y.unsqueeze(0).repeat(a, 1) + a

        def sliced(x, y):
            a = x.item()
            torch._check(a >= 0)
            torch._check(a <= y.shape[0])
            return y[:a] * 2, y[a:]

        def guarded(x, y):
            a = x.item()
            torch._check(a >= 10)
            torch._check(a <= 60)
            return y + 2 if a // 2 >= 5 else y * 5

        cases = {
            "an element": (checked, 32, 59),
            "repetition": (repeated, 32, 3),
            "slices": (sliced, 32, 10),
            "checks decide": (guarded, 32, 11),
            "nonzero": (lambda x, y: (y > x).nonzero(), 1, -1),
            "a mask": (lambda x, y: y[y > x] * 2, 1, -3),
        }
        y = torch.randn(60, generator=torch.Generator().manual_seed(0))
        for promise, (function, first, other) in cases.items():
            with self.subTest(promise):
                self.export_and_compare(
                    OfInputs(function), (torch.tensor(first), y), others=[(torch.tensor(other), y)]
                )

    def test_numbers_are_outputs(self):
        def listed(x, y):
            return [*y.tolist(), x.item(), x.item() + 1, x.item() > 2]

        self.export_and_compare(
            OfInputs(listed),
            (torch.tensor(1), torch.tensor([2, 3])),
            others=[(torch.tensor(5), torch.tensor([-1, 0]))],
        )

    def test_rounding_to_digits_is_refused(self):
        module = OfSizes(lambda a, b: round(a / b, 1))
        with self.assertRaisesRegex(ExportError, "digits"):
            to_onnx(module, (torch.ones(7, 3),), dynamic_shapes=({0: D, 1: D},))


if __name__ == "__main__":
    unittest.main()
