"""Singular values and eigenvalues of symmetric matrices; ranks and pseudoinverses.

One-sided Jacobi rotations in float64: columns are turned two by two until all are orthogonal, half of them at a time, in the order
of a round-robin tournament. Nothing in a matrix says which signs LAPACK gives singular vectors and eigenvectors: a program that reads
these signs is refused, see `vector_signs`.
Source of semantics: https://pytorch.org/docs/stable/linalg.html.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.factorization import (
    diagonal,
    first_columns,
    first_rows,
    householder,
    identity_like,
    on_diagonal,
    reflected,
    repeat,
    repeat_while,
    row,
    smallest_size,
)
from experimental_experiment.torch_interpreter.aten.transposing import transposed
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, INT64_MIN, rank
from experimental_experiment.torch_interpreter.errors import Untranslatable, target_name
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import is_int, larger, minus, plus, quotient, times
from experimental_experiment.torch_interpreter.symbols import expression_of
from experimental_experiment.torch_interpreter.torch_versions import installed
from experimental_experiment.torch_interpreter.unread import unread
from experimental_experiment.torch_interpreter.vector_signs.factors import Signs
from experimental_experiment.torch_interpreter.vector_signs.program import depends_on_signs

aten = torch.ops.aten
DOUBLE, INT64 = ir.DataType.DOUBLE, ir.DataType.INT64

SWEEPS = 15
"""How often every pair of columns is turned at most; convergence is quadratic, ten are enough for hundreds of columns."""

ORTHOGONAL = 2.0**-50
"""Columns with a smaller cosine are orthogonal: their inner product is rounding."""


def orthogonalized(op, a: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``A V`` with orthogonal columns, and the orthogonal V, for float64 matrices."""
    rows, size, last = op.size(a, -2), op.size(a, -1), rank(a) - 1
    half = quotient(op, plus(op, size, 1), 2)
    pairs = times(op, half, 2)
    stacked = op.Concat(a, identity_like(op, a, -1), axis=last - 1)
    # an odd column plays against a column of zeros
    missing = minus(op, pairs, size)
    if not is_int(missing, 0):
        zeros = op.Mul(op.Slice(stacked, [0], op.shape([missing]), [last]), 0.0)
        stacked = op.Concat(stacked, zeros, axis=last)
    ends = op.shape([0, half]), op.shape([minus(op, half, 1)])
    middle = op.Range(1, minus(op, half, 1), 1), op.Range(plus(op, half, 1), pairs, 1)
    order = op.Slice(op.Concat(ends[0], *middle, ends[1], axis=0), [0], op.shape([pairs]), [0])

    def step(op, k, stacked, is_turned):
        left, right = op.Split(stacked, axis=last, num_outputs=2, outputs=2)
        cosine, sine, oblique = rotation(
            op, *(op.Slice(x, [0], op.shape([rows]), [last - 1]) for x in (left, right))
        )
        turned_left = op.Sub(op.Mul(left, cosine), op.Mul(right, sine))
        turned_right = op.Add(op.Mul(left, sine), op.Mul(right, cosine))
        stacked = op.Gather(op.Concat(turned_left, turned_right, axis=last), order, axis=last)
        return [stacked, op.Or(is_turned, oblique)]

    def sweep(op, k, go, stacked):
        # the tournament ends with every column where it started
        stacked, is_turned = repeat(op, minus(op, pairs, 1), step, stacked, op.constant(False))
        return [is_turned, stacked]

    (stacked,) = repeat_while(op, SWEEPS, sweep, stacked)
    stacked = op.Slice(stacked, [0], op.shape([size]), [last])
    return op.Split(stacked, op.shape([rows, size]), axis=last - 1, outputs=2)


def rotation(op, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The cosine and the sine of the turn that makes each column of *a* and the same one of *b* orthogonal; whether two are not yet."""
    axis = rank(a) - 2
    inner = op.ReduceSum(op.Mul(a, b), [axis], keepdims=1)
    squares = [op.ReduceSumSquare(x, [axis], keepdims=1) for x in (a, b)]
    done = op.Equal(inner, 0.0)
    zeta = op.Div(op.Sub(*reversed(squares)), op.Mul(op.Where(done, op.constant(1, DOUBLE), inner), 2.0))
    sign = op.Where(op.Less(zeta, 0.0), op.constant(-1, DOUBLE), op.constant(1, DOUBLE))
    root = op.Sqrt(op.Add(op.Mul(zeta, zeta), 1.0))
    tangent = op.Where(done, op.constant(0, DOUBLE), op.Div(sign, op.Add(op.Abs(zeta), root)))
    cosine = op.Reciprocal(op.Sqrt(op.Add(op.Mul(tangent, tangent), 1.0)))
    lengths = op.Mul(*map(op.Sqrt, squares))
    oblique = op.Cast(op.Greater(op.Abs(inner), op.Mul(lengths, ORTHOGONAL)), to=ir.DataType.INT32)
    # a sum, which is zero for no matrix at all
    return cosine, op.Mul(cosine, tangent), op.Cast(op.ReduceSum(oblique, keepdims=0), to=ir.DataType.BOOL)


def taller(op, a: ir.Value) -> tuple[ir.Value, bool]:
    """Float64 matrices with the singular values of *a*, and whether they are transposed: the fewer columns, the fewer turns.

    Columns beyond the number of rows, when the sizes are not known, end as zeros.
    """
    sizes = op.size(a, -2), op.size(a, -1)
    is_wide = all(isinstance(size, int) for size in sizes) and sizes[0] < sizes[1]
    a = op.Cast(a, to=DOUBLE)
    return (transposed(op, a) if is_wide else a), is_wide


def singular_values(op, a: ir.Value) -> ir.Value:
    """The singular values as float64, the largest first."""
    last = rank(a) - 1
    columns, _ = orthogonalized(op, taller(op, a)[0])
    lengths = op.ReduceL2(columns, [last - 1], keepdims=0)
    return op.TopK(lengths, op.shape([smallest_size(op, a)]), axis=last - 1, outputs=2)[0]


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


# ---- vectors


def vectors_read(op, axes: Mapping[int, int]) -> set[int]:
    """Which of the results that are vectors, counted along these axes, a program reads. Raises Untranslatable when it reads their signs."""
    node = op.context.node
    read = {user: user.args[1] for user in node.users if user.target is operator.getitem and user.users}
    factors = {}
    for user, position in read.items():
        if position in axes:
            rank = user.meta["val"].dim()
            factors[user] = frozenset((Signs(node, (*range(rank - 2), axes[position] % rank)),))
    reader = depends_on_signs(factors) if factors else None
    if reader is not None:
        told = (
            "an output is one of them"
            if reader.op == "output"
            else f"{target_name(reader.target)} reads them"
        )
        raise Untranslatable(
            f"the signs of its vectors are not determined, and {told}: only its values can be used, and what is the same for all signs, as U V^T"
        )
    return {read[user] for user in factors}


def refuse_null_space(node: torch.fx.Node, position: int, axis: int) -> None:
    """Raise Untranslatable for the vectors at *position* where two or more may be those of no singular value: not only their signs are open."""
    fakes = node.meta["val"]
    more = fakes[position].shape[axis] - fakes[1].shape[-1]
    number = expression_of(more)
    if isinstance(more, torch.SymInt):
        number = more.node.shape_env.bound_sympy(number).upper
    if number > 1:
        many = number if isinstance(more, int) else "for some sizes, two or more"
        raise Untranslatable(f"{many} of its vectors are any of a space: full_matrices=False leaves them out")


def sorted_columns(op, columns: ir.Value, v: ir.Value, largest: bool = True) -> tuple[ir.Value, ...]:
    """The lengths of columns in order, the columns and those of *v* in that order."""
    last = rank(columns) - 1
    lengths = op.ReduceL2(columns, [last - 1], keepdims=0)
    ordered, order = op.TopK(
        lengths, op.shape([op.size(columns, -1)]), axis=last - 1, largest=int(largest), outputs=2
    )
    if last == 1:
        return ordered, *(op.Gather(x, order, axis=1) for x in (columns, v))
    places = row(op, order)
    return ordered, *(op.GatherElements(x, op.Expand(places, op.Shape(x)), axis=last) for x in (columns, v))


def directions(op, columns: ir.Value, is_complete: bool) -> ir.Value:
    """Orthonormal vectors along orthogonal columns, the longest first; any along those of length zero; with *is_complete*, as many as rows."""
    factors, taus = householder(op, columns)
    count, last = op.size(taus, -1), rank(columns) - 1
    turned = reflected(op, factors, taus, identity_like(op, factors))
    is_turned = op.Less(diagonal(op, first_rows(op, factors, count)), 0.0)
    signs = op.Where(is_turned, op.constant(-1, DOUBLE), op.constant(1, DOUBLE))
    first = op.Mul(first_columns(op, turned, count), row(op, signs))
    if not is_complete or is_int(minus(op, op.size(columns, -2), count), 0):
        return first
    rest = op.Slice(turned, op.shape([count]), [INT64_MAX], [last])
    return op.Concat(first, rest, axis=last)


def decomposed(op, a: ir.Value, is_complete: bool, read: Collection[int]) -> dict[int, ir.Value]:
    """Singular values (1) and, when *read*, the matrices of left (0) and right (2) vectors, in columns."""
    matrices, is_wide = taller(op, a)
    values, columns, v = sorted_columns(op, *orthogonalized(op, matrices))
    count = smallest_size(op, a)
    results = {1: op.Slice(values, [0], op.shape([count]), [rank(values) - 1])}
    near, far = (0, 2) if is_wide else (2, 0)
    if near in read:
        results[near] = v if is_complete else first_columns(op, v, count)
    if far in read:
        results[far] = directions(op, columns, is_complete)
    return {position: op.Cast(result, to=a.dtype) for position, result in results.items()}


# ---- values


@translates(aten.linalg_svdvals.default)
def linalg_svdvals(op, A):
    """The singular values, the largest first."""
    return op.Cast(singular_values(op, A), to=A.dtype)


@translates(aten.linalg_svd.default)
def linalg_svd(op, A, full_matrices):
    """The singular values, and the vectors for a program that gives the same for all signs; another one is refused."""
    return singular_vectors(op, A, full_matrices, -2)


def singular_vectors(op, a: ir.Value, is_complete: bool, axis: int):
    """The vectors on the left, the singular values, the vectors on the right, which *axis* counts: -2 where these are transposed."""
    read = vectors_read(op, {0: -1, 2: axis})
    fakes = op.context.node.meta["val"]
    for position in read if is_complete else ():
        refuse_null_space(op.context.node, position, -1 if position == 0 else axis)
    if not read:
        return unread(op, fakes[0]), linalg_svdvals(op, a), unread(op, fakes[2])
    results = decomposed(op, a, is_complete, read)
    if 2 in read and axis == -2:
        results[2] = transposed(op, results[2])
    return tuple(
        results[position] if position in results else unread(op, fakes[position]) for position in range(3)
    )


@translates(aten._linalg_svd.default)
def _linalg_svd(op, A, full_matrices, compute_uv):
    """`linalg_svd`; without *compute_uv* the vectors are zeros, or empty."""
    if compute_uv:
        return linalg_svd(op, A, full_matrices)
    fakes = op.context.node.meta["val"]
    return unread(op, fakes[0]), linalg_svdvals(op, A), unread(op, fakes[2])


@translates(aten.svd.default)
def svd(op, self, some, compute_uv):
    """`linalg_svd` with the vectors on the right in columns; without *compute_uv* the vectors are zeros."""
    if compute_uv:
        return singular_vectors(op, self, not some, -1)
    return _linalg_svd(op, self, not some, False)


def above_zero(op, a: ir.Value, uplo: str) -> tuple[ir.Value, ir.Value]:
    """Symmetric matrices in float64 whose eigenvalues are moved above zero, where they are singular values, and by how much."""
    a = symmetric(op, op.Cast(a, to=DOUBLE), uplo)
    last = rank(a) - 1
    sums = op.ReduceSum(op.Abs(a), [last], keepdims=1)
    bound = op.ReduceMax(sums, [last - 1], keepdims=1)
    return op.Add(a, op.Mul(identity_like(op, a), bound)), bound


@translates(aten.linalg_eigvalsh.default)
def linalg_eigvalsh(op, self, UPLO):
    """The eigenvalues of symmetric matrices, the smallest first."""
    moved, bound = above_zero(op, self, UPLO)
    last = rank(moved) - 1
    values = op.Sub(singular_values(op, moved), op.Squeeze(bound, [last]))
    return op.Cast(op.Slice(values, [-1], [INT64_MIN], [last - 1], [-1]), to=self.dtype)


@translates(aten.linalg_eigh.default)
def linalg_eigh(op, self, UPLO):
    """The eigenvalues of symmetric matrices, and the vectors for a program that gives the same for all signs; another one is refused."""
    return _linalg_eigh(op, self, UPLO, True)


@translates(aten._linalg_eigh.default)
def _linalg_eigh(op, A, UPLO, compute_v):
    """`linalg_eigh`; without *compute_v* the vectors are empty."""
    if not (compute_v and vectors_read(op, {1: -1})):
        return linalg_eigvalsh(op, A, UPLO), unread(op, op.context.node.meta["val"][1])
    moved, bound = above_zero(op, A, UPLO)
    values, _, vectors = sorted_columns(op, *orthogonalized(op, moved), largest=False)
    values = op.Sub(values, op.Squeeze(bound, [rank(moved) - 1]))
    return op.Cast(values, to=A.dtype), op.Cast(vectors, to=A.dtype)


# ---- polar factors and square roots, whose signs are determined


@translates(*installed("linalg_polar.default"))
def linalg_polar(op, A):
    """``A = U H``: *U* with orthonormal columns, *H* symmetric; a singular matrix, which has many *U*, gives one of NaN."""
    columns, v = orthogonalized(op, op.Cast(A, to=DOUBLE))
    values, back = op.ReduceL2(columns, [rank(A) - 2], keepdims=1), transposed(op, v)
    factors = op.MatMul(op.Div(columns, values), back), op.MatMul(op.Mul(v, values), back)
    return tuple(op.Cast(factor, to=A.dtype) for factor in factors)


@translates(*installed("linalg_matrix_sqrth.default"))
def linalg_matrix_sqrth(op, self):
    """The square root of positive definite matrices, of which the lower triangle counts; NaN with an eigenvalue below zero."""
    columns, v = orthogonalized(op, symmetric(op, op.Cast(self, to=DOUBLE), "L"))
    values = op.ReduceSum(op.Mul(columns, v), [rank(self) - 2], keepdims=1)
    return op.Cast(op.MatMul(op.Mul(v, op.Sqrt(values)), transposed(op, v)), to=self.dtype)


# ---- ranks and pseudoinverses


def threshold(op, a: ir.Value, values: ir.Value, atol, rtol) -> ir.Value:
    """Up to which a singular value counts as zero: ``max(atol, rtol * largest)``.

    Without *rtol* it is eps times the larger size, but zero where *atol* is positive.
    """
    atol = beside(op, 0.0 if atol is None else atol)
    if rtol is None:
        size = op.Cast(op.constant(larger(op, op.size(a, -2), op.size(a, -1))), to=DOUBLE)
        default = op.Mul(size, torch.finfo(dtypes.torch_dtype(a.dtype)).eps)
        rtol = op.Where(op.Greater(atol, 0.0), op.constant(0, DOUBLE), default)
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
    return op.ReduceSum(op.Cast(counted, to=INT64), [rank(counted) - 1], keepdims=0)


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
    return pseudoinverse(op, symmetric(op, self, "L") if hermitian else self, self, atol, rtol)


def pseudoinverse(op, a: ir.Value, like: ir.Value, atol, rtol) -> ir.Value:
    """The pseudoinverse of *a*; the threshold is that of a matrix with the size and the dtype of *like*."""
    a, is_wide = taller(op, a)
    columns, v = orthogonalized(op, a)
    last = rank(a) - 1
    values = op.ReduceL2(columns, [last - 1], keepdims=0)
    largest = op.ReduceMax(values, [last - 1], keepdims=1)
    kept = op.Greater(values, threshold(op, like, largest, atol, rtol))
    squares = op.Where(kept, op.Mul(values, values), op.constant(1, DOUBLE))
    scale = op.Where(kept, op.Reciprocal(squares), op.constant(0, DOUBLE))
    result = op.MatMul(op.Mul(v, row(op, scale)), transposed(op, columns))
    return op.Cast(transposed(op, result) if is_wide else result, to=like.dtype)


@translates(aten.linalg_pinv.default, aten.linalg_pinv.rcond_tensor)
def linalg_pinv_rcond(op, self, rcond, hermitian):
    """The pseudoinverse with a relative threshold."""
    return linalg_pinv(op, self, 0.0, rcond, hermitian)


@translates(aten.pinverse.default)
def pinverse(op, self, rcond):
    """The pseudoinverse with a relative threshold."""
    return linalg_pinv(op, self, 0.0, rcond, False)
