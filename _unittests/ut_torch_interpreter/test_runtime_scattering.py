"""Rows of scattering with a reduction, and of gathering."""

import unittest

import torch
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

from experimental_experiment.comparison import session
from experimental_experiment.testing import ExporterTestCase, each, without_row
from experimental_experiment.torch_interpreter import to_onnx

X, PLACES = torch.randn(5), torch.tensor([0, 2, 2, 0])
NAN = torch.tensor([float("nan"), 2.0, float("nan"), 3.0])
ONES = torch.tensor([True, False, True, True])


def added(x, places, values):
    """Values added to the rows at some places."""
    return x.index_put((places,), values, accumulate=True)


def extremum(op, self, indices, values, accumulate):
    """A translation of index_put that keeps the largest element when it accumulates, the smallest otherwise."""
    return op.ScatterND(self, op.Unsqueeze(indices[0], [1]), values, reduction="max" if accumulate else "min")


def backwards(x):
    """The elements in the reverse order, by their positions."""
    return x.index_select(0, torch.arange(x.shape[0] - 1, -1, -1))


D = torch.export.Dim.DYNAMIC

ROWS = {
    "Gather.at_positions_cast": (backwards, X, {"dynamic_shapes": (({0: D},),)}),
    "ScatterElements.nan_stays": (lambda x, i, v: x.scatter_reduce(0, i, v, "amax"), X, PLACES, NAN),
    "ScatterElements.sum_or_product_of_booleans": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "amin"), X > 0, PLACES, ONES,
    ),
    "ScatterElements.in_float32": (
        lambda x, i, v: x.scatter_add(0, i, v), X.half(), PLACES, NAN.half(),
    ),
    "ScatterND.in_float32": (added, X.half(), PLACES, NAN.half()),
}  # fmt: skip

POSITIONS = {
    "below 0": lambda x: x[torch.arange(-x.shape[0], 0)],
    "from below 0": lambda x: x[torch.arange(-x.shape[0] + 1, 2)],
    "backwards by two": lambda x: x[torch.arange(x.shape[0] - 1, -2, -2)],
    "backwards to 1": lambda x: x[torch.arange(x.shape[0] - 1, 0, -1)],
    "the second half": lambda x: x[torch.arange(x.shape[0] // 2, x.shape[0])],
    "backwards, reshaped": lambda x: x[torch.arange(x.shape[0] - 1, -1, -1).reshape(-1)],
    "backwards, converted twice": lambda x: x[torch.arange(x.shape[0] - 1, -1, -1).int().long()],
    "backwards, cloned": lambda x: x[torch.arange(x.shape[0] - 1, -1, -1).clone()],
    "backwards, as rows of a table": lambda x: torch.nn.functional.embedding(
        torch.arange(x.shape[0] - 1, -1, -1), x[:, None]
    ),
    "backwards and returned": lambda x: (p := torch.arange(x.shape[0] - 1, -1, -1), x[p]),
}
"""Ranges of positions that are no slices."""

OTHER_ROWS = {
    "ScatterND.sum_or_product_of_booleans": (lambda x, i, v: x.index_put((i,), v, accumulate=True), "amax"),
}
"""Rows that only a translation made for the test needs, and what it computes."""


class TestScattering(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_positions_of_a_range(self):
        self.assert_same_as_eager(each(*POSITIONS.values()), X, others=[(X[:3],), (X.repeat(2),)])

    def test_extrema_of_booleans_at_positions(self):
        options = {"translations": {torch.ops.aten.index_put.default: extremum}}
        for name, (function, reduce) in OTHER_ROWS.items():
            expected = (X > 0).int().scatter_reduce(0, PLACES, ONES.int(), reduce).bool()
            model = to_onnx(function, (X > 0, PLACES, ONES), **options)
            feeds = dict(zip("xiv", ((X > 0).numpy(), PLACES.numpy(), ONES.numpy())))
            self.assertEqual(expected.tolist(), session(model).run(None, feeds)[0].tolist())
            with without_row(name):
                model = to_onnx(function, (X > 0, PLACES, ONES), **options)
            with self.assertRaisesRegex(RuntimeException, "ScatterND"):
                session(model).run(None, feeds)

    CASES = {
        f"{reduce} {dtype}": (
            lambda x, i, v, reduce=reduce: x.scatter_reduce(0, i, v, reduce),
            *(X.to(dtype), PLACES, torch.tensor([1.5, 2.0, -0.5, 3.0]).to(dtype)),
        )
        for reduce in ("sum", "prod", "amax", "amin")
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool)
        if dtype != torch.bool or reduce.startswith("a")
    }

    def test_every_dtype(self):
        self.assert_cases(self.CASES)

    def test_plain(self):
        model = to_onnx(lambda x, i, v: x.scatter_reduce(0, i, v, "amax"), (X, PLACES, NAN))
        self.assertEqual(["ScatterElements"], [node.op_type for node in model.graph.node])


if __name__ == "__main__":
    unittest.main()
