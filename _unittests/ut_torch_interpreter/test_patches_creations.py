"""Functions that create tensors for Python's numbers only are called with sizes; tensors of sizes."""

import itertools
import unittest

import torch
import torch.onnx.operators

from experimental_experiment.comparison import session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportError, ExportOptions, to_onnx

X = torch.randn(4, 6)
SIZES = ((1, 1), (2, 1), (1, 2), (5, 9), (7, 3), (3, 40))
"""Smaller and larger ones, and those that are special."""


class Function(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def logarithmic(x):
    rows, columns = x.shape
    doubles = torch.logspace(2, -1, columns, base=2.0, dtype=torch.float64)
    return torch.logspace(0, 1, rows), torch.logspace(-1.5, 1, steps=columns, base=3), doubles


def windows(x):
    n, options = x.shape[1], {"dtype": torch.float64}
    return (
        torch.hann_window(n),
        torch.hann_window(n, periodic=False),
        torch.hamming_window(n, True),
        torch.hamming_window(n, False, 0.6, beta=0.3, **options),
        torch.blackman_window(n, dtype=torch.float32),
        torch.blackman_window(n, False, **options),
        torch.bartlett_window(n, **options),
        torch.bartlett_window(n, False),
        torch.hann_window(n + 1, dtype=torch.float16, device="cpu", requires_grad=False),
    )


def kaiser(x):
    n = x.shape[1]
    doubles = torch.kaiser_window(n, periodic=False, dtype=torch.float64)
    return (
        torch.kaiser_window(n),
        doubles,
        torch.kaiser_window(n, True, 5.0),
        torch.kaiser_window(n, False, beta=1.5),
    )


def triangles(x):
    rows, columns = x.shape
    shapes = (rows, columns), (columns, rows), (rows, rows), (3, columns)
    found = [
        indices(*shape, offset)
        for indices in (torch.tril_indices, torch.triu_indices)
        for shape, offset in itertools.product(shapes, (-2, 0, 1))
    ]
    square = torch.tril_indices(rows, rows, dtype=torch.int32)
    return *found, square, x @ x.t() + (x @ x.t())[square[0], square[1]].sum()


def pairs(x):
    first = x[:, 0]
    return (
        torch.combinations(first),
        torch.combinations(first, with_replacement=True),
        torch.combinations(first, 1),
        torch.combinations(first, 3),
        torch.combinations(x[0, 0] * torch.arange(3), r=3, with_replacement=True),
        torch.combinations(torch.arange(x.shape[0])),
    )


def powers(x):
    numbers = x[:, 0]
    whole = torch.arange(x.shape[0], dtype=torch.int32)
    return (
        torch.vander(numbers),
        torch.vander(numbers, x.shape[1] // 4 + 1, increasing=True),
        torch.vander(whole, x.shape[0] // 3, True),
        torch.vander(numbers, 3),
    )


class TestNoGenerators(ExporterTestCase):
    CASES = {
        "RandomNormalLike": lambda x: torch.randn(x.shape, generator=None),
        "RandomUniformLike": lambda x: torch.rand(*x.shape, generator=None, dtype=torch.float32),
        "Cast": lambda x: torch.randint(0, 5, x.shape, generator=None),
        "TopK": lambda x: torch.randperm(x.shape[0], generator=None)[:, None] + x[:, :1].long(),
    }
    ROWS = ({0: "rows"},)

    def test_any_size(self):
        """The numbers are random: of the sizes that are asked for, and not twice the same."""
        for operator, function in self.CASES.items():
            for strict in (False, True):
                with self.subTest(operator, strict=strict):
                    model = to_onnx(
                        Function(function),
                        (X,),
                        dynamic_shapes=self.ROWS,
                        export_options=ExportOptions(strict=strict),
                    )
                    self.assertIn(operator, [node.op_type for node in model.graph.node])
                    runner, (name,) = session(model), [value.name for value in model.graph.input]
                    once, again = (runner.run(None, {name: torch.zeros(37, 6).numpy()})[0] for _ in range(2))
                    self.assertEqual(function(torch.zeros(37, 6)).shape, once.shape)
                    self.assertFalse((once == again).all())

    def test_refused_without_the_patch(self):
        options = ExportOptions(patches=False)
        for operator, function in self.CASES.items():
            with (
                self.subTest(operator),
                self.assertRaisesRegex(CaptureError, "concrete integers|specialized"),
            ):
                to_onnx(Function(function), (X,), dynamic_shapes=self.ROWS, export_options=options)


class TestCreationsOfSizes(ExporterTestCase):
    CASES = {
        "powers between two": logarithmic,
        "windows": windows,
        "windows of Bessel": kaiser,
        "triangles": triangles,
        "pairs": pairs,
        "powers": powers,
    }
    SHAPES = ({0: "rows", 1: "width"},)

    def test_any_size(self):
        for promise, function in self.CASES.items():
            sizes = [size for size in SIZES if size[0] > 2] if function is pairs else SIZES
            with self.subTest(promise), self.assertNoLogs("experimental_experiment", "WARNING"):
                self.export_and_compare(
                    Function(function),
                    (X,),
                    others=[(torch.randn(*size),) for size in sizes],
                    dynamic_shapes=self.SHAPES,
                )

    def test_nothing(self):
        """Sizes of 0, which are computed from others."""

        def function(x):
            n = x.shape[1] - 3
            return (
                torch.hann_window(n),
                torch.blackman_window(n, False),
                torch.logspace(0, 1, n),
                torch.tril_indices(n, n + 1),
                torch.triu_indices(n + 1, n),
                torch.combinations(x[0, 3:]),
                torch.vander(x[0], n),
            )

        self.export_and_compare(
            Function(function),
            (X,),
            others=[(torch.randn(1, width),) for width in (3, 4, 5, 8)],
            dynamic_shapes=self.SHAPES,
        )

    def test_static_sizes(self):
        """What no size is asked of stays as it is; combinations are refused for any number of elements without the patch."""

        def function(x):
            pairs = torch.combinations(x[0]), torch.combinations(x[0], 3, True), torch.combinations(x[:, 0])
            return torch.hann_window(5), torch.tril_indices(3, 4), torch.vander(x[0]), *pairs

        self.export_and_compare(Function(function), (X,), others=[(torch.randn(4, 6),)])

    def test_the_number_of_pairs_is_known(self):
        """``n * (n - 1) / 2``, of which a matrix can be made."""

        def function(x):
            n = x.shape[0]
            found = torch.tril_indices(n, n, -1)
            return (
                torch.combinations(x[:, 0]).reshape(n * (n - 1) // 2, 2)
                + found.t()
                + torch.zeros(n * (n - 1) // 2, 1)
            )

        others = [(torch.randn(rows, 6),) for rows in (2, 3, 9)]
        self.export_and_compare(Function(function), (X,), others=others, dynamic_shapes=({0: "rows"},))

    def test_refused_without_the_patch(self):
        for promise, function in self.CASES.items():
            message = "specialized|PendingUnbacked|combinations of 2 among a symbolic number"
            with self.subTest(promise), self.assertRaisesRegex((CaptureError, ExportError), message):
                options = ExportOptions(patches=False)
                to_onnx(Function(function), (X,), dynamic_shapes=self.SHAPES, export_options=options)


def sizes(x):
    return (
        torch._shape_as_tensor(x),
        torch.onnx.operators.shape_as_tensor(x.sum()),
        torch.onnx.operators.shape_as_tensor(x[:, None])[1:] * 2,
    )


def best(x):
    """As many as there are, and no more than 5."""
    k = torch._shape_as_tensor(x)[1].clamp(max=5)
    values, indices = torch.topk(x, k, dim=1)
    return values.sum(1), indices


def positions(x):
    return torch._dim_arange(x, 1) * x, torch._dim_arange(x, -2)


class TestShapesAsTensors(ExporterTestCase):
    """``torch.onnx.operators.shape_as_tensor``, which models written for tracing call."""

    CASES = {"sizes": sizes, "a number of the best": best, "positions": positions}

    def test_any_size(self):
        for promise, function in self.CASES.items():
            with self.subTest(promise), self.assertNoLogs("experimental_experiment", "WARNING"):
                others = [(torch.randn(*size),) for size in SIZES]
                shapes = ({0: "rows", 1: "width"},)
                self.export_and_compare(Function(function), (X,), others=others, dynamic_shapes=shapes)

    def test_static_sizes(self):
        for promise, function in self.CASES.items():
            with self.subTest(promise):
                self.export_and_compare(Function(function), (X,), others=[(torch.randn(4, 6),)])

    def test_refused_without_the_patch(self):
        for promise, function in self.CASES.items():
            with self.subTest(promise), self.assertRaisesRegex(CaptureError, "not allocated|specialized"):
                options = ExportOptions(patches=False)
                to_onnx(
                    Function(function),
                    (X,),
                    dynamic_shapes=({0: "rows", 1: "width"},),
                    export_options=options,
                )


if __name__ == "__main__":
    unittest.main()
