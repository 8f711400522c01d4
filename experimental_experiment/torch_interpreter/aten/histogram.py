"""Histograms: bincount, histc, histogram, histogramdd.

Source of semantics: torch.histc, torch.bincount, torch.histogram. Counting is a ScatterElements that adds; what falls outside goes to one
more bin that is dropped.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.searching import places
from experimental_experiment.torch_interpreter.emitter import INT64_MAX
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import wide
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import is_static

aten = torch.ops.aten
DOUBLE, INT64 = ir.DataType.DOUBLE, ir.DataType.INT64


@translates(aten.bincount.default)
def bincount(op, self, weights, minlength):
    """How often each integer occurs, or the sum of its weights: float32 for float32 weights, float64 for others."""
    if weights is not None and self.shape[0] == 0:
        raise Untranslatable("weights of no integer: torch counts in int64, but declares floats")
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
    if not is_static(min, max):
        is_range_of_data = op.Equal(low, high)
        least, most = range_of(op, flat)
        low, high = op.Where(is_range_of_data, least, low), op.Where(is_range_of_data, most, high)
    elif min == max:
        low, high = range_of(op, flat)
    inside = op.And(op.GreaterOrEqual(flat, low), op.LessOrEqual(flat, high))
    low, high, x = (op.Cast(part, to=wide(part.dtype)) for part in (low, high, flat))
    place = op.Div(op.Mul(op.Sub(x, low), op.CastLike(bins, x)), op.Sub(high, low))
    # what is outside is counted at -1, which is one more interval behind the others
    index = op.Where(inside, op.Min(place, op.CastLike(bins - 1, place)), op.CastLike(-1, place))
    ones = op.Expand(op.constant(1, INT64), op.shape_of(flat))
    counts = tally(op, op.Cast(index, to=INT64), ones, bins + 1)
    return op.CastLike(op.Slice(counts, [0], [bins], [0]), self)


@translates(aten.histogram.bin_ct)
def histogram(op, self, bins, range, weight, density):
    """How many elements, or how much weight, falls in each of *bins* equal intervals; the edges of the intervals."""
    columns = [op.Reshape(self, [-1])]
    counts, edges = histogram_of(op, columns, even_edges(op, columns, [bins], range), weight, density)
    return counts, edges[0]


@translates(aten.histogram.bins_tensor)
def histogram_between(op, self, bins, weight, density):
    """How many elements, or how much weight, falls between the edges *bins*."""
    return histogram_of(op, [op.Reshape(self, [-1])], [bins], weight, density)[0], bins


@translates(aten.histogramdd.default)
def histogramdd(op, self, bins, range, weight, density):
    """How many points, or how much weight, falls in each cell of a regular grid; the edges along each axis."""
    columns = coordinates(op, self)
    return histogram_of(op, columns, even_edges(op, columns, bins, range), weight, density)


@translates(aten.histogramdd.TensorList_bins)
def histogramdd_between(op, self, bins, weight, density):
    """How many points, or how much weight, falls in each cell of the grid whose edges are *bins*."""
    return histogram_of(op, coordinates(op, self), bins, weight, density)


@translates(aten.histogramdd.int_bins)
def histogramdd_int_bins(op, self, bins, range, weight, density):
    """How many points fall in each cell of a grid with the same number of intervals along each axis."""
    return histogramdd(op, self, [bins] * self.shape[-1], range, weight, density)


@translates(aten._histogramdd_bin_edges.default)
def _histogramdd_bin_edges(op, self, bins, range, weight, density):
    """The edges of the intervals of a regular grid along each axis."""
    return even_edges(op, coordinates(op, self), bins, range)


@translates(aten._histogramdd_from_bin_cts.default)
def _histogramdd_from_bin_cts(op, self, bins, range, weight, density):
    """`histogramdd` without the edges."""
    return histogramdd(op, self, bins, range, weight, density)[0]


@translates(aten._histogramdd_from_bin_tensors.default)
def _histogramdd_from_bin_tensors(op, self, bins, weight, density):
    """`histogramdd_between` without the edges."""
    return histogramdd_between(op, self, bins, weight, density)[0]


# ---- helpers


def range_of(op, flat) -> tuple[ir.Value, ir.Value]:
    """The least and the largest element, one less and one more when they are equal."""
    low, high = op.ReduceMin(flat, keepdims=0), op.ReduceMax(flat, keepdims=0)
    single = op.Equal(low, high)
    return op.Where(single, op.Sub(low, 1), low), op.Where(single, op.Add(high, 1), high)


def coordinates(op, self) -> list[ir.Value]:
    """The last axis of *self* as a list of vectors, one for each coordinate."""
    points = op.Reshape(self, [-1, self.shape[-1]])
    return [op.Gather(points, axis, axis=1) for axis in range(self.shape[-1])]


def even_edges(op, columns, bins: list[int], bounds: list[float] | None) -> list[ir.Value]:
    """Equally spaced edges along each axis, from *bounds* (low, high, low, high...) or from the data."""
    edges = []
    for axis, (column, number) in enumerate(zip(columns, bins)):
        if bounds is not None:
            low, high = (op.CastLike(float(bound), column) for bound in bounds[2 * axis : 2 * axis + 2])
        elif column.shape[0] == 0:
            low, high = op.CastLike(0.0, column), op.CastLike(1.0, column)
        else:
            low, high = op.ReduceMin(column, keepdims=0), op.ReduceMax(column, keepdims=0)
        single = op.Equal(low, high)
        low, high = op.Where(single, op.Sub(low, 0.5), low), op.Where(single, op.Add(high, 0.5), high)
        # as torch.linspace: the second half is counted from the end
        step = op.Div(op.Sub(high, low), op.CastLike(number, column))
        steps = torch.arange(number + 1)
        first_half = op.constant((steps < (number + 1) // 2).numpy())
        upwards = op.Add(low, op.Mul(op.CastLike(steps.numpy(), column), step))
        downwards = op.Sub(high, op.Mul(op.CastLike(steps.flip(0).numpy(), column), step))
        edges.append(op.Where(first_half, upwards, downwards))
    return edges


def histogram_of(op, columns, edges, weight, density: bool) -> tuple[ir.Value, list[ir.Value]]:
    """The weight in each cell of a grid, points being given by their coordinates; what is outside counts nowhere."""
    bins = [op.Sub(op.constant(op.size(edge, 0), INT64), 1) for edge in edges]
    place, inside = op.constant(0, INT64), op.constant(True)
    for column, edge, number in zip(columns, edges, bins):
        index = op.Sub(places(op, edge, column, True, False), 1)
        last = op.Gather(edge, -1, axis=0)
        index = op.Where(op.Equal(column, last), op.Sub(number, 1), index)
        inside = op.And(inside, op.And(op.GreaterOrEqual(index, 0), op.Less(index, number)))
        place = op.Add(op.Mul(place, number), index)

    cells = op.ReduceProd(op.shape(bins), keepdims=0)
    weights = op.Expand(op.CastLike(1, columns[0]), op.shape_of(columns[0]))
    weights = weights if weight is None else op.Reshape(weight, [-1])
    counts = tally(op, op.Where(inside, place, cells), weights, op.Add(cells, 1))
    counts = op.Reshape(op.Slice(counts, [0], op.Reshape(cells, [1]), [0]), op.shape(bins))
    if density:
        counts = op.Div(counts, op.ReduceSum(counts, keepdims=0))
        for axis, edge in enumerate(edges):
            widths = op.Sub(op.Slice(edge, [1], [INT64_MAX], [0]), op.Slice(edge, [0], [-1], [0]))
            counts = op.Div(counts, op.Reshape(widths, [-1] + [1] * (len(edges) - axis - 1)))
    return counts, list(edges)


def tally(op, index, weights, size) -> ir.Value:
    """A vector of *size* elements, each the sum of the *weights* of its *index*."""
    zeros = op.Expand(op.CastLike(0, weights), op.shape([size]))
    return op.ScatterElements(zeros, index, weights, axis=0, reduction="add")
