"""Reductions over segments, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
ROW = torch.tensor([1.0, 5.0, float("inf"), 2.0, 3.0, -1.0])
WITH_NAN = torch.tensor([1.0, 5.0, float("nan"), 2.0, 3.0, -1.0])
TABLE = torch.randn(6, 2, 3, generator=torch.Generator().manual_seed(0))
LENGTHS, OFFSETS = torch.tensor([2, 0, 1, 3]), torch.tensor([0, 2, 2, 3, 6])


class TestSegments(ExporterTestCase):
    CASES = {
        f"{reduce}, {'from 2' if initial else 'from nothing'}": (ROW, reduce, {"lengths": LENGTHS, "initial": initial})
        for reduce in ("sum", "mean", "prod", "max", "min", "amax", "amin")
        for initial in (None, 2)
    } | {
        "offsets": (TABLE, "mean", {"offsets": OFFSETS}),
        "rows": (TABLE, "sum", {"lengths": LENGTHS.to(torch.int32)}),
        "another axis": (TABLE[:2, 0], "max", {"lengths": torch.tensor([[1, 2], [3, 0]]), "axis": 1}),
    }  # fmt: skip

    def test_same_as_eager(self):
        for promise, (data, reduce, kwargs) in self.CASES.items():
            with self.subTest(promise):
                self.assert_same_as_eager(
                    aten.segment_reduce.default, data, reduce, kwargs=kwargs, special_values=True
                )

    def test_gradients(self):
        """Equal extrema share a positive gradient, a product may hold zeros."""
        table = TABLE.clone()
        table[0, 0], table[3:5, 0, 0], table[4, 1] = table[1, 0], 0.0, 0.0
        lengths = torch.tensor([2, 1, 3])
        for reduce in ("sum", "mean", "prod", "max", "min"):
            for data, given in (
                (table, {"lengths": lengths, "initial": 2}),
                (table, {"offsets": OFFSETS[[0, 1, 3, 4]]}),
                (table[:2, 0], {"lengths": torch.tensor([[1, 2], [2, 1]]), "axis": 1}),
            ):
                with self.subTest(reduce, **given):
                    output = aten.segment_reduce.default(data, reduce, **given)
                    args = torch.randn_like(output), output, data, reduce
                    self.assert_same_as_eager(aten._segment_reduce_backward.default, *args, kwargs=given)

    def test_numbers(self):
        for reduce in ("max", "min"):
            kwargs = {"lengths": LENGTHS}
            self.assert_same_as_eager(aten.segment_reduce.default, TABLE, reduce, kwargs=kwargs)

    def test_special_values(self):
        for reduce in ("sum", "mean", "prod", "max", "min"):
            for initial in (None, 2):
                with self.subTest(f"{reduce}, from {initial}"):
                    kwargs = {"lengths": LENGTHS, "initial": initial}
                    self.assert_same_as_eager(
                        aten.segment_reduce.default, WITH_NAN, reduce, kwargs=kwargs, special_values=True
                    )


if __name__ == "__main__":
    unittest.main()
