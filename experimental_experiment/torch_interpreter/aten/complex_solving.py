"""Linear systems with complex matrices: solve, inverse, triangular systems.

Computed in complex128 whatever the dtype, as `solving`.
Source of semantics: https://pytorch.org/docs/stable/linalg.html.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.complex import (
    Parts,
    join,
    multiply_parts,
    parts,
    quotient,
)
from experimental_experiment.torch_interpreter.aten.complex_factorization import (
    both,
    complex_like,
    conjugate,
    flipped,
    identity,
    lu,
    lu_info,
    wide,
)
from experimental_experiment.torch_interpreter.aten.factorization import (
    chosen,
    column,
    indices,
    one_based,
    order_of,
    permutation,
    repeat,
    row,
)
from experimental_experiment.torch_interpreter.aten.solving import common_batch, is_vector_of
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates_complex

aten = torch.ops.aten
DOUBLE = ir.DataType.DOUBLE


# ---- triangular systems


def triangular(op, a: Parts, b: Parts, upper: bool, unit: bool = False) -> Parts:
    """X of ``A X = B`` by substitution, as `solving.triangular`."""
    rows, count = indices(op, a[0], -1), op.size(a[0], -1)

    def step(op, k, *b):
        at = op.Sub(op.Sub(op.constant(count), 1), k) if upper else k
        down = both(lambda part: op.Gather(part, at, axis=-1), a)
        solved = both(lambda part: op.Gather(part, at, axis=-2), b)
        if not unit:
            corner = both(lambda part: op.Unsqueeze(op.Gather(part, at, axis=-1), [-1]), down)
            solved = quotient(op, solved, corner)
        solved = both(lambda part: row(op, part), solved)
        left = op.Less(rows, at) if upper else op.Greater(rows, at)
        down = both(lambda part: column(op, chosen(op, left, part)), down)
        others, here = both(op.Sub, b, multiply_parts(op, down, solved)), column(op, op.Equal(rows, at))
        return both(lambda x, y: op.Where(here, x, y), solved, others)

    real, imag = repeat(op, count, step, *both(lambda part: common_batch(op, part, a[0]), b))
    return real, imag


@translates_complex(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(op, self, B, upper, left, unitriangular):
    """X of ``A X = B``, or of ``X A = B``."""
    a, b = wide(op, self), wide(op, B)
    if left:
        return complex_like(op, triangular(op, a, b, upper, unitriangular), B)
    x = triangular(op, flipped(op, a), flipped(op, b), not upper, unitriangular)
    return complex_like(op, flipped(op, x), B)


@translates_complex(aten.triangular_solve.default)
def triangular_solve(op, self, A, upper, transpose, unitriangular):
    """X of ``A X = self``, and A."""
    a, b = wide(op, A), wide(op, self)
    shown = both(lambda part: common_batch(op, part, b[0]), parts(op, A))
    if transpose:
        a, upper = flipped(op, a), not upper
    return complex_like(op, triangular(op, a, b, upper, unitriangular), self), join(op, *shown)


@translates_complex(aten.cholesky_solve.default)
def cholesky_solve(op, self, input2, upper):
    """X of ``A X = self`` from the Cholesky factor of A."""
    return complex_like(op, factored_solution(op, wide(op, input2), wide(op, self), upper), self)


def factored_solution(op, factor: Parts, b: Parts, upper: bool) -> Parts:
    """X of ``L L^H X = B``."""
    low = flipped(op, factor, adjoint=True) if upper else factor
    return triangular(op, flipped(op, low, adjoint=True), triangular(op, low, b, False), True)


@translates_complex(aten.cholesky_inverse.default)
def cholesky_inverse(op, self, upper):
    """The inverse of A from its Cholesky factor."""
    factor = wide(op, self)
    return complex_like(op, factored_solution(op, factor, identity(op, factor[0]), upper), self)


# ---- general systems


def solution(op, factors: Parts, order: ir.Value, b: Parts) -> Parts:
    """`solving.solution` for complex matrices."""
    b = both(lambda part: common_batch(op, part, factors[0]), b)
    if 0 in b[0].shape:
        return b
    places = op.Expand(column(op, order), op.shape_of(b[0]))
    b = both(lambda part: op.GatherElements(part, places, axis=-2), b)
    return triangular(op, factors, triangular(op, factors, b, False, True), True)


def transposed_solution(op, factors: Parts, order: ir.Value, b: Parts) -> Parts:
    """`solution` for the transpose of A: that of P L U is U^T L^T P^T."""
    b, turned = both(lambda part: common_batch(op, part, factors[0]), b), flipped(op, factors)
    if 0 in b[0].shape:
        return b
    x = triangular(op, turned, triangular(op, turned, b, False), True, True)
    return both(lambda part: op.MatMul(permutation(op, order, DOUBLE), part), x)


@translates_complex(aten.linalg_solve.default)
def linalg_solve(op, A, B, left):
    """X of ``A X = B``, or of ``X A = B``."""
    return _linalg_solve_ex(op, A, B, left)[0]


@translates_complex(aten.linalg_solve_ex.default)
def linalg_solve_ex(op, A, B, left):
    """`linalg_solve`, and the column of the first zero pivot."""
    x, _, _, info = _linalg_solve_ex(op, A, B, left)
    return x, info


@translates_complex(aten._linalg_solve_ex.default)
def _linalg_solve_ex(op, A, B, left):
    """`linalg_solve` for matrices and for vectors, and `linalg_lu_factor_ex` of A."""
    a, b = wide(op, A), wide(op, B)
    is_vector = is_vector_of(a[0], b[0])
    b = both(lambda part: column(op, part), b) if is_vector else b
    factors, order, pivots, _ = lu(op, a)
    if left or is_vector:
        x = solution(op, factors, order, b)
    else:
        x = flipped(op, transposed_solution(op, factors, order, flipped(op, b)))
    x = both(lambda part: op.Squeeze(part, [rank(part) - 1]), x) if is_vector else x
    return complex_like(op, x, A), complex_like(op, factors, A), one_based(op, pivots), lu_info(op, factors)


@translates_complex(aten.linalg_lu_solve.default)
def linalg_lu_solve(op, LU, pivots, B, left, adjoint):
    """X of ``A X = B``, or of ``X A = B``, or of one with the adjoint of A, from the factors of A."""
    factors, b = wide(op, LU), wide(op, B)
    order = order_of(op, pivots, factors[0])
    size = rank(factors[0])
    b = b if left else flipped(op, b, adjoint)
    b = conjugate(op, b) if left and adjoint else b
    b = both(lambda part: common_batch(op, part, factors[0]), b)
    factors = both(lambda part: common_batch(op, part, b[0]), factors)
    if rank(factors[0]) > size:
        order = op.Expand(order, op.shape_of(factors[0], 0, -1))
    x = (solution if left != adjoint else transposed_solution)(op, factors, order, b)
    x = conjugate(op, x) if left and adjoint else x
    return complex_like(op, x if left else flipped(op, x, adjoint), B)


@translates_complex(aten.lu_solve.default)
def lu_solve(op, self, LU_data, LU_pivots):
    """X of ``A X = self`` from the factors of A."""
    return linalg_lu_solve(op, LU_data, LU_pivots, self, True, False)


@translates_complex(aten.linalg_inv_ex.default)
def linalg_inv_ex(op, A):
    """The inverse, and the column of the first zero pivot."""
    a = wide(op, A)
    factors, order, _, _ = lu(op, a)
    x = solution(op, factors, order, identity(op, a[0]))
    return complex_like(op, x, A), lu_info(op, factors)
