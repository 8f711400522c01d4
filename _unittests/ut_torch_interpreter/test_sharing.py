"""Copies that eager makes for some sizes only: the model holds one, and says so where the model writes to what may be one memory."""

import unittest

import torch
from torch.export import Dim

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter import to_onnx

X = torch.randn(3, 4)
BATCH = torch.randn(2, 3, 4)


def transposed(x):
    y = x * 2
    z = y.transpose(0, 1).contiguous()  # the copy
    y.zero_()
    return z


def written(x):
    y = x * 2
    z = y[:, 1:3].reshape(-1)  # the copy
    z.add_(1)
    return y


def flattened(x):
    y = x * 2
    z = y.t().flatten()  # the copy
    y[:, 1] = 0
    return z.sum(0)


def copied_twice(x):
    y = x * 2
    first = y.t().contiguous()
    second = first.t().ravel()  # the copy
    y.zero_()
    return second


def two_copies(x):
    y = x * 2
    first, second = y.t().contiguous(), y[:, 1:].t().reshape(-1)  # the copy
    first.zero_()
    return second


def of_one_row_less(x):
    y = x * 2
    z = y[:-1].t().contiguous()  # the copy
    y.zero_()
    return z


def in_windows(x):
    batch, height, width, channels = x.shape
    y = x * 2
    z = y.view(batch, height // 2, 2, width // 2, 2, channels).transpose(2, 3).reshape(-1, 4)  # the copy
    z[:, 0] = 0
    return y


def of_chosen(x, mask):
    y = x[mask] * 2
    z = y.t().contiguous()  # the copy
    y.zero_()
    return z


def columns(x, z):
    y = x * 2
    z = y[:, : z.shape[0]].contiguous()  # the copy
    z.zero_()
    return y


class Transposed(torch.nn.Module):
    def forward(self, x):
        return transposed(x)


class TestCopiesThatMayBeViews(ExporterTestCase):
    N = ({0: "n"},)
    AT_LEAST_2 = ({0: Dim("n", min=2), 1: "columns"}, {0: "k"})
    IMAGES = ({1: "h", 2: "w"},)
    TOLD = {
        "n != 1": [
            (transposed, (X,), N),
            (written, (X,), N),
            (flattened, (X,), N),
            (copied_twice, (X,), N),
            (two_copies, (X,), N),
        ],
        "n - 1 != 1": [(of_one_row_less, (X,), N)],
        "(h//2) != 1 or (w//2) != 1": [(in_windows, (torch.randn(2, 4, 6, 3),), IMAGES)],
        "contiguous.shape[1] != 1": [(of_chosen, (X, torch.tensor([True, False, True])), None)],
        "columns != Min(columns, k)": [(columns, (X, torch.randn(2)), AT_LEAST_2)],
    }

    def test_the_warning_names_sizes_and_line(self):
        for condition, cases in self.TOLD.items():
            for function, args, dynamic_shapes in cases:
                with self.subTest(condition, function=function.__name__):
                    with self.assertLogs("experimental_experiment", "WARNING") as logs:
                        to_onnx(function, args, dynamic_shapes=dynamic_shapes)
                    (record,) = logs.records
                    _, told, place, code = record.getMessage().splitlines()
                    self.assertEqual(
                        f"  {condition}, or else the copy is the tensor itself, and shows what is written to it: "
                        "clone() copies for all sizes",
                        told,
                    )
                    self.assertRegex(place, r'^  File ".*test_sharing\.py", line \d+, in ')
                    self.assertIn("# the copy", code)

    def test_a_program_of_torch_export_is_told_too(self):
        program = torch.export.export(Transposed(), (X,), dynamic_shapes=({0: Dim("n")},))
        with self.assertLogs("experimental_experiment", "WARNING") as logs:
            to_onnx(program)
        self.assertIn("n != 1, or else the copy is the tensor itself", logs.output[0])

    def test_nothing_is_said_where_it_does_not_matter(self):
        for function, args, dynamic_shapes in (
            (self.nothing_is_read, (BATCH,), ({0: "batch", 1: "rows"},)),
            (self.parts_of_one_tensor, (torch.randn(2, 3, 12),), ({0: "batch", 1: "rows"},)),
            (self.read_before, (X,), self.N),
            (self.cloned, (X,), self.N),
            (self.a_view_for_all_sizes, (X,), self.N),
            (transposed, (X,), ({0: Dim("n", min=2)},)),
            (transposed, (X,), None),
        ):
            with self.subTest(function.__name__):
                with self.assertNoLogs("experimental_experiment", "WARNING"):
                    model = to_onnx(function, args, dynamic_shapes=dynamic_shapes)
                self.assert_matches(model, function, args)

    @staticmethod
    def nothing_is_read(x):
        h = (x * 2).transpose(1, 2).contiguous()
        h += 1
        return h

    @staticmethod
    def parts_of_one_tensor(x):
        parts = [part.transpose(1, 2).contiguous() for part in (x * 2).chunk(3, dim=-1)]
        parts[0].mul_(0.5)
        return parts[0].transpose(1, 2) @ parts[1] @ parts[2].transpose(1, 2)

    @staticmethod
    def read_before(x):
        y = x * 2
        z = y.t().contiguous()
        total = y.sum()
        z += 1
        return z, total

    @staticmethod
    def cloned(x):
        y = x * 2
        z = y.t().clone()
        y.zero_()
        return z

    @staticmethod
    def a_view_for_all_sizes(x):
        y = x * 2
        z = y[1:].contiguous()
        y.zero_()
        return z


if __name__ == "__main__":
    unittest.main()
