"""Embedding: rows of a table, read one by one or reduced by bags.

Source of semantics: https://pytorch.org/docs/stable/nn.functional.html#sparse-functions.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import sympy
import torch

from experimental_experiment.torch_interpreter.aten.vector_norm import linalg_vector_norm
from experimental_experiment.torch_interpreter.dtypes import HALVES
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.promotion import cast
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Size, counted, is_static, plus
from experimental_experiment.torch_interpreter.symbols import expression_of
from experimental_experiment.torch_interpreter.unread import reads_result, zeros_for_gradient

aten = torch.ops.aten
INT64 = ir.DataType.INT64

SUM, MEAN, MAX = range(3)
"""The modes of embedding_bag."""

INDICES, BAGS = 0, 1
"""The number that stands for each index, and for each bag, where bags are counted."""

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax")
"""What reduces the rows of bags of one length, by mode."""


@translates(aten.embedding.default)
def embedding(op, weight, indices, padding_idx, scale_grad_by_freq, sparse):
    """Rows of *weight*; the other arguments say how gradients flow."""
    return op.Gather(weight, indices, axis=0)


@translates(aten.embedding_renorm.default)
def embedding_renorm(op, self, indices, max_norm, norm_type):
    """The table whose rows that are looked up are shortened to *max_norm* where they are longer."""
    indices = op.Unique(cast(op, indices, INT64))
    rows = op.Gather(self, indices, axis=0)
    norms = linalg_vector_norm(op, rows, norm_type, [1], True, None)
    limit = op.constant(max_norm, norms.dtype)
    shortened = op.Mul(rows, op.Div(limit, op.Add(norms, 1e-7)))
    rows = op.Where(op.Greater(norms, limit), shortened, rows)
    return op.ScatterND(self, op.Unsqueeze(indices, [1]), rows)


@translates(aten.embedding_bag.default)
def embedding_bag(
    op, weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset
):
    """The sum, the mean or the maximum of the rows of each bag, without padding."""
    return bags(op, weight, indices, offsets, mode, per_sample_weights, include_last_offset, None)


@translates(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _embedding_bag(
    op, weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
):  # fmt: skip
    """Like `embedding_bag`; a negative padding_idx is none."""
    padding = padding_idx if padding_idx >= 0 else None
    return bags(op, weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding)


@translates(aten.embedding_bag.padding_idx)
def embedding_bag_padding(
    op, weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
):  # fmt: skip
    """Like `embedding_bag`; rows at *padding_idx*, counted from the end when negative, are left out."""
    if padding_idx is not None and padding_idx < 0:
        padding_idx = plus(op, op.size(weight, 0), padding_idx)
    return bags(op, weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx)


def bags(op, weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding):
    """The reduced rows, then what the gradient needs, zeros where nobody reads it."""
    matrix = None if mode == MAX and reads_result(op, 1) else rows_of_indices(op, indices)
    if matrix is not None and per_sample_weights is None and padding is None and not include_last_offset:
        reduced = op.emit(REDUCTIONS[mode], (op.Gather(weight, matrix, axis=0), [1]), {"keepdims": 0})
        return reduced, *kept_for_gradient(op, indices, offsets, mode, None)
    starts = op.Slice(offsets, [0], [-1], [0]) if include_last_offset else offsets
    dtype = weight.dtype
    where = op.Unsqueeze(bag_of_each(op, indices, cast(op, starts, INT64)), [1])
    rows = cast(op, op.Gather(weight, indices, axis=0), ir.DataType.FLOAT if dtype in HALVES else dtype)
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(cast(op, per_sample_weights, rows.dtype), [1]))
    neutral = op.constant(-math.inf if mode == MAX else 0.0, rows.dtype)
    is_kept = None
    if padding is not None:
        is_kept = op.Unsqueeze(op.Not(op.Equal(cast(op, indices, INT64), padding)), [1])
        rows = op.Where(is_kept, rows, neutral)
    start = equal_rows(op, neutral, starts, op.size(weight, 1), BAGS)
    reduced = op.ScatterND(start, where, rows, reduction="max" if mode == MAX else "add")
    if mode != SUM:
        zero, one = (op.constant(number, rows.dtype) for number in (0.0, 1.0))
        count = row_counts(op, equal_rows(op, zero, starts, 1, BAGS), indices, where, is_kept)
        if mode == MEAN:
            reduced = op.Div(reduced, op.Max(count, one))
        else:
            reduced = op.Where(op.Equal(count, zero), zero, reduced)
    largest = None
    if mode == MAX and reads_result(op, 1):
        largest = indices_of_largest(op, indices, rows, reduced, where, is_kept)
    return cast(op, reduced, dtype), *kept_for_gradient(op, indices, starts, mode, is_kept, largest)


def indices_of_largest(op, indices, rows, reduced, where, is_kept):
    """The index that gave each element of the reduced rows, the first one among equals, 0 for an empty bag."""
    is_largest = op.Equal(rows, op.GatherND(reduced, where))
    if is_kept is not None:
        is_largest = op.And(is_largest, is_kept)
    count = op.constant(op.size(indices, 0), INT64)
    place = op.Where(is_largest, op.Unsqueeze(counted(op, op.size(indices, 0)), [1]), count)
    none = op.Expand(count, op.shape_of(reduced))
    first = op.ScatterND(none, where, place, reduction="min")
    return op.Gather(op.Concat(indices, op.constant([0], indices.dtype), axis=0), first, axis=0)


def kept_for_gradient(op, indices, starts, mode, is_kept, largest=None):
    """The bag of each index, the number of indices of each bag, zeros for a sum, and *largest* or that number again.

    The bags are left out where torch declares none, the number again on a GPU.
    """
    if not reads_result(op, 1):
        yield from zeros_for_gradient(op)
        return
    starts = cast(op, starts, INT64)
    bags = bag_of_each(op, indices, starts)
    _, fake, _, last = op.context.node.meta["val"]
    yield op.constant([], fake.dtype) if is_empty(fake) else cast(op, bags, indices.dtype)
    counts = equal_rows(op, op.constant(0), starts, 1, BAGS)
    if mode != SUM:
        counts = row_counts(op, counts, indices, op.Unsqueeze(bags, [1]), is_kept)
    counts = op.Squeeze(counts, [1])
    counts = cast(op, counts, indices.dtype)
    yield counts
    if largest is not None:
        yield largest
    else:
        yield op.constant([], last.dtype) if is_empty(last) else counts


def is_empty(fake: torch.Tensor) -> bool:
    """Whether a tensor is known to have no element."""
    return isinstance(fake.shape[0], int) and fake.shape[0] == 0


def row_counts(op, zero, indices, where, is_kept) -> ir.Value:
    """The number of indices of each bag, [bags, 1], in the dtype of *zero*. *is_kept*, [indices, 1], says which ones count; None: all."""
    if is_kept is None:
        one = equal_rows(op, op.constant(1, zero.dtype), indices, 1, INDICES)
    else:
        one = op.Cast(is_kept, to=zero.dtype)
    # as fast for single elements as ScatterND, and never in parts
    return op.ScatterElements(zero, where, one, reduction="add")


def numbers_like(op, number: int, integers: ir.Value) -> ir.Value:
    """A vector that holds *number* as often as there are *integers*: a constant, or a Clip of the integers between it and itself."""
    if is_static(op.size(integers, 0)):
        return op.Expand(op.constant(number), op.shape_of(integers))
    return cast(op, op.Clip(integers, number, number), INT64)


def equal_rows(op, number: ir.Value, integers: ir.Value, width: Size, place: int) -> ir.Value:
    """A matrix that holds *number* everywhere, with *width* columns and a row for each of the *integers*.

    A Gather reads one row as often as there are integers, when their number is dynamic. It reads the row at *place* of two equal
    ones: `bag_of_each` makes the same vector of places.
    """
    count = op.size(integers, 0)
    if is_static(count) or not is_static(width):
        return op.Expand(number, op.shape([count, width]))
    return op.Gather(op.Expand(number, [2, width]), numbers_like(op, place, integers), axis=0)


def rows_of_indices(op, indices) -> ir.Value | None:
    """The matrix of indices whose rows are the bags: torch flattens it and starts a bag every row. None for other bags."""
    flattened, offsets = producer_of(indices, "Reshape"), op.context.node.args[2]
    if flattened is None or rank(flattened.inputs[0]) != 2:
        return None
    if not isinstance(offsets, torch.fx.Node) or offsets.target is not aten.arange.start_step:
        return None
    start, end, step = (size_of(item) for item in offsets.args)
    matrix = flattened.inputs[0]
    if start != 0 or end != size_of(op.context.node.args[1].meta["val"].shape[0]):
        return None
    width = matrix.shape[1] if isinstance(matrix.shape[1], int) else matrix.shape[1].value
    return matrix if width == op.context.dimensions.text(step, "length") else None


def size_of(item) -> sympy.Expr:
    """What torch knows of a number of the program."""
    number = item.meta["val"] if isinstance(item, torch.fx.Node) else item
    return sympy.sympify(expression_of(number))


def bag_of_each(op, indices, starts):
    """The bag that each index belongs to: the number of bags that start at it or before it, less one, with which the sum begins."""
    none = op.Concat(op.constant([-1]), numbers_like(op, INDICES, indices), axis=0)
    one = numbers_like(op, BAGS, starts)
    begun = op.CumSum(op.ScatterElements(none, starts, one, axis=0, reduction="add"), 0)
    return op.Slice(begun, [0], [-1], [0])
