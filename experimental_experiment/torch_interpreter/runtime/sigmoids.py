"""Sigmoid in float32 where digits of its small results matter: in a logarithm, as a divisor."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.producers import attributes_of, producer_of
from experimental_experiment.torch_interpreter.runtime.kernels import MOVING
from experimental_experiment.torch_interpreter.runtime.table import repairs

BECAUSE = "Sigmoid loses digits below -15 and is 0 below about -18"

WHERE = "a float32 Sigmoid, also where it is multiplied, moved, or has a little added or as a bound"

REACH = 4
"""How many nodes may stand between a Sigmoid and what its digits matter to."""

LARGE = 0.01
"""What is added to a Sigmoid, or its least value, hides the digits that it loses from here on."""


@repairs("Log", when=f"of {WHERE}", because=BECAUSE, nodes=3)
def of_a_sigmoid(op, x):
    """The logarithm of what is computed of ``1 / (1 + exp(-x))``, which keeps its digits."""
    exact = with_digits(op, x)
    return None if exact is x else op.Log(exact)


@repairs("Div", when=f"by {WHERE}", because=BECAUSE, nodes=3)
def by_a_sigmoid(op, a, b):
    """The quotient by what is computed of ``1 / (1 + exp(-x))``."""
    exact = with_digits(op, b)
    return None if exact is b else op.Div(a, exact)


@repairs("Reciprocal", when=f"of {WHERE}", because=BECAUSE, nodes=3)
def inverse_of_a_sigmoid(op, x):
    """The inverse of what is computed of ``1 / (1 + exp(-x))``."""
    exact = with_digits(op, x)
    return None if exact is x else op.Reciprocal(exact)


def with_digits(op, value: ir.Value, reach: int = REACH) -> ir.Value:
    """A float32 value that is computed of a Sigmoid once more, of a Sigmoid that keeps its digits; itself when it is not."""
    node = producer_of(value)
    if node is None or value.dtype != ir.DataType.FLOAT or not reach or len(node.outputs) > 1:
        return value
    if node.op_type == "Sigmoid":
        return op.Reciprocal(op.Add(op.Exp(op.Neg(node.inputs[0])), 1.0))
    inputs = list(node.inputs)
    for position in scaled_operands(node):
        inputs[position] = with_digits(op, inputs[position], reach - 1)
    return value if inputs == list(node.inputs) else op.emit(node.op_type, inputs, attributes_of(node))


def scaled_operands(node: ir.Node) -> list[int]:
    """The positions of the operands whose relative errors are errors of the result."""
    if node.op_type in ("Concat", "Mul"):
        return [*range(len(node.inputs))]
    if node.op_type in MOVING or node.op_type == "Div":
        return [0]
    if node.op_type == "Clip":
        return [0] if is_little(node.inputs[1]) else []
    if node.op_type in ("Add", "Max") and len(node.inputs) == 2:
        return [1 - position for position, other in enumerate(node.inputs) if is_little(other)]
    return []


def is_little(other: ir.Value | None) -> bool:
    """Whether what is added, or a least value, is none or a constant with elements below `LARGE`."""
    return other is None or (is_small(other) and bool((abs(other.const_value.numpy()) < LARGE).any()))
