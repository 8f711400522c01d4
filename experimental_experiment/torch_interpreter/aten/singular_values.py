"""Singular values and eigenvalues of symmetric matrices; ranks and pseudoinverses.

One-sided Jacobi rotations in float64: columns are turned two by two until all are orthogonal, half of them at a time, in the order
of a round-robin tournament. Singular vectors and eigenvectors are refused: nothing in a matrix says which sign LAPACK gives them.
Source of semantics: https://pytorch.org/docs/stable/linalg.html.
"""

from __future__ import annotations

import operator

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.factorization import (
    identity_like,
    on_diagonal,
    repeat,
    row,
    transposed,
)
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
DOUBLE, INT64 = ir.DataType.DOUBLE, ir.DataType.INT64

SWEEPS = 15
"""How often every pair of columns is turned; convergence is quadratic, ten are enough for hundreds of columns."""


def orthogonalized(op, a: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``A V`` with orthogonal columns, and the orthogonal V, for float64 matrices."""
    rows, size = op.size(a, -2), op.size(a, -1)
    if not isinstance(size, int):
        raise Untranslatable("the number of columns is not constant")
    half = (size + 1) // 2
    last = rank(a) - 1
    # an odd column plays against a column of zeros
    stacked = op.Concat(a, identity_like(op, a, -1), axis=last - 1)
    if size % 2:
        stacked = op.Concat(stacked, op.Mul(op.Slice(stacked, [0], [1], [last]), 0.0), axis=last)
    order = [0, half, *range(1, half - 1), *range(half + 1, 2 * half), half - 1] if half > 1 else [0, 1]

    def step(op, k, stacked):
        left, right = op.Split(stacked, axis=last, num_outputs=2, outputs=2)
        a, b = (op.Slice(x, [0], op.shape([rows]), [last - 1]) for x in (left, right))
        inner = op.ReduceSum(op.Mul(a, b), [last - 1], keepdims=1)
        gap = op.Sub(*(op.ReduceSumSquare(x, [last - 1], keepdims=1) for x in (b, a)))
        done = op.Equal(inner, 0.0)
        zeta = op.Div(gap, op.Mul(op.Where(done, op.constant(1, DOUBLE), inner), 2.0))
        sign = op.Where(op.Less(zeta, 0.0), op.constant(-1, DOUBLE), op.constant(1, DOUBLE))
        root = op.Sqrt(op.Add(op.Mul(zeta, zeta), 1.0))
        tangent = op.Where(done, op.constant(0, DOUBLE), op.Div(sign, op.Add(op.Abs(zeta), root)))
        cosine = op.Reciprocal(op.Sqrt(op.Add(op.Mul(tangent, tangent), 1.0)))
        sine = op.Mul(cosine, tangent)
        turned_left = op.Sub(op.Mul(left, cosine), op.Mul(right, sine))
        turned_right = op.Add(op.Mul(left, sine), op.Mul(right, cosine))
        return [op.Gather(op.Concat(turned_left, turned_right, axis=last), order, axis=last)]

    # the tournament ends with every column where it started
    (stacked,) = repeat(op, SWEEPS * (2 * half - 1), step, stacked)
    stacked = op.Slice(stacked, [0], [size], [last])
    return op.Split(stacked, op.shape([rows, size]), axis=last - 1, outputs=2)


def taller(op, a: ir.Value) -> ir.Value:
    """Float64 matrices with the singular values of *a*, with no more columns than rows."""
    sizes = op.size(a, -2), op.size(a, -1)
    if not all(isinstance(size, int) for size in sizes):
        raise Untranslatable("the sizes of the matrix are not constant")
    a = op.Cast(a, to=DOUBLE)
    return a if sizes[0] >= sizes[1] else transposed(op, a)


def singular_values(op, a: ir.Value) -> ir.Value:
    """The singular values as float64, the largest first."""
    last = rank(a) - 1
    columns, _ = orthogonalized(op, taller(op, a))
    lengths = op.ReduceL2(columns, [last - 1], keepdims=0)
    return op.TopK(lengths, op.shape([op.size(columns, last)]), axis=last - 1, outputs=2)[0]


def symmetric(op, a: ir.Value, uplo: str) -> ir.Value:
    """Symmetric matrices from one triangle."""
    upper = uplo.upper() == "U"
    half = op.Trilu(a, 1 if upper else -1, upper=int(upper))
    middle = op.Where(on_diagonal(op, a), a, op.CastLike(0, a))
    return op.Add(op.Add(half, transposed(op, half)), middle)


def given_values(op, a: ir.Value, hermitian: bool) -> ir.Value:
    """The singular values of *a*, of which only the lower triangle counts when it is *hermitian*."""
    return singular_values(op, symmetric(op, op.Cast(a, to=DOUBLE), "L") if hermitian else a)


def only_values(op, position: int) -> None:
    """Raise Untranslatable when the program reads another result than the one at *position*."""
    for user in op.context.node.users:
        if user.target is not operator.getitem or (user.args[1] != position and user.users):
            raise Untranslatable("the signs of its vectors are not determined: only its values can be used")


def unread(op, fake: torch.Tensor) -> ir.Value:
    """Zeros in the place of a result that nothing reads."""
    return op.Expand(
        op.constant(0, dtypes.onnx_dtype(fake.dtype)), op.shape([int(size) for size in fake.shape])
    )


# ---- values


@translates(aten.linalg_svdvals.default)
def linalg_svdvals(op, A):
    """The singular values, the largest first."""
    return op.Cast(singular_values(op, A), to=A.dtype)


@translates(aten.linalg_svd.default)
def linalg_svd(op, A, full_matrices):
    """The singular values; a program that reads the vectors is refused."""
    only_values(op, 1)
    fakes = op.context.node.meta["val"]
    return unread(op, fakes[0]), linalg_svdvals(op, A), unread(op, fakes[2])


@translates(aten.svd.default)
def svd(op, self, some, compute_uv):
    """`linalg_svd`; without *compute_uv* the vectors are zeros."""
    if compute_uv:
        return linalg_svd(op, self, not some)
    fakes = op.context.node.meta["val"]
    return unread(op, fakes[0]), linalg_svdvals(op, self), unread(op, fakes[2])


@translates(aten.linalg_eigvalsh.default)
def linalg_eigvalsh(op, self, UPLO):
    """The eigenvalues of symmetric matrices, the smallest first: singular values once all are moved above zero."""
    a = symmetric(op, op.Cast(self, to=DOUBLE), UPLO)
    last = rank(a) - 1
    sums = op.ReduceSum(op.Abs(a), [last], keepdims=1)
    bound = op.ReduceMax(sums, [last - 1], keepdims=1)
    moved = op.Add(a, op.Mul(identity_like(op, a), bound))
    values = op.Sub(singular_values(op, moved), op.Squeeze(bound, [last]))
    reverse = np.arange(op.size(a, -1))[::-1].copy()
    return op.Cast(op.Gather(values, reverse, axis=last - 1), to=self.dtype)


@translates(aten.linalg_eigh.default)
def linalg_eigh(op, self, UPLO):
    """The eigenvalues of symmetric matrices; a program that reads the vectors is refused."""
    only_values(op, 0)
    return linalg_eigvalsh(op, self, UPLO), unread(op, op.context.node.meta["val"][1])


# ---- ranks and pseudoinverses


def threshold(op, a: ir.Value, values: ir.Value, atol, rtol) -> ir.Value:
    """Up to which a singular value counts as zero: ``max(atol, rtol * largest)``.

    Without *rtol* it is eps times the larger size, but zero where *atol* is positive.
    """
    atol = beside(op, 0.0 if atol is None else atol)
    if rtol is None:
        default = torch.finfo(dtypes.torch_dtype(a.dtype)).eps * max(op.size(a, -2), op.size(a, -1))
        rtol = op.Where(op.Greater(atol, 0.0), op.constant(0, DOUBLE), op.constant(default, DOUBLE))
    else:
        rtol = beside(op, rtol)
    return op.Max(atol, op.Mul(rtol, op.Slice(values, [0], [1], [rank(values) - 1])))


def beside(op, number) -> ir.Value:
    """A tolerance, a number or one for each matrix, as float64 that broadcasts with vectors of singular values."""
    if not isinstance(number, ir.Value):
        return op.constant(number, DOUBLE)
    return op.Unsqueeze(op.Cast(number, to=DOUBLE), [rank(number)])


def rank_of(op, a: ir.Value, atol, rtol, hermitian: bool) -> ir.Value:
    """How many singular values are above the threshold."""
    values = given_values(op, a, hermitian)
    counted = op.Greater(values, threshold(op, a, values, atol, rtol))
    return op.ReduceSum(op.Cast(counted, to=INT64), [rank(values) - 1], keepdims=0)


@translates(aten.linalg_matrix_rank.atol_rtol_float)
def linalg_matrix_rank(op, self, atol, rtol, hermitian):
    """How many singular values are above the threshold."""
    return rank_of(op, self, atol, rtol, hermitian)


@translates(aten.linalg_matrix_rank.atol_rtol_tensor)
def linalg_matrix_rank_tensor(op, input, atol, rtol, hermitian):
    """How many singular values are above the threshold."""
    return rank_of(op, input, atol, rtol, hermitian)


@translates(aten.linalg_matrix_rank.default)
def linalg_matrix_rank_tol(op, self, tol, hermitian):
    """How many singular values are above *tol*."""
    return rank_of(op, self, tol, 0.0, hermitian)


@translates(aten.linalg_matrix_rank.tol_tensor)
def linalg_matrix_rank_tol_tensor(op, input, tol, hermitian):
    """How many singular values are above *tol*."""
    return rank_of(op, input, tol, 0.0, hermitian)


@translates(aten.linalg_pinv.atol_rtol_float, aten.linalg_pinv.atol_rtol_tensor)
def linalg_pinv(op, self, atol, rtol, hermitian):
    """The pseudoinverse: ``V S^-2 (A V)^T`` over the singular values above the threshold."""
    a = symmetric(op, self, "L") if hermitian else self
    columns, v = orthogonalized(op, taller(op, a))
    last = rank(a) - 1
    values = op.ReduceL2(columns, [last - 1], keepdims=0)
    largest = op.ReduceMax(values, [last - 1], keepdims=1)
    kept = op.Greater(values, threshold(op, a, largest, atol, rtol))
    squares = op.Where(kept, op.Mul(values, values), op.constant(1, DOUBLE))
    scale = op.Where(kept, op.Reciprocal(squares), op.constant(0, DOUBLE))
    result = op.MatMul(op.Mul(v, row(op, scale)), transposed(op, columns))
    is_wide = op.size(a, -2) < op.size(a, -1)
    return op.Cast(transposed(op, result) if is_wide else result, to=self.dtype)


@translates(aten.linalg_pinv.default, aten.linalg_pinv.rcond_tensor)
def linalg_pinv_rcond(op, self, rcond, hermitian):
    """The pseudoinverse with a relative threshold."""
    return linalg_pinv(op, self, 0.0, rcond, hermitian)


@translates(aten.pinverse.default)
def pinverse(op, self, rcond):
    """The pseudoinverse with a relative threshold."""
    return linalg_pinv(op, self, 0.0, rcond, False)
