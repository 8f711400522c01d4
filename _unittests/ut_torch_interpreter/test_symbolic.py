"""Symbolic sizes: arithmetic on sizes, dynamic integers and elements, as Python computes."""

import math
import unittest

import torch
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx


class Function(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


class Numbers(torch.nn.Module):
    """A tensor, and numbers computed from the number of its rows."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, x):
        return x + 1, self.number(x.shape[0])


X = torch.randn(7, 3)
OTHERS = [(torch.randn(rows, 3),) for rows in (2, 5, 16)]


class TestSizes(ExporterTestCase):
    """Numbers computed from ``n = x.shape[0]``."""

    CASES = {
        "the size": lambda n: n,
        "a sum": lambda n: n + 3 - 2 * n,
        "a difference below zero": lambda n: n - 100,
        "// rounds towards minus infinity": lambda n: (n - 10) // 4,
        "// by a negative number": lambda n: n // -4,
        "% has the sign of the divisor": lambda n: (n - 10) % 4,
        "% of a negative divisor": lambda n: n % -4,
        "a quotient is a float": lambda n: n / 4,
        "a power": lambda n: n**2,
        "a negative": lambda n: -n,
        "min and max": lambda n: (torch.sym_min(n, 5), torch.sym_max(n, 5)),
        "an absolute value": lambda n: abs(n - 10),
        "ceil, floor and trunc": lambda n: (math.ceil(n / 4), math.floor(n / 4), math.trunc((n - 10) / 4)),
        "int of a float": lambda n: torch.sym_int((n - 10) / 4),
        "a float": lambda n: torch.sym_float(n) * 0.5,
        "a square root": lambda n: torch.sym_sqrt(n) if hasattr(torch, "sym_sqrt") else torch._sym_sqrt(n),
        "a comparison": lambda n: (n > 5, n <= 5, n == 7, n != 7),
        "a sum of many": lambda n: torch.sym_sum([n, n, 1]),
        "a choice": lambda n: torch.sym_ite(n > 5, n, 2 * n) if hasattr(torch, "sym_ite") else n,
        "a negation": lambda n: torch.sym_not(n > 5),
        "round": lambda n: round(n / 2),
    }

    def test_numbers(self):
        for promise, number in self.CASES.items():
            with self.subTest(promise):
                self.export_and_compare(
                    Numbers(number),
                    (X,),
                    dynamic_shapes=({0: Dim("rows", min=2, max=1000)},),
                    others=OTHERS,
                )

    def test_numbers_in_tensors(self):
        def function(x):
            n = x.shape[0]
            return (
                x * n,
                x / n + n // 2,
                torch.full((n, 2), n),
                torch.arange(n),
                x[: n // 2],
                x[n // 2 :].sum() * (n % 3),
                x.reshape(n * 3),
                x.expand(2, n, 3),
            )

        self.export_and_compare(Function(function), (X,), dynamic_shapes=({0: "rows"},), others=OTHERS)

    def test_dynamic_numbers(self):
        def function(x, n):
            return x * n, n * 2, n // 2 - n % 5, torch.ones(n), x + n / 3

        self.export_and_compare(
            Function(function),
            (X, 4),
            dynamic_shapes=({0: "rows"}, Dim.DYNAMIC),
            others=[(torch.randn(2, 3), 9)],
        )

    def test_a_number_read_from_a_tensor(self):
        def function(x, count):
            n = count.item()
            torch._check(n >= 0)
            torch._check(n <= x.shape[0])
            return x[:n], n + 1, torch.zeros(n)

        self.export_and_compare(
            Function(function),
            (X, torch.tensor(4)),
            dynamic_shapes=({0: "rows"}, None),
            others=[(torch.randn(9, 3), torch.tensor(8))],
        )

    def test_a_float_and_a_bool_read_from_a_tensor(self):
        def function(x, factor):
            return x * factor.item(), factor.item()

        self.export_and_compare(Function(function), (X, torch.tensor(2.5)))

    def test_the_same_size_is_written_once(self):
        def function(x):
            return x.reshape(x.shape[0], 3, 1), torch.zeros(x.shape[0]), x.sum(0) * x.shape[0]

        model = to_onnx(Function(function), (X,), dynamic_shapes=({0: "rows"},))
        self.assertLessEqual(sum(node.op_type == "Shape" for node in model.graph.node), 1)

    def test_static_sizes_are_constants(self):
        model = to_onnx(Function(lambda x: x.reshape(x.shape[0] * x.shape[1])), (X,))
        self.assertEqual(["Reshape"], [node.op_type for node in model.graph.node])


class TestNames(ExporterTestCase):
    """No name of torch's symbols reaches the interface."""

    def names(self, model):
        infos = [*model.graph.input, *model.graph.output]
        return [d.dim_param for info in infos for d in info.type.tensor_type.shape.dim if d.dim_param]

    def test_expressions(self):
        def function(x, y):
            return torch.cat([x, y]), x.repeat(2, 1), x[1:], x[::2], torch.nonzero(x), x.reshape(-1)

        model = to_onnx(
            Function(function),
            (X, torch.randn(4, 3)),
            dynamic_shapes=({0: "a"}, {0: "b"}),
        )
        names = self.names(model)
        for name in names:
            self.assertNotRegex(name, r"\b[suz]u?f?\d+\b")
        self.assertEqual(["a", "b", "a + b", "2*a", "a - 1"], names[:5])
        self.assertEqual("3*a", names[-1])

    def test_a_name_that_is_taken(self):
        """An unnamed dimension never gets the name of another."""
        model = to_onnx(
            Function(lambda x, y: (x + 1, y + 1)),
            (X, torch.randn(4, 3)),
            dynamic_shapes=({0: "y_dim_0"}, {0: Dim.DYNAMIC}),
        )
        first, second, *_ = self.names(model)
        self.assertEqual("y_dim_0", first)
        self.assertNotEqual(first, second)

    def test_the_same_name_for_two_sizes(self):
        """A name used for two dimensions says that they are equal: torch checks it."""
        self.export_and_compare(
            Function(lambda x, y: x + y),
            (X, torch.randn(7, 3)),
            dynamic_shapes=({0: "rows"}, {0: "rows"}),
            others=[(torch.randn(4, 3), torch.randn(4, 3))],
        )

    def test_one_name_for_sizes_that_differ(self):
        def function(x, y):
            return x.sum() + y.sum()

        args = (X, torch.randn(4, 3))
        with self.assertRaisesRegex(ValueError, "names 'n' two sizes, 7 and 4"):
            to_onnx(Function(function), args, dynamic_shapes=({0: "n"}, {0: "n"}))
        program = torch.export.export(
            Function(function), args, dynamic_shapes=({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
        )
        with self.assertRaisesRegex(ValueError, "names 'n' two sizes, 7 and 4"):
            to_onnx(program, dynamic_shapes=({0: "n"}, {0: "n"}))


if __name__ == "__main__":
    unittest.main()
