"""Rows of pooling, of recurrent networks and of distinct elements."""

import unittest

import torch

from _unittests.ut_torch_interpreter.test_runtime_float64 import digits
from experimental_experiment.testing import ExporterTestCase, each

F = torch.nn.functional
INF, NAN = float("inf"), float("nan")
X = torch.randn(2, 3, 7, 6, generator=torch.Generator().manual_seed(0)).double()


def network(build, **options):
    """A recurrent network of float64 as a function that shows digits which float32 has not."""
    torch.manual_seed(0)
    module = build(3, 4, dtype=torch.float64, **options)
    x = torch.randn(5, 2, 3).double()
    rounded = module(x)[0].detach().float().double()
    return lambda x: (module(x)[0] - rounded) * 1e7, x


NEGATIVE = -X.float().abs() - 1

PADDED = {
    "without pads": lambda x: F.max_pool2d(F.pad(x, (0, 1, 1, 0)), 2, 1),
    "wider than a window": lambda x: F.max_pool2d(F.pad(x, (3, 0, 0, 4)), 2),
    "with pads": lambda x: F.max_pool2d(F.pad(x, (1, 1)), 3, 2, 1),
    "a last window that is cut": lambda x: F.max_pool2d(F.pad(x, (1, 1)), 2, 3, 1, ceil_mode=True),
    "a last window that is cut, without pads": lambda x: F.max_pool2d(F.pad(x, (1, 1)), 3, 2, ceil_mode=True),
    "with dilation": lambda x: F.max_pool2d(F.pad(x, (2, 1, 1, 0)), 2, 1, dilation=2),
    "cast": lambda x: F.max_pool2d(F.pad(x, (1, 0)).double(), 2),
    "halves": lambda x: F.max_pool2d(F.pad(x.half(), (1, 0)), 2, padding=1),
    "bytes": lambda x: F.max_pool2d(F.pad(x.to(torch.int8), (1, 0)), 2, padding=1),
    "of a signal": lambda x: F.max_pool1d(F.pad(x[0], (1, 0)), 2),
    "between transpositions": lambda x: F.max_pool2d(F.pad(x.transpose(1, 3), (1, 0)), 2).transpose(1, 3),
    "transposed in between": lambda x: F.max_pool2d(
        F.pad(x.transpose(1, 3), (0, 0, 1, 0)).transpose(1, 3), 2
    ),
    "of an image without a batch": lambda x: F.max_pool2d(F.pad(x[:1], (1, 0)).squeeze(0), 2),
    "of a constant that is not 0": lambda x: F.max_pool2d(F.pad(x, (1, 0), value=-7.0), 2),
    "reflected": lambda x: F.max_pool2d(F.pad(x, (1, 0, 1, 0), mode="reflect"), 2),
}
"""Maxima of what is padded before."""

ROWS = {
    "AveragePool.of_much_padding": (lambda x: F.avg_pool2d(F.pad(x, (3, 0, 0, 3)), 2), X.float()),
    "AveragePool.sums_of_windows": digits(lambda x: F.avg_pool2d(x, 3, 2, 1), X),
    "GRU.scanned_steps": network(torch.nn.GRU, bidirectional=True),
    "GlobalAveragePool.mean_of_axes": digits(lambda x: F.adaptive_avg_pool2d(x, 1), X),
    "LSTM.scanned_steps": network(torch.nn.LSTM),
    "MaxPool.of_padded": (
        lambda x: F.max_pool2d(F.pad(x, (1, 0, 0, 1)), 2),
        NEGATIVE,
        {"optimize": False},  # a rule does the same
    ),
    "MaxPool.last_nan": (lambda x: F.max_pool1d(x, 2), torch.tensor([[[0.0, NAN, -INF, -INF, 1.0, 2.0]]])),
    "RNN.scanned_steps": network(torch.nn.RNN),
    "Unique.runs_of_equals": (torch.unique, torch.tensor([1.0, NAN, 2.0, NAN])),
}


class TestPools(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_maxima_of_what_is_padded(self):
        self.assert_same_as_eager(each(*PADDED.values()), NEGATIVE, others=[(NEGATIVE[:1, :, :5],)])

    def test_special_values(self):
        x = X.float()
        x[:, :, 1:4, 2:5] = torch.tensor([NAN, -INF, NAN])
        x[0, 0], x[0, 1] = -INF, NAN
        cases = {
            "of an image": (F.max_pool2d, x, 2),
            "of halves": (F.max_pool2d, x.half(), 2, 1, 1),
            "of float64": (F.max_pool2d, x.double(), 2, 1, 1),
            "of bfloat16": (F.max_pool2d, x.bfloat16(), 2, 1),
            "of a signal": (F.max_pool1d, x[0], 3, 2, 1),
            "the last NaN": (F.max_pool2d_with_indices, x, 3, 2, 1, 1, True),
            "its place in a channel": (F.max_pool1d_with_indices, x[0], 3, 2, 1, 2),
        }
        self.assert_cases(cases, special_values=True)

    def test_windows_of_nothing_but_minus_infinity(self):
        """By default those of two axes within the image keep it, with dilation, positions, and in other dtypes all do."""
        x = torch.full((1, 1, 5, 6), -INF)
        self.assert_cases(
            {
                "padded": (F.max_pool2d, x, 3, 2, 1),
                "a last window that is cut": (F.max_pool2d, x, 3, 2, 0, 1, True),
                "a wide stride": (F.max_pool2d, x, 2, 3),
                "one axis": (F.max_pool1d, x[0], 3, 2, 1),
                "three axes": (F.max_pool3d, x[None], (1, 3, 3), (1, 2, 2)),
            },
            special_values=True,
        )
        self.assert_cases(
            {
                "within the image": (F.max_pool2d, x, 3, 2),
                "dilation": (F.max_pool2d, x, 2, 2, 1, 2),
                "positions": (F.max_pool2d_with_indices, x, 3, 2, 1),
                "halves": (F.max_pool2d, x.half(), 3, 2, 1),
                "float64": (F.max_pool1d, x[0].double(), 3, 2, 1),
            }
        )

    def test_means_of_float64(self):
        corners = [(3, 2, 1, True, False), (3, 2, 1, True, True), (2, 3, 0, True), (4, 1, 2, False, False)]
        means = lambda x: (
            [F.avg_pool2d(x, *corner) for corner in corners] + [F.avg_pool2d(x, 3, 2, 1, divisor_override=7)]
        )
        self.assert_same_as_eager(means, X, others=[(X[:, :, :5, :4],)])
        self.assert_same_as_eager(*digits(means_of_signal, X[0]))


def means_of_signal(x):
    """Means of one axis, with a last window that is cut."""
    return torch.cat([F.avg_pool1d(x, 4, 3, 2, True, padding) for padding in (False, True)], -1)


if __name__ == "__main__":
    unittest.main()
