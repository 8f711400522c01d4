"""Distinct elements: unique, unique_dim, unique_consecutive.

Source of semantics: torch.unique and ONNX Unique-11.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
INT64 = ir.DataType.INT64

NOTHING: list[int] = []
"""What torch returns for a result that is not asked for, which is int64."""


@translates(aten._unique2.default)
def unique(op, self, sorted, return_inverse, return_counts):
    """The distinct elements in order, the place of each element among them, how often each occurs."""
    values, _, inverse, counts = op.Unique(self, sorted=1, outputs=4)
    inverse = op.Reshape(inverse, op.shape_of(self)) if return_inverse else NOTHING
    return values, inverse, counts if return_counts else NOTHING


@translates(aten._unique.default)
def unique_without_counts(op, self, sorted, return_inverse):
    """The distinct elements in order, and the place of each element among them."""
    return unique(op, self, sorted, return_inverse, False)[:2]


@translates(aten.unique_consecutive.default)
def unique_consecutive(op, self, return_inverse, return_counts, dim):
    """The first of each run of equal elements or slices, the run of each element, the length of each run."""
    if dim is not None:
        if len(op.context.node.meta["val"][0].shape) != rank(self):
            raise Untranslatable("torch.export declares a wrong shape for dim=-1: count dim from the start")
        # torch gives all three whether they are asked for or not
        where, place, counts = runs(op, self, dim)
        return op.Gather(self, where, axis=dim), place, counts
    flat = op.Reshape(self, [-1])
    where, place, counts = runs(op, flat, 0)
    place = op.Reshape(place, op.shape_of(self)) if return_inverse else NOTHING
    return op.Gather(flat, where, axis=0), place, counts if return_counts else NOTHING


@translates(aten.unique_dim.default)
def unique_dim(op, self, dim, sorted, return_inverse, return_counts):
    """The distinct slices along an axis in lexicographic order, the place of each slice, how often each occurs.

    Slices that hold NaN have no order, neither in torch nor in ONNX.
    """
    values, _, inverse, counts = op.Unique(self, axis=dim, sorted=1, outputs=4)
    # torch gives all three whether they are asked for or not
    return values, inverse, counts


def runs(op, self, dim: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Where each run of equal slices along an axis starts, the run of each slice, the length of each run.

    A NaN equals nothing.
    """
    others = [axis for axis in range(rank(self)) if axis != dim % rank(self)]
    before = op.Slice(self, [0], [-1], [dim])
    after = op.Slice(self, [1], [INT64_MAX], [dim])
    differs = op.Not(op.Equal(after, before))
    if others:
        differs = op.Cast(
            op.ReduceMax(op.Cast(differs, to=ir.DataType.UINT8), others, keepdims=0), to=ir.DataType.BOOL
        )
    size = op.shape([op.size(self, dim)])
    first = op.Expand(op.constant([True]), op.Min(size, op.constant([1])))
    starts = op.Concat(first, differs, axis=0)

    where = op.Reshape(op.NonZero(starts), [-1])
    place = op.Sub(op.CumSum(op.Cast(starts, to=INT64), 0), 1)
    ends = op.Concat(
        op.Slice(where, [1], [INT64_MAX], [0]),
        op.Slice(size, [0], op.Min(size, op.constant([1])), [0]),
        axis=0,
    )
    return where, place, op.Sub(ends, where)
