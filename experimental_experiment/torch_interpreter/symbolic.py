"""Symbolic numbers: Python's arithmetic on SymInt, SymFloat and SymBool, which are 0-d ONNX values (`sizes.Number`).

Source of semantics: Python's operators on int, float and bool; ``torch.sym_*``; expressions are those of torch's ShapeEnv.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import onnx_ir as ir
import sympy
import torch
from torch.utils._sympy import functions

from experimental_experiment.torch_interpreter.dimensions import is_backed, with_whole_products
from experimental_experiment.torch_interpreter.emitter import Emitter, rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.marks import BOUND
from experimental_experiment.torch_interpreter.patches.powers import LIBRARY  # noqa: F401, defines ceil_log2
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.registry import TRANSLATIONS, translates
from experimental_experiment.torch_interpreter.sizes import (
    Number,
    named,
    sizes_of,
    volume,
)
from experimental_experiment.torch_interpreter.symbols import expression_of

aten = torch.ops.aten
INT64, DOUBLE, BOOL = ir.DataType.INT64, ir.DataType.DOUBLE, ir.DataType.BOOL

Scalar = ir.Value | int | float | bool


# ---- arithmetic


def calculated(op: Emitter, function: Callable, *numbers: Scalar) -> Scalar:
    """What a function of Python that is translated here gives: a number of Python, or a symbolic one when one of *numbers* is."""
    result = TRANSLATIONS[function].function(op, *numbers)
    return Number(result) if isinstance(result, ir.Value) else result


def integer(op: Emitter, x: Scalar) -> Scalar:
    """A number as a Python int or an INT64 value."""
    if not isinstance(x, ir.Value):
        return int(x)
    return op.Cast(x, to=INT64)


def double(op: Emitter, x: Scalar) -> Scalar:
    """A number as a Python float or a DOUBLE value."""
    if not isinstance(x, ir.Value):
        return float(x)
    return op.Cast(x, to=DOUBLE)


def is_float(x: Scalar) -> bool:
    """Whether a number is a float in Python."""
    return x.dtype == DOUBLE if isinstance(x, ir.Value) else isinstance(x, float)


def common(op: Emitter, numbers: list[Scalar]) -> list[ir.Value]:
    """The numbers as values of one dtype: DOUBLE when one is a float, INT64 otherwise."""
    dtype = DOUBLE if any(is_float(number) for number in numbers) else INT64
    return [
        op.Cast(number, to=dtype) if isinstance(number, ir.Value) else op.constant(number, dtype)
        for number in numbers
    ]


def python_binary(target: Callable, write: Callable, *others: Callable) -> None:
    """Translate a binary operator of Python: computed now on Python numbers, written on values of one dtype."""

    def translation(op, a, b):
        if not (isinstance(a, ir.Value) or isinstance(b, ir.Value)):
            return target(a, b)
        return write(op, *common(op, [a, b]))

    translation.__name__ = getattr(target, "__name__", "binary")
    translates(target, *others)(translation)


def floordiv(op, a, b):
    """``a // b`` rounds towards minus infinity; ONNX Div truncates integers. As CPython, from the remainder for floats.

    The quotient of a number that is at least ``-n * b``, as ``size - 1`` is, is ``(a + n * b) // b - n``: of numbers that are not negative.
    """
    if a.dtype != DOUBLE:
        least, divisor = lower_bound(a), lower_bound(b)
        if least is None or divisor is None or divisor < 1 or b.const_value is None:
            return op.Div(op.Sub(a, op.Mod(a, b)), b)
        steps = max(0, -(least // divisor))
        return op.Sub(op.Div(op.Add(a, steps * divisor), b), steps)
    exact = op.Div(op.Sub(a, mod(op, a, b)), b)
    below = op.Floor(exact)
    return op.Add(below, op.Cast(op.Greater(op.Sub(exact, below), 0.5), to=DOUBLE))


def lower_bound(x: ir.Value, reach: int = 8) -> int | None:
    """A number that an integer computed from sizes is never below, None when none is known.

    What is found stays with the value: a size of a later layer asks no further back than the one before.
    """
    if BOUND not in x.meta and (found := bound_of(x, reach)) is not None:
        x.meta[BOUND] = found
    return x.meta.get(BOUND)


def bound_of(x: ir.Value, reach: int) -> int | None:
    """The same, asked of the node that computes it."""
    if x.const_value is not None:
        return int(x.const_value.numpy().min()) if x.const_value.size == 1 else None
    node = producer_of(x)
    if node is None or not reach:
        return None
    if node.op_type == "Shape":
        return 0
    if node.op_type in ("Squeeze", "Unsqueeze"):
        return lower_bound(node.inputs[0], reach - 1)
    if node.op_type not in ("Add", "Div", "Max", "Mod", "Mul", "Sub") or len(node.inputs) != 2:
        return None
    a, b = (lower_bound(value, reach - 1) for value in node.inputs)
    if node.op_type == "Mod":  # it has the sign of the divisor
        return 0 if b is not None and b > 0 and not node.attributes.get_int("fmod", 0) else None
    if a is None or b is None:
        return None
    if node.op_type == "Add":
        return a + b
    if node.op_type == "Max":
        return max(a, b)
    if node.op_type == "Sub":
        return a - b if node.inputs[1].const_value is not None else None
    return 0 if a >= 0 and b >= 0 else None


def mod(op, a, b):
    """``a % b`` has the sign of b."""
    if a.dtype != DOUBLE:
        return op.Mod(a, b)
    remainder = op.Mod(a, b, fmod=1)
    opposite = op.And(op.Not(op.Equal(remainder, 0.0)), op.Xor(op.Less(remainder, 0.0), op.Less(b, 0.0)))
    return op.Where(opposite, op.Add(remainder, b), remainder)


@translates(operator.pow, math.pow)
def pow_(op, a, b):
    """``a ** b``; an integer to a small constant power by products, which are exact."""
    if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
        return a**b
    if is_float(a) or is_float(b):
        return op.Pow(*common(op, [a, b]))
    if isinstance(b, ir.Value):
        if isinstance(a, ir.Value) or a != 2 or not isinstance(op.context.node.meta["val"], torch.SymInt):
            raise Untranslatable("an integer to the power of a size: a float if that is negative")
        return integer_power_of_two(op, b)  # a float to torch unless it found the size not to be negative
    if b < 0:
        return op.Pow(double(op, a), float(b))
    result = op.constant(1, INT64)
    for digit in bin(b)[2:]:
        result = op.Mul(result, result)
        result = op.Mul(result, a) if digit == "1" else result
    return result


python_binary(operator.add, lambda op, a, b: op.Add(a, b))
python_binary(operator.sub, lambda op, a, b: op.Sub(a, b))
python_binary(operator.mul, lambda op, a, b: op.Mul(a, b))
python_binary(operator.floordiv, floordiv)
python_binary(operator.mod, mod)
python_binary(operator.eq, lambda op, a, b: op.Equal(a, b))
python_binary(operator.ne, lambda op, a, b: op.Not(op.Equal(a, b)))
python_binary(operator.lt, lambda op, a, b: op.Less(a, b))
python_binary(operator.le, lambda op, a, b: op.LessOrEqual(a, b))
python_binary(operator.gt, lambda op, a, b: op.Greater(a, b))
python_binary(operator.ge, lambda op, a, b: op.GreaterOrEqual(a, b))


EXPRESSIONS: dict[Any, Callable] = {
    sympy.Add: lambda op, a, b: op.Add(*common(op, [a, b])),
    sympy.Mul: lambda op, a, b: op.Mul(*common(op, [a, b])),
    sympy.Max: lambda op, a, b: op.Max(*common(op, [a, b])),
    sympy.Min: lambda op, a, b: op.Min(*common(op, [a, b])),
    functions.FloorDiv: lambda op, a, b: floordiv(op, *common(op, [a, b])),
    functions.Max: lambda op, a, b: op.Max(*common(op, [a, b])),
    functions.Min: lambda op, a, b: op.Min(*common(op, [a, b])),
    functions.Mod: lambda op, a, b: op.Mod(*common(op, [a, b])),
    functions.PythonMod: lambda op, a, b: op.Mod(*common(op, [a, b])),
}
"""Functions of integer expressions, as operators on values."""


def computed(op: Emitter, size: int | torch.SymInt | sympy.Expr) -> Scalar | None:
    """A size computed from the inputs of the model, wherever *op* is; None for one that only the data tell."""
    expression = with_whole_products(sympy.sympify(expression_of(size)))
    if expression.is_Integer:
        return int(expression)
    if not is_backed(expression):
        return None
    found = named(op, op.context.dimensions.text(expression, "size"))
    if found is not None or expression.is_Symbol:
        return found
    write = EXPRESSIONS.get(expression.func)
    parts = [computed(op, part) for part in expression.args] if write is not None else [None]
    return None if any(part is None for part in parts) else reduce(partial(write, op), parts)


@translates(operator.truediv)
def truediv(op, a, b):
    """``a / b`` is a float."""
    if not (isinstance(a, ir.Value) or isinstance(b, ir.Value)):
        return a / b
    return op.Div(op.constant(double(op, a), DOUBLE), op.constant(double(op, b), DOUBLE))


@translates(operator.neg)
def neg(op, a):
    """``-a``."""
    return op.Neg(a) if isinstance(a, ir.Value) else -a


@translates(operator.pos)
def pos(op, a):
    """``+a``."""
    return a


@translates(operator.abs, builtins.abs)
def abs_(op, a):
    """``abs(a)``."""
    return op.Abs(a) if isinstance(a, ir.Value) else abs(a)


def boolean(op: Emitter, x: Scalar) -> ir.Value:
    """A number as a BOOL value."""
    return op.Cast(x, to=BOOL) if isinstance(x, ir.Value) else op.constant(bool(x))


def bitwise(target: Callable, logical: str, integral: str) -> None:
    """Translate ``&``, ``|`` or ``^``: logical on booleans, bit by bit on integers."""

    def translation(op, a, b):
        if not (isinstance(a, ir.Value) or isinstance(b, ir.Value)):
            return target(a, b)
        if is_boolean(a) and is_boolean(b):
            return op.emit(logical, (boolean(op, a), boolean(op, b)))
        return op.emit(integral, tuple(common(op, [a, b])))

    translation.__name__ = target.__name__
    translates(target)(translation)


def is_boolean(x: Scalar) -> bool:
    """Whether a number is a bool."""
    return x.dtype == BOOL if isinstance(x, ir.Value) else isinstance(x, bool)


bitwise(operator.and_, "And", "BitwiseAnd")
bitwise(operator.or_, "Or", "BitwiseOr")
bitwise(operator.xor, "Xor", "BitwiseXor")

python_binary(operator.lshift, lambda op, a, b: op.Mul(a, integer_power_of_two(op, b)))
python_binary(operator.rshift, lambda op, a, b: floordiv(op, a, integer_power_of_two(op, b)))


def integer_power_of_two(op, exponent):
    """``2 ** exponent``, exact below 2 ** 63."""
    return op.Cast(op.Pow(op.constant(2.0, DOUBLE), op.Cast(exponent, to=DOUBLE)), to=INT64)


@translates(torch.ops.experimental_experiment.ceil_log2.default)
def ceil_log2(op, n):
    """How many powers of two are below a positive number: the least exponent whose power is not."""
    if not isinstance(n, ir.Value):
        return (n - 1).bit_length()
    powers = op.constant([1 << exponent for exponent in range(63)], INT64)
    return op.ReduceSum(op.Cast(op.Less(powers, n), to=INT64), keepdims=0)


@translates(operator.invert, operator.inv)
def invert(op, a):
    """``~a`` of an integer."""
    return op.Sub(-1, a) if isinstance(a, ir.Value) else ~a


@translates(torch.sym_not, operator.not_)
def sym_not(op, a):
    """``not a``."""
    return op.Not(boolean(op, a))


@translates(torch.sym_float)
def sym_float(op, a):
    """``float(a)``."""
    return double(op, a)


@translates(torch.sym_int)
def sym_int(op, a):
    """``int(a)`` truncates towards zero, as a Cast does."""
    return integer(op, a)


@translates(torch.sym_max, builtins.max)
def sym_max(op, a, b):
    """``max(a, b)``; a float when one is."""
    return op.Max(*common(op, [a, b]))


@translates(torch.sym_min, builtins.min)
def sym_min(op, a, b):
    """``min(a, b)``; a float when one is."""
    return op.Min(*common(op, [a, b]))


@translates(torch.sym_sum)
def sym_sum(op, *args):
    """The sum of numbers, in a list or not: torch writes both."""
    if isinstance(args[0], (list, tuple)):
        (args,) = args
    return reduce(lambda total, value: op.Add(total, value), common(op, args))


@translates(torch.sym_ite)
def sym_ite(op, b, t, f):
    """``t if b else f``."""
    return op.Where(boolean(op, b), *common(op, [t, f]))


def rounding(op_type: str, python: Callable):
    """Translate a function of ``math`` that rounds a float to an int."""

    def translation(op, x):
        if not isinstance(x, ir.Value):
            return python(x)
        return op.Cast(op.emit(op_type, (x,)), to=INT64) if x.dtype == DOUBLE else x

    return translates(python)(translation)


rounding("Ceil", math.ceil)
rounding("Floor", math.floor)


@translates(math.trunc)
def trunc(op, x):
    """``math.trunc(x)``: towards zero."""
    return integer(op, x)


@translates(builtins.round)
def round_(op, number, ndigits=None):
    """``round(x)``: half to even, an int; ``round(x, ndigits)`` to the nearest decimal."""
    if not isinstance(number, ir.Value):
        return round(number, ndigits)
    if ndigits is None or not is_float(number):
        return integer(op, op.Round(number)) if is_float(number) else integer(op, number)
    if isinstance(ndigits, ir.Value) or not 0 <= ndigits <= 22:
        raise Untranslatable(f"round to {ndigits} digits: between 0 and 22, the power of ten is exact")
    return round_decimal(op, number, 10.0**ndigits)


def round_decimal(op, x, scale):
    """The multiple of ``1 / scale`` nearest to *x*, half to even, as Python rounds: from the exact product ``x * scale``.

    The product is ``high + low``; *low* decides only where *high* is halfway. A larger number has no such digits.
    """
    high = op.Mul(x, scale)
    low = product_error(op, x, scale, high)
    nearest = op.Round(high)
    rest = op.Sub(high, nearest)
    above = op.And(op.Equal(rest, 0.5), op.Greater(low, 0.0))
    below = op.And(op.Equal(rest, -0.5), op.Less(low, 0.0))
    nearest = op.Where(above, op.Add(nearest, 1.0), op.Where(below, op.Sub(nearest, 1.0), nearest))
    return op.Where(op.Less(op.Abs(high), 2.0**53), op.Div(nearest, scale), x)


def product_error(op, x, y, product):
    """What the float64 *product* of the value x and the constant y lacks, exactly: Dekker's algorithm."""
    x_high, x_low = split_digits(op, x)
    y_high, y_low = split_digits(op, op.constant(y, DOUBLE))
    error = op.Sub(op.Mul(x_high, y_high), product)
    error = op.Add(op.Add(error, op.Mul(x_high, y_low)), op.Mul(x_low, y_high))
    return op.Add(error, op.Mul(x_low, y_low))


def split_digits(op, x):
    """A float64 as the sum of two of 26 digits: Veltkamp's algorithm."""
    large = op.Mul(x, 2.0**27 + 1)
    high = op.Sub(large, op.Sub(large, x))
    return high, op.Sub(x, high)


def float_function(name: str, target: torch._ops.OpOverload) -> None:
    """Translate ``math.name`` and ``torch._sym_name``: ATen's function in float64."""
    python = getattr(math, name)

    def translation(op, a):
        if not isinstance(a, ir.Value):
            return python(a)
        return TRANSLATIONS[target].function(op, double(op, a))

    translation.__name__ = name
    symbolic = getattr(torch, f"_sym_{name}", None)
    translates(python, *([symbolic] if symbolic is not None else []))(translation)


for _name, _target in (
    ("sqrt", aten.sqrt.default),
    ("exp", aten.exp.default),
    ("log", aten.log.default),
    ("log2", aten.log2.default),
    ("sin", aten.sin.default),
    ("cos", aten.cos.default),
    ("tanh", aten.tanh.default),
    ("tan", aten.tan.default),
    ("sinh", aten.sinh.default),
    ("cosh", aten.cosh.default),
    ("asin", aten.asin.default),
    ("acos", aten.acos.default),
    ("atan", aten.atan.default),
    ("fabs", aten.abs.default),
):
    float_function(_name, _target)


# ---- sizes and elements of tensors


@translates(aten.sym_size.int)
def sym_size(op, self, dim):
    """The size of one axis."""
    return op.size(self, dim)


@translates(aten.sym_numel.default)
def sym_numel(op, self):
    """The number of elements."""
    return volume(op, sizes_of(op, self))


@translates(aten.sym_stride.int)
def sym_stride(op, self, dim):
    """The stride of one axis of a contiguous tensor: the number of elements behind it."""
    fake = op.context.node.args[0].meta["val"]
    if not fake.is_contiguous():
        raise Untranslatable("the stride of a tensor that is not contiguous is not part of an ONNX model")
    return volume(op, sizes_of(op, self)[dim % rank(self) + 1 :])


@translates(aten.sym_storage_offset.default)
def sym_storage_offset(op, self):
    """Where a tensor starts in its memory."""
    raise Untranslatable("the place of a tensor in its memory is not part of an ONNX model")


@translates(aten.item.default, aten._local_scalar_dense.default)
def item(op, self):
    """The only element, as a Python number."""
    scalar = op.Reshape(self, op.constant([], INT64)) if rank(self) else self
    if scalar.dtype == BOOL:
        return scalar
    return op.Cast(scalar, to=DOUBLE if scalar.dtype.is_floating_point() else INT64)
