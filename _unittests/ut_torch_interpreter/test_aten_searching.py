"""searchsorted and bucketize: equal elements, NaN, rows, scalars, as eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([-1.0, 0.0, 0.0, 2.5, INF])
VALUES = torch.tensor([[0.0, -5.0, -INF], [2.5, INF, 3.0]])
WITH_NAN = torch.tensor([[0.0, -5.0, NAN], [2.5, INF, 3.0]])
ROWS = torch.tensor([[1, 3, 5], [2, 4, 4]])


class TestSearching(ExporterTestCase):
    CASES = {
        "before equal elements": (aten.searchsorted.Tensor, EDGES, VALUES),
        "after equal elements": (aten.searchsorted.Tensor, EDGES, VALUES, {"right": True}),
        "a side": (aten.searchsorted.Tensor, EDGES, VALUES, {"side": "right", "out_int32": True}),
        "rows": (aten.searchsorted.Tensor, ROWS, torch.tensor([[3, 9], [4, 0]])),
        "an order": (aten.searchsorted.Tensor, ROWS.flip(1), ROWS, {"sorter": torch.tensor([[2, 1, 0], [2, 1, 0]])}),
        "a number": (aten.searchsorted.Scalar, EDGES, 1.5),
        "a 0-d value": (aten.searchsorted.Tensor, EDGES, torch.tensor(0.0)),
        "no element": (aten.searchsorted.Tensor, torch.zeros(0), torch.tensor([1.0])),
        "buckets": (aten.bucketize.Tensor, VALUES, EDGES),
        "buckets to the right": (aten.bucketize.Tensor, VALUES, EDGES, {"right": True, "out_int32": True}),
        "the bucket of a number": (aten.bucketize.Scalar, 0, EDGES),
        "integers": (aten.bucketize.Tensor, torch.tensor([2**53 + 1, 3]), torch.tensor([3, 2**53, 2**53 + 1])),
    }  # fmt: skip

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_nan_comes_after_all(self):
        cases = {
            "before equal elements": (aten.searchsorted.Tensor, EDGES, WITH_NAN),
            "after equal elements": (aten.bucketize.Tensor, WITH_NAN, EDGES, {"right": True}),
        }
        self.assert_cases(cases, special_values=True)
        many, long = WITH_NAN.repeat(10, 10), torch.arange(600.0)  # which a Loop halves
        for right in (True, False):
            self.assert_same_as_eager(aten.bucketize.Tensor, many, long, kwargs={"right": right})

    def test_long_sequences(self):
        """They are halved in a Loop, as those of a dynamic size: known ones are compared with a few values."""

        def places(sequence, values):
            rows = torch.stack([sequence, sequence * 2 - 1])
            values_of_rows = values.expand(2, *values.shape).reshape(2, -1)
            return (
                torch.searchsorted(sequence, values),
                torch.bucketize(values, sequence, right=True, out_int32=True),
                torch.searchsorted(rows, values_of_rows, side="right"),
            )

        def given(length, *sizes, dtype=torch.float32):
            sequence = torch.randint(-50, 50, (length,)).sort()[0].to(dtype)
            return sequence, torch.randint(-60, 60, sizes).to(dtype)

        for dtype in (torch.float32, torch.float16, torch.int64, torch.int8):
            for length in (128, 129, 255, 256):
                self.assert_same_as_eager(places, *given(length, 2, 150, dtype=dtype), dynamic=False)
        others = [given(*sizes) for sizes in ((2, 1, 9), (3, 4, 5), (300, 3, 100), (7, 0, 3))]
        model = self.assert_same_as_eager(places, *given(9, 2, 3), others=others)
        self.assertEqual(3, sum(node.op_type == "Loop" for node in model.graph.node))
        model = self.assert_same_as_eager(places, *given(300, 2, 3), dynamic=False)
        self.assertNotIn("Loop", {node.op_type for node in model.graph.node})
        for length, loops in ((16, 0), (17, 3)):
            model = self.assert_same_as_eager(places, *given(length, 3000), dynamic=False)
            self.assertEqual(loops, sum(node.op_type == "Loop" for node in model.graph.node))


if __name__ == "__main__":
    unittest.main()
