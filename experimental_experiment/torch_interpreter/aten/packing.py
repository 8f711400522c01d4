"""Packed sequences: the elements of a padded batch that are no padding, step after step.

Source of semantics: https://pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.conversion import scalar
from experimental_experiment.torch_interpreter.aten.masking import flat
from experimental_experiment.torch_interpreter.aten.transposing import swapped
from experimental_experiment.torch_interpreter.marks import PADDED
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import counted, rank

aten = torch.ops.aten

INT64 = ir.DataType.INT64


@dataclasses.dataclass(frozen=True)
class Padded:
    """A padded batch.

    Attributes:
        x: of shape (steps, batch, ...), with as many steps as the longest row has, or more.
        lengths: the number of steps of each row, INT64.
        is_zero: whether there is nothing but zeros after the lengths.
    """

    x: ir.Value
    lengths: ir.Value
    is_zero: bool


@translates(aten._pack_padded_sequence.default)
def _pack_padded_sequence(op, input, lengths, batch_first):
    """The elements that are no padding, step after step, and how many rows have each step."""
    x = swapped(op, input, 0, 1) if batch_first else input
    rows = op.ReduceSum(op.Cast(present(op, x, lengths), to=INT64), [1], keepdims=0)
    batch = Padded(x, lengths, is_zero=False)
    return elements(op, batch), op.Slice(rows, [0], longest(op, batch), [0])


@translates(aten._pad_packed_sequence.default)
def _pad_packed_sequence(op, data, batch_sizes, batch_first, padding_value, total_length):
    """The padded batch, as long as its longest row or *total_length*, and the lengths of its rows."""
    batch = unpacked(op, data, batch_sizes)
    x = op.Slice(batch.x, [0], longest(op, batch), [0])
    if not batch.is_zero or padding_value != 0:
        is_present = present(op, x, batch.lengths)
        for _ in range(rank(x) - 2):
            is_present = op.Unsqueeze(is_present, [-1])
        x = op.Where(is_present, x, scalar(op, padding_value, x.dtype))
    if total_length > 0:
        missing = op.Sub([total_length], longest(op, batch))
        pads = op.Concat([0] * rank(x), missing, [0] * (rank(x) - 1), axis=0)
        x = op.Pad(x, pads, scalar(op, padding_value, x.dtype))
    return swapped(op, x, 0, 1) if batch_first else x, batch.lengths


# ---- helpers that recurrent networks share


def elements(op, batch: Padded) -> ir.Value:
    """The elements of a batch that are no padding, step after step; `unpacked` gives the batch back."""
    rows = op.Reshape(batch.x, op.shape([-1, *(op.size(batch.x, axis) for axis in range(2, rank(batch.x)))]))
    data = op.Compress(rows, flat(op, present(op, batch.x, batch.lengths)), axis=0)
    data.meta[PADDED] = batch
    return data


def unpacked(op, data: ir.Value, batch_sizes: ir.Value) -> Padded:
    """The batch that was packed: the one that is known, or one made of the elements."""
    if PADDED in data.meta:
        return data.meta[PADDED]
    rows = op.Gather(batch_sizes, 0, axis=0)
    columns = op.Unsqueeze(op.Range(0, rows, 1), [0])
    is_present = op.Less(columns, op.Unsqueeze(batch_sizes, [1]))
    lengths = op.ReduceSum(op.Cast(is_present, to=INT64), [0], keepdims=0)
    shape = op.Concat(op.shape_of(is_present), op.shape_of(data, 1), axis=0)
    zeros = op.Expand(scalar(op, 0, data.dtype), shape)
    where = op.Transpose(op.NonZero(is_present), perm=[1, 0])
    return Padded(op.ScatterND(zeros, where, data), lengths, is_zero=True)


def longest(op, batch: Padded) -> ir.Value:
    """The number of steps of the longest row, in a vector."""
    return op.ReduceMax(batch.lengths, [0], keepdims=1)


def present(op, x: ir.Value, lengths: ir.Value) -> ir.Value:
    """What of (steps, batch) is no padding."""
    steps = op.Unsqueeze(counted(op, op.size(x, 0)), [1])
    return op.Less(steps, op.Unsqueeze(lengths, [0]))
