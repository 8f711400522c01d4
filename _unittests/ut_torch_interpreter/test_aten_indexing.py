"""Indexing: index and index_put with tensors and masks, gather, take, checked against eager."""

import unittest

import torch

from experimental_experiment.testing import ExporterTestCase

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


def reads(*indices):
    """``x[indices]`` with the tensors among them as inputs of the model."""
    given = [position for position, index in enumerate(indices) if isinstance(index, torch.Tensor)]

    def read(x, *tensors):
        places = dict(zip(given, tensors))
        return aten.index.Tensor(x, [places.get(position) for position in range(len(indices))])

    return read, [indices[position] for position in given]


def writes(values, *indices, accumulate=False):
    """``x[indices] = values``, as a new tensor."""
    given = [position for position, index in enumerate(indices) if isinstance(index, torch.Tensor)]

    def write(x, values, *tensors):
        places = dict(zip(given, tensors))
        at = [places.get(position) for position in range(len(indices))]
        return aten.index_put.default(x, at, values, accumulate)

    return write, [values, *(indices[position] for position in given)]


X = floats(3, 4, 5)
ROWS, COLUMNS = torch.tensor([0, 2, 2]), torch.tensor([[1], [-1]])
MASK, ONE = torch.tensor([True, False, True]), torch.tensor([False, True, False])
FULL = X > 30
TRUE = torch.tensor(True)


class TestIndexing(ExporterTestCase):
    READS = {
        "one index": reads(ROWS),
        "one index of two axes": reads(None, COLUMNS),
        "int32": reads(ROWS.int()),
        "negative positions": reads(None, None, -1 - ROWS),
        "two adjacent indices": reads(ROWS, ROWS),
        "two adjacent indices not in front": reads(None, ROWS, COLUMNS),
        "two separated indices": reads(ROWS, None, COLUMNS),
        "three indices": reads(ROWS, COLUMNS, ROWS),
        "a 0-d index": reads(torch.tensor(1)),
        "a 0-d index and another": reads(torch.tensor(1), None, ROWS),
        "nothing": reads(ROWS[:0]),
        "a mask": reads(MASK),
        "a mask of the second axis": reads(None, torch.tensor([True, False, False, True])),
        "a mask of two axes": reads(FULL[:, :, 0]),
        "a mask of the last two axes": reads(None, FULL[0]),
        "a mask of all axes": reads(FULL),
        "a mask that is false": reads(FULL & ~FULL),
    }
    WRITES = {
        "one index": writes(-floats(3, 4, 5), torch.tensor([0, 2, 1])),
        "values that broadcast": writes(-floats(5), torch.tensor([0, 2])),
        "the second axis": writes(-floats(3, 2, 5), None, torch.tensor([3, -4])),
        "the last axis": writes(-floats(4, 2), None, None, torch.tensor([3, -5])),
        "the last axis adds": writes(floats(2), None, None, torch.tensor([3, 3]), accumulate=True),
        "no position": writes(floats(0), None, None, torch.tensor([3])[:0]),
        "two adjacent indices": writes(-floats(3, 2), None, torch.tensor([0, 2]), torch.tensor([1, 1])),
        "two separated indices": writes(-floats(2, 4), torch.tensor([0, 2]), None, torch.tensor([1, 1])),
        "indices that broadcast": writes(-floats(2, 3, 5), COLUMNS, torch.tensor([0, 1, 3])),
        "one value under a mask": writes(torch.tensor(7.0), MASK),
        "one value under a mask of two axes": writes(torch.tensor([7.0]), FULL[:, :, 0]),
        "one value under a mask of the last axes": writes(torch.tensor(7.0), None, FULL[0]),
        "one value under a mask of all axes": writes(torch.tensor(7.0), FULL),
        "one value added under a mask": writes(torch.tensor(7.0), MASK, accumulate=True),
        "values under a mask": writes(-floats(2, 4, 5), MASK),
        "as many values as the mask has": writes(-floats(int(FULL.sum())), FULL),
        "values added under a mask": writes(floats(int(FULL.sum())), FULL, accumulate=True),
        "values under a mask of the first axes": writes(-floats(int(FULL[:, :, 0].sum()), 5), FULL[:, :, 0]),
        "rows that broadcast under a mask": writes(-floats(5), FULL[:, :, 0]),
        "columns that broadcast under a mask": writes(-floats(2, 1, 5), MASK),
        "values under a mask of the last axis": writes(
            -floats(3, 4, 1), None, None, FULL[0, 0] | (X[0, 0] > 3)
        ),
        "values under a mask of the last axes": writes(-floats(3, 5), None, X[0] > 14),
        "values under a mask that is false": writes(-floats(0, 5), FULL[:, :, 0] & TRUE.logical_not()),
        "a mask and an index of 1": writes(-floats(2, 5), MASK, torch.tensor([1])),
        "a mask of 1 and an index": writes(-floats(3, 5), ONE, torch.tensor([1, 0, 3])),
        "a mask and an index": writes(-floats(2, 5), MASK, torch.tensor([1, 0])),
        "two masks": writes(-floats(2, 5), MASK, torch.tensor([True, False, False, True])),
        "two separated masks": writes(
            -floats(2, 4), MASK, None, torch.tensor([True, False, False, False, True])
        ),
        "a mask of two axes and an index": writes(
            -floats(int(FULL[:, :, 0].sum())), FULL[:, :, 0], torch.tensor(4)
        ),
        "a repeated index adds twice": writes(floats(4, 5), torch.tensor([1, 1, 2]), accumulate=True),
        "a 0-d mask": writes(torch.tensor(2.0), TRUE),
    }
    CASES = {
        "gather": (aten.gather.default, floats(4, 3), 1, torch.tensor([[2, 0], [1, 1]])),
        "gather a 0-d tensor": (aten.gather.default, floats(), 0, torch.tensor([0, 0])),
        "gather at a 0-d index": (aten.gather.default, floats(3), -1, torch.tensor(2)),
        "gather for a sparse gradient": (
            lambda x, i: torch.gather(x, 1, i, sparse_grad=True),
            floats(4, 3),
            torch.tensor([[2, 0], [1, 1]]),
        ),
        "gather nothing": (aten.gather.default, floats(5), 0, torch.zeros(2, 0, dtype=torch.int64)),
        "index_select": (aten.index_select.default, floats(4, 3), -1, torch.tensor([2, 0])),
        "index_select at a 0-d index": (aten.index_select.default, floats(4, 3), 0, torch.tensor(2)),
        "index_select of a 0-d tensor": (aten.index_select.default, floats(), 0, torch.tensor([0])),
        "index_select of booleans": (aten.index_select.default, floats(3) > 1, 0, torch.tensor([2, 0])),
        "take": (aten.take.default, floats(4, 3), torch.tensor([[11, -1], [0, 4]])),
        "take_along_dim": (aten.take_along_dim.default, floats(4, 3), torch.tensor([[1], [0], [2], [2]]), 1),
        "take_along_dim broadcasts": (aten.take_along_dim.default, floats(1, 3), torch.tensor([[1], [0]]), 1),
        "take_along_dim in flat order": (aten.take_along_dim.default, floats(2, 3), torch.tensor([[5, 0]])),
        "one_hot": (aten.one_hot.default, torch.tensor([[0, 2], [1, 1]]), 4),
        "one_hot of a 0-d tensor": (aten.one_hot.default, torch.tensor(1), 3),
        "_unsafe_index": (lambda x, i: aten._unsafe_index.Tensor(x, [None, i]), X, ROWS),
        "_unsafe_index_put": (
            lambda x, i, v: aten._unsafe_index_put.default(x, [i], v),
            X,
            ROWS[:2],
            floats(5),
        ),
        "_index_put_impl": (
            lambda x, i, v: aten._index_put_impl.default(x, [i], v, True),
            X,
            ROWS,
            floats(5),
        ),
        "_unsafe_masked_index": (
            lambda x, m, i: aten._unsafe_masked_index.default(x, m, [i], -5.0),
            floats(4),
            MASK,
            torch.tensor([1, 99, -3]),
        ),
        "_unsafe_masked_index_put_accumulate": (
            lambda x, m, i, v: aten._unsafe_masked_index_put_accumulate.default(x, m, [i], v),
            floats(4),
            MASK,
            torch.tensor([1, 99, 1]),
            floats(3) + 1,
        ),
        "booleans accumulate": (
            lambda x, i, v: aten.index_put.default(x, [i], v, True),
            floats(4) > 2,
            torch.tensor([0, 0, 1]),
            MASK,
        ),
        "float16 accumulates": (
            lambda x, i, v: aten.index_put.default(x, [i], v, True),
            floats(4).half(),
            torch.tensor([0, 0, 1]),
            floats(3).half(),
        ),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_reads(self):
        self.assert_cases({promise: (function, X, *args) for promise, (function, args) in self.READS.items()})

    def test_writes(self):
        self.assert_cases(
            {promise: (function, X, *args) for promise, (function, args) in self.WRITES.items()}
        )

    def test_python_indexing(self):
        def indexed(x, i):
            return x[..., None, [0, 1]], x[:, i, 1:], x[i, ..., i], x[None, i], x[1, :, i]

        self.assert_same_as_eager(indexed, floats(4, 3, 5), torch.tensor([0, 2]))

    def test_other_sizes(self):
        def indexed(x, i):
            return x[i], x[:, i], x.index_put((i,), x[i] + 1), x[x > 1], x.gather(0, i[:, None])

        args = [(floats(6, 5), torch.tensor([1, 0, 4]))]
        self.assert_same_as_eager(indexed, floats(3, 4), torch.tensor([2, 0]), others=args)

    def test_sizes_that_are_one_at_run_time_broadcast(self):
        def put(x, i, j, y):
            return x.index_put((i, j), y, accumulate=True)

        def args(*counts):
            i, j, y = counts
            return floats(4, 3), torch.arange(i) % 4, torch.arange(j) % 3 - 1, floats(y) + 1

        others = [args(*counts) for counts in ((1, 6, 6), (6, 1, 6), (6, 6, 1), (1, 1, 1), (5, 1, 1))]
        model = self.assert_same_as_eager(put, *args(2, 2, 2), others=others)
        expected = ["Where", "Transpose", "Shape", "Expand", "Size", "LessOrEqual", "If"]
        self.assertEqual(expected, [node.op_type for node in model.graph.node])

    def test_one_index_is_one_node(self):
        model = self.assert_same_as_eager(lambda x, i: x[:, i], X, ROWS)
        self.assertEqual([node.op_type for node in model.graph.node], ["Gather"])
        model = self.assert_same_as_eager(lambda x, m: x.masked_fill(m, 0.0), floats(3), MASK)
        self.assertEqual([node.op_type for node in model.graph.node], ["Where"])

    def test_what_is_taken_under_a_mask_is_written_there_as_it_is(self):
        def whole(x):
            mask, y = x > 3, x.clone()
            y[mask] = x[mask] * x[mask]
            return y

        def rows(x):
            mask, y = x.sum(-1) > 3, x.clone()
            y[mask] = x[mask] * 2
            return y

        def of_positions(x):
            mask, y = x[:, 0] > 3, x.clone()
            y[mask] = torch.where(mask)[0].float()[:, None].expand(-1, x.shape[1])
            return y

        def selected(x):
            mask, y = x > 3, x.clone()
            y[mask] = x.masked_select(mask).neg()
            return y

        def positions_of_all(x):
            mask = x > 3
            return x.index_put((mask,), mask.nonzero().float().sum(1))

        under_mask = {
            "ReduceSum Greater Compress Mul NonZero Reshape ScatterND": (rows, floats(4, 3)),
            "Greater Reshape Reshape Compress Mul NonZero Transpose ScatterND": (whole, floats(2, 3, 4)),
            "Greater Reshape Reshape Compress Neg NonZero Transpose ScatterND": (selected, floats(3, 4)),
        }
        for expected, (function, x) in under_mask.items():
            others = [(x[:, :0],), (-x[:1],), (x.repeat(2, *[1] * (x.dim() - 1)),)]
            model = self.assert_same_as_eager(function, x, others=others)
            self.assertEqual(expected.split(), [node.op_type for node in model.graph.node])
        for function, others in ((positions_of_all, (7, 2)), (of_positions, (5, 6))):
            model = self.assert_same_as_eager(
                function, floats(4, 3), others=[(-floats(2, 5),), (floats(*others),)]
            )
            self.assertIn("ScatterND", [node.op_type for node in model.graph.node])

    def test_what_another_mask_takes_may_be_one_row(self):
        def put(x, i):
            return x.index_put((x[:, 0] > 3,), x[x[:, 0] > i])

        self.assert_same_as_eager(
            put, floats(4, 3), torch.tensor(3.0), others=[(floats(4, 3), torch.tensor(8.0))]
        )

    def test_indices_under_a_mask_are_clamped_by_one_node(self):
        read = lambda x, m, i: aten._unsafe_masked_index.default(x, m, [i], -5.0)
        others = [(floats(2), MASK, torch.tensor([5, -9, 1]))]
        model = self.assert_same_as_eager(read, floats(4), MASK, torch.tensor([1, 99, -3]), others=others)
        expected = ["Shape", "Squeeze", "Neg", "Sub", "Clip", "Gather", "Where"]
        self.assertEqual(sorted(expected), sorted(node.op_type for node in model.graph.node))


if __name__ == "__main__":
    unittest.main()
