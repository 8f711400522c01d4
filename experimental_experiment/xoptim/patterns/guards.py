"""Guards against rows that a mask closes, in four forms, where each row lets a position through.

What is proved here holds for all sizes, see `masks`.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.xoptim.pattern import (
    P,
    attribute_of,
    const,
    constant_of,
    number_of,
    optional,
    softmax_axis,
    var,
)
from experimental_experiment.xoptim.patterns.diagonals import on_diagonal
from experimental_experiment.xoptim.patterns.masks import (
    KEEPING_SIGNS,
    in_first_column,
    is_mask,
    opens_each_row,
    source_of,
)
from experimental_experiment.xoptim.patterns.positions import REACH, array_of
from experimental_experiment.xoptim.rules import no, rule
from experimental_experiment.xoptim.shapes import has_shape_of
from experimental_experiment.xoptim.spans import told_axes

x, mask, bias = var("x"), var("mask"), var("bias")

FUSED = "com.microsoft", "FusedMatMul", ""
"""onnxruntime's product of matrices."""

MODERATE = 2.0**20
"""No number of a network but those of masks is larger."""

MOST_READ = 2**17
"""Constants of more elements are not read."""


MOVING = (KEEPING_SIGNS - {"Cast"}) | {"Gather", "Slice", "Transpose", "Trilu"}
"""Operators whose results hold numbers of their first input, and 0."""


LARGEST = P.one_of("ReduceMax", "ReduceLogSumExp")(bias, optional("axes"), name="largest", shared=True)


@rule(
    P.Where(P.Equal(LARGEST, -math.inf, shared=True) | P.Less(LARGEST, 0.0, shared=True), 0.0, x),
    set="default",
    looks_further=True,
)
def guard_of_values(op, x, bias, largest, root):
    """Where(a row of the mask is minus infinity, 0, x) is x, when each row lets a position through.

    So is Where(a row of the mask is less than 0, 0, x), of a mask of 0 and minus infinity.
    Measured with onnxruntime 1.31: attention 0.96 of the time for a token after 512, 0.92 for 128 tokens.
    """
    if (
        bias.shape is None
        or told_axes(largest) not in ([-1], [len(bias.shape) - 1])
        or not has_shape_of(x, root)
    ):
        return None
    if root.inputs[0].producer().op_type == "Less" and not is_mask(bias):
        return no("a row of the mask may be less than 0")
    return x if adds_less_than_infinity(bias) else no("a row of the mask may let nothing through")


@rule(
    P.Where(P.Equal(LARGEST, -math.inf, shared=True), 0.0, x),
    set="default",
    special_values=False,
    looks_further=True,
)
def guard_of_products(op, x, bias, root):
    """The same guard of a bias that is a sum of products with tables, as that of positions relative to each other in SAM is.

    Where such products overflow in a whole row the result is NaN.
    Measured with onnxruntime 1.31: a SamVisionModel 0.92 of the time, where its tables keep their size too.
    """
    if not has_shape_of(x, root):
        return None
    return x if is_of_products(bias) else no("no sum of products with finite tables")


COUNT = P.ReduceSum(P.Cast(mask, shared=True), optional("axes"), name="count", shared=True)


@rule(P.Where(P.Less(COUNT, const("least"), shared=True), 0.0, x), set="default")
def guard_of_counts(op, x, mask, count, least, root):
    """The same guard as torch.onnx.export writes it, which counts what each row lets through: Where(count < 1, 0, x)."""
    if (
        mask.shape is None
        or told_axes(count) not in ([-1], [len(mask.shape) - 1])
        or not has_shape_of(x, root)
    ):
        return None
    number = number_of(least)
    if mask.dtype != ir.DataType.BOOL or number is None or not number <= 1:
        return no("a row that lets a position through may be less")
    return x if opens_each_row(mask) else no("a row of the mask may let nothing through")


@rule(
    P.Where(
        P.IsNaN(P.Softmax(P.Add(x, bias, shared=True), name="weights", shared=True)),
        0.0,
        P.Softmax(name="guarded", shared=True),
    ),
    set="default",
    special_values=False,
    looks_further=True,
)
def guard_of_weights(op, x, bias, weights, guarded, root):
    """The same guard in its other form, Where(IsNaN(weights), 0, weights): such rows are the only ones that have NaN.

    The scores are products, or sums of some and of finite numbers: another mask may close what this one opens. Where such products
    overflow in a whole row the result is NaN.
    """
    axis = softmax_axis(weights, op.opset)
    result = weights.outputs[0]
    if weights is not guarded or bias.shape is None or x.shape is None or result.shape is None:
        return None
    if axis not in (-1, len(result.shape) - 1):
        return no("the rows are along another axis")
    if len(root.inputs[1].shape) > len(result.shape):
        return no("the guard adds axes")
    if not (is_below_infinity(x) and is_below_infinity(bias)):
        return no("the mask may have infinity, which makes NaN of a row")
    return result if opens_each_sum(x, bias) else no("a row of the mask may let nothing through")


# ---- what is known of sums and masks


def adds_less_than_infinity(bias: ir.Value) -> bool:
    """Whether a mask that is added has a number above minus infinity in each row."""
    array = array_of(bias)
    if array is not None:
        return bool((array > -math.inf).any(axis=-1).all()) if array.shape else False
    diagonal = on_diagonal(bias)
    if is_finite(bias) or (diagonal is not None and diagonal > -math.inf):
        return True
    node = producer_of(bias, "Where")
    first = in_first_column(bias)
    if first is not None or node is None:
        return first is not None and first > -math.inf
    mask, opened, closed = node.inputs
    if is_finite(opened) and is_finite(closed):
        return True
    return is_finite(opened) and opens_each_row(mask)


def is_below_infinity(value: ir.Value, largest: float = math.inf, reach: int = REACH) -> bool:
    """Whether no number of scores, or of a mask, is infinity or NaN, or above *largest*, but for an overflow of the scores."""
    tensor, node = source_of_numbers(value), value.producer()
    array = array_of(value) if tensor is None or tensor.size > MOST_READ else tensor.numpy()
    if array is not None:
        return bool(((array <= largest) & (array < math.inf)).all())
    if is_of_numbers(value):
        return True
    if node is None or not reach:
        return False
    if is_of(node, "Where"):
        return all(is_below_infinity(part, largest, reach - 1) for part in node.inputs[1:])
    if is_of(node, "Add"):
        return all(is_below_infinity(part, largest, reach - 1) for part in node.inputs)
    if is_of(node, "Cast") and value.dtype.is_floating_point():
        is_bool = node.inputs[0].dtype is ir.DataType.BOOL
        return is_bool or is_below_infinity(node.inputs[0], min(largest, float(value.dtype.max)), reach - 1)
    return is_of(node, *MOVING) and is_below_infinity(node.inputs[0], largest, reach - 1)


def opens_each_sum(x: ir.Value, bias: ir.Value) -> bool:
    """Whether each row of a sum has a number above minus infinity: a mask opens each, and all others are numbers."""
    for scores, mask in ((x, bias), (bias, x)):
        if is_of_numbers(scores):
            node = producer_of(mask, "Add")
            if is_of_numbers(mask) or adds_less_than_infinity(mask):
                return True
            return node is not None and opens_each_sum(*node.inputs)
    return False


def is_of_numbers(value: ir.Value, reach: int = REACH) -> bool:
    """Whether a value is made of products of two values and of numbers of a usual size: numbers, but for an overflow."""
    node = value.producer()
    if is_moderate(value):
        return True
    if node is None or not reach:
        return False
    if is_of(node, "Add", "Mul", "Sub"):
        return all(is_of_numbers(part, reach - 1) for part in node.inputs)
    if is_of(node, *KEEPING_SIGNS, "Clip", "Div", "Gather", "Slice", "Transpose"):
        bounds = node.inputs[1:] if is_of(node, "Clip") else ()
        is_usual = all(map(is_moderate, filter(None, bounds)))
        if is_of(node, "Div"):
            is_usual = is_moderate(node.inputs[1], is_divisor=True)
        return is_usual and is_of_numbers(node.inputs[0], reach - 1)
    return is_of(node, "Tanh") or is_product(node)


def is_product(node: ir.Node) -> bool:
    """Whether a node sums products of two values; one that is constant is a table, see `is_table`."""
    if is_of(node, "Einsum"):
        operands, _, result = attribute_of(node, "equation").replace(" ", "").partition("->")
        first, _, second = operands.partition(",")
        if not result or not set(first) & set(second) - set(result):
            return False
    elif not is_of(node, "MatMul") and node.op_identifier() != FUSED:
        return False
    return all(
        is_table(node, place) if constant_of(item) is not None else not may_be_closed(item)
        for place, item in enumerate(node.inputs)
    )


def may_be_closed(value: ir.Value, reach: int = REACH) -> bool:
    """Whether a value is made with numbers that close positions of a mask, minus infinity or the lowest number."""
    node = producer_of(value)
    if constant_of(value) is not None:
        return not value.dtype.is_floating_point() or not is_moderate(value)
    if node is None or not reach:
        return False
    read = node.inputs[1:] if node.op_type == "Where" else node.inputs[:1]
    read = node.inputs if node.op_type in ("Add", "Concat", "Div", "Mul", "Sub") else read
    passes = node.op_type in KEEPING_SIGNS | {
        "Add",
        "Concat",
        "Div",
        "Gather",
        "Mul",
        "Slice",
        "Sub",
        "Transpose",
        "Where",
    }
    return passes and any(may_be_closed(item, reach - 1) for item in read)


def is_of_products(value: ir.Value, reach: int = REACH) -> bool:
    """Whether a value is a product with a table, or a sum of some, moved or not: numbers, but for an overflow."""
    node = producer_of(source_of(value, KEEPING_SIGNS | {"Transpose"}))
    if node is None or not reach:
        return False
    if node.op_type == "Add":
        return all(is_of_products(part, reach - 1) for part in node.inputs)
    return node.op_type in ("Einsum", "MatMul") and any(
        is_table(node, number) for number in range(len(node.inputs))
    )


def is_table(node: ir.Node, number: int) -> bool:
    """Whether an operand of an Einsum or MatMul is a table of finite numbers of both signs, and an axis of it is summed over.

    Another one makes minus infinity of minus infinity, as ones do that repeat a mask, or a matrix that averages one.
    """
    operand = node.inputs[number]
    tensor = source_of_numbers(operand)
    if (
        tensor is None
        or tensor.size > MOST_READ
        or not tensor.dtype.is_floating_point()
        or operand.shape is None
    ):
        return False
    if node.op_type == "Einsum":
        operands, _, result = attribute_of(node, "equation").replace(" ", "").partition("->")
        letters = operands.split(",")[number]
        is_known = letters.isalpha() and bool(result)
        summed = [size for letter, size in zip(letters, operand.shape) if letter not in result]
    else:
        is_known = node.op_type == "MatMul" and len(operand.shape) > 1
        summed = [operand.shape[-1 - number]] if is_known else []
    if not is_known or not any(isinstance(size, int) and size > 1 for size in summed):
        return False
    array = tensor.numpy()
    return bool((abs(array) < math.inf).all()) and array.min() <= 0 <= array.max()


def source_of_numbers(value: ir.Value) -> ir.TensorProtocol | None:
    """The constant whose numbers a value holds, moved or looked up; None for any other value."""
    return constant_of(source_of(value, KEEPING_SIGNS - {"Cast"} | {"Gather", "Transpose"}))


def is_finite(value: ir.Value) -> bool:
    """Whether a value holds finite numbers only: a small constant, or what is moved or looked up there."""
    tensor = source_of_numbers(value)
    return tensor is not None and tensor.size <= MOST_READ and bool((abs(tensor.numpy()) < math.inf).all())


def is_moderate(value: ir.Value, is_divisor: bool = False) -> bool:
    """Whether a value holds numbers of a usual size only, whose sums and products are finite: no lowest number, no divisor near 0.

    Two masks that close positions with the lowest number are minus infinity together.
    """
    tensor = source_of_numbers(value)
    if tensor is None or tensor.size > MOST_READ or not tensor.dtype.is_floating_point():
        return False
    array = abs(tensor.numpy())
    largest = min(MODERATE, float(tensor.dtype.max) / 64)
    return bool((array <= largest).all() and (not is_divisor or (array >= 1 / largest).all()))
