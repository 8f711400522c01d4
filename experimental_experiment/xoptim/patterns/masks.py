"""Masks of attention: conditions that never change, what is added to scores. `guards` has those of the rows that they close.

A mask is written from positions: ``LessOrEqual(keys, queries)`` with ``keys`` a Range seen as [1, 1, 1, keys] and
``queries`` one seen as [1, 1, queries, 1]. What is proved here holds for all sizes.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.torch_interpreter.runtime.reductions import is_open_or_closed
from experimental_experiment.torch_interpreter.symbolic import lower_bound
from experimental_experiment.xoptim.pattern import (
    P,
    all_readers,
    attribute_of,
    const,
    constant_of,
    ints_of,
    number_of,
    optional,
    var,
)
from experimental_experiment.xoptim.patterns.diagonals import on_diagonal
from experimental_experiment.xoptim.patterns.positions import REACH, array_of, uniform
from experimental_experiment.xoptim.rules import again, no, once_more, rule
from experimental_experiment.xoptim.shapes import broadcast, has_shape_of, is_same, same_sizes
from experimental_experiment.xoptim.spans import told_axes

x, a, b, mask, bias = var("x"), var("a"), var("b"), var("mask"), var("bias")

KEEPING_SIGNS = frozenset({"Cast", "Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose results have the signs of the numbers that they are given."""


@rule(P.Where(mask, a, b), set="default", looks_further=True)
def where_decided(op, mask, a, b, root):
    """Where(True, a, b) is a, Where(False, a, b) is b, and Where(c, a, a) is a."""
    if a is b or is_true(mask):
        chosen = a
    elif is_false(mask):
        chosen = b
    else:
        return None
    reaches = has_shape_of(chosen, root) or same_sizes(
        broadcast([value.shape for value in root.inputs]), chosen.shape
    )
    return chosen if reaches else no("the condition or the other operand adds sizes")


@rule(P.Add(x, P.Where(mask, a, b, shared=True)), set="default", special_values=False, looks_further=True)
def add_where_true(op, x, mask, a, root):
    """x + Where(True, a, b) is x + a, and x alone when a is 0: the mask of a model that is given none.

    Measured with onnxruntime 1.31, with the guard that goes with it: a ViT 0.96.
    """
    if not has_shape_of(x, root) or not is_true(mask):
        return None
    return x if number_of(a) == 0 else op.Add(x, a)


PARTLY_TRUE = P.Where(P.And(mask, b, shared=True), a, var("c"), name="chosen", shared=True)
LARGEST_OF_PARTLY_TRUE = P.ReduceMax(PARTLY_TRUE, optional("axes"), name="largest", shared=True)


@rule(P.Add(x, PARTLY_TRUE), set="default", looks_further=True)
def add_where_partly_true(op, x, mask, b, chosen):
    """x + Where(And(True, c), …) is x + Where(c, …), when all readers have all sizes themselves: positions are never negative."""
    if not is_true(mask):
        return None
    if len(chosen.inputs[0].uses()) > 1 or not gives_no_size(chosen.outputs[0]):
        return no("another reader needs the mask as it is")
    return op.Add(x, again(op, chosen, [b, *chosen.inputs[1:]]))


@rule(
    P.Where(
        P.Equal(LARGEST_OF_PARTLY_TRUE, -math.inf, shared=True)
        | P.Less(LARGEST_OF_PARTLY_TRUE, 0.0, shared=True),
        0.0,
        x,
    ),
    set="default",
    looks_further=True,
)
def guard_where_partly_true(op, x, mask, b, chosen, axes, largest, root):
    """The same for the guard of rows that such a mask closes."""
    if not is_true(mask):
        return None
    if len(chosen.inputs[0].uses()) > 1 or not gives_no_size(chosen.outputs[0]):
        return no("another reader needs the mask as it is")
    shape, sizes = b.shape, chosen.outputs[0].shape
    if shape is None or sizes is None or len(shape) != len(sizes) or not is_same(shape[-1], sizes[-1]):
        return no("the rows are others without it")
    if axes is None or ints_of(axes) not in ([-1], [len(shape) - 1]):
        return no("not the largest of rows")
    rows = again(op, largest, [again(op, chosen, [b, *chosen.inputs[1:]]), axes])
    compared = root.inputs[0].producer()
    (before,) = largest.outputs
    (closed,) = once_more(op, compared, [rows if value is before else value for value in compared.inputs])
    return op.Where(closed, op.constant(0.0, x.dtype), x)


def gives_no_size(mask: ir.Value) -> bool:
    """Whether what reads a mask has all its sizes elsewhere: scores that it is added to, values that its largest numbers guard."""
    return all_readers(mask, is_added_or_guards)


def is_added_or_guards(user: ir.Node, index: int) -> bool:
    """Whether a reader of a mask adds it to what has all sizes, or is a guard."""
    return has_shape_of(user.inputs[1 - index], user) if is_of(user, "Add") else is_guard(user)


def is_guard(largest: ir.Node) -> bool:
    """Whether the largest of each row are compared with a number, and that only chooses elements of what has all sizes."""
    if not is_of(largest, "ReduceMax") or not attribute_of(largest, "keepdims", 1):
        return False
    return all_readers(largest.outputs[0], is_compared)


def is_compared(user: ir.Node, index: int) -> bool:
    """Whether a reader of the largest of each row tells the rows that are closed, and that only chooses elements."""
    return is_of(user, "Equal", "Less") and all_readers(user.outputs[0], is_chosen_by)


def is_chosen_by(user: ir.Node, index: int) -> bool:
    """Whether a reader of a condition is a Where whose other elements have all its sizes."""
    return is_of(user, "Where") and index == 0 and has_shape_of(user.inputs[2], user)


@rule(P.Mul(P.Cast(P.Not(mask)), const("factor")), set="default", special_values=False)
def closed_times_number(op, mask, factor):
    """A number where a mask is false and 0 elsewhere, as torch.onnx.export writes what is added to scores, is Where(mask, 0, number)."""
    number = number_of(factor)
    if (
        number is None
        or not abs(number) < math.inf
        or mask.shape is None
        or len(factor.shape) > len(mask.shape)
    ):
        return no("the factor is no finite number")
    return op.Where(mask, op.constant(0, factor.dtype), factor)


# ---- what is known of masks


def is_mask(bias: ir.Value) -> bool:
    """Whether what is added to scores holds nothing but 0 and minus infinity."""
    array = array_of(bias)
    return is_open_or_closed(bias) if array is None else bool(((array == 0) | (array == -math.inf)).all())


def source_of(value: ir.Value, operators: frozenset[str] | set[str]) -> ir.Value:
    """What a value is before some operators of one input."""
    for _ in range(REACH):
        node = producer_of(value, *operators)
        if node is None:
            break
        value = node.inputs[0]
    return value


def is_true(mask: ir.Value, reach: int = REACH) -> bool:
    """Whether a mask is true wherever it is: a constant, equal numbers, or positions that are not negative."""
    array = array_of(mask)
    if array is not None:
        return mask.dtype == ir.DataType.BOOL and bool(array.all())
    if uniform(mask) is True:
        return True
    node = producer_of(mask)
    if node is None or not reach:
        return False
    if node.op_type in ("Expand", "Identity", "Unsqueeze", "Squeeze", "Reshape"):
        return mask.dtype == ir.DataType.BOOL and is_true(node.inputs[0], reach - 1)
    if node.op_type == "And":
        return all(is_true(value, reach - 1) for value in node.inputs)
    if node.op_type == "GreaterOrEqual":
        bound = number_of(node.inputs[1])
        if bound is not None and bound <= 0 and is_not_negative(node.inputs[0]):
            return True
    causal = causal_of(mask)
    return causal is not None and is_after(*causal)


def is_false(mask: ir.Value) -> bool:
    """Whether a mask is false wherever it is: a constant, or one number for all positions, see `uniform`."""
    array = array_of(mask)
    return uniform(mask) is False if array is None else not array.any()


def is_after(keys: ir.Value, queries: ir.Value) -> bool:
    """Whether there is one query, at the position of the last key or later: one token after a past."""
    if not starts_at_zero(keys) or any(size != 1 for size in queries.shape):
        return False
    number, last = sum_of(source_of(keys, {"Unsqueeze"}).producer().inputs[1]), sum_of(queries)
    return None not in (number, last) and number[0] == last[0] and number[1] <= last[1] + 1


def sum_of(value: ir.Value, reach: int = REACH) -> tuple[str | None, int] | None:
    """The name of a dimension and what is added to it, or None and a number, when an integer is such a sum; None when it is not."""
    number = number_of(value)
    if number is not None:
        return (None, number) if isinstance(number, int) else None
    node = producer_of(value)
    if node is None or not reach:
        return None
    if node.op_type in ("Reshape", "Squeeze", "Unsqueeze"):
        return sum_of(node.inputs[0], reach - 1)
    if node.op_type == "Add":
        terms = [sum_of(item, reach - 1) for item in node.inputs]
        if None in terms or all(name is not None for name, _ in terms):
            return None
        return terms[0][0] or terms[1][0], terms[0][1] + terms[1][1]
    shape = node.inputs[0].shape if node.op_type == "Shape" else None
    sizes = [] if shape is None else list(shape)[attribute_of(node, "start", 0) : attribute_of(node, "end")]
    if len(sizes) != 1:
        return None
    return (None, sizes[0]) if isinstance(sizes[0], int) else sizes[0].value and (sizes[0].value, 0)


def opens_each_row(mask: ir.Value, reach: int = REACH) -> bool:
    """Whether each row of a mask, along its last axis, holds a True.

    Such are constants that hold one, positions up to that of the query, these in a window, and triangles that hold the first column
    or the diagonal.
    """
    array = array_of(mask)
    if array is not None:
        return bool(array.shape) and bool(array.any(axis=-1).all())
    if is_true(mask) or on_diagonal(mask):
        return True
    node = producer_of(mask)
    if node is None or not reach:
        return False
    if node.op_type in ("Expand", "Identity") or is_unsqueezed_in_front(node):
        return opens_each_row(node.inputs[0], reach - 1)
    if node.op_type == "And":
        return any(is_true(item) and opens_each_row(other, reach - 1) for item, other in pairs(node)) or (
            opens_the_diagonal(node)
        )
    causal = causal_of(mask)
    if causal is None:
        return bool(in_first_column(mask))
    return starts_at_zero(causal[0]) and is_not_negative(causal[1])


def is_unsqueezed_in_front(node: ir.Node) -> bool:
    """Whether a node is an Unsqueeze that leaves the last axis where it is."""
    if node.op_type != "Unsqueeze" or node.outputs[0].shape is None:
        return False
    axes, last = told_axes(node), len(node.outputs[0].shape) - 1
    return axes is not None and not {-1, last} & set(axes)


def in_first_column(value: ir.Value, reach: int = REACH) -> float | None:
    """The number that each row begins with, for triangles of a number and what is made of them; None when it is not known."""
    number, array, node = number_of(value), array_of(value), producer_of(value)
    if number is not None:
        return number
    if array is not None:
        first = np.atleast_1d(array)[..., :1].reshape(-1)
        return first[0].item() if first.size and (first == first[0]).all() else None
    if node is None or not reach:
        return None
    if node.op_type == "Trilu" and clears_first_column(node):
        return 0
    if node.op_type == "Concat":
        numbers = {in_first_column(item, reach - 1) for item in node.inputs}
        return numbers.pop() if len(numbers) == 1 else None
    if node.op_type in ("Equal", "Where"):
        first = in_first_column(node.inputs[0], reach - 1)
        if first is None:
            return None
        other = in_first_column(node.inputs[1 if node.op_type == "Equal" or first else 2], reach - 1)
        return other if node.op_type == "Where" or other is None else first == other
    if node.op_type not in ("Cast", "Not"):
        return in_first_column(node.inputs[0], reach - 1) if begins_alike(node) else None
    number = in_first_column(node.inputs[0], reach - 1)
    if number is None or node.op_type == "Not":
        return None if number is None else not number
    if node.outputs[0].dtype == ir.DataType.BOOL:
        return bool(number)
    is_the_same = number in range(128) or (math.isinf(number) and node.outputs[0].dtype.is_floating_point())
    return number if is_the_same else None


def begins_alike(node: ir.Node) -> bool:
    """Whether each row of a result begins as one of its first input does."""
    if node.op_type == "Trilu":
        return not attribute_of(node, "upper", 1) and first_diagonal(node) >= 0
    if node.op_type == "Slice":
        return begins_with_row(node)
    return node.op_type in ("Expand", "Identity") or is_unsqueezed_in_front(node)


def begins_with_row(node: ir.Node) -> bool:
    """Whether a Slice takes each row that it takes from its first element on."""
    shape = node.outputs[0].shape
    if len(node.inputs) < 2 or shape is None:  # of attributes before opset 10
        return False
    starts, _, axes, steps = [*map(ints_of, node.inputs[1:]), None, None][:4]
    if len(node.inputs) < 4:
        axes = None if starts is None else range(len(starts))
    if axes is None:
        return False
    axes = [axis % len(shape) for axis in axes]
    if len(shape) - 1 not in axes:
        return True
    place = axes.index(len(shape) - 1)
    is_forward = len(node.inputs) < 5 or (steps is not None and steps[place] > 0)
    return starts is not None and starts[place] == 0 and is_forward


def clears_first_column(node: ir.Node) -> bool:
    """Whether a Trilu is an upper triangle without the diagonal."""
    return attribute_of(node, "upper", 1) == 1 and first_diagonal(node) >= 1


def first_diagonal(node: ir.Node) -> float:
    """Where the triangle of a Trilu begins or ends at least, minus infinity when it is not known."""
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return 0
    least = lower_bound(node.inputs[1])
    return -math.inf if least is None else least


def pairs(node: ir.Node) -> tuple[tuple[ir.Value, ir.Value], ...]:
    """The two inputs of a node in both orders."""
    first, second = node.inputs
    return (first, second), (second, first)


def causal_of(mask: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """The positions of keys and queries, where a mask lets through the keys up to the query; None for other masks."""
    node = producer_of(mask, "LessOrEqual", "GreaterOrEqual")
    if node is None:
        return None
    keys, queries = node.inputs if node.op_type == "LessOrEqual" else node.inputs[::-1]
    return (keys, queries) if is_along_last(keys) and is_across_last(queries) else None


def is_along_last(keys: ir.Value) -> bool:
    """Whether a value is a Range along the last axis."""
    for _ in range(REACH):
        node = producer_of(keys)
        if node is None or node.op_type == "Range":
            return node is not None
        axes = told_axes(node) if node.op_type == "Unsqueeze" else None
        if axes is None or keys.shape is None or len(keys.shape) - 1 in axes or -1 in axes:
            return False
        keys = node.inputs[0]
    return False


def is_across_last(queries: ir.Value) -> bool:
    """Whether the last axis of a value has one element."""
    return queries.shape is not None and len(queries.shape) > 0 and queries.shape[-1] == 1


def starts_at_zero(keys: ir.Value) -> bool:
    """Whether positions are 0, 1, 2…"""
    node = producer_of(source_of(keys, {"Unsqueeze"}), "Range")
    return node is not None and number_of(node.inputs[0]) == 0 and number_of(node.inputs[2]) == 1


def is_not_negative(value: ir.Value, reach: int = REACH) -> bool:
    """Whether integers are 0 or more: sizes, positions counted from them, their sums and products."""
    tensor = constant_of(value)
    if tensor is not None:
        return bool((tensor.numpy() >= 0).all())
    node = producer_of(value)
    if node is None or not reach:
        return False
    if node.op_type in ("Shape", "Size"):
        return True
    if node.op_type == "Cast" and node.inputs[0].dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return False
    if node.op_type in KEEPING_SIGNS or node.op_type in ("Gather", "Slice"):
        return is_not_negative(node.inputs[0], reach - 1)
    if node.op_type == "Range":
        step = number_of(node.inputs[2])
        return step is not None and step > 0 and is_not_negative(node.inputs[0], reach - 1)
    if node.op_type not in ("Add", "Concat", "Mul"):
        return False
    return all(is_not_negative(item, reach - 1) for item in node.inputs)


def opens_the_diagonal(node: ir.Node) -> bool:
    """Whether an And is a causal mask in a window that holds the query's own position, which is one of the keys."""
    for causal, window in pairs(node):
        found, limit = causal_of(causal), producer_of(window, "Greater", "Less")
        if found is None or limit is None:
            continue
        keys, queries = found
        inside, first = limit.inputs if limit.op_type == "Greater" else limit.inputs[::-1]
        before = producer_of(first, "Sub")
        if inside is not keys or before is None or before.inputs[0] is not queries:
            continue
        width = number_of(before.inputs[1])
        if width is not None and width > 0 and starts_at_zero(keys) and are_among(queries, keys):
            return True
    return False


def are_among(queries: ir.Value, keys: ir.Value) -> bool:
    """Whether keys are counted to the sum of the number of queries and of what is before them, or to that number."""
    last = source_of(keys, {"Unsqueeze"}).producer().inputs[1]
    position = source_of(queries, {"Unsqueeze"})
    node = producer_of(position)
    if node is None:
        return False
    before = None
    if node.op_type == "Add":
        ranges = [item for item, _ in pairs(node) if is_range(item)]
        if len(ranges) != 1:
            return False
        before = node.inputs[node.inputs[0] is ranges[0]]
        node = producer_of(ranges[0], "Range")
        if not is_not_negative(before):
            return False
    if node.op_type != "Range" or number_of(node.inputs[0]) != 0 or number_of(node.inputs[2]) != 1:
        return False
    count = node.inputs[1]
    if before is None:
        return last is count
    total = producer_of(last, "Add")
    return total is not None and any(one is before and two is count for one, two in pairs(total))


def is_range(value: ir.Value) -> bool:
    """Whether a value is the result of a Range."""
    return producer_of(value, "Range") is not None
