"""Casts."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.xoptim.pattern import P, attribute_of, var
from experimental_experiment.xoptim.rules import no, rule

x = var("x")

INTEGERS = {
    ir.DataType.BOOL: (0, 1),
    **{
        dtype: (-(1 << dtype.bitwidth - 1), (1 << dtype.bitwidth - 1) - 1)
        for dtype in (ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64)
    },
    **{
        dtype: (0, (1 << dtype.bitwidth) - 1)
        for dtype in (ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64)
    },
}
"""Integers and booleans, the smallest and the largest number of each."""

DIGITS = {
    ir.DataType.FLOAT: (24, 127),
    ir.DataType.DOUBLE: (53, 1023),
    ir.DataType.FLOAT16: (11, 15),
    ir.DataType.BFLOAT16: (8, 127),
}
"""Floats: digits and largest exponent."""


def holds(wide: ir.DataType, narrow: ir.DataType) -> bool:
    """Whether a dtype holds every number of another one."""
    if wide == narrow:
        return True
    if narrow in INTEGERS and wide in INTEGERS:
        (low, high), (least, most) = INTEGERS[narrow], INTEGERS[wide]
        return wide != ir.DataType.BOOL and least <= low and high <= most
    if narrow in INTEGERS and wide in DIGITS:
        return INTEGERS[narrow][1].bit_length() <= DIGITS[wide][0]
    if narrow in DIGITS and wide in DIGITS:
        return all(a >= b for a, b in zip(DIGITS[wide], DIGITS[narrow]))
    return False


@rule(P.Cast(x, name="node"), set="default")
def cast_nothing(op, x, node):
    """A Cast to the dtype that a value has."""
    return x if x.dtype is not None and x.dtype == attribute_of(node, "to") else None


@rule(P.Cast(P.Cast(x, name="inner", shared=True), name="outer"), set="default")
def cast_cast(op, x, inner, outer):
    """Two Casts are one when the first loses nothing."""
    first, second = (ir.DataType(attribute_of(node, "to")) for node in (inner, outer))
    if x.dtype is None:
        return no("the dtype is unknown")
    if not holds(first, x.dtype):
        return no("the first cast loses digits")
    if {x.dtype, first, second} & dtypes.FLOAT8:
        return no("float8 overflows in its own way")
    return op.Cast(x, to=second)
