"""Casts."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.dtypes import holds
from experimental_experiment.torch_interpreter.inference import NUMPY, is_small
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.pattern import P, attribute_of, const, optional, var
from experimental_experiment.xoptim.rules import again, computes, no, rule
from experimental_experiment.xoptim.shapes import adds_no_axes

x, y = var("x"), var("y")
INT32, INT64 = ir.DataType.INT32, ir.DataType.INT64

SELECTING = ("Gather", "Reshape", "Slice", "Squeeze", "Unsqueeze")
"""What makes a number of a shape."""


@rule(P.Cast(x, name="node"), set="default")
def cast_nothing(op, x, node):
    """A Cast to the dtype that a value has."""
    return x if x.dtype is not None and x.dtype == attribute_of(node, "to") else None


@rule(P.Cast(P.Cast(x, name="inner", shared=True), name="outer"), set="default", looks_further=True)
def cast_cast(op, x, inner, outer):
    """Two Casts are one when the first loses nothing, as that of a size to float64."""
    first, second = (ir.DataType(attribute_of(node, "to")) for node in (inner, outer))
    if x.dtype is None:
        return no("the dtype is unknown")
    if not holds(first, x.dtype) and not (first is ir.DataType.DOUBLE and holds_sizes(x)):
        return no("the first cast loses digits")
    if {x.dtype, first, second} & dtypes.FLOAT8:
        return no("float8 overflows in its own way")
    if is_written(x, first, second):
        return no("a text shows of which dtype the number is")
    return op.Cast(x, to=second)


def is_written(x: ir.Value, middle: ir.DataType, last: ir.DataType) -> bool:
    """Whether a Cast writes numbers of another dtype than that of *x* as texts: an integer as 2000000000, a float64 as 2e+09."""
    return last is ir.DataType.STRING and middle is not x.dtype


def holds_sizes(x: ir.Value) -> bool:
    """Whether a value is a size of a tensor, or several: less than 2 ** 53."""
    while (node := producer_of(x, *SELECTING)) is not None:
        x = node.inputs[0]
    return producer_of(x, "Shape", "Size") is not None


MOVEMENTS = tuple(
    "DepthToSpace Expand Flatten Gather Reshape Slice SpaceToDepth Squeeze Tile Transpose Unsqueeze".split()
)
"""Operators that move elements of their first input, whatever these are."""


def movement(below, name: str):
    """An operator of `MOVEMENTS`, called *name*, over *below*."""
    more = (optional(f"{name}_{place}") for place in ("second", "third", "fourth", "fifth"))
    return P.one_of(*MOVEMENTS)(below, *more, name=name)


INNER = P.Cast(x, name="inner")


@rule(
    P.Cast(movement(INNER, "first") | movement(movement(INNER, "first"), "second"), name="outer"),
    set="default",
)
def cast_movement_cast(op, x, inner, first, second, outer):
    """Two Casts around one or two operators that move elements are one after them, or none, when the first loses nothing."""
    middle, last = (ir.DataType(attribute_of(node, "to")) for node in (inner, outer))
    if x.dtype is None or not holds(middle, x.dtype):
        return no("the dtype is unknown, or the first cast loses digits")
    if {x.dtype, middle, last} & dtypes.FLOAT8:
        return no("float8 overflows in its own way")
    if is_written(x, middle, last):
        return no("a text shows of which dtype the number is")
    steps = [node for node in (first, second) if node is not None]
    if not all(computes(op, node.op_type, x.dtype) for node in steps):
        return no("onnxruntime does not move this dtype")
    for node in steps:
        x = again(op, node, [x, *node.inputs[1:]])
    return op.Cast(x, to=last)


@rule(P.CastLike(x, var("like"), name="node"), set="default")
def cast_like_known(op, x, like, node):
    """CastLike is a Cast to a dtype that is known."""
    if like.dtype is None:
        return None
    saturate = attribute_of(node, "saturate", 1 if like.dtype in dtypes.FLOAT8 else None)
    return op.Cast(x, to=like.dtype, saturate=saturate, round_mode=attribute_of(node, "round_mode"))


@rule(P.Equal(x, True, name="node"), set="default")
def equal_true(op, x, node):
    """b == true is b."""
    return x if x.dtype == ir.DataType.BOOL and adds_no_axes(node, x) else None


@rule(P.Equal(x, False, name="node"), set="default")
def equal_false(op, x, node):
    """b == false is not b."""
    return op.Not(x) if x.dtype == ir.DataType.BOOL and adds_no_axes(node, x) else None


@rule(P.Not(P.Cast(x, name="cast", to=int(ir.DataType.BOOL))), set="default")
def not_of_number(op, x):
    """The negation of a number seen as a bool is that it equals 0."""
    if x.dtype == ir.DataType.STRING or not computes(op, "Equal", x.dtype):
        return no("onnxruntime does not compare this dtype with a number")
    return op.Equal(x, op.constant(0, x.dtype))


RUNNING_COUNT = P.CumSum(P.Cast(P.Cast(x, to=int(INT32)) | x, to=int(INT64)), var("axis"), name="count")


@rule(
    P.Cast(P.Mul(P.Cast(RUNNING_COUNT, to=int(INT32)), P.Cast(y, name="kept", shared=True)), to=int(INT64)),
    set="default",
)
def counted_conditions(op, x, y, axis, count):
    """How many conditions hold up to each position, times a condition: in int64 from the beginning, without a detour through int32.

    So do models number the tokens that are not padding.
    """
    if x.dtype != ir.DataType.BOOL or y.dtype != ir.DataType.BOOL:
        return no("they are no conditions")
    return op.Mul(again(op, count, [op.Cast(x, to=INT64), axis]), op.Cast(y, to=INT64))


ORDERS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
COMPARISONS = ("Equal", *ORDERS)


@rule(
    P.one_of(*COMPARISONS)(P.Cast(x, name="left"), P.Cast(y, name="right"), name="node"),
    set="default",
)
def compared_casts(op, x, y, left, right, node):
    """Numbers compare as they did before both are cast to a dtype that holds them."""
    to = ir.DataType(attribute_of(left, "to"))
    if x.dtype != y.dtype or x.dtype is None or not holds(to, x.dtype):
        return no("two dtypes, or the cast loses digits")
    if not computes(op, node.op_type, x.dtype):
        return no("onnxruntime does not compare this dtype")
    return again(op, node, [x, y] if node.inputs[0] is left.outputs[0] else [y, x])


CAST, NUMBER = P.Cast(x, name="cast"), const("number")


@rule(
    P.one_of(*COMPARISONS)(CAST, NUMBER, name="node") | P.one_of(*ORDERS)(NUMBER, CAST, name="node"),
    set="default",
)
def compared_cast_and_constant(op, x, cast, number, node):
    """A number compares with a constant as it did before it is cast to a dtype that holds it."""
    same = uncast(op, number, x.dtype, node)
    if same is None:
        return no("the constant is another number in this dtype, or it is not compared")
    return again(op, node, [x if value is cast.outputs[0] else same for value in node.inputs])


def uncast(op, number: ir.Value, dtype: ir.DataType | None, node: ir.Node) -> ir.Value | None:
    """A small constant in the dtype before the cast, None when the cast or this loses digits."""
    if dtype is None or not is_small(number) or not computes(op, node.op_type, dtype):
        return None
    if not holds(number.dtype, dtype) or number.dtype not in NUMPY:
        return None
    array = number.const_value.numpy()
    with np.errstate(all="ignore"):
        cast = array.astype(dtype.numpy())
    return op.constant(cast, dtype) if np.array_equal(cast.astype(array.dtype), array) else None
