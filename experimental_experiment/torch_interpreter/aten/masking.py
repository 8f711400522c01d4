"""Masking: where, masked_select, masked_scatter, nonzero, tril and triu.

Source of semantics: https://pytorch.org/docs/stable/generated/torch.where.html, ONNX Where-16, Compress-11, NonZero-13, Trilu-14.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.conversion import scalar
from experimental_experiment.torch_interpreter.aten.shaping import expanded, reshaped
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import broadcast_sizes, know_sizes, lookup, minus, volume

aten = torch.ops.aten

INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL
WITH_ZERO = frozenset(
    {BOOL, ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32, INT64, ir.DataType.UINT8}
)
"""The dtypes whose zeros NonZero finds as they are."""

PICKED = "picked"
"""With a mask, where the emitters keep what was taken where it is true."""


@translates(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(op, self, mask, value):
    """*value* where the mask is true, in the dtype of *self*."""
    return op.Where(op.Cast(mask, to=BOOL), scalar(op, value, self.dtype), self)


@translates(aten.masked_scatter.default)
def masked_scatter(op, self, mask, source):
    """The first elements of *source*, in order, where the mask is true."""
    sizes = broadcast_sizes(op, self, mask)
    mask = expanded(op, op.Cast(mask, to=BOOL), sizes)
    self = expanded(op, self, sizes)
    where = op.Transpose(op.NonZero(mask), perm=[1, 0])
    values = op.Slice(op.Reshape(source, [-1]), [0], op.shape_of(where, 0, 1), [0])
    return op.ScatterND(self, where, values) if rank(self) else masked_scatter_scalar(op, self, mask, source)


@translates(aten.masked_select.default)
def masked_select(op, self, mask):
    """The elements where the mask is true, in order."""
    sizes = broadcast_sizes(op, self, mask)
    mask = expanded(op, op.Cast(mask, to=BOOL), sizes)
    found = op.Compress(flat(op, expanded(op, self, sizes)), flat(op, mask), axis=0)
    know_count(op, mask, found)
    return found


@translates(aten.masked_scatter_backward.default)
def masked_scatter_backward(op, grad_output, mask, sizes):
    """The gradient of the source: the elements where the mask is true, in order, then zeros."""
    used = masked_select(op, grad_output, mask)
    unused = op.shape([minus(op, volume(op, sizes), op.size(used, 0))])
    zeros = op.Expand(op.constant(0, grad_output.dtype), unused)
    return reshaped(op, op.Concat(used, zeros, axis=0), sizes)


@translates(aten.nonzero.default, aten.argwhere.default)
def nonzero(op, self):
    """The positions of the elements that are not zero, a row each."""
    found = op.Transpose(positions(op, self), perm=[1, 0])
    know_count(op, self, found)
    return found


@translates(aten.nonzero_numpy.default)
def nonzero_numpy(op, self):
    """The positions of the elements that are not zero, a tensor an axis."""
    found = coordinates(op, self if rank(self) else flat(op, self))
    know_count(op, self, found[0])
    return found


@translates(aten.nonzero_static.default)
def nonzero_static(op, self, size, fill_value):
    """The first *size* positions of elements that are not zero, then *fill_value*."""
    found = positions(op, self)
    rest = op.Expand(op.constant(fill_value, INT64), op.shape([rank(self), size]))
    return op.Transpose(op.Slice(op.Concat(found, rest, axis=1), [0], op.shape([size]), [1]), perm=[1, 0])


@translates(aten.where.default)
def where_nonzero(op, condition):
    """The positions where the condition holds, a tensor an axis."""
    return nonzero_numpy(op, condition)


@translates(aten.tril.default)
def tril(op, self, diagonal):
    """Zero above a diagonal."""
    return op.Trilu(self, op.constant(diagonal), upper=0)


@translates(aten.triu.default)
def triu(op, self, diagonal):
    """Zero below a diagonal."""
    return op.Trilu(self, op.constant(diagonal), upper=1)


@translates(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def where(op, condition, self, other):
    """*self* where the condition holds, *other* elsewhere."""
    return op.Where(op.Cast(condition, to=BOOL), *promote(op, self, other))


# ---- helpers that other families share


def flat(op, x: ir.Value) -> ir.Value:
    """The elements in one axis."""
    return reshaped(op, x, [-1])


def positions(op, x: ir.Value) -> ir.Value:
    """The positions of the elements that are not zero, a column each: INT64 of shape (rank, count)."""
    if rank(x) == 0:
        return op.Slice(op.NonZero(comparable_to_zero(op, flat(op, x))), [0], [0], [0])
    return op.NonZero(comparable_to_zero(op, x))


def rows_of_positions(op, mask: ir.Value) -> ir.Value:
    """The positions where a mask with axes is true, a row each; as many as what was taken with it before."""
    where = op.Transpose(positions(op, mask), perm=[1, 0])
    found = lookup(op, (PICKED, mask))
    if (
        found is not None and op.producer(found) is not None
    ):  # no function of a module reads what another one has
        know_sizes(op, where, [op.size(found, 0)])
    return where


def know_count(op, mask: ir.Value, found: ir.Value) -> None:
    """Keep that the first axis of *found* has an element for each true one of a mask: torch names the size of the result."""
    op.sizes.setdefault((PICKED, mask), found)


def comparable_to_zero(op, x: ir.Value) -> ir.Value:
    """*x* in a dtype that runtimes know the zero of: a boolean for float64, which a narrower float may round to 0."""
    return x if x.dtype in WITH_ZERO else op.Cast(x, to=BOOL)


def coordinates(op, mask: ir.Value) -> list[ir.Value]:
    """The positions where a mask is true, a 1-D tensor an axis."""
    found = op.NonZero(comparable_to_zero(op, mask))
    return [op.Gather(found, axis, axis=0) for axis in range(rank(mask))]


def masked_scatter_scalar(op, self: ir.Value, mask: ir.Value, source: ir.Value) -> ir.Value:
    """masked_scatter into a 0-d tensor."""
    return op.Where(mask, op.Gather(flat(op, source), 0, axis=0), self)
