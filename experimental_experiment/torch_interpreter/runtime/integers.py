"""int64: the order of numbers beyond 2 ** 31; powers, remainders and sums of hashes beyond 2 ** 53; quotients of 1."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.dtypes import FLOATS
from experimental_experiment.torch_interpreter.emitter import Emitter, rank
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.runtime.reductions import (
    SUMMED_NODES,
    is_of_booleans,
    reduced_sizes,
    summed,
)
from experimental_experiment.torch_interpreter.runtime.table import repairs

DOUBLE, INT64 = ir.DataType.DOUBLE, ir.DataType.INT64

WHEN = "int64 that may exceed 2 ** 31"
BECAUSE = (
    "of two numbers of the same upper half, 0 and 3000000000, the lower halves are compared with their signs"
)
"""Eigen's order of int64 without SSE4.2, which what compares elements one by one does not use: Less, TopK, ArgMax."""

FOUND = ("ArgMax", "ArgMin", "NonZero", "Shape", "Size")
"""What gives sizes and positions."""

MOVING = (
    "Compress",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Reshape",
    "Slice",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
)
"""What only moves the elements of its first input."""

COUNTING = ("CumSum", "ReduceSum")
"""What counts booleans."""

COMPUTING = ("Abs", "Add", "Clip", "Concat", "Div", "Max", "Min", "Mul", "Neg", "Range", "Sub", "Where")
"""What computes numbers of several, which bound them."""

POSITION = 2**15 - 1
"""What sizes and positions are taken for: they are small as they are, and times a stride up to 2 ** 16."""

BOUNDS = {
    ir.DataType.BOOL: 2,
    ir.DataType.UINT8: 2**8,
    ir.DataType.INT8: 2**7,
    ir.DataType.INT16: 2**15,
    ir.DataType.INT32: 2**31,
}
"""The numbers of smaller dtypes are below these."""

ORDERS = frozenset(
    ("amax", "amin", "aminmax", "clamp", "clamp_max", "clamp_min", "clip", "fmax", "fmin", "max", "maximum")
    + ("min", "minimum", "relu", "sgn", "sign")
)
"""The operators of ATen that ask for the order of any numbers; others look for the bounds of positions."""

LOGARITHM = 746
"""The logarithms of positive numbers are below this, those of float64 too."""

REACH = 64
"""How many nodes are looked at."""


@repairs(
    "Mod",
    when="int64 with fmod",
    because="numbers beyond 2 ** 53 are rounded to float64",
    nodes=2,
    special_values=True,
)
def what_the_quotient_leaves(op, a, b, *, fmod=0):
    """``a - a / b * b``."""
    return op.Sub(a, op.Mul(op.Div(a, b), b)) if fmod and a.dtype == INT64 else None


@repairs(
    "Pow",
    when="int64",
    because="powers beyond 2 ** 53 are rounded to float64, those beyond 2 ** 63 do not wrap, 0 to a negative power is a number",
    nodes="a Loop",
    special_values=True,
)
def bit_by_bit(op, base, exponent):
    """A Loop over the bits of the exponents; a negative exponent gives 1 / base, rounded to 0."""
    if base.dtype != INT64 or exponent.dtype != INT64:
        return None

    def some_left(inner, left):
        return inner.Greater(inner.ReduceSum(inner.Cast(inner.Greater(left, 0), to=INT64), keepdims=0), 0)

    def step(inner, iteration, go, result, square, left):
        odd = inner.Equal(inner.Mod(left, 2), 1)
        result = inner.Mul(result, inner.Where(odd, square, inner.constant(1)))
        left = inner.Div(left, 2)
        return [some_left(inner, left), result, inner.Mul(square, square), left]

    magnitude = op.Abs(exponent)
    shape = op.Shape(op.Add(base, exponent))
    carried = [op.Expand(x, shape) for x in (op.constant(1), base, magnitude)]
    body = op.subgraph(step, [op.constant(0), op.constant(True), *carried])
    power = op.Loop(None, some_left(op, magnitude), *carried, body=body, outputs=3)[0]
    power.type, power.shape = base.type, ir.Shape([None] * max(rank(base), rank(exponent)))
    unit = op.Equal(op.Abs(base), 1)
    return op.Where(op.And(op.Less(exponent, 0), op.Not(unit)), op.constant(0), power)


@repairs(
    "Pow",
    when="int8 to int32 and uint8 to the power of a tensor, written as INT64 to the power of INT32, that may exceed 2 ** 53",
    because="powers beyond 2 ** 53 are rounded to float64, those beyond 2 ** 63 do not wrap, 0 to a negative power is a number",
    nodes="a Loop",
)
def of_fewer_bits(op, base, exponent):
    """A Loop over the bits of the exponents, whose lower bits are the power; constants are computed."""
    if base.dtype != INT64 or exponent.dtype != ir.DataType.INT32:
        return None
    known = exponent.const_value
    if known is not None and known.size and known.numpy().min() >= 0:
        if base.const_value is not None:
            return op.constant(np.power(base.const_value.numpy(), known.numpy()))
        if math.log2(max(1, bound(base, iter(range(REACH))).size)) * known.numpy().max() <= 53:
            return None
    return bit_by_bit(op, base, op.Cast(exponent, to=INT64))


@repairs(
    "Div",
    when="the constant 1, of int32 or int64, by a tensor",
    because="a product with it becomes a quotient, b / a for 1 / a * b: another integer",
    nodes=1,
)
def of_one(op, a, b):
    """The opposite of ``-1 / a``, which is rounded to 0 as well."""
    tensor = a.const_value
    if a.dtype not in (ir.DataType.INT32, INT64) or tensor is None or tensor.size != 1 or is_small(b):
        return None
    if tensor.numpy().item() != 1:
        return None
    return op.Neg(op.Div(op.constant(-tensor.numpy(), a.dtype), b))


@repairs(
    "ReduceSum",
    when="int64 that were multiplied by constants beyond 2 ** 16, as hashes are, and may exceed 2 ** 53 together",
    because="int64 is added as float64",
    nodes=SUMMED_NODES,
)
def of_hashes(op, x, axes=None, **attributes):
    """As for all sums with special_values: a product with ones, or the sums of the two halves."""
    if x.dtype != INT64 or not is_scaled(x, iter(range(REACH))):
        return None
    sizes = [] if x.shape is None else reduced_sizes(x, axes)
    count = math.prod(size if isinstance(size, int) else POSITION for size in sizes)
    return summed(op, x, axes, **attributes) if bound(x, iter(range(REACH))).size * count > 2**53 else None


@repairs(
    "Einsum",
    when="int64, over an axis that one operand alone has",
    because="int64 is added as float64 there, not where two operands meet",
    nodes=1,
    special_values=True,
)
def of_axes_apart(op, *operands, equation):
    """These axes are summed before, by ReduceSum."""
    left, arrow, output = equation.partition("->")
    if any(x.dtype != INT64 for x in operands) or not arrow or "." in equation:
        return None
    terms, summed_first = left.split(","), []
    for place, (x, term) in enumerate(zip(operands, terms)):
        kept = {*output}.union(*terms[:place], *terms[place + 1 :])
        letters = "".join(dict.fromkeys(term))
        axes = [axis for axis, letter in enumerate(letters) if letter not in kept]
        if axes:
            x = x if letters == term else op.Einsum(x, equation=f"{term}->{letters}")
            x = op.ReduceSum(x, axes, keepdims=0)
            term = "".join(letter for letter in letters if letter in kept)
        summed_first.append((x, term))
    values, after = zip(*summed_first)
    if list(after) == terms:
        return None
    return values[0] if after == (output,) else op.Einsum(*values, equation=f"{','.join(after)}->{output}")


def is_scaled(value: ir.Value, left: Iterator[int]) -> bool:
    """Whether elements, or what is added to them, are products with constants beyond 2 ** 16.

    *left*: as many elements as nodes may be looked at.
    """
    node = producer_of(value)
    if node is None or next(left, None) is None:
        return False
    if node.op_type == "Mul":
        return any(
            factor.const_value is not None and not is_constant(factor, 2**16) for factor in node.inputs
        )
    given = node.inputs if node.op_type in ("Add", "Concat", "Sub", "Where") else ()
    return any(is_scaled(item, left) for item in (node.inputs[:1] if node.op_type in MOVING else given))


# ---- order


@repairs("Max", "Min", when=WHEN, because=BECAUSE, nodes=1)
def by_comparison(op, *inputs, operator):
    """Each is chosen by a comparison."""
    if not may_be_large(op, *inputs):
        return None
    before = "Less" if operator == "Max" else "Greater"
    return reduce(lambda a, b: op.Where(op.emit(before, (a, b)), b, a), inputs)


@repairs("Clip", when=WHEN, because=BECAUSE, nodes="1 for one bound, 2 for two")
def by_comparisons(op, x, low=None, high=None):
    """Each bound is chosen by a comparison; two constants up to 2 ** 53 bound the numbers as float64."""
    bounds = [bound for bound in (low, high) if bound is not None]
    if not may_be_large(op, x, *bounds):
        return None
    if len(bounds) == 2 and all(is_constant(bound, 2**53) for bound in bounds):
        return op.Cast(op.Clip(*(op.Cast(value, to=DOUBLE) for value in (x, low, high))), to=INT64)
    if low is not None:
        x = op.Where(op.Less(x, low), low, x)
    return x if high is None else op.Where(op.Greater(x, high), high, x)


@repairs("Sign", when=WHEN, because=BECAUSE, nodes=2)
def of_float64(op, x):
    """The sign of float64."""
    if not may_be_large(op, x):
        return None
    return op.Cast(op.Sign(op.Cast(x, to=DOUBLE)), to=INT64)


@repairs("ReduceMax", "ReduceMin", when=WHEN, because=BECAUSE, nodes="0 to 2, those of a TopK for each axis")
def first_in_order(op, x, axes=None, *, operator, keepdims=1, **attributes):
    """The first of a TopK along each axis; all elements are one axis."""
    known = axes is None or axes.const_value is not None
    if not may_be_large(op, x) or x.shape is None or not rank(x) or not known:
        return None
    reduced = range(rank(x)) if axes is None else [int(axis) % rank(x) for axis in axes.const_value.numpy()]
    if not len(reduced):
        return None
    axes_left = rank(x)
    largest = int(operator == "ReduceMax")
    if len(reduced) == rank(x) > 1:
        x, reduced = op.Reshape(x, [-1]), [0]
    for axis in reduced:
        x, _ = op.TopK(x, [1], axis=axis, largest=largest, outputs=2)
    if not keepdims:
        return op.Squeeze(x, sorted(reduced))
    return x if rank(x) == axes_left else op.Reshape(x, [1] * axes_left)


def may_be_large(op: Emitter, *values: ir.Value) -> bool:
    """Whether an operator of the program orders int64 elements that may exceed 2 ** 31 in size."""
    target = op.context.node.target if op.context.node is not None else None
    name = target.overloadpacket.__name__ if isinstance(target, torch._ops.OpOverload) else ""
    if values[0].dtype != INT64 or name.removesuffix("_") not in ORDERS:
        return False
    left = iter(range(REACH))
    return any(
        # half of it: numbers are rounded on the way
        bound(value, left).size > 2**31 and not logarithm_bound(value, left) <= 2**30
        for value in values
    )


@dataclasses.dataclass(frozen=True)
class Bound:
    """What is known of int64 elements: ``-size <= element < size``.

    Attributes:
        size: the bound; `POSITION` stands for sizes and positions.
        is_counted: whether they are computed of sizes and positions alone, a product of which is a number of elements again.
    """

    size: int
    is_counted: bool = False


UNKNOWN = Bound(2**63)


def bound(value: ir.Value, left: Iterator[int]) -> Bound:
    """The bound of int64 elements: of constants, sizes, positions, smaller dtypes, of what is computed of them.

    *left*: as many elements as nodes may be looked at.
    """
    if value.const_value is not None:
        elements = value.const_value.numpy()
        return Bound(max(-int(elements.min()), int(elements.max()) + 1) if elements.size else 0)
    node = producer_of(value)
    if node is None or next(left, None) is None:
        return UNKNOWN
    if node.op_type in FOUND or (node.op_type == "TopK" and value is node.outputs[1]):
        return Bound(POSITION, is_counted=True)
    if node.op_type in COUNTING:  # of ones and zeros there are fewer than elements
        return Bound(POSITION, is_counted=True) if is_of_booleans(node.inputs[0]) else UNKNOWN
    if node.op_type == "Cast":
        return Bound(BOUNDS.get(node.inputs[0].dtype, UNKNOWN.size))
    if node.op_type == "Mod":  # what is left is smaller than the divisor
        return bound(node.inputs[1], left)
    if node.op_type in MOVING:
        return bound(node.inputs[0], left)
    if node.op_type not in COMPUTING:
        return UNKNOWN
    operands = node.inputs[1:] if node.op_type == "Where" else node.inputs
    given = [value for value in operands if value is not None]
    return computed_bound(node.op_type, given, [bound(value, left) for value in given])


def logarithm_bound(value: ir.Value, left: Iterator[int]) -> float:
    """The bound of logarithms times numbers, cast to int64, plus numbers, as of the buckets of T5; infinite or NaN for anything else.

    It holds where they are finite. Infinities and NaN are cast to the least int64, the largest or 0: these plus small numbers share the upper
    half with no small number, and are ordered among them. *left* as for `bound`.
    """
    if value.const_value is not None:
        return float(np.abs(value.const_value.numpy().astype(np.float64)).max(initial=0))
    node = producer_of(value, "Add", "Cast", "Ceil", "Div", "Floor", "Log", "Mul", "Neg", "Round", "Sub")
    if node is None or next(left, None) is None:
        return math.inf
    if node.op_type == "Log":
        return LOGARITHM
    first, *others = node.inputs
    if node.op_type == "Cast" and first.dtype not in FLOATS:  # back from int64
        return math.inf
    if not others:
        return logarithm_bound(first, left) + 1
    if node.op_type == "Div":
        divisor = others[0].const_value
        if divisor is None or value.dtype == INT64:
            return math.inf
        least = float(np.abs(divisor.numpy()).min(initial=math.inf))
        return logarithm_bound(first, left) / least if least else math.inf
    a, b = (logarithm_bound(item, left) for item in node.inputs)
    return a * b if node.op_type == "Mul" else a + b


def computed_bound(op_type: str, given: Sequence[ir.Value], bounds: Sequence[Bound]) -> Bound:
    """The bound of what an operator of `COMPUTING` makes of elements."""
    constant = [value.const_value is not None for value in given]
    sizes = [known.size for known in bounds]
    if op_type == "Mul" and not any(constant) and all(known.is_counted for known in bounds):
        return Bound(math.prod(sizes) // POSITION, is_counted=True)
    is_counted = any(known.is_counted for known in bounds) and all(
        known.is_counted or (is_number and (op_type == "Mul" or known.size <= POSITION))
        for known, is_number in zip(bounds, constant)
    )
    if op_type == "Mul":
        return Bound(math.prod(sizes) + 1, is_counted)
    if op_type in ("Add", "Sub"):
        return Bound(sum(sizes), is_counted)
    if op_type in ("Abs", "Div", "Neg"):  # of the least number, the opposite is not below the bound
        return Bound(sizes[0] + 1, is_counted)
    return Bound(max(sizes), is_counted)


def is_constant(value: ir.Value, bound: int) -> bool:
    """Whether the elements are constants, none of them beyond a bound."""
    if value.const_value is None:
        return False
    elements = value.const_value.numpy()
    return not elements.size or -bound <= int(elements.min()) <= int(elements.max()) <= bound
