"""Diagonals of masks: what stands where a query and a key have the same position, whatever the number of positions.

``keys - queries`` of one Range is 0 there, so each window that holds 0 lets the own position of a query through.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import attributes_of, producer_of
from experimental_experiment.xoptim.pattern import attribute_of, constant_of, number_of
from experimental_experiment.xoptim.patterns.positions import (
    MOST_ELEMENTS,
    ON_POSITIONS,
    POSITION_DTYPES,
    REACH,
    computed_of_numbers,
    uniform,
)
from experimental_experiment.xoptim.shapes import is_same
from experimental_experiment.xoptim.spans import told_axes

Number = bool | int | float

OF_EQUALS: dict[str, Number] = {
    "Equal": True,
    "Greater": False,
    "GreaterOrEqual": True,
    "Less": False,
    "LessOrEqual": True,
    "Sub": 0,
}
"""What comparisons and differences of equal numbers are."""

OF_ZERO = ("Abs", "Div", "Mod", "Neg")
"""Operators that make 0 of 0, and of a divisor that is not."""

OF_ELEMENTS = frozenset((*ON_POSITIONS, *OF_ZERO, "Cast", "Floor"))
"""Operators that see one place of their operands only."""


def on_diagonal(value: ir.Value, reach: int = REACH) -> Number | None:
    """The number that a value holds wherever the positions along its last two axes are equal, None when it is not known.

    Both axes count the same positions, or nothing depends on them: each row has such a place.
    """
    node = value.producer()
    if constant_of(value) is not None or node is None or not reach:
        return uniform(value)
    op_type = "" if node.domain else node.op_type
    if op_type in ("Expand", "Identity") or leaves_last_two(node):
        return on_diagonal(node.inputs[0], reach - 1)
    if op_type in OF_EQUALS and are_exchanged(*node.inputs, reach - 1):
        return OF_EQUALS[op_type]
    if op_type == "Trilu" and keeps_diagonal(node):
        return on_diagonal(node.inputs[0], reach - 1)
    if op_type == "Where":
        mask = on_diagonal(node.inputs[0], reach - 1)
        return None if mask is None else on_diagonal(node.inputs[1 if mask else 2], reach - 1)
    if op_type in (*OF_ZERO, "Mul") and is_of_zero(node, reach - 1):
        return 0
    if op_type not in OF_ELEMENTS:
        return None
    return computed_of_numbers(node, reach - 1, on_diagonal)


def leaves_last_two(node: ir.Node) -> bool:
    """Whether a node is an Unsqueeze that leaves the last two axes where they are, or a Transpose that leaves or exchanges them."""
    shape = node.outputs[0].shape
    if shape is None or len(shape) < 2:
        return False
    last = {len(shape) - 2, len(shape) - 1}
    if producer_of(node.outputs[0], "Transpose") is not None:
        return set((attribute_of(node, "perm") or [])[-2:]) == last
    axes = told_axes(node) if producer_of(node.outputs[0], "Unsqueeze") is not None else None
    return axes is not None and not last & {axis % len(shape) for axis in axes}


def keeps_diagonal(node: ir.Node) -> bool:
    """Whether a Trilu keeps the diagonal, of matrices with as many rows as columns."""
    shape = node.outputs[0].shape
    given = node.inputs[1] if len(node.inputs) > 1 else None
    first = 0 if given is None else number_of(given)
    if shape is None or first is None or not is_same(shape[-1], shape[-2]):
        return False
    return first <= 0 if attribute_of(node, "upper", 1) else first >= 0


def is_of_zero(node: ir.Node, reach: int) -> bool:
    """Whether a node makes 0 of a 0, and of constants that are finite: a slope, a divisor other than 0."""
    if node.op_type == "Mul":
        pairs = (node.inputs, node.inputs[::-1])
        return any(is_finite_constant(other) and on_diagonal(value, reach) == 0 for value, other in pairs)
    if len(node.inputs) == 2:
        if not is_finite_constant(node.inputs[1]) or not constant_of(node.inputs[1]).numpy().all():
            return False
    return on_diagonal(node.inputs[0], reach) == 0


def is_finite_constant(value: ir.Value) -> bool:
    """Whether a value is a constant of finite numbers, and not too many."""
    tensor = constant_of(value)
    return (
        tensor is not None and tensor.size <= MOST_ELEMENTS and bool((abs(tensor.numpy()) < math.inf).all())
    )


def are_exchanged(one: ir.Value, other: ir.Value, reach: int = REACH) -> bool:
    """Whether *other* is *one* with the last two axes exchanged, of which each has one element only in one of both.

    These are integers, or made of them in the same way: ``queries = positions[:, None]`` and ``keys = positions[None]``.
    """
    first, second = producer_of(one), producer_of(other)
    if first is None or second is None or not is_position(one) or not reach:
        return False
    if {first.op_type, second.op_type} <= {"Reshape", "Unsqueeze"} and first.inputs[0] is second.inputs[0]:
        return are_row_and_column(first, second) or are_other_axes(first, second)
    if first.op_type not in OF_ELEMENTS or first.op_type != second.op_type:
        return False
    if len(first.inputs) != len(second.inputs) or attributes_of(first) != attributes_of(second):
        return False
    pairs = [pair for pair in zip(first.inputs, second.inputs) if not are_one_number(*pair)]
    return bool(pairs) and all(are_exchanged(*pair, reach - 1) for pair in pairs)


def is_position(value: ir.Value) -> bool:
    """Whether a value holds integers or booleans: each equals itself, as NaN does not."""
    return value.dtype in POSITION_DTYPES


def are_row_and_column(first: ir.Node, second: ir.Node) -> bool:
    """Whether two nodes make a row and a column of one vector, or the other way round."""
    vector, shapes = first.inputs[0].shape, [node.outputs[0].shape for node in (first, second)]
    if vector is None or len(vector) != 1 or None in shapes or len(shapes[0]) != len(shapes[1]):
        return False
    last = len(shapes[0]) - 1
    others = [{axis for axis, size in enumerate(shape) if size != 1} for shape in shapes]
    return others in ([{last}, {last - 1}], [{last - 1}, {last}])


def are_other_axes(first: ir.Node, second: ir.Node) -> bool:
    """Whether two Unsqueeze of one value differ in which of the last two axes they add."""
    if "Reshape" in (first.op_type, second.op_type):
        return False
    shapes = [node.outputs[0].shape for node in (first, second)]
    axes = [told_axes(node) for node in (first, second)]
    if None in shapes or None in axes or len(shapes[0]) != len(shapes[1]):
        return False
    rank = len(shapes[0])
    added = [{axis % rank for axis in found} for found in axes]
    return added[0] ^ added[1] == {rank - 2, rank - 1}


def are_one_number(one: ir.Value, other: ir.Value) -> bool:
    """Whether two values are the same constant number."""
    numbers = [number_of(value) for value in (one, other)]
    return None not in numbers and bool(np.equal(*numbers))
