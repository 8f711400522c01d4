"""Functions that remember their results, called in forward."""

import functools
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx


@functools.lru_cache
def places(length, step=1):
    """The places of a row, one number for each."""
    return torch.arange(0, length * step, step, dtype=torch.float32)


@functools.cache
def areas(shape, *, scale):
    """The numbers of a shape in a row; a helper that remembers too."""
    return (places(shape[0])[:, None] + places(shape[1])) * scale


@functools.cache
def fibonacci(n):
    """Would take years without a memory."""
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


class Table(torch.nn.Module):
    """Results of sizes, of numbers, of shapes; functions of the module and of the class."""

    @staticmethod
    @functools.lru_cache(maxsize=2)
    def ramp(length):
        return torch.linspace(0, 1, length)

    @functools.lru_cache  # noqa: B019 (that is what is tested)
    def scaled(self, length):
        return self.ramp(length) * 3

    def forward(self, x):
        rows, columns = x.shape
        y = x + places(columns) + places(rows, step=2)[:, None] + areas(x.shape, scale=0.5)
        self.ramp.cache_clear()
        return y * self.scaled(columns), self.scaled(rows + 1), y.sum() * (fibonacci(80) % 7)


class InABody(torch.nn.Module):
    """The functions are called where TorchDynamo traces, in the branches of a torch.cond."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + places(4), lambda x: x - places(4, step=3), (x,))


class TestRemembered(ExporterTestCase):
    X = torch.randn(3, 4)
    SHAPES = ({0: "rows", 1: "columns"},)

    def setUp(self):
        super().setUp()
        for function in (places, areas, fibonacci, Table.ramp, Table.scaled):
            function.cache_clear()

    def test_same_as_eager(self):
        others = [(torch.randn(5, 4),), (torch.randn(2, 9),)]
        for tracing in ("export", "make_fx"):
            with self.subTest(tracing=tracing):
                options = ExportOptions(tracing=tracing)
                self.export_and_compare(
                    Table(), (self.X,), others=others, dynamic_shapes=self.SHAPES, export_options=options
                )

    def test_what_was_known_before_is_taken(self):
        """A table of a file, which cannot be read while a model is captured."""

        @functools.lru_cache
        def read(length):
            if torch._C._len_torch_dispatch_stack():
                raise OSError("the file is read")
            return torch.arange(length) * 2.5

        class Reads(torch.nn.Module):
            table = staticmethod(read)

            def forward(self, x):
                return x * self.table(x.shape[1])

        known = read(4)
        self.export_and_compare(
            Reads(), (self.X,), others=[(torch.randn(5, 4),)], dynamic_shapes=({0: "rows"},)
        )
        self.assertIs(read(4), known)

    def test_nothing_of_the_capture_is_remembered(self):
        """Only the memory of a function that computes something is emptied."""
        ramp = vars(Table)["ramp"]
        to_onnx(Table(), (self.X,))
        self.assertIs(vars(Table)["ramp"], ramp)
        self.assertEqual([type(places(3)), type(Table.ramp(4))], [torch.Tensor] * 2)
        self.assert_matches(to_onnx(Table(), (self.X,)), Table(), (self.X,))

    def test_types_and_what_is_forgotten(self):
        """A number and its float may have other results; a memory that forward empties is empty."""
        calls = []

        @functools.lru_cache(typed=True)
        def doubled(number):
            calls.append(number)
            return torch.full((1,), number * 2) * len(calls)

        class Twice(torch.nn.Module):
            known = staticmethod(doubled)

            def forward(self, x):
                calls.clear()
                self.known.cache_clear()
                results = self.known(1), self.known(1.0), self.known(1)
                self.known.cache_clear()
                return *results, self.known(1), x * 2

        self.export_and_compare(Twice(), (self.X,))

    def test_bodies(self):
        for x in (self.X, -self.X):
            places(4)
            self.export_and_compare(InABody(), (x,), others=[(-x,)])

    def test_a_memory_of_one_capture(self):
        """What is known for a size is found for it: one Range for two calls, another one for another size."""

        class Twice(torch.nn.Module):
            def forward(self, x):
                n = x.shape[0]
                return x[:, 0] + places(n) * places(n), places(n + 1)

        program = to_onnx(Twice(), (self.X,), dynamic_shapes=self.SHAPES, optimize=False)
        self.assertEqual(2, [node.op_type for node in program.graph.node].count("Range"))

    def test_refused_without_the_patch(self):
        with self.assertRaisesRegex(CaptureError, "unhashable type: non-nested SymInt"):
            to_onnx(
                Table(),
                (self.X,),
                dynamic_shapes=self.SHAPES,
                export_options=ExportOptions(patches=False),
            )


if __name__ == "__main__":
    unittest.main()
