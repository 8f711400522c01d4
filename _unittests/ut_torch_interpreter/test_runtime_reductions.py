"""Rows of reductions: empty tensors, NaN, integers that wrap, large integers."""

import collections
import contextlib
import unittest

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from experimental_experiment import comparison
from experimental_experiment.testing import ExporterTestCase, without_row
from experimental_experiment.torch_interpreter import to_onnx
from experimental_experiment.torch_interpreter.runtime.reductions import REDUCTIONS

NAN, INF = float("nan"), float("inf")
FLOATS = torch.tensor([[1.0, NAN, 3.0], [INF, 2.0, -INF], [NAN, NAN, 0.0]])
LARGE = torch.tensor([[2**53 + 1, 2**53 + 3], [2**60 + 1, 5]])
FULL = torch.tensor(
    [[2**30, -(2**31), 3], [2**30, -1, 65537], [2**31 - 1, -(2**31), 70000]], dtype=torch.int32
)
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
    "ReduceSum.in_int64": (lambda x: x.sum(0, dtype=torch.int32), FULL),
    "ReduceProd.in_int32": (lambda x: x.prod(0, dtype=torch.int32), FULL),
    "ReduceSum.modulo_2_to_64": (lambda x: (x.sum(0), x.sum(1), x.sum(1, True)), LARGE),
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

OTHER_ROWS = {
    "Equal.by_the_sum_of_exponentials": "test_the_largest_of_infinities_on_a_gpu",
    "Equal.less_than_zero": "test_the_largest_of_a_mask",
}


class Closed(torch.nn.Module):
    """Rows of minus infinity, asked in two ways."""

    def forward(self, x, mask):
        attended = torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)
        return attended, x.amax(-1) == -INF, mask.amax((0, 2)) == -INF


class TestReductions(ExporterTestCase):
    def test_rows(self):
        self.assert_rows_needed(ROWS)

    def test_narrow_integers_wrap(self):
        for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32):
            with self.subTest(dtype=dtype):

                def reduced(x, dtype=dtype):
                    x = x.to(dtype)
                    of_one_axis = x.sum(0, dtype=dtype), x.prod(1, dtype=dtype), (x * 31).sum(1, dtype=dtype)
                    of_all = x.sum(dtype=dtype), x.prod(dtype=dtype), x.sum((0, 1), True, dtype=dtype)
                    return *of_one_axis, *of_all, x.prod(0, keepdim=True, dtype=dtype), x.sum(0)

                others = [(FULL[:1],), (FULL[:0],), (FULL.repeat(5, 1) - 12345,)]
                self.export_and_compare(
                    reduced, (FULL,), others=others, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
                )

    def test_a_count_in_int32_stays_plain(self):
        model = self.export_and_compare(
            lambda x: ((x > 0).sum(1, dtype=torch.int32), (x > 0).prod(1, dtype=torch.int32)), (FULL,)
        )
        written = collections.Counter(node.op_type for node in model.graph.node)
        self.assertEqual({"Greater": 1, "Cast": 1, "ReduceSum": 1, "ReduceProd": 1}, written)

    def test_the_largest_of_infinities_on_a_gpu(self):
        """`_unittests.ut_torch_dynamo.test_gpu` has the numbers, which only a GPU gives."""
        row = "Equal.by_the_sum_of_exponentials"
        with FakeTensorMode():
            fakes = [torch.empty(shape, device="cuda") for shape in ((2, 3, 4, 8), (2, 1, 4, 4))]
        on_gpu = torch.export.export(Closed(), tuple(fakes))
        x, mask = torch.randn(2, 3, 4, 8), torch.zeros(2, 1, 4, 4)
        x[0, 1, 2], mask[1, 0, 1:], mask[:, :, :, 2] = -INF, -INF, -INF
        for opset in (13, 20):
            for program, names, expected in (
                (on_gpu, (), {"ReduceLogSumExp": 3}),
                (on_gpu, (row,), {"ReduceMax": 3}),
                (torch.export.export(Closed(), (x, mask)), (), {"ReduceMax": 3}),
            ):
                with self.subTest(opset=opset, expected=expected), contextlib.ExitStack() as stack:
                    for name in names:
                        stack.enter_context(without_row(name))
                    onx = to_onnx(program, target_opset=opset)
                    reductions = [node.op_type for node in onx.graph.node if "Reduce" in node.op_type]
                    self.assertEqual(expected, collections.Counter(reductions))
                    found = comparison.run(comparison.session(onx), (x, mask))
                    for ours, theirs in zip(found, Closed()(x, mask), strict=True):
                        torch.testing.assert_close(ours, theirs, equal_nan=True)

    def test_the_largest_of_a_mask(self):
        """A model exported on a CPU runs on a GPU too: what is told there is told without the largest of minus infinities."""

        def attended(x, mask):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)

        x, mask = torch.randn(2, 3, 4, 8), torch.rand(2, 1, 4, 4) > 0.3
        mask[1, 0, 1:], mask[:, :, :, 2] = False, False
        for options in ({}, {"special_values": True}, {"target_opset": 13}):
            for names, told in (((), "Less"), (("Equal.less_than_zero",), "Equal")):
                with self.subTest(told=told, **options), contextlib.ExitStack() as stack:
                    for name in names:
                        stack.enter_context(without_row(name))
                    model = to_onnx(attended, (x, mask), **{"target_opset": 20, **options})
                    largest = {node.output[0] for node in model.graph.node if node.op_type == "ReduceMax"}
                    readers = [node.op_type for node in model.graph.node if largest & {*node.input}]
                    self.assertEqual([told], readers)
                    self.assert_matches(model, attended, (x, mask))


if __name__ == "__main__":
    unittest.main()
