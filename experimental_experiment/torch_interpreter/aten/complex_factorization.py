"""LU, Cholesky and QR of complex matrices; what is made of them: determinants.

The columns one after the other, as in `factorization`: pivots are chosen by ``|Re| + |Im|``, reflections leave real
numbers on the diagonal of R, as LAPACK's do.
Source of semantics: https://pytorch.org/docs/stable/linalg.html; zgetrf, zpotrf, zlarfg and zunmqr of LAPACK.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten import factorization
from experimental_experiment.torch_interpreter.aten.complex import (
    Parts,
    join,
    logarithm,
    multiply_parts,
    parts,
    quotient,
)
from experimental_experiment.torch_interpreter.aten.factorization import (
    chosen,
    column,
    first_columns,
    first_rows,
    first_true,
    identity_like,
    indices,
    one_based,
    order_of,
    permutation,
    repeat,
    row,
    smallest_size,
)
from experimental_experiment.torch_interpreter.aten.transposing import transposed
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates_complex
from experimental_experiment.torch_interpreter.torch_versions import installed
from experimental_experiment.torch_interpreter.unread import reads_result, zeros_for_gradient

aten = torch.ops.aten
DOUBLE = ir.DataType.DOUBLE


# ---- arithmetic of parts


def wide(op, z: ir.Value) -> Parts:
    """The parts of a complex value in float64."""
    real, imag = parts(op, z)
    return op.Cast(real, to=DOUBLE), op.Cast(imag, to=DOUBLE)


def complex_like(op, z: Parts, like: ir.Value) -> ir.Value:
    """The complex value with these parts, in the precision of *like*."""
    return join(op, *(op.Cast(part, to=like.dtype) for part in z))


def both(function: Callable, *zs: Parts) -> Parts:
    """A function of real values applied to the real and to the imaginary parts."""
    real, imag = (function(*values) for values in zip(*zs))
    return real, imag


def conjugate(op, z: Parts) -> Parts:
    """The parts of the conjugate."""
    return z[0], op.Neg(z[1])


def matrix_product(op, left: Parts, right: Parts) -> Parts:
    """The parts of a product of matrices."""
    (a, b), (c, d) = left, right
    return op.Sub(op.MatMul(a, c), op.MatMul(b, d)), op.Add(op.MatMul(a, d), op.MatMul(b, c))


def flipped(op, z: Parts, adjoint: bool = False) -> Parts:
    """The transposed matrices, conjugated when *adjoint*."""
    z = both(lambda part: transposed(op, part), z)
    return conjugate(op, z) if adjoint else z


def identity(op, like: ir.Value) -> Parts:
    """The parts of `identity_like`."""
    one = identity_like(op, like)
    return one, op.Mul(one, 0.0)


def unit_lower(op, z: Parts, count) -> Parts:
    """The parts of L."""
    real, imag = z
    return factorization.lower_part(op, real, count), first_columns(op, op.Trilu(imag, -1, upper=0), count)


def upper_part(op, z: Parts, count) -> Parts:
    """The parts of U, or of R."""
    return both(lambda part: factorization.upper_part(op, part, count), z)


# ---- LU


def lu(op, a: Parts, pivot: bool = True) -> tuple[Parts, ir.Value, ir.Value, ir.Value]:
    """`factorization.lu` of complex matrices."""
    rows, columns = indices(op, a[0], -2), indices(op, a[0], -1)
    count = smallest_size(op, a[0])
    batch = op.shape_of(a[0], 0, -2)
    order = op.Expand(rows, op.shape_of(a[0], 0, -1))
    pivots = op.Expand(op.Range(0, count, 1), op.Concat(batch, op.shape([count]), axis=0))
    sign = op.Expand(op.constant(1, DOUBLE), op.Concat(batch, op.constant([1]), axis=0))

    def step(op, k, real, imag, order, pivots, sign):
        a = real, imag
        if pivot:
            size = op.Add(*(op.Abs(op.Gather(part, k, axis=-1)) for part in a))
            size = op.Where(op.Less(rows, k), op.constant(-1, DOUBLE), size)
            best = op.ArgMax(size, axis=-1, keepdims=1)
            taken = op.Where(op.Equal(rows, k), best, op.Where(op.Equal(rows, best), k, rows))
            places = op.Expand(column(op, taken), op.shape_of(real))
            a = both(lambda part: op.GatherElements(part, places, axis=-2), a)
            order = op.GatherElements(order, taken, axis=-1)
            pivots = op.Where(op.Equal(op.Range(0, count, 1), k), best, pivots)
            sign = op.Where(op.Equal(best, k), sign, op.Neg(sign))
        across = both(
            lambda part: row(op, chosen(op, op.Greater(columns, k), op.Gather(part, k, axis=-2))), a
        )
        down = both(lambda part: op.Gather(part, k, axis=-1), a)
        corner = both(lambda part: op.Unsqueeze(op.Gather(part, k, axis=-1), [-1]), down)
        below, nothing = op.Greater(rows, k), equals_zero(op, corner)
        factor = both(lambda x, y: op.Where(nothing, x, y), down, quotient(op, down, corner))
        factor = both(lambda part: column(op, chosen(op, below, part)), factor)
        a = both(op.Sub, a, multiply_parts(op, factor, across))
        here = op.And(column(op, below), op.Equal(columns, k))
        return *both(lambda x, y: op.Where(here, x, y), factor, a), order, pivots, sign

    if 0 in a[0].shape:
        return a, order, pivots, sign
    real, imag, order, pivots, sign = repeat(op, count, step, *a, order, pivots, sign)
    return (real, imag), order, pivots, sign


def equals_zero(op, z: Parts) -> ir.Value:
    """Whether both parts are zero."""
    return op.And(*(op.Equal(part, 0.0) for part in z))


def lu_info(op, factors: Parts) -> ir.Value:
    """`factorization.lu_info` of complex matrices."""
    count = smallest_size(op, factors[0])
    square = both(lambda part: first_rows(op, first_columns(op, part, count), count), factors)
    return first_true(op, equals_zero(op, diagonal(op, square)))


def diagonal(op, z: Parts) -> Parts:
    """The parts of the diagonals of square matrices."""
    return both(lambda part: factorization.diagonal(op, part), z)


@translates_complex(aten.linalg_lu_factor.default)
def linalg_lu_factor(op, A, pivot):
    """L and U in one matrix, and the rows exchanged, counted from 1."""
    return linalg_lu_factor_ex(op, A, pivot)[:2]


@translates_complex(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(op, A, pivot):
    """`linalg_lu_factor`, and the column of the first zero pivot."""
    factors, _, pivots, _ = lu(op, wide(op, A), pivot)
    return complex_like(op, factors, A), one_based(op, pivots), lu_info(op, factors)


@translates_complex(aten._lu_with_info.default)
def lu_with_info(op, self, pivot, check_errors):
    """`linalg_lu_factor_ex`."""
    return linalg_lu_factor_ex(op, self, pivot)


@translates_complex(aten.linalg_lu.default)
def linalg_lu(op, A, pivot):
    """P, L and U; without pivots P is empty."""
    factors, order, _, _ = lu(op, wide(op, A), pivot)
    count = smallest_size(op, factors[0])
    p = real_matrix(op, permutation(op, order, A.dtype)) if pivot else empty(op, A)
    l_part, u_part = unit_lower(op, factors, count), upper_part(op, factors, count)
    return p, complex_like(op, l_part, A), complex_like(op, u_part, A)


@translates_complex(aten.lu_unpack.default)
def lu_unpack(op, LU_data, LU_pivots, unpack_data, unpack_pivots):
    """P, L and U from what `linalg_lu_factor` gives; empty tensors for what is not asked for."""
    factors, nothing = parts(op, LU_data), empty(op, LU_data)
    count, p = smallest_size(op, factors[0]), nothing
    if unpack_pivots:
        order = order_of(op, LU_pivots, factors[0])
        p = real_matrix(op, permutation(op, order, LU_data.dtype))
    if not unpack_data:
        return p, nothing, nothing
    return p, join(op, *unit_lower(op, factors, count)), join(op, *upper_part(op, factors, count))


def real_matrix(op, x: ir.Value) -> ir.Value:
    """A real matrix as a complex one."""
    return join(op, x, op.Mul(x, 0))


def empty(op, like: ir.Value) -> ir.Value:
    """No complex number at all."""
    nothing = op.constant([], like.dtype)
    return join(op, nothing, nothing)


# ---- determinants


@translates_complex(aten.det.default)
def det(op, self):
    """The determinant: the product of the pivots, with the sign of the permutation."""
    factors, _, _, sign = lu(op, wide(op, self))
    return complex_like(op, product(op, diagonal(op, factors), sign), self)


def product(op, z: Parts, sign: ir.Value) -> Parts:
    """The products along the last axis, times the sign, whose last axis goes."""
    last = rank(sign) - 1

    def step(op, k, real, imag):
        return multiply_parts(op, (real, imag), both(lambda part: op.Gather(part, k, axis=-1), z))

    sign = op.Squeeze(sign, [last])
    real, imag = repeat(op, op.size(z[0], -1), step, sign, op.Mul(sign, 0.0))
    return real, imag


@translates_complex(aten.linalg_det.default)
def linalg_det(op, A):
    """`det`."""
    return det(op, A)


@translates_complex(aten._linalg_det.default)
def _linalg_det(op, A):
    """`det`, then what the gradient reads: factors and pivots."""
    return det(op, A), *factors_for_gradient(op, A, 1)


def factors_for_gradient(op, A, first: int):
    """The factors and the pivots of A: complex matrices are not transposed, wherever they lie in memory.

    Zeros when the program reads no result from *first* on.
    """
    if not reads_result(op, first):
        yield from zeros_for_gradient(op, first)
        return
    factors, _, pivots, _ = lu(op, wide(op, A))
    yield from (complex_like(op, factors, A), one_based(op, pivots))


def sign_and_logarithm(op, a: ir.Value) -> tuple[Parts, ir.Value]:
    """The determinant over its length, and the logarithm of this length, in float64."""
    factors, _, _, sign = lu(op, wide(op, a))
    pivots = diagonal(op, factors)
    lengths = length(op, pivots)
    nothing = op.Equal(lengths, 0.0)
    turned = both(lambda part: op.Where(nothing, part, op.Div(part, lengths)), pivots)
    return product(op, turned, sign), op.ReduceSum(op.Log(lengths), [rank(lengths) - 1], keepdims=0)


def length(op, z: Parts) -> ir.Value:
    """``sqrt(x^2 + y^2)``."""
    return op.Sqrt(op.Add(*(op.Mul(part, part) for part in z)))


@translates_complex(aten.linalg_slogdet.default)
def linalg_slogdet(op, A):
    """The determinant over its length, and the logarithm of this length."""
    sign, logarithm_of_length = sign_and_logarithm(op, A)
    return complex_like(op, sign, A), op.Cast(logarithm_of_length, to=A.dtype)


@translates_complex(aten._linalg_slogdet.default)
def _linalg_slogdet(op, A):
    """`linalg_slogdet`, then what the gradient reads: factors and pivots."""
    return *linalg_slogdet(op, A), *factors_for_gradient(op, A, 2)


@translates_complex(aten.slogdet.default)
def slogdet(op, self):
    """`linalg_slogdet`."""
    return linalg_slogdet(op, self)


@translates_complex(aten.logdet.default)
def logdet(op, self):
    """The logarithm of the determinant."""
    sign, logarithm_of_length = sign_and_logarithm(op, self)
    real, imag = logarithm(op, sign)
    return complex_like(op, (op.Add(real, logarithm_of_length), imag), self)


# ---- Cholesky


def cholesky_factor(op, a: Parts, upper: bool) -> tuple[Parts, ir.Value]:
    """The lower (or upper) factor of one triangle of Hermitian matrices, and its ``info``."""
    a = flipped(op, a, adjoint=True) if upper else a
    rows, columns = indices(op, a[0], -2), indices(op, a[0], -1)
    nothing = op.Expand(op.constant(0, DOUBLE), op.shape_of(a[0]))
    pivots = op.Expand(op.constant(1, DOUBLE), op.shape_of(a[0], 0, -1))

    def step(op, k, real, imag, factor_real, factor_imag, pivots):
        down = both(lambda part: op.Gather(part, k, axis=-1), (real, imag))
        # the diagonal of a Hermitian matrix is real
        corner = op.Unsqueeze(op.Gather(down[0], k, axis=-1), [-1])
        below = op.GreaterOrEqual(rows, k), op.Greater(rows, k)
        down = both(
            lambda part, kept: column(op, chosen(op, kept, op.Div(part, op.Sqrt(corner)))), down, below
        )
        rest = both(op.Sub, (real, imag), multiply_parts(op, down, flipped(op, down, adjoint=True)))
        here = op.Equal(columns, k)
        factor = both(lambda x, y: op.Where(here, x, y), down, (factor_real, factor_imag))
        return *rest, *factor, op.Where(op.Equal(rows, k), corner, pivots)

    _, _, *factor, pivots = repeat(op, op.size(a[0], -1), step, *a, nothing, nothing, pivots)
    bad = first_true(op, op.Not(op.Greater(pivots, 0.0)))
    return (flipped(op, factor, adjoint=True) if upper else tuple(factor)), bad


@translates_complex(aten.linalg_cholesky.default, *installed("cholesky.default"))
def linalg_cholesky(op, self, upper):
    """The Cholesky factor; NaN for matrices that are not positive definite, where torch raises an error."""
    return linalg_cholesky_ex(op, self, upper)[0]


@translates_complex(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(op, self, upper):
    """The Cholesky factor, and the order of the first minor that is not positive."""
    factor, info = cholesky_factor(op, wide(op, self), upper)
    return complex_like(op, factor, self), info


# ---- QR


def householder(op, a: Parts) -> tuple[Parts, Parts]:
    """`factorization.householder` of complex matrices: the diagonal of R is real, the factors tau are complex."""
    rows, columns = indices(op, a[0], -2), indices(op, a[0], -1)
    count = smallest_size(op, a[0])
    places = op.Range(0, count, 1)
    taus = op.Expand(op.constant(0, DOUBLE), op.Concat(op.shape_of(a[0], 0, -2), op.shape([count]), axis=0))

    def step(op, k, real, imag, tau_real, tau_imag):
        zero, one = op.constant(0, DOUBLE), op.constant(1, DOUBLE)
        down = both(lambda part: op.Gather(part, k, axis=-1), (real, imag))
        alpha = both(lambda part: op.Unsqueeze(op.Gather(part, k, axis=-1), [-1]), down)
        below = both(lambda part: chosen(op, op.Greater(rows, k), part), down)
        rest = length(op, both(lambda part: op.ReduceL2(part, [rank(part) - 1], keepdims=1), below))
        still = op.And(op.Equal(rest, 0.0), op.Equal(alpha[1], 0.0))
        whole = op.Sqrt(op.Add(op.Mul(rest, rest), op.Add(*(op.Mul(part, part) for part in alpha))))
        beta = op.Where(op.Less(alpha[0], 0.0), whole, op.Neg(whole))
        safe = op.Where(still, one, beta)
        tau = op.Div(op.Sub(beta, alpha[0]), safe), op.Neg(op.Div(alpha[1], safe))
        tau = both(lambda part: op.Where(still, zero, part), tau)
        gap = op.Where(still, one, op.Sub(alpha[0], beta)), op.Where(still, zero, alpha[1])
        vector = quotient(op, below, gap)
        vector = op.Where(op.Equal(rows, k), one, vector[0]), op.Where(op.Equal(rows, k), zero, vector[1])
        right = both(lambda part: chosen(op, op.Greater(columns, k), part), (real, imag))
        across = matrix_product(op, both(lambda part: row(op, part), conjugate(op, vector)), right)
        # the adjoint of the reflection makes R
        longer = both(lambda part: column(op, part), multiply_parts(op, vector, conjugate(op, tau)))
        moved = multiply_parts(op, longer, across)
        a = both(op.Sub, (real, imag), moved)
        corner = op.Where(still, alpha[0], beta), zero
        here = both(
            lambda c, v, old: op.Where(op.Equal(rows, k), c, op.Where(op.Greater(rows, k), v, old)),
            corner,
            vector,
            down,
        )
        a = both(lambda x, y: op.Where(op.Equal(columns, k), column(op, x), y), here, a)
        return *a, *both(lambda x, y: op.Where(op.Equal(places, k), x, y), tau, (tau_real, tau_imag))

    real, imag, tau_real, tau_imag = repeat(op, count, step, *a, taus, taus)
    return (real, imag), (tau_real, tau_imag)


def reflected(op, vectors: Parts, taus: Parts, start: Parts, adjoint: bool = False) -> Parts:
    """*start* times the reflections ``I - tau v v^H`` in order, or their adjoints in reverse order."""
    rows, count = indices(op, vectors[0], -2), op.size(taus[0], -1)

    def step(op, k, *q):
        if adjoint:
            k = op.Sub(op.Sub(op.constant(count), 1), k)
        vector = both(lambda part: chosen(op, op.Greater(rows, k), op.Gather(part, k, axis=-1)), vectors)
        vector = op.Where(op.Equal(rows, k), op.constant(1, DOUBLE), vector[0]), vector[1]
        tau = both(lambda part: op.Unsqueeze(op.Gather(part, k, axis=-1), [-1, -2]), taus)
        tau = conjugate(op, tau) if adjoint else tau
        down = multiply_parts(op, matrix_product(op, q, both(lambda part: column(op, part), vector)), tau)
        across = both(lambda part: row(op, part), conjugate(op, vector))
        return both(op.Sub, q, multiply_parts(op, down, across))

    real, imag = repeat(op, count, step, *start)
    return real, imag


def qr_factors(op, a: ir.Value, mode: str) -> tuple[ir.Value, ir.Value]:
    """Q and R; Q is empty for the mode ``r``."""
    factors, taus = householder(op, wide(op, a))
    count = op.size(factors[0], -2) if mode == "complete" else smallest_size(op, factors[0])
    r = complex_like(op, upper_part(op, factors, count), a)
    if mode == "r":
        return empty(op, a), r
    q = reflected(op, factors, taus, identity(op, factors[0]))
    return complex_like(op, both(lambda part: first_columns(op, part, count), q), a), r


@translates_complex(aten.linalg_qr.default)
def linalg_qr(op, A, mode):
    """Q and R with the signs of LAPACK."""
    return qr_factors(op, A, mode)


@translates_complex(*installed("qr.default"))
def qr(op, self, some):
    """Q and R, reduced when *some*."""
    return qr_factors(op, self, "reduced" if some else "complete")


@translates_complex(aten.geqrf.default)
def geqrf(op, self):
    """R and the reflections that make Q."""
    factors, taus = householder(op, wide(op, self))
    return complex_like(op, factors, self), complex_like(op, taus, self)


@translates_complex(aten.linalg_householder_product.default)
def linalg_householder_product(op, input, tau):
    """The first columns of the product of reflections."""
    vectors = wide(op, input)
    q = reflected(op, vectors, wide(op, tau), identity(op, vectors[0]))
    return complex_like(op, both(lambda part: first_columns(op, part, op.size(vectors[0], -1)), q), input)


@translates_complex(aten.orgqr.default)
def orgqr(op, self, input2):
    """`linalg_householder_product`."""
    return linalg_householder_product(op, self, input2)


@translates_complex(aten.ormqr.default)
def ormqr(op, self, input2, input3, left, transpose):
    """A matrix times the product of reflections, or its adjoint, from the left or from the right."""
    start = wide(op, input3)
    start = flipped(op, start, adjoint=True) if left else start
    # from the left: Q C is the adjoint of C^H Q^H
    result = reflected(op, wide(op, self), wide(op, input2), start, transpose != left)
    return complex_like(op, flipped(op, result, adjoint=True) if left else result, input3)
