"""Sigmoid in float32 where digits of its small results matter: in a logarithm, as a divisor."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.producers import attributes_of, producer_of
from experimental_experiment.torch_interpreter.runtime.kernels import MOVING
from experimental_experiment.torch_interpreter.runtime.table import repairs

BECAUSE = "Sigmoid is off by up to 1.7e-7: it loses digits below about -7, and is 0 below about -18"

WHERE = "a float32 Sigmoid, also where it is multiplied, moved, or has a little added or as a bound"

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
    return None if exact is x else op.Log(exact)


@repairs("Div", when=f"by {WHERE}", because=BECAUSE, nodes=COST)
def by_a_sigmoid(op, a, b):
    """The quotient by what is computed of ``1 / (1 + exp(-x))``."""
    exact = with_digits(op, b)
    return None if exact is b else op.Div(with_digits(op, a), exact)


@repairs("Reciprocal", when=f"of {WHERE}", because=BECAUSE, nodes=COST)
def inverse_of_a_sigmoid(op, x):
    """The inverse of what is computed of ``1 / (1 + exp(-x))``."""
    exact = with_digits(op, x)
    return None if exact is x else op.Reciprocal(exact)


def with_digits(op, value: ir.Value) -> ir.Value:
    """A float32 value that is computed of a Sigmoid once more, of a Sigmoid that keeps its digits; itself when it is not.

    Nodes before opset 13 say in attributes what the emitter writes as inputs: they are left as they are.
    """
    return value if op.opset < 13 else recomputed(op, value, {}, iter(range(MOST)))


def recomputed(op, value: ir.Value, known: dict[ir.Value, ir.Value], left: Iterator[int]) -> ir.Value:
    """`with_digits` of a value that is not *known* yet, as long as there are nodes *left* to look at."""
    node = producer_of(value)
    if value in known or node is None or value.dtype != ir.DataType.FLOAT or len(node.outputs) > 1:
        return known.get(value, value)
    result = value
    if node.op_type == "Sigmoid":
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
    if node.op_type in MOVING or node.op_type in PICKING or node.op_type == "Div":
        return [0]
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
    """Whether what is added, or a least value, is none or a constant with elements below `LARGE`."""
    return other is None or (is_small(other) and bool((abs(other.const_value.numpy()) < LARGE).any()))
