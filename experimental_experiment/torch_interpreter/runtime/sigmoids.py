"""Sigmoid in float32 where digits of its small results matter: in a logarithm, as a divisor."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx_ir as ir

from experimental_experiment.torch_interpreter.dtypes import FLOATS
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.producers import attributes_of, producer_of
from experimental_experiment.torch_interpreter.runtime.kernels import MOVING, narrowed, unrounded, wide_value
from experimental_experiment.torch_interpreter.runtime.table import repairs

BECAUSE = "Sigmoid is off by up to 1.7e-7: it loses digits below about -7, and is 0 below about -18"

WHERE = "a float32 or bfloat16 Sigmoid, also where it is multiplied, moved, cast, or has a little added or as a bound"

COST = "3, and what stands between where others read it"

MOST = 32
"""How many nodes are looked at between a Sigmoid and what its digits matter to."""

LARGE = 0.01
"""What is added to a Sigmoid, or its least value, hides the digits that it loses from here on."""

PICKING = frozenset(("Abs", "Compress", "GatherElements", "GatherND"))
"""Operators whose results are elements of the first operand, like those that move them, but for a sign."""


@repairs("Log", when=f"of {WHERE}", because=BECAUSE, nodes=COST)
def of_a_sigmoid(op, x):
    """The logarithm of what is computed of ``1 / (1 + exp(-x))``, which keeps its digits."""
    exact = with_digits(op, x)
    return None if exact is x else of_dtype(op, op.Log(exact), x.dtype)


@repairs("Div", when=f"by {WHERE}", because=BECAUSE, nodes=COST)
def by_a_sigmoid(op, a, b):
    """The quotient by what is computed of ``1 / (1 + exp(-x))``."""
    exact = with_digits(op, b)
    if exact is b:
        return None
    divided = with_digits(op, a)
    if divided.dtype != exact.dtype:
        divided, exact = (wide_value(op, "Div", item, ir.DataType.FLOAT) for item in (divided, exact))
    return of_dtype(op, op.Div(divided, exact), b.dtype)


@repairs("Reciprocal", when=f"of {WHERE}", because=BECAUSE, nodes=COST)
def inverse_of_a_sigmoid(op, x):
    """The inverse of what is computed of ``1 / (1 + exp(-x))``."""
    exact = with_digits(op, x)
    return None if exact is x else of_dtype(op, op.Reciprocal(exact), x.dtype)


@repairs("Pow", when=f"negative powers of {WHERE}", because=BECAUSE, nodes=COST)
def negative_power_of_a_sigmoid(op, x, exponent):
    """The power of what is computed of ``1 / (1 + exp(-x))``."""
    if not is_small(exponent) or not (exponent.const_value.numpy() < 0).any():
        return None
    exact = with_digits(op, x)
    return None if exact is x else of_dtype(op, op.Pow(exact, exponent), x.dtype)


def of_dtype(op, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """A result in *dtype*, that of bfloat16 operands which were read as float32."""
    return value if value.dtype == dtype else narrowed(op, value, dtype)


def with_digits(op, value: ir.Value) -> ir.Value:
    """A value that is computed of a Sigmoid once more, of a Sigmoid that keeps its digits; itself when it is not.

    What is computed in float32 in the place of bfloat16 is read, and returned, before it is rounded.
    Nodes before opset 13 say in attributes what the emitter writes as inputs: they are left as they are.
    """
    if op.opset < 13:
        return value
    wide = unrounded(op, value, ir.DataType.FLOAT) if value.dtype == ir.DataType.BFLOAT16 else None
    read = value if wide is None else wide
    exact = recomputed(op, read, {}, iter(range(MOST)))
    return value if exact is read else exact


def recomputed(op, value: ir.Value, known: dict[ir.Value, ir.Value], left: Iterator[int]) -> ir.Value:
    """`with_digits` of a value that is not *known* yet, as long as there are nodes *left* to look at."""
    node = producer_of(value)
    if value in known or node is None or value.dtype not in FLOATS or len(node.outputs) > 1:
        return known.get(value, value)
    result = value
    if node.op_type == "Sigmoid" and value.dtype == ir.DataType.FLOAT:
        result = op.Reciprocal(op.Add(op.Exp(op.Neg(node.inputs[0])), 1.0))
    elif next(left, None) is not None:
        inputs = list(node.inputs)
        for position in scaled_operands(node):
            inputs[position] = recomputed(op, inputs[position], known, left)
        if inputs != list(node.inputs):
            result = op.emit(node.op_type, inputs, attributes_of(node))
    known[value] = result
    return result


def scaled_operands(node: ir.Node) -> list[int]:
    """The positions of the operands whose relative errors are errors of the result."""
    if node.op_type in ("Concat", "Mul"):
        return [*range(len(node.inputs))]
    if node.op_type in MOVING or node.op_type in PICKING or node.op_type in ("Cast", "Div", "Sqrt"):
        return [0]
    if node.op_type == "Pow":
        return [0] if is_small(node.inputs[1]) else []
    if node.op_type == "Where":
        return [1, 2]
    if node.op_type == "Clip":
        return [0] if is_little(*node.inputs[1:2]) else []
    if node.op_type in ("Add", "Max", "Min") and len(node.inputs) == 2:
        places = enumerate(node.inputs)
        return [
            1 - place
            for place, other in places
            if (is_small(other) if node.op_type == "Min" else is_little(other))
        ]
    return []


def is_little(other: ir.Value | None = None) -> bool:
    """Whether what is added, or a least value, is none or a constant with elements below `LARGE`, or with minus infinity."""
    if other is None or not is_small(other):
        return other is None
    numbers = other.const_value.numpy().ravel().tolist()  # numpy takes longer for the one that there is
    return any([abs(number) < LARGE or number == -math.inf for number in numbers])
