"""Rows of reductions: empty tensors, NaN, large integers."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase
from experimental_experiment.torch_interpreter.runtime.reductions import REDUCTIONS

NAN, INF = float("nan"), float("inf")
FLOATS = torch.tensor([[1.0, NAN, 3.0], [INF, 2.0, -INF], [NAN, NAN, 0.0]])
LARGE = torch.tensor([[2**53 + 1, 2**53 + 3], [2**60 + 1, 5]])
EMPTY = torch.ones(2, 0, 3)
SHORTER = {"dynamic_shapes": (({1: torch.export.Dim.DYNAMIC},),), "others": [(EMPTY,)]}


def reduction(operator):
    """A translation of sum that writes *operator*, its axes as torch counts them."""
    return lambda op, self, dim, keepdim: op.emit(operator, (self, dim), {"keepdims": int(keepdim)})


ROWS = {
    "ArgMax.nan_comes_first": (lambda x: x.argmax(1), FLOATS),
    "ArgMin.nan_comes_first": (lambda x: x.argmin(1), FLOATS),
    "ReduceMax.extremum_of_bytes": (lambda x: x.any(1), EMPTY > 0),
    "ReduceMin.extremum_of_bytes": (lambda x: x.all(1), EMPTY > 0),
    "ReduceMax.nan_wins": (lambda x: x.amax(1), FLOATS),
    "ReduceMin.nan_wins": (lambda x: x.amin(1), FLOATS),
    "ReduceMean.mean_of_nothing": (lambda x: x.mean(1), EMPTY),
    "ReduceMean.sum_over_count": (
        lambda x: x.mean(1),
        torch.ones(2, 4),
        {**SHORTER, "others": [(torch.ones(2, 0),)]},
    ),
    "ReduceSum.in_two_halves": (lambda x: x.sum(0), LARGE),
    "ReduceProd.factor_by_factor": (lambda x: x.prod(1), torch.tensor([[2**31 + 1, 2**31 - 1]])),
    "TopK.nan_is_the_largest": (lambda x: x.topk(2), FLOATS),
    **{
        f"{operator}.with_axes_from_the_start": (
            lambda x: x.sum([-1]),  # of no element: every reduction gives the same
            EMPTY,
            {"translations": {torch.ops.aten.sum.dim_IntList: reduction(operator)}},
        )
        for operator in REDUCTIONS
    },
    "ArgMax.with_an_axis_from_the_start": (lambda x: x.argmax(-1), torch.ones(2, 4, 3), SHORTER),
    "ArgMin.with_an_axis_from_the_start": (lambda x: x.argmin(-1), torch.ones(2, 4, 3), SHORTER),
}


class TestReductions(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)


if __name__ == "__main__":
    unittest.main()
