"""Results that are given by ``out=``, also to tensors of another shape, which torch resizes; tensors that are attributes, written."""

import logging
import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import ExportError, to_onnx

X, Y = torch.randn(3, 4), torch.randn(3, 4)


def joined(x, y):
    """Written and shown after it was resized."""
    z = torch.empty(0)
    torch.cat([x, y], out=z)
    z[0] = 5
    flat = z.view(-1)
    flat.mul_(2)
    return z, flat, z.t()


def again(x, y):
    """More axes, then fewer."""
    z = torch.empty(0)
    first = torch.add(x, y, out=z) * 2
    torch.mul(x[0], y[0], out=z)
    return first, z


def without_an_axis(x, y):
    z = torch.empty(0)
    torch.dot(x[0], y[0], out=z)
    return z


def two_results(x, y):
    values, order = torch.empty(0), torch.empty(0, dtype=torch.int64)
    torch.sort(x + y, 1, out=(values, order))
    return values, order


def mantissas(x, y):
    values, exponents = torch.empty(3, 4), torch.empty(3, 4, dtype=torch.int32)
    torch.frexp(x + y, out=(values, exponents))
    return values, exponents


def written_before(x, y):
    z = torch.zeros(4)
    z.add_(1)
    return torch.matmul(x, y.t(), out=z)


def shown_before(x, y):
    z = torch.empty(0)
    w = z.view(0)
    torch.add(x, y, out=z)
    return z, w


def into_a_row(x, y):
    z = torch.zeros(2, 3, 4)
    torch.add(x[0], y[0], out=z[1])
    return z


def into_rows(x, y):
    z = torch.zeros(3, 4)
    torch.add(x[:1], y[:1], out=z[1:])
    return z


class TestGivenResults(ExporterTestCase):
    def setUp(self):
        super().setUp()
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)

    def test_same_as_eager(self):
        for function in (joined, again, without_an_axis, two_results, mantissas, written_before):
            with self.subTest(function.__name__):
                self.assert_same_as_eager(function, X, Y)

    def test_memory_that_is_shown_otherwise_is_refused(self):
        words = r"it resizes \w+, whose memory another tensor shows: make it of the shape of the result"
        for function in (shown_before, into_a_row, into_rows):
            with self.subTest(function.__name__), self.assertRaisesRegex(ExportError, words):
                self.assert_same_as_eager(function, X, Y, dynamic=False)


class Plain(torch.nn.Module):
    """A tensor that is an attribute, and no buffer: torch.export shows what an in-place operator returns in another memory."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.held = torch.arange(4.0)

    def forward(self, x):
        return self.function(self, x)


def added_to(self, x):
    self.held += 1
    self.held[0] = 0
    return x * self.held


def chained(self, x):
    self.held.sub_(1).mul_(3)[1:].fill_(2)
    return x * self.held


def given(self, x):
    torch.add(self.held, 1, out=self.held)
    part = self.held[1:3]
    part.mul_(2)
    part[:1].sub_(5)
    return x + self.held


class Reassigned(torch.nn.Module):
    """A buffer that is given another tensor, and what it was, which is written afterwards."""

    def __init__(self):
        super().__init__()
        self.register_buffer("held", torch.arange(4.0))

    def forward(self, x):
        self.held += x[0]
        before = self.held
        self.held = self.held * 2
        before += 1
        self.held[0] = 7
        return x + self.held, before + self.held


class TestReassignedBuffers(ExporterTestCase):
    def test_what_it_was_is_another_tensor(self):
        x, module = torch.ones(2, 4), Reassigned()
        for mutated_buffers in ("drop", "outputs"):
            model = to_onnx(module, (x,), mutated_buffers=mutated_buffers)
            held = [module.held.clone()] if mutated_buffers == "outputs" else []
            expected = [*Reassigned()(x)]
            results = run(session(model), [x, *held])
            for got, eager in zip(results, expected):
                torch.testing.assert_close(got, eager)


class TestPlainTensors(ExporterTestCase):
    def test_a_view_of_what_is_written(self):
        for function in (added_to, chained, given):
            for mutated_buffers in ("drop", "outputs"):
                with self.subTest(function.__name__, mutated_buffers=mutated_buffers):
                    x, module = torch.ones(2, 4), Plain(function)
                    model = to_onnx(
                        module, (x,), dynamic_shapes=({0: "rows"},), mutated_buffers=mutated_buffers
                    )
                    held = [module.held.clone()] if mutated_buffers == "outputs" else []
                    results = run(session(model), [x, *held])
                    expected = [module(x), module.held]
                    for got, eager in zip(results, expected):
                        torch.testing.assert_close(got, eager)


if __name__ == "__main__":
    unittest.main()
