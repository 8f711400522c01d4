"""Complex tensors through sums of squares, products along an axis, and the linear algebra of real matrices.

A complex matrix ``A + iB`` is the real one ``[[A, -B], [B, A]]``: inverses, solutions, powers and exponentials of the one are those
of the other; its singular values come twice.
Source of semantics: https://pytorch.org/docs/stable/linalg.html and https://pytorch.org/docs/stable/complex_numbers.html.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.complex import (
    Parts,
    broadcast,
    join,
    multiply_parts,
    parts,
    parts_of,
)
from experimental_experiment.torch_interpreter.aten.complex_structure import complex_translation, real_call
from experimental_experiment.torch_interpreter.aten.cumulative import running
from experimental_experiment.torch_interpreter.aten.singular_values import only_values, pseudoinverse
from experimental_experiment.torch_interpreter.aten.transposing import transposed
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates_complex
from experimental_experiment.torch_interpreter.torch_versions import installed
from experimental_experiment.torch_interpreter.unread import unread

aten = torch.ops.aten


# ---- variances


def translate_variance(target: torch._ops.OpOverload, variance: torch._ops.OpOverload, is_root: bool) -> None:
    """Register a variance, the sum of those of the parts, or its root when *is_root*; with the mean when *target* gives it."""
    with_mean = len(target._schema.returns) == 2

    def translation(op, **arguments):
        results = [
            real_call(op, variance, arguments | {"self": part}) for part in parts(op, arguments["self"])
        ]
        variances = [result[0] if with_mean else result for result in results]
        total = op.Add(*variances)
        total = op.Sqrt(total) if is_root else total
        return (total, join(op, *(result[1] for result in results))) if with_mean else total

    complex_translation(target, translation, f"{target}: the parts vary independently.")


for _name in ("default", "dim", "correction"):
    translate_variance(getattr(aten.var, _name), getattr(aten.var, _name), False)
    translate_variance(getattr(aten.std, _name), getattr(aten.var, _name), True)
    translate_variance(getattr(aten.var_mean, _name), getattr(aten.var_mean, _name), False)
    translate_variance(getattr(aten.std_mean, _name), getattr(aten.var_mean, _name), True)


# ---- products along an axis


@translates_complex(aten.cumprod.default)
def cumprod(op, self, dim, dtype):
    """The product of all elements up to each one."""
    z = broadcast(op, *parts_of(op, "self", self))
    return join(op, *running_product(op, z, dim)) if rank(z[0]) else join(op, *z)


@translates_complex(aten.prod.dim_int)
def prod_dim(op, self, dim, keepdim, dtype):
    """The product along an axis; 1 along an empty one."""
    z = broadcast(op, *parts_of(op, "self", self))
    return join(op, *(product(op, z, dim % rank(z[0]), keepdim) if rank(z[0]) else z))


@translates_complex(aten.prod.default)
def prod(op, self, dtype):
    """The product of all elements."""
    z = broadcast(op, *parts_of(op, "self", self))
    return join(op, *product(op, tuple(op.Reshape(part, [-1]) for part in z), 0, False))


def product(op, z: Parts, axis: int, keepdim: bool) -> Parts:
    """The parts of the products along an axis."""
    sizes = op.shape([1 if other == axis else op.size(z[0], other) for other in range(rank(z[0]))])
    started = []
    for first, part in zip((1, 0), z):
        started.append(op.Concat(op.Expand(op.constant(first, part.dtype), sizes), part, axis=axis))
        started[-1].shape = ir.Shape([None] * rank(part))
    real, imag = (
        op.Gather(part, [-1] if keepdim else -1, axis=axis) for part in running_product(op, started, axis)
    )
    return real, imag


def running_product(op, z, dim: int) -> tuple[ir.Value, ...]:
    """The parts of the products up to each element."""
    return running(op, z, [1, 0], dim, lambda op, a, b, c, d: list(multiply_parts(op, (a, b), (c, d))))


# ---- matrices


def embedded(op, z: ir.Value) -> ir.Value:
    """The real matrices ``[[A, -B], [B, A]]`` of complex ones."""
    a, b = parts(op, z)
    last = rank(a) - 1
    left = op.Concat(a, b, axis=last - 1)
    return op.Concat(left, op.Concat(op.Neg(b), a, axis=last - 1), axis=last)


def unembedded(op, x: ir.Value) -> ir.Value:
    """The complex matrices of which *x* are the real ones: A over B on their left side."""
    left, _ = op.Split(x, axis=rank(x) - 1, num_outputs=2, outputs=2)
    return join(op, *op.Split(left, axis=rank(left) - 2, num_outputs=2, outputs=2))


def through_embedding(target: torch._ops.OpOverload, name: str) -> None:
    """Register a function of matrices that is the same of the real matrices they are."""

    def translation(op, **arguments):
        return unembedded(op, real_call(op, target, arguments | {name: embedded(op, arguments[name])}))

    complex_translation(target, translation, f"{target} of real matrices of twice the size.")


through_embedding(aten.inverse.default, "self")
through_embedding(aten.linalg_inv.default, "A")
through_embedding(aten.linalg_matrix_exp.default, "self")
through_embedding(aten.linalg_matrix_power.default, "self")
through_embedding(aten.matrix_exp.default, "self")
through_embedding(aten.matrix_power.default, "self")


def hermitian_matrices(op, z: ir.Value, uplo: str) -> ir.Value:
    """Hermitian matrices from one triangle, of which the diagonal is real."""
    upper = uplo.upper() == "U"
    a = op.Trilu(parts(op, z)[0], upper=int(upper))
    strict = [op.Trilu(part, 1 if upper else -1, upper=int(upper)) for part in parts(op, z)]
    return join(op, op.Add(a, transposed(op, strict[0])), op.Sub(strict[1], transposed(op, strict[1])))


def every_second(op, values: ir.Value) -> ir.Value:
    """The elements 0, 2, 4, ... of the last axis."""
    return op.Slice(values, [0], [2**62], [rank(values) - 1], [2])


@translates_complex(aten.linalg_svdvals.default)
def linalg_svdvals(op, A):
    """Every second one of the singular values of the real matrices."""
    return every_second(op, real_call(op, aten.linalg_svdvals.default, {"A": embedded(op, A)}))


@translates_complex(aten.linalg_svd.default)
def linalg_svd(op, A, full_matrices):
    """The singular values; a program that reads the vectors is refused."""
    return _linalg_svd(op, A, full_matrices, True)


@translates_complex(aten._linalg_svd.default)
def _linalg_svd(op, A, full_matrices, compute_uv):
    """`linalg_svd`; without *compute_uv* the vectors are zeros, or empty."""
    if compute_uv:
        only_values(op, 1)
    left, _, right = (unread(op, fake) for fake in op.context.node.meta["val"])
    return left, linalg_svdvals(op, A), right


@translates_complex(aten.svd.default)
def svd(op, self, some, compute_uv):
    """`linalg_svd`; without *compute_uv* the vectors are zeros."""
    return _linalg_svd(op, self, not some, compute_uv)


@translates_complex(aten.linalg_eigvalsh.default)
def linalg_eigvalsh(op, self, UPLO):
    """Every second one of the eigenvalues of the real symmetric matrices."""
    whole = embedded(op, hermitian_matrices(op, self, UPLO))
    return every_second(op, real_call(op, aten.linalg_eigvalsh.default, {"self": whole, "UPLO": "L"}))


@translates_complex(*installed("linalg_polar.default"))
def linalg_polar(op, A):
    """The factors of the real matrices, which are those of the factors."""
    (target,) = installed("linalg_polar.default")
    return tuple(unembedded(op, factor) for factor in real_call(op, target, {"A": embedded(op, A)}))


@translates_complex(*installed("linalg_matrix_sqrth.default"))
def linalg_matrix_sqrth(op, self):
    """The root of the real symmetric matrices, which is that of the Hermitian ones."""
    (target,) = installed("linalg_matrix_sqrth.default")
    whole = embedded(op, hermitian_matrices(op, self, "L"))
    return unembedded(op, real_call(op, target, {"self": whole}))


@translates_complex(aten.linalg_eigh.default)
def linalg_eigh(op, self, UPLO):
    """The eigenvalues of Hermitian matrices; a program that reads the vectors is refused."""
    return _linalg_eigh(op, self, UPLO, True)


@translates_complex(aten._linalg_eigh.default)
def _linalg_eigh(op, A, UPLO, compute_v):
    """`linalg_eigh`; without *compute_v* the vectors are empty."""
    if compute_v:
        only_values(op, 0)
    return linalg_eigvalsh(op, A, UPLO), unread(op, op.context.node.meta["val"][1])


@translates_complex(aten.linalg_pinv.atol_rtol_float, aten.linalg_pinv.atol_rtol_tensor)
def linalg_pinv(op, self, atol, rtol, hermitian):
    """The pseudoinverse of the real matrices, the threshold being that of the complex ones."""
    whole = hermitian_matrices(op, self, "L") if hermitian else self
    like, _ = parts(op, self)
    return unembedded(op, pseudoinverse(op, embedded(op, whole), like, atol, rtol))


@translates_complex(aten.linalg_pinv.default, aten.linalg_pinv.rcond_tensor)
def linalg_pinv_rcond(op, self, rcond, hermitian):
    """The pseudoinverse with a relative threshold."""
    return linalg_pinv(op, self, 0.0, rcond, hermitian)


@translates_complex(aten.pinverse.default)
def pinverse(op, self, rcond):
    """The pseudoinverse with a relative threshold."""
    return linalg_pinv(op, self, 0.0, rcond, False)
