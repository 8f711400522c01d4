"""Reductions over segments of an axis: segment_reduce and its gradient.

Source of semantics: torch.segment_reduce. Every segment sees the whole axis through a mask: simple, and exact for empty segments.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
INT64 = ir.DataType.INT64
START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
"""What each reduction starts from."""


@translates(aten.segment_reduce.default)
def segment_reduce(op, data, reduce, lengths, offsets, axis, unsafe, initial):
    """The sum, mean, product or extremum of each segment of an axis, given by lengths or by offsets."""
    reduce = reduce.removeprefix("a")  # amax and amin are names of max and min
    starts, ends = bounds(op, lengths, offsets, axis)
    behind = list(range(axis + 2, rank(data) + 1))
    inside = op.Unsqueeze(membership(op, data, starts, ends, axis), behind)
    start = op.CastLike(START[reduce], data)
    members = op.Where(inside, op.Unsqueeze(data, [axis]), start)  # [..., segment, element, ...]
    first = start if initial is None else op.CastLike(float(initial), data)
    if reduce in ("max", "min"):
        result = op.emit(f"Reduce{reduce.capitalize()}", (members, [axis + 1]), {"keepdims": 0})
        return op.emit(reduce.capitalize(), (result, first))
    if reduce == "prod":
        return op.Mul(op.ReduceProd(members, [axis + 1], keepdims=0), first)
    total = op.Add(op.ReduceSum(members, [axis + 1], keepdims=0), first)
    if reduce == "sum":
        return total
    number = op.CastLike(op.Unsqueeze(op.Sub(ends, starts), [other - 1 for other in behind]), data)
    empty = op.CastLike(math.nan if initial is None else float(initial), data)
    return op.Where(op.Equal(number, 0.0), empty, op.Div(total, number))


@translates(aten._segment_reduce_backward.default)
def segment_reduce_backward(op, grad, output, data, reduce, lengths, offsets, axis, initial):
    """What each element of an axis adds to the result of its segment, times the gradient; equal extrema share a positive one."""
    starts, ends = bounds(op, lengths, offsets, axis)
    behind = list(range(axis + 2, rank(data) + 1))
    inside = op.Unsqueeze(membership(op, data, starts, ends, axis), behind)  # [..., segment, element, ...]
    element = op.Unsqueeze(data, [axis])
    share = op.Unsqueeze(grad, [axis + 1])
    if reduce == "mean":
        share = op.Div(share, op.CastLike(op.Unsqueeze(op.Sub(ends, starts), [axis + 1, *behind]), data))
    elif reduce == "prod":
        share = op.Mul(share, product_of_others(op, element, inside, axis + 1, initial))
    elif reduce != "sum":
        inside = op.And(inside, op.Equal(element, op.Unsqueeze(output, [axis + 1])))
        number = op.ReduceSum(op.CastLike(inside, data), [axis + 1], keepdims=1)
        # torch's kernel does not divide what is below 0
        share = op.Where(op.Greater(share, op.CastLike(0.0, data)), op.Div(share, number), share)
    return op.ReduceSum(op.Where(inside, share, op.CastLike(0.0, data)), [axis], keepdims=0)


def product_of_others(op, element: ir.Value, inside: ir.Value, axis: int, initial: float | None) -> ir.Value:
    """For each element of an axis, the product of the others of its segment and of what it starts from."""
    one, is_zero = op.CastLike(1.0, element), op.Equal(element, op.CastLike(0.0, element))
    finite = op.Where(is_zero, one, element)
    zeros = op.ReduceSum(op.CastLike(op.And(inside, is_zero), element), [axis], keepdims=1)
    whole = op.ReduceProd(op.Where(inside, finite, one), [axis], keepdims=1)
    if initial is not None:
        whole = op.Mul(whole, op.CastLike(float(initial), element))
    is_product = op.Equal(zeros, op.CastLike(is_zero, element))
    return op.Where(is_product, op.Div(whole, finite), op.CastLike(0.0, element))


def bounds(op, lengths: ir.Value | None, offsets: ir.Value | None, axis: int) -> tuple[ir.Value, ir.Value]:
    """Where the segments start and end."""
    if lengths is not None:
        ends = op.CumSum(lengths, axis)
        return op.Sub(ends, lengths), ends
    return op.Slice(offsets, [0], [-1], [axis]), op.Slice(offsets, [1], [INT64_MAX], [axis])


def membership(op, data: ir.Value, starts: ir.Value, ends: ir.Value, axis: int) -> ir.Value:
    """Which elements of an axis belong to which segment: (..., segment, element)."""
    places = op.Cast(op.Range(0, op.constant(op.size(data, axis), INT64), 1), to=starts.dtype)
    after = op.GreaterOrEqual(places, op.Unsqueeze(starts, [-1]))
    return op.And(after, op.Less(places, op.Unsqueeze(ends, [-1])))
