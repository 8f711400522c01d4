"""``x[i]`` and ``x[i] = y`` where *i* is a size or a tensor of one number, alone and between other indices."""

import unittest

import torch
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._export.non_strict_utils import _NonStrictTorchFunctionHandler as handler
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as torch_map

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import CaptureError, ExportOptions, to_onnx
from experimental_experiment.torch_interpreter.onnx_export_errors import bypass_export_some_errors
from experimental_experiment.versions import numbers

X, Y = torch.randn(5, 4, 6), torch.randn(4, 7, 6)
"""The model indexes axes of 4 and more."""


class Model(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def read_at_sizes(x, i, k):
    n = x.shape[0] // 2
    return (
        x[torch.arange(x.shape[0]), x.shape[1] - 1],
        x[n, [0, 1]],
        x[k, ..., n],
        x[k[:, None], n - 1, [2, 0, 1]],
        x[None, n, 1:, k],
        x[n, True],
        x[n, x[0, :, 0] > 0],
        x[k, 1, n],
    )


def read_at_tensors(x, i, k):
    i32 = i.to(torch.int32)
    return x[i, k], x[k, i], x[i:, k], x[..., i, k], x[i, None, k], x[k, None, i32], x[i, :, i], x[i, k, -1]


def read_as_before(x, i, k):
    return x[i], x[:, i.to(torch.int32), 1:], x[x > 0], x[k], x[x.shape[0] // 2], x[..., None, 1]


def written(*indices):
    """A function that writes at these indices, one after the other: each is a function of x, i and k."""

    def forward(x, i, k):
        x = x.clone()
        for number, index in enumerate(indices):
            x[index(x, i, k)] = number + 2
            at = index(x, i + 1 - 1, k)
            x[at] += x[at].flip(0) * 0.5 if x[at].dim() else 1.0
        return x

    return forward


write_at_sizes = written(
    lambda x, i, k: (slice(None), x.shape[1] // 2),
    lambda x, i, k: x.shape[0] // 2,
    lambda x, i, k: (x.shape[0] // 2, slice(1, None)),
    lambda x, i, k: (..., x.shape[2] - 1),
    lambda x, i, k: (x.shape[0] // 2, [0, 1]),
    lambda x, i, k: (k, x.shape[0] // 2),
    lambda x, i, k: (None, slice(None, x.shape[0] - 2), 1, x.shape[0] // 2),
)
write_at_tensors = written(
    lambda x, i, k: i,
    lambda x, i, k: (slice(None), i),
    lambda x, i, k: (..., i),
    lambda x, i, k: (i, i, i),
    lambda x, i, k: (slice(i, None), i),
    lambda x, i, k: slice(1, i),
    lambda x, i, k: (k, i),
    lambda x, i, k: (i, None, slice(1, None, 2), k),
    lambda x, i, k: (x.argmax() // (x.shape[1] * 6), x.shape[1] - 2),
)


def write_a_cache(x, i, k):
    """A value that is broadcast, one with an axis more, and one position after the other."""
    x = x.clone()
    x[:, i] = x[0, 0]
    x[i] = x[1:2]
    for n in range(3):
        x[:, (i + n) % x.shape[1], 1:] = x[:, n, :-1] * 2
    return x


def read_in_branches(x, i, k):
    def positive(x, i, k):
        return x[i, :, k] + x[k, x.shape[1] - 1].sum()

    return torch.cond(x.sum() > 0, positive, lambda x, i, k: x[i, None, :, k][0] * 2 + x[2, 1, i], (x, i, k))


def plain_read_in_branches(x, i, k):
    if x.sum() > 0:
        return x[int(i)][:, k] + x[k][:, -1].sum()
    return x[int(i)][:, k] * 2 + x[2, 1, int(i)]


def write_in_a_loop(x, i, k):
    def body(n, x):
        x = x.clone()
        x[:, n] = x[:, n - 1] * 2
        x[k, n] += i
        x[1:, x.shape[1] - 2, k] = 1
        return n + 1, x

    return while_loop(lambda n, x: n < x.shape[1], body, (torch.tensor(1), x.clone()))[1]


def plain_write_in_a_loop(x, i, k):
    x = x.clone()
    for n in range(1, x.shape[1]):
        x[:, n] = x[:, n - 1] * 2
        x[k, n] += int(i)
        x[1:, x.shape[1] - 2, k] = 1
    return x


def read_in_a_scan(x, i, k):
    return scan(lambda c, n: (c + x[n, k], c + x[i, n]), x[i, k] * 0, torch.arange(4) + 0)


def plain_read_in_a_scan(x, i, k):
    c, rows = torch.zeros(2, 6), []
    for n in range(4):
        rows.append(c + x[int(i), n])
        c = c + x[n, k]
    return c, torch.stack(rows)


def read_in_a_map(x, i, k):
    return torch_map(lambda n, x: x[:, n, k] + x[1:, n, i][:, None].sum(), torch.arange(4), x)


def plain_read_in_a_map(x, i, k):
    return torch.stack([x[:, n][:, k] + x[1:, n, int(i)].sum() for n in range(4)])


def read_mapped(x, i, k):
    x = x[:, 0]
    rows = torch.arange(x.shape[0])
    columns = rows % x.shape[1]
    table = torch.stack([x, x + 1])
    last = x.shape[1] - 1
    nested = torch.vmap(lambda i: torch.vmap(lambda j: x[i, j])(torch.arange(3)))(rows)

    def advanced(i):
        return table[:, i, [0, 1]], table[None][:, i % 2, :, [0, 1]], table[:, [0, 1], i % 2]

    return (
        torch.vmap(lambda i: x[i])(torch.arange(2)),
        torch.vmap(lambda row, i: row[i])(x, columns),
        torch.vmap(lambda i, j: (x[i, j], x[i, last], x[-i - 1, 1:], x[None, ..., j]))(rows, columns),
        torch.vmap(lambda row, i: row[1:][i], in_dims=(1, 0))(x, torch.zeros_like(x[0]).int()),
        torch.vmap(lambda row: row[x[0].argmax()])(x),
        nested,
        *torch.vmap(advanced)(rows),
    )


def write_mapped(x, i, k):
    x = x[:, 0]

    def written(row, i):
        y = x + row
        y[i] = row.sum()
        y[1:, i] = y[1:, 0] * 2
        y[-i - 1, [0, 1]] = 7
        y[..., x.shape[1] - 1] += y[i, 0]
        return y

    return torch.vmap(written)(x, torch.arange(x.shape[0]))


class TestIndices(ExporterTestCase):
    SHAPES = ({0: "a", 1: "b"}, None, None)

    def test_any_size(self):
        others = [(Y, torch.tensor(i), torch.tensor([3, 1])) for i in (0, 2, -1, 3)]
        functions = (
            read_at_sizes,
            read_at_tensors,
            read_as_before,
            write_at_sizes,
            write_at_tensors,
            write_a_cache,
        )
        for function in functions:
            with self.subTest(function):
                args = X, torch.tensor(1), torch.tensor([0, 2])
                self.export_and_compare(Model(function), args, others=others, dynamic_shapes=self.SHAPES)

    def test_lists_with_sizes(self):
        def lists(x):
            rows, columns = x.shape
            y = x.clone()
            y[:, [0, columns - 1]] = 7
            y[[0, rows - 1], [columns - 1, -1]] = 9
            return x[:, [0, columns - 1, -1]], x[[0, rows - 1]], x[[1, rows // 2], [columns - 1, 0]], y

        others = [(torch.randn(*sizes),) for sizes in ((3, 9), (7, 2), (2, 1))]
        dynamic_shapes = ({0: "rows", 1: "columns"},)
        for options in (ExportOptions(), ExportOptions(tracing="make_fx")):
            with self.subTest(options):
                self.export_and_compare(
                    lists,
                    (torch.randn(4, 6),),
                    others=others,
                    dynamic_shapes=dynamic_shapes,
                    export_options=options,
                )
        with self.assertRaisesRegex(CaptureError, "specialized it to be a constant"):
            to_onnx(
                lists,
                (torch.randn(4, 6),),
                dynamic_shapes=dynamic_shapes,
                export_options=ExportOptions(strict=True),
            )

    def test_positions_that_are_mapped(self):
        args = X, torch.tensor(1), torch.tensor([0, 2])
        for function in (read_mapped, write_mapped):
            with self.subTest(function):
                self.export_and_compare(
                    Model(function), args, others=[(Y, *args[1:])], dynamic_shapes=self.SHAPES
                )
            if numbers(torch.__version__) >= numbers("2.14"):
                continue  # it captures the second, and names another operator
            with self.subTest(function, patches=False), self.assertRaisesRegex(CaptureError, "vmap: .*item"):
                to_onnx(Model(function), args, export_options=ExportOptions(patches=False))

    def test_a_cache_is_written_by_few_nodes(self):
        def at_a_position(x, i, k):
            return torch.select_scatter(x, x[:, 0] * 2, 1, 1), x.index_fill(1, k, 2)

        def at_an_unknown_one(x, i, k):
            x = x.clone()
            x[:, i] = k
            return x

        args = X, torch.tensor(1), torch.randn(5, 6)
        self.export_and_compare(Model(at_a_position), (X, torch.tensor(1), torch.tensor([1])))
        model = to_onnx(Model(at_an_unknown_one), args)
        self.assertEqual(
            ["Unsqueeze", "Expand", "ScatterElements"], [node.op_type for node in model.graph.node]
        )

    def test_bodies_of_branches_and_loops(self):
        args = X, torch.tensor(1), torch.tensor([0, 2])
        others = [(Y, torch.tensor(i), torch.tensor([3, 1])) for i in (0, 2, 3)] + [(-X.abs(), *args[1:])]
        pairs = [
            (read_in_branches, plain_read_in_branches),
            (write_in_a_loop, plain_write_in_a_loop),
            (read_in_a_map, plain_read_in_a_map),
        ]
        if numbers(torch.__version__) < numbers(
            "2.14"
        ):  # whose scans refuse a number of the data in their bodies
            pairs.append((read_in_a_scan, plain_read_in_a_scan))
        for function, plain in pairs:
            with (
                self.subTest(function),
                bypass_export_some_errors(),
            ):  # for eager torch, which traces them as well
                for call in (args, *others):
                    torch.testing.assert_close(function(*call), plain(*call))
                for tracing in ("export", "make_fx"):
                    options = ExportOptions(tracing=tracing)
                    self.export_and_compare(
                        Model(function),
                        args,
                        others=others,
                        dynamic_shapes=self.SHAPES,
                        export_options=options,
                    )

    def test_strict(self):
        others = [(Y, torch.tensor(i), torch.tensor([3, 1])) for i in (0, 2, -1, 3)]
        options = ExportOptions(strict=True)
        for function in (read_at_sizes, read_as_before, write_a_cache):
            with self.subTest(function):
                args = X, torch.tensor(1), torch.tensor([0, 2])
                self.export_and_compare(
                    Model(function), args, others=others, dynamic_shapes=self.SHAPES, export_options=options
                )

    def test_without_the_patch(self):
        args = X, torch.tensor(1), torch.tensor([0, 2])
        options = ExportOptions(patches=False)
        for function in read_at_tensors, write_at_tensors:
            with self.subTest(function), self.assertRaisesRegex(CaptureError, "data-dependent"):
                to_onnx(Model(function), args, export_options=options)
        reads = Model(lambda x, i, k: x[k, x.shape[0] // 2])
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(reads, args, dynamic_shapes=({0: "a"}, None, None), export_options=options)
        self.assertRegex(logs.output[0], r"\(a//2\) == 2")

    def test_what_torch_refuses(self):
        args = X, torch.tensor(1.0), torch.tensor([0, 2])
        for index in (lambda x, i, k: i, lambda x, i, k: (x.shape[0], 0, 0, 0)):
            with self.subTest(index), self.assertRaises(CaptureError):
                to_onnx(Model(written(index)), args, dynamic_shapes=self.SHAPES)
        # a mask, of which torch.export makes a position
        masked = Model(lambda x, i, k: x[i.to(torch.uint8), 0])
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            to_onnx(masked, (X, torch.tensor(1), torch.tensor([0, 2])))

    def test_a_mask_of_one_number(self):
        """It selects all, or nothing, along a new axis; as in the scores of torchmetrics, it may be that of one target."""

        def masked(x, i, k):
            y, total, is_marked = x * 1, x.sum(), i > 0
            y[is_marked] = x * 2
            score = torch.ones_like(total)
            score[is_marked] = total[is_marked] / 2
            known = x[torch.tensor(True)].reshape(1, -1)  # no size of the data
            return x[is_marked], x[(i.to(torch.uint8),)], total[~is_marked], y, score, known

        args = X, torch.tensor(1), torch.tensor([0, 2])
        others = [(Y, torch.tensor(0), args[2]), (X, torch.tensor(3), args[2])]
        self.export_and_compare(Model(masked), args, others=others, dynamic_shapes=self.SHAPES)

    def test_undone(self):
        replaced = (
            (handler, "_override"),
            (BuiltinVariable, "call_function"),
            (TensorVariable, "method___setitem__"),
        )
        before = [getattr(owner, name) for owner, name in replaced]
        with bypass_export_some_errors():
            x = torch.zeros(3, 4)
            x[torch.tensor(1), [0, 2]] = 1
            self.assertEqual([[0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]], x.tolist())
            self.assertEqual([1.0, 2.0], torch.tensor([x[1, 0], 2.0]).tolist())
            for (owner, name), function in zip(replaced, before):
                self.assertIsNot(getattr(owner, name), function)
        self.assertEqual(before, [getattr(owner, name) for owner, name in replaced])


if __name__ == "__main__":
    unittest.main()
