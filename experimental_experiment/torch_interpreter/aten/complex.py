"""Complex numbers: making them, taking them apart, arithmetic and elementary functions.

A complex tensor is a real value with a trailing dimension of 2: real part, imaginary part. Most functions here work on
the two parts; `join` remembers them, so that a chain of operators never takes apart what it has just put together.
Source of semantics: https://pytorch.org/docs/stable/complex_numbers.html and c10/util/complex.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.conversion import UNCHANGED, put_alias, same_bits
from experimental_experiment.torch_interpreter.aten.floating_point import sign_of
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.aten.trigonometric import atan2, hypot, squared
from experimental_experiment.torch_interpreter.aten.vector_norm import vector_norm
from experimental_experiment.torch_interpreter.dtypes import is_complex
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.marks import COLUMNS, PARTS
from experimental_experiment.torch_interpreter.promotion import promote, promote_to_float
from experimental_experiment.torch_interpreter.registry import (
    schema_names,
    translates,
    translates_complex,
    writes_complex_through,
    writes_through,
)
from experimental_experiment.torch_interpreter.sizes import is_int, same_sizes, sizes_of, times
from experimental_experiment.torch_interpreter.sizes import quotient as quotient_of_sizes

aten = torch.ops.aten

BOOL = ir.DataType.BOOL
Parts = tuple[ir.Value, ir.Value]
"""Real and imaginary part."""


# ---- parts


def parts(op, x: ir.Value) -> Parts:
    """The real and the imaginary part of a complex value."""
    if PARTS in x.meta:
        return x.meta[PARTS]
    if COLUMNS in x.meta:
        return tuple(op.Squeeze(part, [rank(x) - 1]) for part in x.meta[COLUMNS])
    return op.Gather(x, 0, axis=rank(x) - 1), op.Gather(x, 1, axis=rank(x) - 1)


def columns(op, x: ir.Value) -> Parts:
    """`parts` with a last axis of 1: what is computed element by element is taken apart and joined in one node each."""
    return x.meta[COLUMNS] if COLUMNS in x.meta else op.Split(x, axis=rank(x) - 1, num_outputs=2, outputs=2)


def join(op, real: ir.Value, imag: ir.Value) -> ir.Value:
    """The complex value with these parts, which have the same shape and dtype."""
    result = join_columns(op, op.Unsqueeze(real, [rank(real)]), op.Unsqueeze(imag, [rank(imag)]))
    result.meta[PARTS] = (real, imag)
    return result


def join_columns(op, real: ir.Value, imag: ir.Value) -> ir.Value:
    """The complex value with these `columns`, whose shapes broadcast."""
    real, imag = broadcast(op, real, imag)
    result = op.Concat(real, imag, axis=rank(real) - 1)
    result.meta[COLUMNS] = (real, imag)
    return result


def broadcast(op, real: ir.Value, imag: ir.Value) -> Parts:
    """Parts of one shape, from parts whose shapes broadcast."""
    if real.shape == imag.shape:
        return real, imag
    return spread(op, real, imag), spread(op, imag, real)


def spread(op, part: ir.Value, other: ir.Value) -> ir.Value:
    """One of two parts whose shapes broadcast, in the shape of both."""
    sizes, more = sizes_of(op, other), rank(part) - rank(other)
    known = same_sizes(op, part, [*sizes_of(op, part)[: max(more, 0)], *sizes])[max(more, 0) :]
    if more >= 0 and all(is_int(size, 1) or same for size, same in zip(sizes, known)):
        return part
    return op.Expand(part, op.shape_of(other))


def component_dtype(op) -> ir.DataType:
    """The dtype of the parts of the result of the node that is translated."""
    fake = op.context.node.meta["val"]
    while isinstance(fake, (list, tuple)):
        fake = fake[0]
    return dtypes.onnx_dtype(fake.dtype)


def given(op, name: str) -> Any:
    """What the node that is translated gives for an argument of its operator: an FX node, a list, a number."""
    node = op.context.node
    return (dict(zip(schema_names(node.target), node.args)) | node.kwargs).get(name)


def truth(op, x: ir.Value) -> ir.Value:
    """Where a complex value is not zero, which is what it is as a boolean."""
    return op.Or(*(op.Cast(part, to=BOOL) for part in parts(op, x)))


def parts_of(op, name: str, value: Any) -> Parts:
    """The parts of the argument *name*, in the dtype of the result: the imaginary part of a real one is zero."""
    dtype = component_dtype(op)
    if not isinstance(value, ir.Value):
        number = complex(value)
        return op.constant(number.real, dtype), op.constant(number.imag, dtype)
    if is_complex(given(op, name)):
        real, imag = parts(op, value)
        return op.Cast(real, to=dtype), op.Cast(imag, to=dtype)
    return op.Cast(value, to=dtype), op.constant(0, dtype)


def columns_of(op, name: str, value: Any) -> Parts:
    """`parts_of` with a last axis of 1, those of a number without axes."""
    dtype = component_dtype(op)
    if not isinstance(value, ir.Value):
        return parts_of(op, name, value)
    if is_complex(given(op, name)):
        real, imag = columns(op, value)
        return op.Cast(real, to=dtype), op.Cast(imag, to=dtype)
    return op.Unsqueeze(op.Cast(value, to=dtype), [rank(value)]), op.constant(0, dtype)


# ---- making and taking apart


@translates(aten.complex.default)
def complex_(op, real, imag):
    """Two real tensors that broadcast."""
    return join(op, *broadcast(op, real, imag))


@translates(aten.polar.default)
def polar(op, abs, angle):
    """A length and an angle."""
    return join(op, *broadcast(op, op.Mul(abs, op.Cos(angle)), op.Mul(abs, op.Sin(angle))))


@translates_complex(aten.view_as_complex.default, aten.view_as_real.default)
def view_as_real(op, self):
    """A complex tensor is held as this view of it: nothing to do, both ways."""
    return self


@writes_through(aten.view_as_complex.default)
@writes_complex_through(aten.view_as_real.default)
def put_view_as_real(op, base, new):
    """The new elements."""
    return new


@translates_complex(aten.view.dtype, aten.view_copy.dtype)
def view_dtype(op, self, dtype):
    """Complex numbers as their parts, one after the other along the last axis, or such parts as complex numbers."""
    viewed, view = (node.meta["val"].dtype for node in (op.context.node.args[0], op.context.node))
    if viewed.to_real() != view.to_real():
        raise Untranslatable(f"a view of {viewed} as {view}, which has parts of another dtype")
    if viewed == view:
        return self
    if view.is_complex:
        *sizes, last = sizes_of(op, self)
        return reshaped(op, self, [*sizes, quotient_of_sizes(op, last, 2), 2])
    *sizes, last, _ = sizes_of(op, self)
    return reshaped(op, self, [*sizes, times(op, last, 2)])


@writes_through(aten.view.dtype)
@writes_complex_through(aten.view.dtype)
def put_view_dtype(op, base, new):
    """The new parts, or the new bits of real numbers."""
    if is_complex(op.context.node) or is_complex(op.context.node.args[0]):
        return reshaped(op, new, sizes_of(op, base))
    return same_bits(op, new, base.dtype)


@translates_complex(aten.real.default)
def real(op, self):
    """The real part."""
    return parts(op, self)[0]


@writes_complex_through(aten.real.default)
def put_real(op, base, new):
    """Keep the imaginary part."""
    return join(op, new, parts(op, base)[1])


@translates_complex(aten.imag.default)
def imag(op, self):
    """The imaginary part."""
    return parts(op, self)[1]


@writes_complex_through(aten.imag.default)
def put_imag(op, base, new):
    """Keep the real part."""
    return join(op, parts(op, base)[0], new)


@translates(
    aten.real.default, aten.conj.default, aten._conj.default, aten.conj_physical.default, aten._conj_physical.default
)  # fmt: skip
def real_of_real(op, self):
    """A real tensor is its own real part and its own conjugate."""
    return self


@translates_complex(
    aten.conj.default, aten._conj.default, aten.conj_physical.default, aten._conj_physical.default
)
def conj(op, self):
    """The conjugate; a gradient multiplies by that of a number of Python."""
    if not isinstance(self, ir.Value):
        real, imag = parts_of(op, "self", self)
        return join(op, real, op.Neg(imag))
    real, imag = columns(op, self)
    return join_columns(op, real, op.Neg(imag))


@writes_complex_through(aten.conj.default, aten._conj.default)
def put_conj(op, base, new):
    """Conjugating twice changes nothing."""
    return conj(op, new)


@translates_complex(
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.positive.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
)
def alias(op, self):
    """The tensor itself."""
    return self


writes_complex_through(*UNCHANGED)(put_alias)


@translates_complex(aten.to.dtype, aten.to.device, aten.to.dtype_layout)
def to(op, self, dtype, copy):
    """Another dtype: a real one drops the imaginary part, but a boolean; a real tensor gets one that is zero."""
    dtype = component_dtype(op)
    if is_complex(given(op, "self")) and is_complex(op.context.node):
        return op.Cast(self, to=dtype)
    if is_complex(op.context.node):
        return join_columns(op, *columns_of(op, "self", self))
    return truth(op, self) if dtype == BOOL else parts_of(op, "self", self)[0]


@translates_complex(aten.to.other)
def to_other(op, self, other, copy):
    """The dtype of another tensor, as in `to`."""
    return to(op, self, None, copy)


@translates_complex(aten.type_as.default)
def type_as(op, self, other):
    """The dtype of another tensor, as in `to`."""
    return to(op, self, None, False)


@translates_complex(aten._to_copy.default, aten.to_dense.default)
def to_copy(op, self, dtype):
    """Another dtype, as in `to`."""
    return to(op, self, dtype, False)


@translates_complex(aten.chalf.default)
def chalf(op, self):
    """The dtype complex32, as in `to`."""
    return to(op, self, torch.complex32, False)


# ---- lengths and angles


@translates_complex(aten.abs.default, aten.absolute.default)
def abs_(op, self):
    """The length: the norm of a pair, where its squares do not overflow."""
    dtype = self.dtype
    if op.context.special_values or dtype == squared(dtype) or {PARTS, COLUMNS} & set(self.meta):
        return hypot(op, *parts(op, self))
    length = op.ReduceL2(op.Cast(self, to=squared(dtype)), [rank(self) - 1], keepdims=0)
    return op.Cast(length, to=dtype)


@translates_complex(aten.angle.default)
def angle(op, self):
    """The angle, in (-pi, pi]."""
    real, imag = parts(op, self)
    return atan2(op, imag, real)


@translates(aten.angle.default)
def angle_of_real(op, self):
    """pi below zero, zero above; NaN stays."""
    (self,) = promote_to_float(op, self)
    return op.Where(op.Less(self, 0), op.CastLike(math.pi, self), op.Min(self, 0))


@translates_complex(aten.sgn.default)
def sgn(op, self):
    """The number divided by its length; zero stays."""
    real, imag = columns(op, self)
    length = hypot(op, real, imag)
    zero = op.Equal(length, 0)
    scale = op.Where(zero, op.CastLike(1, length), length)
    return join_columns(op, op.Div(real, scale), op.Div(imag, scale))


@translates_complex(aten.linalg_vector_norm.default)
def linalg_vector_norm(op, self, ord, dim, keepdim, dtype):
    """The norm of the lengths; of numbers of *dtype*, which the result shows."""
    self = op.Cast(self, to=component_dtype(op))
    return vector_norm(op, abs_(op, self), ord, dim, keepdim, None)


# ---- arithmetic


@translates_complex(aten.mul.Tensor, aten.mul.Scalar, aten.multiply.Tensor, aten.multiply.Scalar)
def mul(op, self, other):
    """``(a + bi)(c + di)``; a real number scales both parts."""
    if is_scale(op, "self", self):
        return scaled(op, op.Mul, ("other", other), ("self", self))
    if is_scale(op, "other", other):
        return scaled(op, op.Mul, ("self", self), ("other", other))
    return join_columns(op, *multiply_parts(op, columns_of(op, "self", self), columns_of(op, "other", other)))


def scaled(op, operator: Callable, number: tuple[str, Any], factor: tuple[str, Any]) -> ir.Value:
    """A complex number of which *operator* changes both parts by the same real *factor*; they stay together unless they are apart already.

    Both are the name of an argument and its value.
    """
    name, z = number
    is_pair = isinstance(z, ir.Value) and is_complex(given(op, name))
    if is_pair and not {PARTS, COLUMNS} & set(z.meta):
        scale, _ = columns_of(op, *factor)
        return operator(op.Cast(z, to=component_dtype(op)), scale)
    apart = not is_pair or PARTS in z.meta
    take, put = (parts_of, join) if apart and isinstance(factor[1], ir.Value) else (columns_of, join_columns)
    scale, _ = take(op, *factor)
    return put(op, *broadcast(op, *(operator(part, scale) for part in take(op, *number))))


def is_real(op, name: str, value: Any) -> bool:
    """Whether the argument *name* is a real tensor or a number without an imaginary part."""
    return not is_complex(given(op, name)) if isinstance(value, ir.Value) else complex(value).imag == 0


def is_scale(op, name: str, value: Any) -> bool:
    """Whether an operand is real, and so changes both parts alike; with special_values its imaginary part 0 makes NaN of infinities."""
    return is_real(op, name, value) and not op.context.special_values


@translates_complex(aten.div.Tensor, aten.div.Scalar, aten.divide.Tensor, aten.divide.Scalar)
def div(op, self, other):
    """``(a + bi) / (c + di)``; a real number divides both parts."""
    if is_scale(op, "other", other):
        return scaled(op, op.Div, ("self", self), ("other", other))
    return join_columns(op, *quotient(op, columns_of(op, "self", self), columns_of(op, "other", other)))


@translates_complex(aten.reciprocal.default)
def reciprocal(op, self):
    """``1 / (a + bi)``."""
    dtype = component_dtype(op)
    return join_columns(op, *quotient(op, (op.constant(1, dtype), op.constant(0, dtype)), columns(op, self)))


@translates_complex(aten.neg.default, aten.negative.default)
def neg(op, self):
    """Both parts change sign."""
    return op.Neg(self)


@translates_complex(aten.square.default)
def square(op, self):
    """``(a + bi)^2``."""
    z = columns(op, self)
    return join_columns(op, *multiply_parts(op, z, z))


@translates_complex(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar)
def pow_(op, self, exponent):
    """Products for the exponents 0 to 3 and 0.5 to a root, ``exp(exponent * log(self))`` otherwise; 0 to a power is 0."""
    base = columns_of(op, "self", self)
    if isinstance(exponent, complex) and exponent.imag == 0:
        exponent = exponent.real
    if not isinstance(exponent, ir.Value) and exponent in (0.5, 1, 2, 3):
        result = root(op, base) if exponent == 0.5 else base
        for _ in range(int(exponent) - 1):
            result = multiply_parts(op, result, base)
        return join_columns(op, *result)
    base, power = (
        [op.Cast(part, to=ir.DataType.DOUBLE) for part in z]
        for z in (base, columns_of(op, "exponent", exponent))
    )
    real, imag = exponential(op, multiply_parts(op, logarithm(op, base), power))
    nothing = op.And(op.Equal(base[0], 0), op.Equal(base[1], 0))
    none = op.And(op.Equal(power[0], 0), op.Equal(power[1], 0))
    at_zero = op.Cast(none, to=real.dtype)
    result = op.Where(nothing, at_zero, real), op.Where(nothing, op.CastLike(0, imag), imag)
    return join_columns(op, *(op.Cast(part, to=component_dtype(op)) for part in result))


def multiply_parts(op, left: Parts, right: Parts) -> Parts:
    """The parts of a product."""
    (a, b), (c, d) = left, right
    return op.Sub(op.Mul(a, c), op.Mul(b, d)), op.Add(op.Mul(a, d), op.Mul(b, c))


def quotient(op, left: Parts, right: Parts) -> Parts:
    """The parts of a quotient, the divisor being scaled so that its square does not overflow."""
    (a, b), (c, d) = left, right
    scale = op.Max(op.Abs(c), op.Abs(d))
    c, d = op.Div(c, scale), op.Div(d, scale)
    length = op.Mul(op.Add(op.Mul(c, c), op.Mul(d, d)), scale)
    real = op.Add(op.Mul(a, c), op.Mul(b, d))
    imag = op.Sub(op.Mul(b, c), op.Mul(a, d))
    return op.Div(real, length), op.Div(imag, length)


# ---- elementary functions


def elementary(target, function) -> None:
    """Register a function of the parts of a complex tensor."""

    def translation(op, self):
        return join_columns(op, *function(op, columns(op, self)))

    translation.__name__ = function.__name__
    translation.__doc__ = function.__doc__
    translates_complex(target)(translation)


def exponential(op, z: Parts) -> Parts:
    """``e^a (cos b + i sin b)``; real when z is, however large."""
    length = op.Exp(z[0])
    imag = op.Mul(length, op.Sin(z[1]))
    return op.Mul(length, op.Cos(z[1])), op.Where(op.Equal(z[1], 0), z[1], imag)


def logarithm(op, z: Parts) -> Parts:
    """``log |z| + i angle(z)``."""
    return op.Log(hypot(op, *z)), atan2(op, z[1], z[0])


def root(op, z: Parts) -> Parts:
    """The square root with a real part that is not negative."""
    length = hypot(op, *z)
    half = op.Sqrt(op.Mul(op.Add(length, op.Abs(z[0])), 0.5))
    other = op.Div(op.Abs(z[1]), op.Where(op.Equal(half, 0), op.CastLike(1, half), op.Mul(half, 2)))
    right = op.GreaterOrEqual(z[0], 0)
    imag = op.Where(right, other, half)
    return op.Where(right, half, other), op.Mul(imag, sign_of(op, z[1]))


def sine(op, z: Parts) -> Parts:
    """``sin a cosh b + i cos a sinh b``."""
    return op.Mul(op.Sin(z[0]), op.Cosh(z[1])), op.Mul(op.Cos(z[0]), op.Sinh(z[1]))


def cosine(op, z: Parts) -> Parts:
    """``cos a cosh b - i sin a sinh b``."""
    return op.Mul(op.Cos(z[0]), op.Cosh(z[1])), op.Neg(op.Mul(op.Sin(z[0]), op.Sinh(z[1])))


def hyperbolic_sine(op, z: Parts) -> Parts:
    """``sinh a cos b + i cosh a sin b``."""
    return op.Mul(op.Sinh(z[0]), op.Cos(z[1])), op.Mul(op.Cosh(z[0]), op.Sin(z[1]))


def hyperbolic_cosine(op, z: Parts) -> Parts:
    """``cosh a cos b + i sinh a sin b``."""
    return op.Mul(op.Cosh(z[0]), op.Cos(z[1])), op.Mul(op.Sinh(z[0]), op.Sin(z[1]))


def sigmoid(op, z: Parts) -> Parts:
    """``1 / (1 + e^-z)``."""
    real, imag = exponential(op, (op.Neg(z[0]), op.Neg(z[1])))
    return quotient(op, (op.CastLike(1, real), op.CastLike(0, real)), (op.Add(real, 1), imag))


def silu(op, z: Parts) -> Parts:
    """``z / (1 + e^-z)``."""
    return multiply_parts(op, z, sigmoid(op, z))


def hyperbolic_tangent(op, z: Parts) -> Parts:
    """``tanh z`` from the tangents of its parts: ``(t + i u) / (1 + i t u)``."""
    t, u = op.Tanh(z[0]), op.Tan(z[1])
    return quotient(op, (t, u), (op.CastLike(1, t), op.Mul(t, u)))


elementary(aten.cos.default, cosine)
elementary(aten.cosh.default, hyperbolic_cosine)
elementary(aten.exp.default, exponential)
elementary(aten.log.default, logarithm)
elementary(aten.sigmoid.default, sigmoid)
elementary(aten.silu.default, silu)
elementary(aten.sin.default, sine)
elementary(aten.sinh.default, hyperbolic_sine)
elementary(aten.sqrt.default, root)
elementary(aten.tanh.default, hyperbolic_tangent)


@translates_complex(aten.sigmoid_backward.default, aten.tanh_backward.default)
def gradient_of_result(op, grad_output, output):
    """The conjugate of ``y (1 - y)`` or of ``(1 + y) (1 - y)``, *y* being the result, times the gradient."""
    real, imag = columns_of(op, "output", output)
    is_tanh = op.context.node.target is aten.tanh_backward.default
    factor = op.Add(real, 1) if is_tanh else real
    slope, turn = multiply_parts(op, (factor, imag), (op.Sub(1, real), op.Neg(imag)))
    return join_columns(
        op, *multiply_parts(op, columns_of(op, "grad_output", grad_output), (slope, op.Neg(turn)))
    )


# ---- comparison


@translates_complex(aten.eq.Tensor, aten.eq.Scalar)
def eq(op, self, other):
    """Both parts are equal."""
    left, right = comparable(op, "self", self), comparable(op, "other", other)
    return op.And(*(op.Equal(*promote(op, a, b)) for a, b in zip(left, right)))


@translates_complex(aten.ne.Tensor, aten.ne.Scalar, aten.not_equal.Tensor, aten.not_equal.Scalar)
def ne(op, self, other):
    """One part differs."""
    return op.Not(eq(op, self, other))


def comparable(op, name: str, value: Any) -> tuple[Any, Any]:
    """The parts of an argument of a comparison, in its own dtype."""
    if not isinstance(value, ir.Value):
        return complex(value).real, complex(value).imag
    return parts(op, value) if is_complex(given(op, name)) else (value, 0)


@translates_complex(aten.logical_not.default)
def logical_not(op, self):
    """Whether both parts are zero."""
    return op.And(*(op.Equal(part, 0) for part in parts(op, self)))


@translates_complex(aten.isnan.default)
def isnan(op, self):
    """One part is NaN."""
    return op.Or(*(op.IsNaN(part) for part in parts(op, self)))


@translates_complex(aten.isinf.default)
def isinf(op, self):
    """One part is infinite."""
    return op.Or(*(op.IsInf(part) for part in parts(op, self)))


@translates_complex(aten.isfinite.default)
def isfinite(op, self):
    """Neither part is infinite or NaN."""
    return op.Not(op.Or(isnan(op, self), isinf(op, self)))


@translates_complex(aten.isreal.default)
def isreal(op, self):
    """The imaginary part is zero."""
    return op.Equal(parts(op, self)[1], 0)
