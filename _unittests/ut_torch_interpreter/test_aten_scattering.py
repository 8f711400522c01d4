"""Scattering: scatter and its reductions, index_add and its relatives, checked against eager."""

import unittest

import torch

from experimental_experiment.testing import Call, ExporterTestCase

aten = torch.ops.aten


def floats(*sizes):
    return torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).reshape(sizes)


INDEX = torch.tensor([[0, 1, 2], [3, 0, 1]])
TWICE = torch.tensor([[0, 0, 2], [0, 3, 2]])
LINES = torch.tensor([2, 0, 2])
NAN = torch.tensor([[float("nan"), 1.0, float("-inf")], [2.0, float("inf"), -0.0]])


class TestScattering(ExporterTestCase):
    CASES = {
        "scatter": (aten.scatter.src, floats(4, 3), 0, INDEX, -floats(2, 3)),
        "scatter of the beginning of a source": (aten.scatter.src, floats(4, 3), 0, INDEX, -floats(3, 4)),
        "scatter a 0-d tensor": (aten.scatter.src, floats(), 0, torch.tensor(0), torch.tensor(3.0)),
        "scatter at an index of no element": (
            aten.scatter_add.default,
            floats(4, 3),
            1,
            torch.zeros(0, dtype=torch.int64),
            floats(4, 3),
        ),
        "scatter a number": (aten.scatter.value, floats(4, 3), 0, INDEX, 2.5),
        "scatter a number that truncates": (
            aten.scatter.value,
            torch.zeros(3, dtype=torch.int64),
            0,
            LINES,
            2.5,
        ),
        "scatter nothing": (aten.scatter.src, floats(4), 0, LINES[:0], floats(3)),
        "scatter int8": (
            aten.scatter.src,
            torch.zeros(3, dtype=torch.int8),
            0,
            LINES[:2],
            INDEX[0, 1:].to(torch.int8),
        ),
        "scatter that adds": (aten.scatter.reduce, floats(4, 3), 0, TWICE, floats(2, 3), {"reduce": "add"}),
        "scatter that multiplies": (
            aten.scatter.reduce,
            floats(4, 3),
            0,
            TWICE,
            floats(2, 3),
            {"reduce": "multiply"},
        ),
        "a number that adds": (aten.scatter.value_reduce, floats(4, 3), 0, TWICE, 1.5, {"reduce": "add"}),
        "scatter_add": (aten.scatter_add.default, floats(4, 3), 0, TWICE, floats(2, 3)),
        "scatter_add of float16": (aten.scatter_add.default, floats(4).half(), 0, LINES, floats(3).half()),
        "scatter_add of booleans": (aten.scatter_add.default, floats(4) > 2, 0, LINES, floats(3) > 1),
        "scatter_add of bytes wraps": (
            aten.scatter_add.default,
            torch.full((3,), 200, dtype=torch.uint8),
            0,
            LINES,
            torch.full((3,), 40, dtype=torch.uint8),
        ),
        "index_add": (aten.index_add.default, floats(4, 3), 0, LINES, floats(3, 3)),
        "index_add of booleans": (aten.index_add.default, floats(4, 3) > 5, 0, LINES, floats(3, 3) > 2),
        "index_add of bytes wraps": (
            aten.index_add.default,
            torch.full((3, 2), 200, dtype=torch.uint8),
            0,
            LINES,
            torch.full((3, 2), 40, dtype=torch.uint8),
        ),
        "index_add of halves": (
            aten.index_add.default,
            floats(4, 3).half(),
            0,
            LINES.int(),
            floats(3, 3).half(),
        ),
        "index_add of integers": (
            aten.index_add.default,
            (floats(4, 3) * 2).long(),
            0,
            LINES,
            floats(3, 3).long() + 2**53,
        ),
        "index_add scaled": (aten.index_add.default, floats(3, 4), -1, LINES, floats(3, 3), {"alpha": -2}),
        "index_add to a 0-d tensor": (aten.index_add.default, floats(), 0, torch.tensor([0]), floats() + 1),
        "index_copy": (aten.index_copy.default, floats(4, 3), 0, torch.tensor([3, 1]), -floats(2, 3)),
        "index_copy at a 0-d index": (aten.index_copy.default, floats(4), 0, torch.tensor(3), -floats(1) - 1),
        "index_copy of nothing": (aten.index_copy.default, floats(4, 3), 0, LINES[:0], floats(0, 3)),
        "index_copy of booleans": (
            aten.index_copy.default,
            floats(4, 3) > 5,
            0,
            torch.tensor([3, 1]),
            floats(2, 3) > 2,
        ),
        "index_fill of a 0-d tensor": (aten.index_fill.int_Scalar, floats() + 2, 0, torch.tensor([0]), 3),
        "index_fill of booleans": (aten.index_fill.int_Scalar, floats(3, 4) > 5, 0, torch.tensor(1), True),
        "index_fill nowhere": (aten.index_fill.int_Scalar, floats(3, 4), 0, LINES[:0], -1),
        "index_fill of halves": (aten.index_fill.int_Scalar, floats(2, 3, 4).half(), -2, LINES[:2] // 2, 3),
        "index_fill": (aten.index_fill.int_Scalar, floats(3, 4), 1, LINES, -1),
        "index_fill with a tensor": (aten.index_fill.int_Tensor, floats(3, 4), 1, LINES, torch.tensor(7.0)),
        "put": (aten.put.default, floats(3, 4), torch.tensor([[11, 0]]), -floats(1, 2) - 1),
        "put that adds": (aten.put.default, floats(3, 4), torch.tensor([1, 1]), floats(2) + 1, True),
    }

    def test_same_as_eager(self):
        self.assert_cases(self.CASES)

    def test_every_reduction(self):
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for include_self in (True, False):
                kwargs = {"include_self": include_self}
                with self.subTest(reduce, include_self=include_self):
                    target = aten.scatter_reduce.two
                    self.assert_same_as_eager(
                        target, floats(4, 3), 0, TWICE, NAN, reduce, kwargs=kwargs, special_values=True
                    )
                    self.assert_same_as_eager(
                        target, floats(4, 3), 0, TWICE, -floats(2, 3), reduce, kwargs=kwargs
                    )
                    ints = torch.tensor([[-7, 4, 2], [2, 9, -5]])
                    self.assert_same_as_eager(target, ints, 0, TWICE[:1] // 2, ints, reduce, kwargs=kwargs)
                    half = floats(4, 3).half()
                    self.assert_same_as_eager(target, half, 1, TWICE // 2, -half, reduce, kwargs=kwargs)
                    if reduce != "sum":
                        target = aten.index_reduce.default
                        self.assert_same_as_eager(
                            target, floats(4, 3), 0, LINES, -floats(3, 3), reduce, kwargs=kwargs
                        )
                        self.assert_same_as_eager(
                            target, floats(2, 4, 3), 1, LINES[:2], floats(2, 2, 3), reduce, kwargs=kwargs
                        )
                        many = torch.randint(1, 5, (4, 16, 16)).to(torch.uint8)
                        places = torch.randint(0, 9, (16,))
                        self.assert_same_as_eager(target, many, -1, places, many, reduce, kwargs=kwargs)

    def test_other_sizes(self):
        def scattered(x, index, src):
            return x.scatter(0, index, src), x.scatter_add(1, index, src), x.index_add(0, index[0], src)

        index = torch.tensor([[0, 1], [1, 0]])
        more = (floats(5, 3), torch.tensor([[2, 1, 0], [1, 0, 2], [0, 1, 1]]), floats(3, 3))
        self.assert_same_as_eager(scattered, floats(4, 2), index, floats(2, 2), others=[more])

    def test_lines_of_other_sizes(self):
        def scattered(x, index, source):
            rows = (
                x.index_add(0, index, source.transpose(0, 1)),
                x.index_copy(0, index, source.transpose(0, 1)),
            )
            x = x.transpose(0, 1)
            return (
                *rows,
                x.index_add(1, index, source, alpha=2),
                x.index_copy(1, index, source),
                x.index_fill(1, index, 7),
            )

        others = [
            (floats(5, 4, 2), torch.tensor([4, 0, 3]), floats(4, 3, 2)),
            (floats(3, 1, 1), torch.tensor([2]), floats(1, 1, 1)),
            (floats(3, 0, 2), torch.tensor([2, 0]), floats(0, 2, 2)),
            (floats(3, 2, 2), torch.zeros(0, dtype=torch.int64), floats(2, 0, 2)),
        ]
        self.assert_same_as_eager(
            scattered, floats(4, 3, 2), torch.tensor([1, 3]), floats(3, 2, 2), others=others
        )

    def test_many_slices(self):
        """They are rows of the transposed tensor, whatever the axis; a few are elements."""

        def added(x, index, source):
            return x.index_add(1, index, source), x.index_add(-1, index, source.mT, alpha=-2)

        def given(batch, kind):
            x, source = (torch.randint(0, 9, (batch, 16, 16)) for _ in range(2))
            return (x > 4, index, source > 4) if kind == torch.bool else (x.to(kind), index, source.to(kind))

        index = torch.randint(0, 16, (16,))
        for kind in (torch.float32, torch.float16, torch.int64, torch.uint8):
            args, *others = (given(batch, kind) for batch in (2, 5, 0))
            shapes = (({0: "batch"}, {}, {0: "batch"}),)
            self.export_and_compare(Call(added, args, {}), args, others=others, dynamic_shapes=shapes)
        self.assert_same_as_eager(lambda *args: args[0].index_add(2, *args[1:]), *given(3, torch.bool))
        for function, args, kind in (
            (lambda x, index, source: x.index_add(1, index, source), given(2, torch.float32), "ScatterND"),
            (
                lambda x, index, source: x.index_copy(1, index, source),
                (floats(4, 16, 16), torch.randperm(16), floats(4, 16, 16) + 0.5),
                "ScatterND",
            ),
            (
                lambda x, index, source: x.index_add(1, index, source),
                (floats(4, 64, 64), index[:9], floats(4, 9, 64)),
                "ScatterElements",
            ),
        ):
            model = self.assert_same_as_eager(function, *args, dynamic=False)
            self.assertIn(kind, {node.op_type for node in model.graph.node})

    def test_few_slices_of_any_batch(self):
        """What the positions are expanded to is known to be the size of the slices: none is cut."""
        args, other = ((floats(batch, 32, 5), torch.arange(6), floats(batch, 6, 5)) for batch in (2, 3))
        shapes = (({0: "batch"}, {}, {0: "batch"}),)
        call = Call(lambda x, index, source: x.index_add(1, index, source), args, {})
        model = self.export_and_compare(call, args, others=[other], dynamic_shapes=shapes)
        written = ["Unsqueeze", "Shape", "Concat", "Expand", "ScatterElements"]
        self.assertEqual([node.op_type for node in model.graph.node], written)

    def test_no_row(self):
        def scattered(x, index, places):
            return x.scatter(0, index, x), x.scatter_add(1, index, x), x.index_add(1, places, x)

        args = [
            (floats(rows, 3), torch.zeros(rows, 3, dtype=torch.int64), torch.tensor([0, 2, 1]))
            for rows in (4, 0)
        ]
        self.assert_same_as_eager(scattered, *args[0], others=args[1:])

    def test_the_mean_of_slices(self):
        """They are counted once, not once for each of their elements."""

        def mean(include_self, dim=0):
            def function(x, i, src):
                at = i.view(-1, 1).expand(-1, x.shape[1]) if dim == 0 else i.expand(x.shape[0], -1)
                return x.scatter_reduce(dim, at, src, "mean", include_self=include_self)

            return function

        x, i, src = torch.randn(3, 4), torch.tensor([0, 2, 0, 2, 2]), torch.randn(5, 4)
        others = [(torch.randn(4, 7), torch.tensor([3, 3]), torch.randn(2, 7))]
        for include_self in (True, False):
            with self.subTest(include_self=include_self):
                model = self.assert_same_as_eager(mean(include_self), x, i, src, others=others)
                self.assertIn(1, self.ranks_of_sums(model))
                turned = [(each[0].T, each[1], each[2].T) for each in ((x, i, src), *others)]
                self.assert_same_as_eager(mean(include_self, 1), *turned[0], others=turned[1:])
                self.assert_same_as_eager(mean(include_self), x.long(), i, src.long())

    def test_the_mean_of_parts_of_slices(self):
        """What no position covers is not divided."""
        x, i, src = torch.randn(3, 6), torch.tensor([0, 2, 0, 2, 2]), torch.randn(5, 4)
        for include_self in (True, False):
            model = self.assert_same_as_eager(
                lambda x, i, src, flag=include_self: x.scatter_reduce(
                    0, i.view(-1, 1).expand(-1, 4), src, "mean", include_self=flag
                ),
                x,
                i,
                src,
                dynamic=False,
            )
            self.assertNotIn(1, self.ranks_of_sums(model))

    def test_nothing_to_leave_out(self):
        """Zeros are what a sum starts from."""
        i, src = torch.tensor([[0], [2], [0]]).expand(3, 2), torch.randn(3, 2)
        for reduce, start, writes in (("sum", 0.0, 1), ("sum", 1.0, 2), ("prod", 1.0, 1), ("amax", 0.0, 2)):
            with self.subTest(reduce=reduce, start=start):
                for rows in ("static", "dynamic"):
                    model = self.assert_same_as_eager(
                        lambda x, i, src, of=(rows, reduce, start): torch.full(
                            (5 if of[0] == "static" else len(x), 2), of[2]
                        ).scatter_reduce(0, i, src, of[1], include_self=False),
                        torch.zeros(4),
                        i,
                        src,
                        others=[(torch.zeros(9), i, src)],
                        dynamic=rows == "dynamic",
                        runtime="onnx",
                    )
                    scatters = [node for node in model.graph.node if node.op_type.startswith("Scatter")]
                    self.assertEqual(len(scatters), writes)

    def ranks_of_sums(self, model):
        """The ranks of the positions of the ScatterElements that add."""
        shapes = {value.name: value.type.tensor_type.shape.dim for value in model.graph.value_info}
        shapes |= {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
        shapes |= {tensor.name: tensor.dims for tensor in model.graph.initializer}
        return [
            len(shapes[node.input[1]])
            for node in model.graph.node
            if node.op_type == "ScatterElements" and any(item.s == b"add" for item in node.attribute)
        ]


if __name__ == "__main__":
    unittest.main()
