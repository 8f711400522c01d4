"""Order statistics: median, nanmedian, quantile, nanquantile, kthvalue, mode.

Source of semantics: torch.median, torch.quantile, torch.mode. All sort. Whether there is NaN, which is the largest, is asked for
special values only, and by the operators that leave NaN out.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.sorting import ordered, ordered_with_nan
from experimental_experiment.torch_interpreter.aten.spatial import padded_along
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import is_static, plus, quotient

aten = torch.ops.aten
INT64 = ir.DataType.INT64
ROUNDINGS = {"lower": "Floor", "higher": "Ceil", "nearest": "Round"}
"""The interpolations that take one element."""


@translates(aten.kthvalue.default)
def kthvalue(op, self, k, dim, keepdim):
    """The k-th smallest element along an axis and its index."""
    if rank(self) == 0:
        return self, op.constant(0, INT64)
    return last_ones(op, ordered(op, self, k, dim, False), dim, keepdim)


@translates(aten.median.default)
def median(op, self):
    """The lower of the middle elements; NaN when there is one, or no element."""
    return middle_of_all(op, self, False)


@translates(aten.median.dim)
def median_dim(op, self, dim, keepdim):
    """The lower of the middle elements along an axis and its index; the first NaN when there is one."""
    return middle(op, self, dim, keepdim, False)


@translates(aten.mode.default)
def mode(op, self, dim, keepdim):
    """The smallest of the most frequent elements along an axis, and the index of the last one."""
    if rank(self) == 0:
        return self, op.constant(0, INT64)
    if 0 in self.shape:
        sizes = [op.size(self, axis) for axis in range(rank(self))]
        sizes[dim % rank(self)] = 1
        nothing = [op.Expand(op.constant(0, dtype), op.shape(sizes)) for dtype in (self.dtype, INT64)]
        return squeezed(op, nothing, dim, keepdim)
    values, indices = ordered(op, op.Transpose(self, perm=swap(self, dim)), None, -1, False)
    # the number of the run of equal elements that each one is in; NaN equals nothing, torch orders it nowhere in particular
    same = op.Equal(op.Slice(values, [1], [INT64_MAX], [-1]), op.Slice(values, [0], [-1], [-1]))
    run = op.CumSum(padded_along(op, op.Cast(op.Not(same), to=INT64), [-1], [1], [0]), -1)
    zeros = op.Mul(run, 0)
    lengths = op.ScatterElements(zeros, run, op.Add(zeros, 1), axis=-1, reduction="add")
    longest = op.ArgMax(lengths, axis=-1, keepdims=1)
    last = op.Sub(op.GatherElements(op.CumSum(lengths, -1), longest, axis=-1), 1)
    found = [op.GatherElements(part, last, axis=-1) for part in (values, indices)]
    return squeezed(op, [op.Transpose(part, perm=swap(self, dim)) for part in found], dim, keepdim)


@translates(aten.nanmedian.default)
def nanmedian(op, self):
    """The lower of the middle elements that are not NaN."""
    return middle_of_all(op, self, True)


@translates(aten.nanmedian.dim)
def nanmedian_dim(op, self, dim, keepdim):
    """The lower of the middle elements that are not NaN along an axis, and its index."""
    return middle(op, self, dim, keepdim, True)


@translates(aten.nanquantile.default, aten.nanquantile.scalar)
def nanquantile(op, self, q, dim, keepdim, interpolation):
    """The quantiles of what is not NaN, *q* between 0 and 1; NaN without such an element."""
    return interpolated(op, self, q, dim, keepdim, interpolation, True)


@translates(aten.quantile.default, aten.quantile.scalar)
def quantile(op, self, q, dim, keepdim, interpolation):
    """The quantiles along an axis, *q* between 0 and 1; a vector *q* gives a first axis."""
    return interpolated(op, self, q, dim, keepdim, interpolation, False)


# ---- helpers


def interpolated(op, self, q, dim, keepdim, interpolation: str, ignore_nan: bool) -> ir.Value:
    """Elements of the sorted axis at the real ranks ``q * (size - 1)``."""
    whole = dim is None or rank(self) == 0
    others = [] if whole else [axis for axis in range(rank(self)) if axis != dim % rank(self)]
    rows = op.Reshape(self, [-1]) if whole else op.Transpose(self, perm=[*others, dim % rank(self)])
    is_vector = isinstance(q, ir.Value) and rank(q) == 1
    if ignore_nan or op.context.special_values:
        values, ranks = ranks_of_rows(op, rows, q, interpolation, ignore_nan)
    else:
        values, _ = ordered(op, rows, None, -1, False)
        ranks = op.Mul(op.CastLike(q, self), last_rank(op, rows))

    found = at_ranks(op, values, ranks, interpolation)
    if rank(found) > len(others):
        found = op.Transpose(found, perm=[len(others), *range(len(others))])
        found = found if is_vector else op.Squeeze(found, [0])
    if not keepdim:
        return found
    kept = list(range(rank(self))) if whole else [dim % rank(self)]
    return op.Unsqueeze(found, [axis + is_vector for axis in kept])


def ranks_of_rows(op, rows, q, interpolation: str, ignore_nan: bool) -> tuple[ir.Value, ir.Value]:
    """The sorted rows, and for each row the ranks of the quantiles of what is not NaN, or that of a NaN."""
    nan = op.IsNaN(rows)
    nans = op.ReduceSum(op.CastLike(nan, rows), [-1], keepdims=1)
    wanted = op.Reshape(op.CastLike(q, rows), [-1])
    if ignore_nan:
        # infinities behind the numbers stand for NaN; in a row without numbers their difference is NaN, where there is one
        last = op.constant(math.inf, rows.dtype)
        if interpolation in ROUNDINGS:
            alone = op.Equal(nans, op.CastLike(op.size(rows, -1), nans))
            last = op.Where(alone, op.constant(math.nan, rows.dtype), last)
        values, _ = ordered(op, op.Where(nan, last, rows), None, -1, False)
        return values, op.Max(op.Mul(wanted, op.Sub(last_rank(op, rows), nans)), 0.0)
    values, _ = ordered_with_nan(op, rows, -1)
    last = last_rank(op, rows)
    return values, op.Where(op.Equal(nans, 0.0), op.Mul(wanted, last), last)


def last_rank(op, rows) -> ir.Value:
    """The rank of the last element of each row, as a float."""
    return op.Sub(op.CastLike(op.size(rows, -1), rows), 1.0)


def at_ranks(op, values, ranks, interpolation: str) -> ir.Value:
    """The elements of the last axis at real *ranks*: those of each row, or the same of all rows."""

    def taken(rounded: ir.Value) -> ir.Value:
        positions = op.Cast(rounded, to=INT64)
        if rank(ranks) < 2:
            return op.Gather(values, positions, axis=rank(values) - 1)
        return op.GatherElements(values, positions, axis=-1)

    rounding = ROUNDINGS.get(interpolation)
    if rounding is not None:
        return taken(op.emit(rounding, (ranks,)))
    low = op.Floor(ranks)
    below, above = taken(low), taken(op.Ceil(ranks))
    weight = op.CastLike(0.5, ranks) if interpolation == "midpoint" else op.Sub(ranks, low)
    gap = op.Sub(above, below)
    # torch.lerp starts from the nearer end
    near = op.Add(below, op.Mul(weight, gap))
    far = op.Sub(above, op.Mul(gap, op.Sub(op.CastLike(1.0, weight), weight)))
    if weight.const_value is not None and weight.const_value.size == 1:
        return near if weight.const_value.numpy().item() < 0.5 else far
    return op.Where(op.Less(weight, 0.5), near, far)


def middle(op, self, dim, keepdim, ignore_nan: bool) -> list[ir.Value]:
    """The element in the middle of a sorted axis and its index."""
    if rank(self) == 0:
        return [self, op.constant(0, INT64)]
    size = op.size(self, dim)
    if self.dtype not in dtypes.FLOATS or not (ignore_nan or op.context.special_values):
        half = quotient(op, plus(op, size, 1), 2)
        return last_ones(op, ordered(op, self, half, dim, False), dim, keepdim)
    values, indices = ordered_with_nan(op, self, dim)
    nans = op.ReduceSum(op.Cast(op.IsNaN(self), to=INT64), [dim], keepdims=1)
    numbers = op.Sub(op.constant(size, INT64), nans)
    place = op.Div(op.Sub(numbers, 1), 2)
    if not ignore_nan:
        place = op.Where(op.Equal(nans, 0), place, numbers)
    return squeezed(
        op, [op.GatherElements(part, place, axis=dim) for part in (values, indices)], dim, keepdim
    )


def middle_of_all(op, self, ignore_nan: bool) -> ir.Value:
    """The element in the middle of all."""
    if any(size == 0 for size in self.shape):
        return op.CastLike(float("nan"), self)
    flat = op.Reshape(self, [-1])
    if self.dtype not in dtypes.FLOATS or is_static(*(op.size(self, axis) for axis in range(rank(self)))):
        return middle(op, flat, 0, False, ignore_nan)[0]
    nan = op.Unsqueeze(op.CastLike(float("nan"), self), [0])
    if not (ignore_nan or op.context.special_values):
        # NaN before the smaller half is the answer when there is nothing
        half = quotient(op, plus(op, op.size(flat, 0), 1), 2)
        return op.Gather(op.Concat(nan, ordered(op, flat, half, 0, False)[0], axis=0), -1, axis=0)
    # one more NaN is the answer when there is nothing, and is ignored otherwise
    found = middle(op, op.Concat(flat, nan, axis=0), 0, False, True)[0]
    if ignore_nan:
        return found
    nans = op.ReduceSum(op.Cast(op.IsNaN(flat), to=INT64), keepdims=0)
    return op.Where(op.Equal(nans, 0), found, op.Squeeze(nan, [0]))


def last_ones(op, values, dim: int, keepdim: bool) -> list[ir.Value]:
    """The last element along an axis of several values."""
    return [op.Gather(value, [-1] if keepdim else -1, axis=dim) for value in values]


def squeezed(op, values: list[ir.Value], dim: int, keepdim: bool) -> list[ir.Value]:
    """The values without the axis that was reduced to one element, unless it is kept."""
    return values if keepdim else [op.Squeeze(value, [dim]) for value in values]


def swap(self, dim: int) -> list[int]:
    """The permutation that exchanges an axis with the last one."""
    perm = list(range(rank(self)))
    perm[dim], perm[-1] = perm[-1], perm[dim]
    return perm
