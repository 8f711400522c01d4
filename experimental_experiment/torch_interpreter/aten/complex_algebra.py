"""Complex tensors through sums of squares, products along an axis, and the linear algebra of real matrices.

A complex matrix ``A + iB`` is the real one ``[[A, -B], [B, A]]``: inverses, solutions, powers and exponentials of the one are those
of the other; its singular values come twice.
Source of semantics: https://pytorch.org/docs/stable/linalg.html and https://pytorch.org/docs/stable/complex_numbers.html.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.complex import join, multiply_parts, parts, parts_of
from experimental_experiment.torch_interpreter.aten.complex_structure import complex_translation, real_call
from experimental_experiment.torch_interpreter.aten.cumulative import running
from experimental_experiment.torch_interpreter.aten.factorization import transposed
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates_complex

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
    z = parts_of(op, "self", self)
    return join(op, *running_product(op, z, dim)) if rank(z[0]) else join(op, *z)


@translates_complex(aten.prod.dim_int)
def prod_dim(op, self, dim, keepdim, dtype):
    """The product along an axis; 1 along an empty one."""
    z = parts_of(op, "self", self)
    if rank(z[0]) == 0:
        return join(op, *z)
    axis = dim % rank(z[0])
    sizes = op.shape([1 if other == axis else op.size(z[0], other) for other in range(rank(z[0]))])
    started = []
    for first, part in zip((1, 0), z):
        started.append(op.Concat(op.Expand(op.constant(first, part.dtype), sizes), part, axis=axis))
        started[-1].shape = ir.Shape([None] * rank(part))
    last = [
        op.Gather(part, [-1] if keepdim else -1, axis=axis) for part in running_product(op, started, axis)
    ]
    return join(op, *last)


@translates_complex(aten.prod.default)
def prod(op, self, dtype):
    """The product of all elements."""
    return prod_dim(op, op.Reshape(self, [-1, 2]), 0, False, dtype)


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


def columns(op, z: ir.Value, axis: int) -> ir.Value:
    """The real part of matrices or vectors over the imaginary one, along *axis*."""
    return op.Concat(*parts(op, z), axis=axis)


def from_columns(op, x: ir.Value, axis: int) -> ir.Value:
    """What `columns` put together, as complex numbers."""
    return join(op, *op.Split(x, axis=axis, num_outputs=2, outputs=2))


def through_embedding(target: torch._ops.OpOverload, name: str) -> None:
    """Register a function of matrices that is the same of the real matrices they are."""

    def translation(op, **arguments):
        result = real_call(op, target, arguments | {name: embedded(op, arguments[name])})
        left, _ = op.Split(result, axis=rank(result) - 1, num_outputs=2, outputs=2)
        return from_columns(op, left, rank(left) - 2)

    complex_translation(target, translation, f"{target} of real matrices of twice the size.")


through_embedding(aten.inverse.default, "self")
through_embedding(aten.linalg_inv.default, "A")
through_embedding(aten.linalg_matrix_exp.default, "self")
through_embedding(aten.linalg_matrix_power.default, "self")
through_embedding(aten.matrix_exp.default, "self")
through_embedding(aten.matrix_power.default, "self")


@translates_complex(aten.linalg_solve.default)
def linalg_solve(op, A, B, left):
    """X of ``A X = B``; B is complex as A is."""
    is_vector = rank(B) == 2 or (rank(B) == rank(A) - 1 and list(B.shape)[:-1] == list(A.shape)[:-2])
    if not left and not is_vector:
        raise Untranslatable("a complex system from the right")
    axis = rank(B) - 2 if is_vector else rank(B) - 3
    x = real_call(
        op, aten.linalg_solve.default, {"A": embedded(op, A), "B": columns(op, B, axis), "left": True}
    )
    return from_columns(op, x, axis)


@translates_complex(aten.linalg_svdvals.default)
def linalg_svdvals(op, A):
    """Every second one of the singular values of the real matrices."""
    values = real_call(op, aten.linalg_svdvals.default, {"A": embedded(op, A)})
    return every_second(op, values)


@translates_complex(aten.linalg_eigvalsh.default)
def linalg_eigvalsh(op, self, UPLO):
    """Every second one of the eigenvalues of the real symmetric matrices."""
    upper = UPLO.upper() == "U"
    a = op.Trilu(parts(op, self)[0], upper=int(upper))
    strict = [op.Trilu(part, -1 if not upper else 1, upper=int(upper)) for part in parts(op, self)]
    a, b = op.Add(a, transposed(op, strict[0])), op.Sub(strict[1], transposed(op, strict[1]))
    values = real_call(op, aten.linalg_eigvalsh.default, {"self": embedded(op, join(op, a, b)), "UPLO": "L"})
    return every_second(op, values)


def every_second(op, values: ir.Value) -> ir.Value:
    """The elements 0, 2, 4, ... of the last axis."""
    return op.Slice(values, [0], [2**62], [rank(values) - 1], [2])
