"""What is the same everywhere, whatever the sizes: conditions that hold, or do not, zeros beside a mask, masks of ones, tokens of one type.

A model writes it with the sizes that its result has. Where a reader has them elsewhere a number, a row or nothing says the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import is_of
from experimental_experiment.xoptim.elementwise import BINARY
from experimental_experiment.xoptim.pattern import P, all_readers, attribute_of, const, var
from experimental_experiment.xoptim.patterns.masks import is_false, is_true
from experimental_experiment.xoptim.patterns.positions import uniform
from experimental_experiment.xoptim.patterns.reshaping import broadcasts_fast, of_less
from experimental_experiment.xoptim.rules import again, no, rule
from experimental_experiment.xoptim.shapes import Size, broadcast, has_shape_of, is_same, same_sizes

a, b, c, x, y, shape = var("a"), var("b"), var("c"), var("x"), var("y"), var("shape")


def has_sizes_elsewhere(node: ir.Node, index: int, whole: ir.Value, shape: Sequence[Size]) -> bool:
    """Whether a reader of *whole* gives the same result with one of this *shape*, which has 1 where another operand has its sizes.

    Other than `broadcasts` it asks the operands alone: the result may have sizes of other names, as the scores of T5's cross attention.
    """
    if node.domain or node.op_type not in (*BINARY, "Where") or (node.op_type == "PRelu" and not index):
        return False
    others = [value.shape for value in node.inputs if value is not whole]
    if whole.shape is None or None in others or max(map(len, [shape, *others])) < len(whole.shape):
        return False
    for place, size in enumerate(reversed(whole.shape)):
        if is_same(shape[-1 - place] if place < len(shape) else 1, size):
            continue
        if not any(place < len(other) and is_same(other[-1 - place], size) for other in others):
            return False
    return True


# ---- conditions


def is_neutral(condition: ir.Value, operator: str) -> bool:
    """Whether And, or Or, of a condition and another one is the other one."""
    return is_true(condition) if operator == "And" else is_false(condition)


@rule(P.one_of("And", "Or")(c, x), set="default", looks_further=True)
def neutral_condition(op, c, x, root):
    """And(True, x) and Or(False, x) are x, also for a condition that is so wherever it is."""
    return x if has_shape_of(x, root) and is_neutral(c, root.op_type) else None


PARTLY = P.one_of("And", "Or")(a, b, name="partly", shared=True)


@rule(
    P.one_of("And", "Or")(PARTLY, c, name="node")
    | P.one_of("And", "Or")(c, PARTLY, name="node")
    | P.Where(PARTLY, x, y, name="node"),
    set="default",
    looks_further=True,
)
def smaller_condition(op, a, b, partly, node):
    """And(True, x), or Or(False, x), that is larger than x is x for readers that have its sizes elsewhere, as scores have those of a mask.

    As transformers masks without a window: ``(positions >= 0) & mask``. Measured with onnxruntime 1.31: 0.80 to 0.86 of the time.
    """
    whole = partly.outputs[0]
    for condition, other in ((a, b), (b, a)):
        if other.shape is None or not is_neutral(condition, partly.op_type):
            continue
        if not all_readers(whole, has_sizes_elsewhere, whole, other.shape):
            return no("a result may be smaller")
        return again(op, node, [other if value is whole else value for value in node.inputs])
    return None


@rule(P.And(P.And(a, b, name="first"), c), set="default", looks_further=True)
def condition_of_both(op, a, b, c, first):
    """(a and b) and c is a and (b and c), where another mask is b and c.

    As models with and without a window mask: (window and causal) and padding, causal and padding.
    Measured with onnxruntime 1.31: 0.95 to 0.99 of the time.
    """
    if conjunction_of(a, b, first) is not None:
        return no("another mask is made of the first two")
    for one, other in ((a, b), (b, a)):
        both = conjunction_of(other, c, first)
        if both is not None:
            return op.And(one, again(op, both, both.inputs))
    return no("no other mask is made of them")


def conjunction_of(a: ir.Value, b: ir.Value, known: ir.Node) -> ir.Node | None:
    """An And of two conditions other than the *known* one."""
    for use in a.uses():
        node = use.node
        if node is not known and is_of(node, "And") and node.inputs in ((a, b), (b, a)):
            return node
    return None


# ---- what is added


FILLED = P.Expand(const("number"), shape, name="expand", shared=True)


@rule(
    P.Add(
        y,
        P.Where(c, FILLED, const("b"), name="node", shared=True)
        | P.Where(c, const("a"), FILLED, name="node", shared=True)
        | P.Add(FILLED, c, name="node", shared=True),
    ),
    set="default",
    looks_further=True,
)
def add_of_filled(op, y, c, number, expand, node):
    """A number that is repeated beside a mask is broadcast, as the mask is, when it is added to what has all sizes.

    As T5's cross attention, whose bias is zeros: Where(mask, zeros, lowest). Measured with onnxruntime 1.31: attention 0.87 to 0.97 of the time.
    """
    value = node.outputs[0]
    rest = [item.shape for item in node.inputs if item is not expand.outputs[0]]
    smaller = broadcast([*rest, number.shape])
    if smaller is None or not broadcasts_fast(smaller, value.shape):
        return no("the shapes are unknown, or the pieces that it repeats are small")
    if not all_readers(value, has_sizes_elsewhere, value, smaller):
        return no("a result may be smaller")
    return op.Add(y, of_less(op, node, expand, number))


@rule(
    P.Add(x, P.Mul(y, const("factor"), name="same", shared=True)),
    set="default",
    special_values=False,
    looks_further=True,
)
def add_of_one_number(op, x, factor, same, root):
    """x + (1 - ones) * -10000, a mask of ones, is x; another number that is made of constants alone is that number.

    Measured with onnxruntime 1.31: attention of a mask of ones 0.82 of the time.
    """
    number = uniform(same.outputs[0]) if has_shape_of(x, root) else None
    if number is None:
        return None
    return op.Add(x, op.constant(number, factor.dtype)) if number else x


LOOKED_UP = P.Gather(var("table"), var("places"), name="node", shared=True)


@rule(
    P.Add(x, LOOKED_UP | P.Reshape(LOOKED_UP, shape, shared=True), name="sum"),
    set="default",
    looks_further=True,
)
def add_of_one_row(op, x, table, places, node, sum):
    """A row of a table that is looked up at the same place for all tokens, as the type of tokens is, is looked up once.

    Measured with onnxruntime 1.31: embeddings and their norm 0.80 to 0.95 of the time, 1.02 for 512 rows of 64 elements.
    """
    if table.shape is None or attribute_of(node, "axis", 0) not in (0, -len(table.shape)):
        return no("no rows are looked up")
    count, *row = table.shape
    looked_up = sum.inputs[1] if sum.inputs[0] is x else sum.inputs[0]
    result = looked_up.shape
    if result is None or not row or not same_sizes(result[len(result) - len(row) :], row):
        return no("the rows are seen in another shape")
    if not same_sizes(broadcast([x.shape, row]), sum.outputs[0].shape):
        return no("the sum may be smaller")
    place = uniform(places) if places.shape is not None and len(places.shape) else None
    if place is None or not isinstance(count, int) or not -count <= place < count:
        return None
    return op.Add(x, op.Gather(table, op.constant(place, ir.DataType.INT64)))
