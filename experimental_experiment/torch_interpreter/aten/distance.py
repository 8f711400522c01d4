"""Distances: cosine_similarity, pairwise_distance, cdist, pdist, dist.

Source of semantics: https://pytorch.org/docs/stable/nn.functional.html#distance-functions and torch.cdist.
"""

from __future__ import annotations

import functools
import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.shaping import expanded
from experimental_experiment.torch_interpreter.aten.spatial import padded_along
from experimental_experiment.torch_interpreter.aten.transposing import transposed
from experimental_experiment.torch_interpreter.aten.vector_norm import vector_norm
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import promote, result_dtype
from experimental_experiment.torch_interpreter.registry import takes, translates
from experimental_experiment.torch_interpreter.sizes import is_static, label, larger, sizes_of

aten = torch.ops.aten

EUCLIDEAN_ROWS = 25
"""Above this number of rows torch computes Euclidean distances from a matrix product: faster, less exact."""


@translates(aten.cdist.default)
def cdist(op, x1, x2, p, compute_mode):
    """The p-norms of all differences of a row of *x1* and a row of *x2*.

    Euclidean distances come from a matrix product exactly when torch's do: compute_mode 1, or 0 with many rows.
    """
    if p != 2 or compute_mode == 2:
        return norms_of_differences(op, x1, x2, p)
    if compute_mode == 1:
        return euclidean_dist(op, x1, x2)
    rows = [op.size(x1, -2), op.size(x2, -2)]
    if any(isinstance(size, int) and size > EUCLIDEAN_ROWS for size in rows):
        return euclidean_dist(op, x1, x2)
    symbolic = list(dict.fromkeys(size for size in rows if not is_static(size)))
    if not symbolic:
        return norms_of_differences(op, x1, x2, p)
    most = functools.reduce(functools.partial(larger, op), symbolic)
    return op.If(
        op.Greater(op.shape([most]), EUCLIDEAN_ROWS),
        then_branch=op.subgraph(lambda inner: [euclidean_dist(inner, x1, x2)]),
        else_branch=op.subgraph(lambda inner: [norms_of_differences(inner, x1, x2, p)]),
    )


@translates(aten._cdist_forward.default)
def cdist_forward(op, x1, x2, p, compute_mode):
    """What `cdist` computes."""
    return cdist(op, x1, x2, p, compute_mode)


@translates(aten.cosine_similarity.default)
def cosine_similarity(op, x1, x2, dim, eps):
    """The scalar product of the vectors along *dim*, each divided by its norm or by *eps* when that is larger.

    Like torch, the quotient of a float has its dtype: only integers, and the product, promote.
    """
    dtype = result_dtype(x1, x2)
    x1, x2 = (x if x.dtype in dtypes.FLOATS else op.Cast(x, to=dtype) for x in (x1, x2))
    if rank(x1) == rank(x2) == 0:
        x1, x2 = op.Unsqueeze(x1, [0]), op.Unsqueeze(x2, [0])
    dim -= max(rank(x1), rank(x2)) if dim >= 0 else 0
    lengths = {label(op.size(x, dim)) if rank(x) >= -dim else 1 for x in (x1, x2)}
    if len(lengths) > 1 or None in lengths:  # the vectors themselves may be repeated, and so are longer
        x1, x2 = op.Expand(x1, op.shape_of(x2)), op.Expand(x2, op.shape_of(x1))
    units = [op.Div(x, op.Max(op.ReduceL2(x, [dim], keepdims=1), eps)) for x in (x1, x2)]
    return op.ReduceSum(op.Mul(*promote(op, *units)), [dim], keepdims=0)


@translates(aten.dist.default)
def dist(op, self, other, p):
    """The p-norm of the whole difference."""
    return vector_norm(op, op.Sub(*promote(op, self, other)), p, None, False, None)


@translates(aten._euclidean_dist.default)
def euclidean_dist(op, x1, x2):
    """The roots of ``|a|^2 - 2 a.b + |b|^2``, one product as in ATen; what rounding makes negative is zero."""
    columns = transposed(op, x2)
    squares = op.ReduceSumSquare(x1, [-1], keepdims=1), op.ReduceSumSquare(columns, [-2], keepdims=1)
    scaled = op.Mul(x1, -2)
    if is_static(*sizes_of(op, x1), *sizes_of(op, x2)):
        ones = [expanded(op, op.constant(1.0, x.dtype), sizes_of(op, x)) for x in squares]
        left = op.Concat(scaled, squares[0], ones[0], axis=-1)
        right = op.Concat(columns, ones[1], squares[1], axis=-2)
    else:  # a Pad costs a node less than ones of a size that is not known
        left = padded_along(op, op.Concat(scaled, squares[0], axis=-1), [-1], [0], [1], 1.0)
        right = op.Concat(padded_along(op, columns, [-2], [0], [1], 1.0), squares[1], axis=-2)
    return op.Sqrt(op.Max(op.MatMul(left, right), 0))


@translates(aten.pairwise_distance.default)
def pairwise_distance(op, x1, x2, p, eps, keepdim):
    """The p-norms of ``x1 - x2 + eps`` along the last axis."""
    difference = op.Add(*promote(op, op.Sub(*promote(op, x1, x2)), eps))
    return vector_norm(op, difference, p, [-1], keepdim, None)


@translates(aten.pdist.default, aten._pdist_forward.default)
def pdist(op, self, p):
    """The p-norms of the differences of the rows i < j, ordered by i then j."""
    return norm_of_rows(op, op.Sub(*(op.Gather(self, index, axis=0) for index in pairs(op, self))), p)


def pdist_backward(op, **arguments):
    """The gradient of each difference, added to row i and taken from row j; where a distance is 0 so is its gradient."""
    grad, self, p, pdist = arguments.values()  # torch 2.14 calls the first one grad_output
    first, second = pairs(op, self)
    difference = op.Sub(op.Gather(self, first, axis=0), op.Gather(self, second, axis=0))
    grad, distance = op.Unsqueeze(grad, [1]), op.Unsqueeze(pdist, [1])
    length, zero = op.Abs(difference), op.constant(0, self.dtype)
    total = op.Expand(zero, op.shape_of(self))
    if p == 0:
        return total
    slope = op.Sign(difference)
    if math.isinf(p):
        slope = op.Where(op.Equal(length, distance), slope, zero)
    elif p != 1:
        slope = op.Mul(slope, op.Pow(op.Div(length, distance), p - 1))
    nowhere = op.Equal(length if p < 1 else distance, 0)
    found = op.Where(nowhere, zero, op.Mul(grad, slope))
    total = op.ScatterND(total, op.Unsqueeze(first, [1]), found, reduction="add")
    return op.ScatterND(total, op.Unsqueeze(second, [1]), op.Neg(found), reduction="add")


translates(aten._pdist_backward.default)(takes(pdist_backward, aten._pdist_backward.default))


def pairs(op, self) -> list[ir.Value]:
    """The indices i < j of all rows, ordered by i then j."""
    rows = op.shape([op.size(self, 0)])
    above = op.Trilu(op.Expand(op.constant(1), op.Concat(rows, rows, axis=0)), 1, upper=1)
    return [op.Squeeze(index, [0]) for index in op.Split(op.NonZero(above), axis=0, num_outputs=2, outputs=2)]


def norms_of_differences(op, x1, x2, p):
    """The p-norms of all differences of a row of *x1* and a row of *x2*, the batches broadcasting.

    torch's cdist passes over NaN where p is infinite.
    """
    rows = op.Sub(op.Unsqueeze(x1, [-2]), op.Unsqueeze(x2, [-3]))
    if math.isinf(p):
        rows = op.Where(op.IsNaN(rows), op.constant(0, rows.dtype), rows)
    return norm_of_rows(op, rows, p)


def norm_of_rows(op, rows, p):
    """The p-norms along the last axis; zeros for rows without elements, whatever p is."""
    elements = rows.shape[-1]
    if math.isinf(p) and elements == 0:
        p = 1
    norms = vector_norm(op, rows, p, [-1], False, None)
    # the extremum of no element is -inf
    return op.Max(norms, 0) if math.isinf(p) and not isinstance(elements, int) else norms
