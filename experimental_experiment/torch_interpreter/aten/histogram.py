"""Histograms: bincount, histc.

Source of semantics: torch.histc, torch.bincount. Counting is a ScatterElements that adds; what falls outside goes to one
more bin that is dropped.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
DOUBLE, FLOAT, INT64 = ir.DataType.DOUBLE, ir.DataType.FLOAT, ir.DataType.INT64


@translates(aten.bincount.default)
def bincount(op, self, weights, minlength):
    """How often each integer occurs, or the sum of its weights: float32 for float32 weights, float64 for others."""
    index = op.Cast(self, to=INT64)
    size = op.Max(op.Add(op.ReduceMax(index, keepdims=0), 1), minlength)
    if weights is None:
        weights = op.Expand(op.constant(1, INT64), op.shape_of(index))
    elif weights.dtype != ir.DataType.FLOAT:
        weights = op.Cast(weights, to=DOUBLE)
    return tally(op, index, weights, size)


@translates(aten.histc.default)
def histc(op, self, bins, min, max):
    """How many elements fall in each of *bins* equal intervals, in the dtype of *self*; the last one is closed."""
    flat = op.Reshape(self, [-1])
    low, high = (op.CastLike(bound, flat) for bound in (min, max))
    if not isinstance(min, ir.Value) and min == max:
        low, high = op.ReduceMin(flat, keepdims=0), op.ReduceMax(flat, keepdims=0)
        single = op.Equal(low, high)
        low, high = op.Where(single, op.Sub(low, 1), low), op.Where(single, op.Add(high, 1), high)
    inside = op.And(op.GreaterOrEqual(flat, low), op.LessOrEqual(flat, high))
    place = op.Div(op.Mul(op.Sub(flat, low), op.CastLike(bins, flat)), op.Sub(high, low))
    index = op.Min(op.Cast(op.Where(inside, place, op.CastLike(0, place)), to=INT64), bins - 1)
    ones = op.Expand(op.constant(1, INT64), op.shape_of(flat))
    counts = tally(op, op.Where(inside, index, bins), ones, bins + 1)
    return op.CastLike(op.Slice(counts, [0], [bins], [0]), self)


def tally(op, index, weights, size) -> ir.Value:
    """A vector of *size* elements, each the sum of the *weights* of its *index*."""
    zeros = op.Expand(op.CastLike(0, weights), op.shape([size]))
    return op.ScatterElements(zeros, index, weights, axis=0, reduction="add")
