"""Writes where one element of the memory has several names: views that show it twice, results that alias a list, inputs."""

import logging
import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.errors import ExportError
from experimental_experiment.torch_interpreter.memory import are_disjoint, has_repeats


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


def row_of_a_strided_view(x):
    y = x.clone()
    w = y.as_strided((3, 4), (2, 1))
    w[0] = 7.0
    return y, w


def column_of_windows(x):
    y = x.clone()
    w = y.unfold(1, 3, 1)
    w[:, 1] = 0.0
    w[0, 0] += 1
    return y, w


def one_number_everywhere(x):
    y = x.clone()
    w = y.unfold(1, 3, 1)
    w[:, :2] = 2.0
    w[1].zero_()
    w[2].copy_(torch.tensor(5))
    return y, w


def row_of_an_expanded_row(x):
    y = x.clone()
    w = y[0].expand(3, 4)
    w[1] = x[2]
    return y, w


def row_of_windows_of_a_transposed_slice(x):
    y = x.clone()
    w = y[1:].t().unfold(0, 2, 1)
    w[0, 1].sub_(3)
    w[..., 1][1] = 9.0
    return y, w


def diagonal_of_windows_of_windows(x):
    y = x.clone()
    w = y.unfold(1, 2, 1).unfold(0, 2, 1)
    w[0, 0, 1, 1] = x[0, 0]
    w.diagonal(0, 0, 1)[..., 0, 0] = 8
    return y, w


def steps_of_a_strided_view(x):
    y = x.clone()
    w = y.as_strided((3, 4), (2, 1))
    w[1:, ::2][0].mul_(2)
    w.t()[1].sub_(w[0, 0])
    return y, w


def windows_side_by_side(x):
    y = x.clone()
    w = y.unfold(1, 2, 2)
    w.add_(1)
    return y, w


PROGRAMS = (
    row_of_a_strided_view,
    column_of_windows,
    one_number_everywhere,
    row_of_an_expanded_row,
    row_of_windows_of_a_transposed_slice,
    diagonal_of_windows_of_windows,
    steps_of_a_strided_view,
    windows_side_by_side,
)


def broadcast_to_each_other(x):
    y = x.clone()
    a, b = torch.broadcast_tensors(y[0], y)
    a[0] = 5.0
    b[1] += 1
    return y, a, b


def broadcast_beside_a_constant(x):
    y = x.clone()
    one, b = torch.broadcast_tensors(torch.ones(1), y)
    b[0] = 5.0
    return y, one, b


def broadcast_with_itself(x):
    y = x.clone()
    a, b = torch.broadcast_tensors(y, y)
    a.mul_(2)
    b[0].sub_(1)
    return y, a, b


def grids(x):
    y = x.clone()
    a, b = torch.meshgrid(y[0], y[:, 0], indexing="xy")
    b[1, 1] = 5.0
    y[0, 1] = 9.0
    return y, a, b


def at_least_two_axes(x):
    y = x.clone()
    a, b = torch.atleast_2d(y[0], y)
    a[0, 1:] = 5.0
    b.mul_(2)
    return y, a, b


def at_least_three_axes(x):
    y = x.clone()
    z = y[0, 0]
    a, b = torch.atleast_3d(z, y)
    y.add_(1)
    a.mul_(3)
    return y, a, b


def at_least_one_axis(x):
    y = x.clone()
    a, b = torch.atleast_1d(y[1, 1], x)
    a.mul_(3)
    return y, a, b


def transposed_by_einsum(x):
    y = x.clone()
    w = torch.einsum("ij->ji", y)
    y[0] = 4.0
    return y, w


def log_prob(x):
    """Constants are detached in place, which writes nothing."""
    return torch.distributions.Normal(0.0, 1.0, validate_args=False).log_prob(x)


ALIASES = (
    broadcast_to_each_other,
    broadcast_beside_a_constant,
    broadcast_with_itself,
    grids,
    at_least_two_axes,
    at_least_three_axes,
    at_least_one_axis,
    transposed_by_einsum,
    log_prob,
)


def windows_added(x):
    y = x.clone()
    y.unfold(1, 3, 1).add_(1)
    return y


def windows_copied(x):
    y = x.clone()
    y.unfold(1, 3, 1).copy_(x[:, :3].unsqueeze(1))
    return y


def windows_masked(x):
    y = x.clone()
    w = y.unfold(1, 3, 1)
    w[w > 3] = 0.0
    return y


def einsum_written(x):
    y = x.clone()
    torch.einsum("ij->ji", y)[0] = 4.0
    return y


REFUSED = {
    windows_added: r"aten\.add_\.Tensor.*it writes a view that shows an element of the memory twice: clone it before",
    windows_copied: r"aten\.copy_\.default.*it writes a view that shows an element of the memory twice",
    windows_masked: r"aten\.(index_put_\.default|masked_fill_\.Scalar).*it writes a view that shows an element of the memory twice",
    einsum_written: r"aten\.fill_\.(Tensor|Scalar).*a write through the view aten\.einsum\.default is not handled",
}


class Written(torch.nn.Module):
    """Writes the first of its inputs."""

    def forward(self, x, y):
        x[0] = 5.0
        return x + 1, y * 2


class Buffers(torch.nn.Module):
    """Writes a buffer, another one being a part of it."""

    def __init__(self, start):
        super().__init__()
        self.register_buffer("whole", torch.zeros(6))
        self.register_buffer("part", self.whole[start:])

    def forward(self, x):
        self.whole[:3].add_(x)
        return self.part * 2


class TestWrites(ExporterTestCase):
    def setUp(self):
        super().setUp()
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)

    def test_views_that_show_an_element_twice(self):
        for program in PROGRAMS:
            with self.subTest(program.__name__):
                self.assert_same_as_eager(program, floats(3, 4) - 3)

    def test_results_that_alias_the_tensors_of_a_list(self):
        for program in ALIASES:
            with self.subTest(program.__name__):
                self.assert_same_as_eager(program, floats(3, 4) - 3)

    def test_other_sizes(self):
        others = [(floats(5, 6),), (floats(7, 5),)]
        for program in (column_of_windows, one_number_everywhere, broadcast_to_each_other, grids):
            with self.subTest(program.__name__):
                self.assert_same_as_eager(program, floats(3, 4), others=others)

    def test_refused(self):
        for program, message in REFUSED.items():
            for dynamic in (False, True):
                with (
                    self.subTest(program.__name__, dynamic=dynamic),
                    self.assertRaisesRegex(ExportError, message),
                ):
                    axes = {axis: torch.export.Dim.AUTO for axis in (0, 1)} if dynamic else None
                    self.assert_refused(program, axes)

    def assert_refused(self, program, axes):
        """Export a function of a matrix."""

        class Model(torch.nn.Module):
            def forward(self, x):
                return program(x)

        to_onnx(Model(), (floats(3, 4),), dynamic_shapes=axes and (axes,))

    def test_inputs_that_share_their_memory(self):
        memory = floats(4, 3)
        with self.assertRaisesRegex(
            ExportError, "writes the memory that the inputs x and y share: clone one before"
        ):
            to_onnx(Written(), (memory[:3], memory[1:]))
        with self.assertRaisesRegex(
            ExportError, "it writes x, an input with one element in two places: clone it"
        ):
            to_onnx(Written(), (floats(6).as_strided((2, 4), (2, 1)), floats(3)))
        self.export_and_compare(Written(), (memory[:2], memory[2:]))
        self.export_and_compare(Written(), (memory[:, ::2], memory[:, 1::2]))

    def test_buffers_that_share_their_memory(self):
        with self.assertRaisesRegex(
            ExportError, "writes the memory that the inputs b_whole and b_part share"
        ):
            to_onnx(Buffers(2), (floats(3),))


class TestLayouts(unittest.TestCase):
    def test_has_repeats(self):
        x = floats(24)
        once = [
            x,
            x[:0],
            x.view(4, 6).t(),
            x.as_strided((2, 3), (3, 2)),
            x.view(2, 3, 4)[:, ::2],
            x[:1].expand(1, 1),
        ]
        twice = [
            x[:1].expand(2),
            x.unfold(0, 3, 2),
            x.as_strided((3, 4), (2, 1)),
            x.as_strided((2, 4), (3, 1)),
        ]
        for view in once:
            self.assertFalse(has_repeats(view), (view.shape, view.stride()))
        for view in twice:
            self.assertTrue(has_repeats(view), (view.shape, view.stride()))

    def test_are_disjoint(self):
        x = floats(4, 6)
        apart = [(x[:2], x[2:]), (x[2:], x[:2]), (x[:, :3], x[:, 3:]), (x[::2], x[1::2]), (x[0], x[1:1])]
        together = [(x, x[3:]), (x[:, 1], x[2]), (x[:3], x[2:])]
        for pair in apart:
            self.assertTrue(are_disjoint(*pair))
        for pair in together:
            self.assertFalse(are_disjoint(*pair))


if __name__ == "__main__":
    unittest.main()
