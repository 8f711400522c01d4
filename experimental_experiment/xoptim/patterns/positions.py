"""Positions of tokens, of which masks are made: what they hold, and their copies for each sample of a batch.

transformers tells packed texts by positions that do not follow one another; where the model counts them itself they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.elementwise import BINARY
from experimental_experiment.xoptim.pattern import P, attribute_of, constant_of, ints_of, number_of, var
from experimental_experiment.xoptim.rules import again, no, rule
from experimental_experiment.xoptim.shapes import broadcast, listed, same_sizes
from experimental_experiment.xoptim.spans import spans_of, told_axes

x, y, shape = var("x"), var("y"), var("shape")

REACH = 8
"""How many nodes back a mask is looked at."""

MOST_ELEMENTS = 2**20
"""Masks of constants with more elements are not computed: each rule that asks would take milliseconds."""

POSITION_DTYPES = (ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64)
"""Dtypes of masks and positions."""

REAL = (*POSITION_DTYPES, ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Dtypes of numbers that are computed here as they are where the model runs."""

ON_POSITIONS = {
    "Add": np.add,
    "And": np.logical_and,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Where": np.where,
}
"""How masks are made of positions."""


# ---- copies for each sample


@rule(
    P.Unsqueeze(P.Expand(x, shape, name="expand", shared=True), var("axes")),
    set="default",
    looks_further=True,
)
def unsqueeze_expanded(op, x, shape, axes, expand):
    """Positions that are copied for each sample are copied last."""
    added, result = ints_of(axes), expand.outputs[0]
    if result.dtype not in POSITION_DTYPES or added is None or x.shape is None or result.shape is None:
        return no("they are no positions, or their rank is unknown")
    width = len(result.shape)
    if len(x.shape) != width or shape.shape is None or list(shape.shape) != [width]:
        return no("axes are added")
    target = sizes_with_ones(op, shape, sorted(axis % (width + len(added)) for axis in added))
    return no("the sizes are computed") if target is None else op.Expand(op.Unsqueeze(x, axes), target)


def sizes_with_ones(op, shape: ir.Value, axes: list[int]) -> ir.Value | None:
    """A vector of sizes with 1 at more axes: one of constants, or joined from vectors of known lengths between which they stand."""
    sizes = listed(shape)
    if sizes is None:
        return None
    for axis in axes:
        sizes.insert(axis, 1)
    return op.shape(sizes)


@rule(
    P.one_of(*BINARY)(
        P.Expand(x, shape, name="left", shared=True), P.Expand(y, shape, shared=True), name="node"
    ),
    set="default",
)
def expanded_positions(op, x, y, shape, left, node):
    """Positions or masks that are both copied for each sample are compared or joined before."""
    if x.dtype not in POSITION_DTYPES:
        return no("they are no positions")
    operands = [x, y] if node.inputs[0] is left.outputs[0] else [y, x]
    return op.Expand(again(op, node, operands), shape)


EXPANDED = P.Expand(x, shape, name="expand", shared=True)


@rule(
    P.one_of(*BINARY)(EXPANDED, y, name="node") | P.one_of(*BINARY)(y, EXPANDED, name="node"), set="default"
)
def expanded_beside_positions(op, x, y, shape, expand, node):
    """The same where one is copied for each sample, and the other is the same for all."""
    sizes = broadcast([x.shape, y.shape])
    if x.dtype not in POSITION_DTYPES or sizes is None or same_sizes(sizes, node.outputs[0].shape):
        return no("they are no positions, or the other one has as many")
    operands = [x, y] if node.inputs[0] is expand.outputs[0] else [y, x]
    return op.Expand(again(op, node, operands), shape)


@rule(P.Range(x, y, var("step"), name="node"), set="default")
def range_of_vectors(op, x, y, step, node):
    """The bounds of a Range are scalars, as ONNX says: onnxruntime refuses vectors of one element once it knows that they are."""
    if not any(has_one_element(bound) for bound in (x, y, step)):
        return no("the bounds are scalars, or their shapes are unknown")
    scalars = [op.Squeeze(bound, [0]) if has_one_element(bound) else bound for bound in (x, y, step)]
    return again(op, node, scalars)


def has_one_element(value: ir.Value) -> bool:
    """Whether a value is known to be a vector of one element."""
    return value.shape is not None and list(value.shape) == [1]


# ---- what they hold


def array_of(value: ir.Value | None, reach: int = REACH) -> np.ndarray | None:
    """What a value holds that is made of constants alone, None when it is not, or of too many."""
    tensor = constant_of(value)
    if tensor is not None:
        return tensor.numpy() if tensor.size <= MOST_ELEMENTS else None
    node = producer_of(value, *ON_POSITIONS)
    if node is None or not reach:
        return None
    shape = value.shape
    if shape is None or not shape.is_static() or math.prod(shape) > MOST_ELEMENTS:
        return None
    operands = [array_of(item, reach - 1) for item in node.inputs]
    return None if any(item is None for item in operands) else ON_POSITIONS[node.op_type](*operands)


def uniform(value: ir.Value, reach: int = 2 * REACH) -> bool | int | float | None:
    """The number that a value holds everywhere, None when it may hold several.

    Positions that follow one another, for example, give 0 wherever a model computes the number of the text that a token belongs to.
    """
    tensor = constant_of(value)
    if tensor is not None:
        array = tensor.numpy() if 0 < tensor.size <= MOST_ELEMENTS else None
        return array.flat[0].item() if array is not None and (array == array.flat[0]).all() else None
    node = producer_of(value)
    if node is None or not reach:
        return None
    if node.op_type in (
        "Expand",
        "Gather",
        "GatherND",
        "Identity",
        "Reshape",
        "Slice",
        "Squeeze",
        "Unsqueeze",
    ):
        return uniform(node.inputs[0], reach - 1)
    if node.op_type == "CumSum":
        return 0 if uniform(node.inputs[0], reach - 1) == 0 else None
    if node.op_type == "Sub" and is_step(node):
        return 1
    return computed_of_numbers(node, reach - 1)


def computed_of_numbers(
    node: ir.Node, reach: int, number_in: Callable[[ir.Value, int], bool | int | float | None] = uniform
) -> bool | int | float | None:
    """The number that a node makes of operands that hold one number each, by *number_in*, None when it may make several."""
    if node.op_type not in (*ON_POSITIONS, "Cast", "Concat") or node.outputs[0].dtype not in REAL:
        return None
    numbers = []
    for item in node.inputs:
        number = number_in(item, reach)
        if node.op_type in ("And", "Or") and number is (node.op_type == "Or"):
            return number
        if number is None and node.op_type not in ("And", "Or"):
            return None
        numbers.append(number)
    if None in numbers or any(item.dtype not in REAL for item in node.inputs):
        return None
    if node.op_type == "Concat":
        return numbers[0] if all(number == numbers[0] for number in numbers) else None
    arrays = [np.array(number, item.dtype.numpy()) for number, item in zip(numbers, node.inputs)]
    with np.errstate(all="ignore"):
        if node.op_type != "Cast":
            return ON_POSITIONS[node.op_type](*arrays).item()
        to = node.outputs[0].dtype
        is_whole = isinstance(numbers[0], int) or to.is_floating_point()
        return arrays[0].astype(to.numpy()).item() if is_whole else None


def is_step(node: ir.Node) -> bool:
    """Whether a Sub is ``torch.diff`` of positions that follow one another, with the one before the first in front."""
    positions, before = node.inputs[0], producer_of(node.inputs[1], "Slice")
    if positions.dtype not in POSITION_DTYPES or before is None or positions.shape is None:
        return False  # steps of floats are rounded
    last = len(positions.shape) - 1
    joined = producer_of(before.inputs[0], "Concat")
    if spans_of(before) != {last: (0, -1, 1)} or joined is None:
        return False
    if attribute_of(joined, "axis") not in (-1, last) or len(joined.inputs) != 2:
        return False
    first = producer_of(joined.inputs[0], "Sub")
    if joined.inputs[1] is not positions or first is None:
        return False
    start = producer_of(first.inputs[0], "Slice")
    if start is None or start.inputs[0] is not positions:
        return False
    is_first = spans_of(start) == {last: (0, 1, 1)} and number_of(first.inputs[1]) == 1
    return is_first and follow(positions)


def follow(value: ir.Value, reach: int = REACH) -> bool:
    """Whether the elements along the last axis follow one another: a Range, or constants, moved and repeated along other axes."""
    tensor = constant_of(value)
    if tensor is not None:
        return (
            bool(tensor.shape) and tensor.size <= MOST_ELEMENTS and bool((np.diff(tensor.numpy()) == 1).all())
        )
    node = producer_of(value)
    if node is None or not reach or value.shape is None:
        return False
    if node.op_type == "Range":
        return number_of(node.inputs[2]) == 1
    if node.op_type == "Add":
        return any(
            one.shape is not None and not len(one.shape) and follow(other, reach - 1)
            for one, other in (node.inputs, node.inputs[::-1])
        )
    inner = node.inputs[0].shape if node.inputs else None
    if inner is None or not len(inner):
        return False
    if node.op_type == "Expand":
        return inner[-1] == value.shape[-1] and follow(node.inputs[0], reach - 1)
    if node.op_type == "Unsqueeze":
        axes = told_axes(node)
        return (
            axes is not None
            and not {-1, len(value.shape) - 1} & set(axes)
            and follow(node.inputs[0], reach - 1)
        )
    return False
