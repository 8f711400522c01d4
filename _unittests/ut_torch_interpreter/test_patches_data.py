"""``Tensor.data`` in forward."""

import logging
import unittest

import torch

from experimental_experiment.comparison import run, session
from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx

X = torch.randn(2, 3)


class Net(torch.nn.Module):
    """A linear layer, and a function of it and of the input."""

    def __init__(self, function):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.linear.register_buffer("mask", torch.ones(3, 3).tril())
        self.linear.table = torch.ones(2, 3)
        self.function = function

    def forward(self, x):
        return self.function(self.linear, x)


def of_weights(linear, x):
    return torch.nn.functional.linear(x, linear.weight.data * 2, linear.bias.data)


def of_an_input(linear, x):
    return linear(x.data)


def written(linear, x):
    y = linear(x)
    y.data.mul_(3)
    return y


def assigned(linear, x):
    y = linear(x)
    before, row, z = y.data, y[0], x * 3
    y.data = z
    z.mul_(2)
    y += 1
    return y, z, before, row


def assigned_from_an_input(linear, x):
    y = x * 2
    y.data = x
    return y + 1


def another_size(linear, x):
    y = linear(x)
    y.data = y.data[:, :2].double()
    y.data *= 2
    return y, y.t()


def swapped(linear, x):
    y, z = x * 2, x * 3
    y.data, z.data = z.data, y.data
    return y, z


def masked(linear, x):
    linear.weight.data *= linear.mask
    return linear(x)


def normed(linear, x):
    linear.weight.data = torch.renorm(linear.weight.data, 2, 0, 0.1)
    return linear(x)


def written_after(linear, x):
    value = linear.weight.data * linear.mask
    linear.weight.data = value
    value *= 2
    linear.weight.data += 1
    return linear(x) + value.sum()


def buffer_written(linear, x):
    value = linear.mask * 2
    linear.mask.data = value
    value += 1
    linear.mask[0] = 5
    return x @ linear.mask + value.sum()


def every_weight(linear, x):
    for weight in linear.parameters():
        weight.data = weight.data.clamp(-0.1, 0.1)
    return linear(x)


def input_written(linear, x):
    x.data = linear(x).data
    return x + 1


def seen_before(linear, x):
    row = linear.weight[0]
    linear.weight.data = linear.weight.data * 2
    return linear(x) + row


def seen_before_in_the_value(linear, x):
    value = linear.weight.data * 2
    row = value[0]
    linear.weight.data = value
    linear.weight.data += 1
    return linear(x) + row


def weight_of_another(linear, x):
    linear.mask.data = linear.weight.data
    return x @ linear.mask


def another_order(linear, x):
    linear.mask.data = linear.mask.data.t()
    return x @ linear.mask


def another_dtype(linear, x):
    linear.mask.data = linear.mask.data.double()
    return linear.mask + x.sum()


def another_alias(linear, x):
    mask = linear.mask.detach()
    mask.data = mask * 2
    return mask + x.sum()


def constant(linear, x):
    y = x * 2
    y.data = linear.table
    return y


def of_gradients(function):
    """The result of a function and its gradient by the input."""

    def forward(linear, x):
        x = x.clone().requires_grad_()
        y = function(linear, x)
        return y, torch.autograd.grad(y.sum(), x)[0]

    return forward


def clamped(linear, x):
    y = linear(x).exp()
    z = y * y
    y.data = y.data.clamp(0, 1)
    return y * 2 + z


class TestData(ExporterTestCase):
    def setUp(self):
        super().setUp()
        logging.disable(logging.WARNING)  # that a model writes its weights
        self.addCleanup(logging.disable, logging.NOTSET)

    def test_same_as_eager(self):
        functions = (
            *(of_weights, of_an_input, written, assigned, assigned_from_an_input, another_size, swapped),
            *(masked, normed, written_after, buffer_written, every_weight, input_written),
        )
        for function in functions:
            with self.subTest(function.__name__):
                self.export_and_compare(
                    Net(function), (X,), others=[(torch.randn(5, 3),)], dynamic_shapes=({0: "rows"},)
                )

    def test_gradients(self):
        options = ExportOptions(tracing="make_fx")
        for function in (masked, normed, written_after, clamped):
            with self.subTest(function.__name__):
                self.export_and_compare(Net(of_gradients(function)), (X,), export_options=options)

    def test_what_a_buffer_becomes(self):
        net = Net(buffer_written)
        model = to_onnx(net, (X,), mutated_buffers="outputs")
        got = run(session(model), [X, net.linear.mask.clone()])
        expected = net(X.clone()), net.linear.mask
        torch.testing.assert_close(tuple(got), expected)

    def test_without_the_patch(self):
        with self.assertRaises(CaptureError):
            to_onnx(Net(of_weights), (X,), export_options=ExportOptions(patches=False))

    def test_assignments_that_are_no_writes_are_refused(self):
        message = (
            r"forward writes x\.data = y, which no program can hold: write x\.copy_\(y\)\n.*line \d+, in "
        )
        functions = (
            *(seen_before, seen_before_in_the_value, weight_of_another, another_order, another_dtype),
            *(another_alias, constant),
        )
        for function in functions:
            with self.subTest(function.__name__):
                with self.assertRaisesRegex(CaptureError, message + function.__name__):
                    to_onnx(Net(function), (X,))

    def test_it_is_torchs_again(self):
        before = torch.Tensor.data
        to_onnx(Net(of_weights), (X,))
        self.assertIs(torch.Tensor.data, before)


if __name__ == "__main__":
    unittest.main()
