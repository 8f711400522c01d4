"""Rows of scattering with a reduction, and of gathering."""

import os
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
    "Gather.at_positions_cast": (
        backwards, X, {"dynamic_shapes": (({0: D},),), "optimize": False},  # a rule does the same
    ),
    "ScatterElements.nan_stays": (lambda x, i, v: x.scatter_reduce(0, i, v, "amax"), X, PLACES, NAN),
    "ScatterElements.sum_or_product_of_booleans": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "amin"), X > 0, PLACES, ONES,
    ),
    "ScatterElements.in_float32": (
        lambda x, i, v: x.scatter_add(0, i, v), X.half(), PLACES, NAN.half(),
    ),
    "ScatterND.in_float32": (added, X[:, None].half().repeat(1, 2), PLACES, NAN[:, None].half().repeat(1, 2)),
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
    "ScatterND.in_parts": (lambda x, i, v: x.index_add(0, i, v), "sum"),
    "ScatterElements.whole_slices": (lambda x, i, v: x.scatter_add(0, i[:, None].expand_as(v), v), "sum"),
}
"""Rows that only a translation made for the test, several threads or speed need, and what is computed."""


def rows_to_add(count: int, rows: int, *width: int) -> tuple[torch.Tensor, ...]:
    """A tensor of so many *rows*, the row for each of *count* others, and these: whole numbers, whose sums are exact."""
    places = torch.randint(0, rows, (count,))
    return torch.zeros(rows, *width), places, torch.randint(-9, 9, (count, *width)).float()


SUMS = {
    "slices": OTHER_ROWS["ScatterND.in_parts"][0],
    "positions in a table": lambda x, i, v: x.index_put((i[: 2 * (len(i) // 2)].view(2, -1),), v[:1], accumulate=True),
    "elements": lambda x, i, v: x.index_put((i, i % x.shape[1]), v[:, 0], accumulate=True),
}  # fmt: skip
"""What adds to rows of a matrix."""

TABLE = torch.randint(0, 9, (40,))[:, None].expand(40, 16).clone()

SLICES = {
    "rows": (OTHER_ROWS["ScatterElements.whole_slices"][0], ["ScatterND"]),
    "int32": (lambda x, i, v: x.scatter_add(0, i.int()[:, None].expand_as(v).long(), v), ["ScatterND"]),
    "the largest": (lambda x, i, v: x.scatter_reduce(0, i.view(-1, 1).expand_as(v), v, "amax"), ["ScatterND"]),
    "products": (lambda x, i, v: (x + 1).scatter_reduce(0, i.view(-1, 1).expand_as(v), v, "prod"), ["ScatterND"]),
    "halves": (lambda x, i, v: x.half().repeat(2, 1).index_add(1, i[:16], v[:18].half()), ["Transpose"] * 2 + ["ScatterND", "Transpose"]),
    "written": (lambda x, i, v: x.scatter(0, i[:9, None].argsort(0).expand(9, 16), v[:9]), ["ScatterElements"]),
    "columns": (lambda x, i, v: x.scatter_add(1, (i % 16).expand(9, 40), v.T[:9]), ["Transpose"] * 3 + ["ScatterND", "Transpose"]),
    "a table": (lambda x, i, v: x.scatter_add(0, TABLE, v), ["ScatterND"]),
    "a table of different columns": (lambda x, i, v: x.scatter_add(0, TABLE.sort(0)[0].T.reshape(40, 16), v), ["ScatterElements"]),
    "positions of a matrix": (lambda x, i, v: x.scatter_add(0, (i[:, None] + torch.arange(16)) % 9, v), ["ScatterElements"]),
    "positions along a row": (lambda x, i, v: x.scatter_add(0, i[:16].expand(40, 16), v), ["ScatterElements"]),
    "one position for all": (lambda x, i, v: x.scatter_add(0, i[:1].expand(40, 16), v), ["ScatterElements"]),
    "a part of the columns": (lambda x, i, v: x.scatter_add(0, i[:, None].expand(40, 8), v), ["ScatterElements"]),
    "few": (lambda x, i, v: x.scatter_add(0, i[:10, None].expand(10, 16), v), ["ScatterElements"]),
}  # fmt: skip
"""What is written into rows of a matrix, and by which operators."""


class TestScattering(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_positions_of_a_range(self):
        self.assert_same_as_eager(each(*POSITIONS.values()), X, others=[(X[:3],), (X.repeat(2),)])

    def test_extrema_of_booleans_at_positions(self):
        options = {"translations": {torch.ops.aten.index_put.default: extremum}}
        name = "ScatterND.sum_or_product_of_booleans"
        function, reduce = OTHER_ROWS[name]
        places = PLACES[:, None].expand(4, 2)
        given = (X > 0)[:, None].repeat(1, 2), PLACES, ONES[:, None].repeat(1, 2)
        expected = given[0].int().scatter_reduce(0, places, given[2].int(), reduce).bool()
        model = to_onnx(function, given, **options)
        feeds = dict(zip("xiv", (tensor.numpy() for tensor in given)))
        self.assertEqual(expected.tolist(), session(model).run(None, feeds)[0].tolist())
        with without_row(name):
            model = to_onnx(function, given, **options)
        with self.assertRaisesRegex(RuntimeException, "ScatterND"):
            session(model).run(None, feeds)

    def test_sums_of_many_rows(self):
        """Of any number of rows of any width, in parts or at once; static numbers of few are one ScatterND."""
        sizes = [(7, 2, 5), (4000, 5, 64), (300_000, 3, 1), (4, 2, 210_000), (2, 2, 100_000), (0, 2, 3)]
        for promise, function in SUMS.items():
            with self.subTest(promise):
                few, *others = (rows_to_add(*size) for size in sizes)
                self.assert_same_as_eager(function, *few, others=others)
        function = SUMS["slices"]
        model = self.assert_same_as_eager(function, *rows_to_add(9, 3, 4), dynamic=False)
        self.assertEqual(["Unsqueeze", "ScatterND"], [node.op_type for node in model.graph.node])
        model = self.assert_same_as_eager(function, *rows_to_add(3200, 3, 8, 8), dynamic=False)
        self.assertEqual(["Unsqueeze", "Loop"], [node.op_type for node in model.graph.node])
        given = rows_to_add(260_000, 2)
        model = self.assert_same_as_eager(function, *given, dynamic=False)
        self.assertEqual(["ScatterElements"], [node.op_type for node in model.graph.node])
        for width, operators in ((1, ["ScatterElements"]), (3, ["Size", "LessOrEqual", "If"])):
            given, other = rows_to_add(9, 3, width), rows_to_add(300_000, 3, width)
            model = self.assert_same_as_eager(function, *given, others=[other])
            self.assertEqual(["Unsqueeze", *operators], [node.op_type for node in model.graph.node])

    def test_whole_slices(self):
        """Positions that are the same along all axes but one, of any number of rows; none of the others."""
        name = "ScatterElements.whole_slices"
        function, _ = OTHER_ROWS[name]
        given = rows_to_add(40, 9, 16)
        others = [rows_to_add(n, rows, width) for n, rows, width in ((0, 3, 2), (1, 1, 1), (5000, 70, 50))]
        self.assert_same_as_eager(function, *given, others=others)
        for promise, (written, kinds) in SLICES.items():
            with self.subTest(promise):
                model = self.assert_same_as_eager(written, *given, dynamic=False)
                found = [node.op_type for node in model.graph.node]
                self.assertEqual(kinds, [kind for kind in found if "Scatter" in kind or kind == "Transpose"])
        with without_row(name):
            without = to_onnx(function, given)
        for model in (without, to_onnx(function, given, runtime="onnx")):
            self.assertEqual(
                ["Unsqueeze", "Expand", "ScatterElements"], [node.op_type for node in model.graph.node]
            )

    def test_distinct_positions(self):
        """Known ones of which none stands there twice are taken at once."""
        for places, kinds in (([1, 0, 2], ["ScatterND"]), ([1, -2, 2], ["Size", "LessOrEqual", "If"])):
            index = torch.tensor(places)
            model = to_onnx(
                lambda x, v, index=index: x.index_put((index,), v, accumulate=True),
                (torch.zeros(3, 4), torch.ones(3, 4)),
                dynamic_shapes=({1: "width"},) * 2,
            )
            self.assertEqual(kinds, [node.op_type for node in model.graph.node if node.op_type != "Shape"])

    def test_positions_found_once(self):
        """Those where something is not 0, of the largest elements, of a range: none stands there twice, whatever the sizes are."""
        distinct = {
            "of ones": lambda x, m: x.index_add(0, (i := torch.where(m[:, 0] > 0)[0]), x[i] + 1),
            "of a mask": lambda x, m: x.index_put((m > 0,), x[m > 0] + 1, accumulate=True),
            "of the largest": lambda x, m: x.index_add(0, (i := m[:, 0].topk(2).indices), x[i] + 1),
            "of a range": lambda x, m: x.index_add(0, (i := torch.arange(1, x.shape[0])), x[i] + 1),
        }
        may_be_equal = {
            "of ones in a table": lambda x, m: x.index_add(0, (i := torch.where(m > 0)[0]), x[i] + 1),
            "of the largest of each row": lambda x, m: x.index_add(
                0, (i := m.topk(2).indices.flatten()), x[i] + 1
            ),
            "of a range, halved": lambda x, m: x.index_add(0, (i := torch.arange(x.shape[0]) // 2), x[i] + 1),
        }
        x, m = torch.randn(6, 3), torch.randn(6, 3)
        others = [(torch.randn(3, 3), torch.randn(3, 3)), (torch.randn(9, 3), torch.rand(9, 3))]
        for cases, is_apart in ((distinct, False), (may_be_equal, True)):
            for name, function in cases.items():
                with self.subTest(name):
                    model = self.export_and_compare(
                        function, (x, m), others=others, dynamic_shapes=({0: "rows"},) * 2
                    )
                    self.assertEqual(is_apart, "If" in {node.op_type for node in model.graph.node})

    def test_several_threads(self):
        """They lose some of what goes to equal rows, not always: the row of the table leaves each part to one."""
        name = "ScatterND.in_parts"
        function, _ = OTHER_ROWS[name]
        x, places, values = rows_to_add(215_000, 1, 1)
        feeds = dict(zip("xiv", (x.numpy(), places.numpy(), torch.ones_like(values).numpy())))
        right = [[215_000.0]]
        for shapes in (None, ({}, {0: "rows"}, {0: "rows"})):
            model = to_onnx(function, (x, places, values), dynamic_shapes=shapes)
            runner = session(model, threads=4)
            self.assertTrue(all(runner.run(None, feeds)[0].tolist() == right for _ in range(40)))
        with without_row(name):
            runner = session(to_onnx(function, (x, places, values)), threads=4)
        if os.cpu_count() > 1:  # otherwise they do not run at the same time
            self.assertTrue(any(runner.run(None, feeds)[0].tolist() != right for _ in range(3000)))

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
