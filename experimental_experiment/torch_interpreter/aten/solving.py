"""Linear systems: solve, inverse, triangular systems; powers and exponentials of matrices.

Computed in float64 whatever the dtype. A system that has no solution gives infinities or NaN where torch raises an error.
Source of semantics: https://pytorch.org/docs/stable/linalg.html.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.factorization import (
    chosen,
    column,
    factors_for_gradient,
    identity_like,
    indices,
    lu,
    lu_info,
    one_based,
    order_of,
    permutation,
    repeat,
    row,
)
from experimental_experiment.torch_interpreter.aten.transposing import transposed
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.torch_versions import factors_of_solve_are_transposed

aten = torch.ops.aten
DOUBLE = ir.DataType.DOUBLE


# ---- triangular systems


def triangular(op, a: ir.Value, b: ir.Value, upper: bool, unit: bool = False) -> ir.Value:
    """X of ``A X = B`` by substitution; only one triangle of A is read, its diagonal is 1 when *unit*."""
    rows, count = indices(op, a, -1), op.size(a, -1)

    def step(op, k, b):
        at = op.Sub(op.Sub(op.constant(count), 1), k) if upper else k
        down, solved = op.Gather(a, at, axis=-1), op.Gather(b, at, axis=-2)
        if not unit:
            solved = op.Div(solved, op.Unsqueeze(op.Gather(down, at, axis=-1), [-1]))
        left = op.Less(rows, at) if upper else op.Greater(rows, at)
        others = op.Sub(b, op.Mul(column(op, chosen(op, left, down)), row(op, solved)))
        return [op.Where(column(op, op.Equal(rows, at)), row(op, solved), others)]

    return repeat(op, count, step, common_batch(op, b, a))[0]


def common_batch(op, x: ir.Value, other: ir.Value) -> ir.Value:
    """*x* with the axes before the last two that it has after broadcasting with *other*."""
    if rank(other) == 2 or list(x.shape)[:-2] == list(other.shape)[:-2]:
        return x
    return op.Expand(x, op.Concat(op.shape_of(other, 0, -2), [1, 1], axis=0))


@translates(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(op, self, B, upper, left, unitriangular):
    """X of ``A X = B``, or of ``X A = B``."""
    a, b = op.Cast(self, to=DOUBLE), op.Cast(B, to=DOUBLE)
    if left:
        return op.Cast(triangular(op, a, b, upper, unitriangular), to=B.dtype)
    x = triangular(op, transposed(op, a), transposed(op, b), not upper, unitriangular)
    return op.Cast(transposed(op, x), to=B.dtype)


@translates(aten.triangular_solve.default)
def triangular_solve(op, self, A, upper, transpose, unitriangular):
    """X of ``A X = self``, and A."""
    a, b = op.Cast(A, to=DOUBLE), op.Cast(self, to=DOUBLE)
    if transpose:
        a, upper = transposed(op, a), not upper
    return op.Cast(triangular(op, a, b, upper, unitriangular), to=self.dtype), common_batch(op, A, self)


@translates(aten.cholesky_solve.default)
def cholesky_solve(op, self, input2, upper):
    """X of ``A X = self`` from the Cholesky factor of A."""
    factor, b = op.Cast(input2, to=DOUBLE), op.Cast(self, to=DOUBLE)
    low = transposed(op, factor) if upper else factor
    x = triangular(op, transposed(op, low), triangular(op, low, b, False), True)
    return op.Cast(x, to=self.dtype)


@translates(aten.cholesky_inverse.default)
def cholesky_inverse(op, self, upper):
    """The inverse of A from its Cholesky factor."""
    return cholesky_solve(op, identity_like(op, self), self, upper)


# ---- general systems


def solution(op, factors: ir.Value, order: ir.Value, b: ir.Value) -> ir.Value:
    """X of ``A X = B`` from L and U in one matrix and the order of their rows."""
    b = common_batch(op, b, factors)
    if 0 in b.shape:
        return b
    places = op.Expand(column(op, order), op.shape_of(b))
    return triangular(
        op, factors, triangular(op, factors, op.GatherElements(b, places, axis=-2), False, True), True
    )


def transposed_solution(op, factors: ir.Value, order: ir.Value, b: ir.Value) -> ir.Value:
    """`solution` for the transpose of A: that of P L U is U^T L^T P^T."""
    b, flipped = common_batch(op, b, factors), transposed(op, factors)
    if 0 in b.shape:
        return b
    x = triangular(op, flipped, triangular(op, flipped, b, False), True, True)
    return op.MatMul(permutation(op, order, DOUBLE), x)


@translates(aten.linalg_solve.default)
def linalg_solve(op, A, B, left):
    """X of ``A X = B``, or of ``X A = B``."""
    return solved_and_factored(op, A, B, left)[0]


@translates(aten.linalg_solve_ex.default)
def linalg_solve_ex(op, A, B, left):
    """`linalg_solve`, and the column of the first zero pivot."""
    x, _, _, info = solved_and_factored(op, A, B, left)
    return x, info


@translates(aten._linalg_solve_ex.default)
def _linalg_solve_ex(op, A, B, left):
    """`linalg_solve` for matrices and for vectors, and `linalg_lu_factor_ex` of A; older versions of torch factor its transpose."""
    x, factors, pivots, info = solved_and_factored(op, A, B, left)
    if factors_of_solve_are_transposed():
        factors, pivots = factors_for_gradient(op, A, 1)
    return x, factors, pivots, info


def solved_and_factored(op, A, B, left):
    """The results of `_linalg_solve_ex`."""
    is_vector, b = is_vector_of(A, B), op.Cast(B, to=DOUBLE)
    b = column(op, b) if is_vector else b
    factors, order, pivots, _ = lu(op, op.Cast(A, to=DOUBLE))
    if left or is_vector:
        x = solution(op, factors, order, b)
    else:
        x = transposed(op, transposed_solution(op, factors, order, transposed(op, b)))
    x = op.Squeeze(x, [rank(x) - 1]) if is_vector else x
    return op.Cast(x, to=A.dtype), op.Cast(factors, to=A.dtype), one_based(op, pivots), lu_info(op, factors)


def is_vector_of(a: ir.Value, b: ir.Value) -> bool:
    """Whether torch takes the right side of a system for vectors, one for each matrix, not for matrices."""
    return rank(b) == 1 or (rank(b) == rank(a) - 1 and list(b.shape) == list(a.shape)[:-1])


@translates(aten.linalg_lu_solve.default)
def linalg_lu_solve(op, LU, pivots, B, left, adjoint):
    """X of ``A X = B``, or of ``X A = B``, or of one with the transpose of A, from the factors of A."""
    factors, b = op.Cast(LU, to=DOUBLE), op.Cast(B, to=DOUBLE)
    b = common_batch(op, b if left else transposed(op, b), factors)
    factors = common_batch(op, factors, b)
    order = order_of(op, pivots, LU)
    if rank(factors) > rank(LU):
        order = op.Expand(order, op.shape_of(factors, 0, -1))
    x = (solution if left != adjoint else transposed_solution)(op, factors, order, b)
    return op.Cast(x if left else transposed(op, x), to=B.dtype)


@translates(aten.lu_solve.default)
def lu_solve(op, self, LU_data, LU_pivots):
    """X of ``A X = self`` from the factors of A."""
    return linalg_lu_solve(op, LU_data, LU_pivots, self, True, False)


@translates(aten.linalg_inv_ex.default)
def linalg_inv_ex(op, A):
    """The inverse, and the column of the first zero pivot."""
    return linalg_solve_ex(op, A, identity_like(op, A), True)


@translates(aten.linalg_inv.default)
def linalg_inv(op, A):
    """The inverse; infinities or NaN for a singular matrix, where torch raises an error."""
    return linalg_inv_ex(op, A)[0]


@translates(aten.inverse.default)
def inverse(op, self):
    """`linalg_inv`."""
    return linalg_inv(op, self)


@translates(aten.linalg_tensorinv.default)
def linalg_tensorinv(op, self, ind):
    """The inverse of a tensor seen as a matrix, its first *ind* axes being the rows."""
    rows, columns = op.shape_of(self, 0, ind), op.shape_of(self, ind)
    size = op.ReduceProd(rows, keepdims=1)
    matrix = op.Reshape(self, op.Concat(size, size, axis=0))
    return op.Reshape(linalg_inv(op, matrix), op.Concat(columns, rows, axis=0))


@translates(aten.linalg_tensorsolve.default)
def linalg_tensorsolve(op, self, other, dims):
    """X of ``tensordot(self, X, X.ndim) = other``."""
    if dims:
        moved = [axis % rank(self) for axis in dims]
        self = op.Transpose(self, perm=[axis for axis in range(rank(self)) if axis not in moved] + moved)
    size = op.ReduceProd(op.shape_of(other), keepdims=1)
    x = linalg_solve(op, op.Reshape(self, op.Concat(size, size, axis=0)), op.Reshape(other, [-1]), True)
    return op.Reshape(x, op.shape_of(self, rank(other)))


# ---- powers and exponentials


@translates(aten.linalg_matrix_power.default, aten.matrix_power.default)
def matrix_power(op, self, n):
    """The product of n equal matrices, by squaring; of their inverses when n is negative."""
    if n == 0:
        return identity_like(op, self)
    factor = linalg_inv(op, self) if n < 0 else self
    result = None
    for bit in reversed(f"{abs(n):b}"):
        if bit == "1":
            result = factor if result is None else op.MatMul(result, factor)
        factor = op.MatMul(factor, factor)
    return result


@translates(aten.linalg_matrix_exp.default, aten.matrix_exp.default)
def matrix_exp(op, self):
    """The exponential: Taylor's series of a matrix halved until its norm is below 1/2, then squared as often."""
    a = op.Cast(self, to=DOUBLE)
    norm = op.ReduceMax(op.ReduceSum(op.Abs(a), [rank(a) - 2], keepdims=1), [rank(a) - 1], keepdims=1)
    halvings = op.Max(op.Ceil(op.Div(op.Log(op.Max(norm, 1e-300)), math.log(2))), op.constant(-1, DOUBLE))
    halvings = op.Add(halvings, 1.0)
    a = op.Div(a, op.Pow(op.constant(2, DOUBLE), halvings))
    one = identity_like(op, a)
    # Horner's scheme with 1 / k! on the identity
    result = op.Mul(one, 1.0 / math.factorial(18))
    for k in range(17, -1, -1):
        result = op.Add(op.Mul(one, 1.0 / math.factorial(k)), op.MatMul(a, result))

    def step(op, k, result):
        more = op.Less(op.Cast(k, to=DOUBLE), halvings)
        return [op.Where(more, op.MatMul(result, result), result)]

    most = op.Cast(op.ReduceMax(halvings, keepdims=0), to=ir.DataType.INT64)
    return op.Cast(repeat(op, most, step, result)[0], to=self.dtype)
