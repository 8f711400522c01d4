"""Bounds of what operators compute: which values are known to be finite."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.inference import is_small


def is_finite(op, x: ir.Value) -> bool:
    """Whether no element is infinite, known from the operators before: those of `WITHIN_ONE` and what is computed of them."""
    return largest(op, x, 8) < math.inf


LARGEST = {ir.DataType.FLOAT16: 2.0**15, ir.DataType.FLOAT: 2.0**127, ir.DataType.DOUBLE: 2.0**1023}
"""Numbers that do not overflow in these dtypes."""

WITHIN_ONE = frozenset(("Cos", "Erf", "Sigmoid", "Sign", "Sin", "Softmax", "Softsign", "Tanh"))
"""Operators whose results are from -1 to 1."""

AS_LARGE = frozenset(
    "Abs Cast Concat Expand Gather Neg Reshape Slice Split Squeeze Transpose Unsqueeze".split()
)
"""Operators whose results are no larger than what they move."""


def largest(op, x: ir.Value, reach: int) -> float:
    """A number that no element exceeds, of either sign; infinity when at most *reach* operators tell none. NaN is none of them."""
    bound = bound_of(op, x, reach)
    return bound if bound <= LARGEST.get(x.dtype, 0) else math.inf


def bound_of(op, x: ir.Value, reach: int) -> float:
    """The same, whether its dtype holds the number or not."""
    if is_small(x) and x.dtype in dtypes.FLOATS:
        return float(np.abs(x.const_value.numpy()).max(initial=0))
    node = op.producer(x)
    if node is None or not reach:
        return math.inf
    if node.op_type in WITHIN_ONE:
        return 1.0
    if node.op_type in AS_LARGE:
        moved = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        return max(largest(op, value, reach - 1) for value in moved)
    if node.op_type not in ("Add", "Mul", "Sub"):
        return math.inf
    a, b = (largest(op, value, reach - 1) for value in node.inputs)
    if math.inf in (a, b):
        return math.inf
    return a * b if node.op_type == "Mul" else a + b
