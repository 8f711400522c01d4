"""Searching sorted sequences: searchsorted, bucketize.

Source of semantics: torch.searchsorted. The place of a value is the number of elements before it, counted by comparing.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


@translates(aten.bucketize.Scalar, aten.bucketize.Tensor)
def bucketize(op, self, boundaries, out_int32, right):
    """The bucket of each element; a boundary belongs to the bucket before it, unless *right*."""
    return places(op, boundaries, self, right, out_int32)


@translates(aten.searchsorted.Scalar, aten.searchsorted.Tensor)
def searchsorted(op, sorted_sequence, self, out_int32, right, side, sorter):
    """Where elements would be inserted into each sorted row, before equal elements unless *right*."""
    if sorter is not None:
        sorted_sequence = op.GatherElements(sorted_sequence, sorter, axis=-1)
    return places(op, sorted_sequence, self, right or side == "right", out_int32)


def places(op, sequence, values, right: bool, out_int32: bool) -> ir.Value:
    """How many elements of the sorted last axis of *sequence* come before each value; all of them before NaN, a special value."""
    sequence, values = promote(op, sequence, values)
    if rank(sequence) > 1:
        sequence = op.Unsqueeze(sequence, [-2])
    values = op.Unsqueeze(values, [-1])
    if op.context.special_values:
        before = op.Not(op.emit("Greater" if right else "GreaterOrEqual", (sequence, values)))
    else:
        before = op.emit("LessOrEqual" if right else "Less", (sequence, values))
    count = op.ReduceSum(op.Cast(before, to=ir.DataType.INT64), [-1], keepdims=0)
    return op.Cast(count, to=ir.DataType.INT32) if out_int32 else count
