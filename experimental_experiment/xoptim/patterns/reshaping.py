"""Reshapes, squeezes, expansions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import is_of, producer_of
from experimental_experiment.torch_interpreter.simplify import unsqueezed_axes
from experimental_experiment.xoptim.elementwise import BINARY, gated, one_or_two, redone, step
from experimental_experiment.xoptim.pattern import (
    P,
    all_readers,
    attribute_of,
    const,
    ints_of,
    number_of,
    optional,
    var,
)
from experimental_experiment.xoptim.patterns.transposing import REDUCTIONS
from experimental_experiment.xoptim.rules import Declined, again, computes, no, rule
from experimental_experiment.xoptim.shapes import (
    Size,
    broadcast,
    has_shape_of,
    is_same,
    reshape_target,
    same_sizes,
    shape_after,
)
from experimental_experiment.xoptim.spans import told_axes

x, y, shape, axes = var("x"), var("y"), var("shape"), var("axes")

RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that change the shape and nothing else."""

GIVING_SHAPES = ("Cast", "Concat", "Gather", "Reshape", "Shape", "Slice", "Unsqueeze")
"""Operators that end the computation of a shape."""


def refuses_empty(node: ir.Node) -> bool:
    """Whether a Reshape has a -1 beside a size that may be 0, which onnxruntime refuses for tensors without elements."""
    if node.op_type != "Reshape":
        return False
    sizes = ints_of(node.inputs[1])
    if sizes is not None:
        return -1 in sizes and 0 in sizes
    concat = producer_of(node.inputs[1], "Concat")
    pieces = () if concat is None else concat.inputs
    return any(-1 in (ints_of(piece) or ()) for piece in pieces)


def moved(op, x: ir.Value, steps: list[ir.Node]) -> ir.Value | None:
    """*x*, or one Reshape of it, in the shape that *steps* give it; None when that takes a computed shape."""
    result = shape_after(steps[-1])
    if same_sizes(x.shape, result):
        return x
    target = reshape_target(x.shape, result, may_be_empty=not any(map(refuses_empty, steps)))
    return None if target is None else op.Reshape(x, target)


# ---- Reshape, Flatten, Squeeze, Unsqueeze


@rule(P.Reshape(P.one_of(*RESHAPES)(name="inner", shared=True), shape, name="outer"), set="default")
def reshape_reshape(op, inner, shape, outer):
    """A Reshape of a Reshape, or of what only changes the shape, is the last one."""
    sizes = ints_of(shape)
    if attribute_of(outer, "allowzero", 0) or (sizes is not None and 0 not in sizes):
        return op.Reshape(inner.inputs[0], shape, allowzero=attribute_of(outer, "allowzero"))
    result = moved(op, inner.inputs[0], [inner, outer])
    return no("it may copy a size of the first") if result is None else result


@rule(P.Reshape(x, shape, name="node"), set="default")
def reshape_nothing(op, x, shape, node):
    """A Reshape to the shape that a value has."""
    before, result = x.shape, node.outputs[0].shape
    if before is None or result is None or len(result) != len(before):
        return None
    if same_sizes(before, result):
        return x
    sizes = ints_of(shape)
    if sizes is None or len(sizes) != len(before) or sizes.count(-1) > 1:
        return None
    same = all(size in (0, -1) or size == known for size, known in zip(sizes, before))
    return x if same and not attribute_of(node, "allowzero", 0) else None


@rule(P.Reshape(x, P.one_of(*GIVING_SHAPES)(shared=True), name="node"), set="default", looks_further=True)
def reshape_to_computed_shape(op, x, node):
    """A shape that is computed although numbers, 0 and -1 say the same, perhaps of a tensor with more axes.

    Measured with onnxruntime 1.31: the groups of channels of an image of dynamic size 0.93 to 1.00 of the time, in two nodes less.
    """
    result = moved(op, x, [node])
    if result is None:
        result = with_ones(op, x, shape_after(node))
    # repeated heads have rules of their own
    is_repeated = producer_of(x, "Expand") is not None
    if result is None and not is_repeated and nodes_of_shape(node.inputs[1]) > len(node.inputs[1].uses()):
        result = parted(op, x, shape_after(node))
    return no("several sizes are computed") if result is None else result


def nodes_of_shape(shape: ir.Value) -> int:
    """How many nodes compute a shape and nothing else: the last one and those of its pieces that nothing else reads."""
    pieces = shape.producer().inputs if shape.producer().op_type == "Concat" else ()
    return 1 + sum(piece.producer() is not None and len(piece.uses()) == 1 for piece in pieces)


def parted(op, x: ir.Value, shape: list[Size] | None) -> ir.Value | None:
    """*x* in a *shape* in which one axis of static size is several, or several are one; None when more is new.

    The axes behind it keep their places, where 0 copies them, with axes of one element in front of it.
    """
    if shape is None or x.shape is None:
        return None
    pairs = list(zip(x.shape, shape))
    front = len(list(itertools.takewhile(lambda pair: is_same(*pair), pairs)))
    rest = list(zip(reversed(x.shape[front:]), reversed(shape[front:])))
    behind = len(list(itertools.takewhile(lambda pair: is_same(*pair), rest)))
    old, new = x.shape[front : len(x.shape) - behind], shape[front : len(shape) - behind]
    more = len(new) - len(old)
    if not more or not all(isinstance(size, int) and size for size in (*old, *new)):
        return None
    if math.prod(old) != math.prod(new):
        return None
    added = list(range(front, front + abs(more)))
    if more > 0:
        return op.Reshape(op.Unsqueeze(x, added), [*[0] * front, *new, *[0] * behind])
    return op.Squeeze(op.Reshape(x, [*[0] * front, *[1] * -more, *new, *[0] * behind]), added)


def with_ones(op, x: ir.Value, shape: list[Size] | None) -> ir.Value | None:
    """*x* with axes of one element, in a *shape* of which nothing else is new; None when more is new."""
    if shape is None or x.shape is None:
        return None
    added, before = [], list(x.shape)
    for axis, size in enumerate(shape):
        if before and is_same(size, before[0]):
            before.pop(0)
        elif isinstance(size, int) and size == 1:
            added.append(axis)
        else:
            return None
    return op.Unsqueeze(x, added) if added and not before else None


@rule(P.Squeeze(P.Unsqueeze(x, axes, shared=True), var("squeezed")), set="default")
def squeeze_unsqueeze(op, x, axes, squeezed):
    """A Squeeze of axes that an Unsqueeze adds: those are not added."""
    added, removed = ints_of(axes), ints_of(squeezed)
    if added is None or removed is None or x.shape is None:
        return no("axes or rank unknown")
    width = len(x.shape) + len(added)
    added, removed = ({axis % width for axis in items} for items in (added, removed))
    if not removed <= added:
        return no("another axis is removed")
    left = [axis for axis in range(width) if axis not in removed]
    kept = [left.index(axis) for axis in sorted(added - removed)]
    return op.Unsqueeze(x, kept) if kept else x


@rule(P.Unsqueeze(P.Squeeze(x, axes, shared=True), var("added")), set="default")
def unsqueeze_squeeze(op, x, axes, added):
    """An Unsqueeze of the axes that a Squeeze removes."""
    removed, back = ints_of(axes), ints_of(added)
    if removed is None or back is None or x.shape is None:
        return no("axes or rank unknown")
    if len(removed) != len(back):
        return no("more axes, or fewer")
    width = len(x.shape)
    same = sorted(axis % width for axis in removed) == sorted(axis % width for axis in back)
    return x if same else None


@rule(P.Unsqueeze(P.Unsqueeze(x, axes, shared=True), var("added")), set="default")
def unsqueeze_unsqueeze(op, x, axes, added):
    """Two Unsqueezes are one."""
    first, second = ints_of(axes), ints_of(added)
    if first is None or second is None or x.shape is None:
        return no("axes or rank unknown")
    return op.Unsqueeze(x, unsqueezed_axes(first, second, len(x.shape) + len(first)))


@rule(P.Squeeze(P.Squeeze(x, axes), var("removed")), set="default")
def squeeze_squeeze(op, x, axes, removed):
    """Two Squeezes are one."""
    first, second = ints_of(axes), ints_of(removed)
    if first is None or second is None or x.shape is None:
        return no("axes or rank unknown")
    first = [axis % len(x.shape) for axis in first]
    left = [axis for axis in range(len(x.shape)) if axis not in first]
    return op.Squeeze(x, sorted([*first, *(left[axis] for axis in second)]))


@rule(
    P.one_of("Flatten", "Squeeze", "Unsqueeze")(
        P.one_of(*RESHAPES)(name="inner"), optional("axes"), name="outer"
    ),
    set="default",
)
def reshape_twice(op, inner, outer):
    """Two operators that only change the shape are one Reshape."""
    result = moved(op, inner.inputs[0], [inner, outer])
    return no("several sizes are not static") if result is None else result


# ---- reductions, elementwise operators

PLACES = ("ArgMax", "ArgMin")
"""Reductions whose axis is an attribute."""


@rule(
    P.one_of("Reshape", "Squeeze")(P.one_of(*REDUCTIONS, *PLACES)(name="node"), optional("axes")),
    set="default",
)
def squeezed_reduction(op, node, root):
    """A reduction whose axes are removed afterwards does not keep them."""
    reduced = reduced_axes(node)
    if reduced is None or not attribute_of(node, "keepdims", 1):
        return no("the axes are unknown, or not kept")
    shape = node.inputs[0].shape
    if not same_sizes(
        root.outputs[0].shape, [size for axis, size in enumerate(shape) if axis not in reduced]
    ):
        return no("other axes are removed")
    return again(op, node, node.inputs, keepdims=0)


@rule(
    P.one_of("Reshape", "Unsqueeze")(P.one_of(*REDUCTIONS, *PLACES)(name="node"), var("axes")), set="default"
)
def unsqueezed_reduction(op, node, root):
    """A reduction whose axes are added again keeps them."""
    reduced = reduced_axes(node)
    if reduced is None or attribute_of(node, "keepdims", 1):
        return no("the axes are unknown, or kept")
    shape = node.inputs[0].shape
    kept = [1 if axis in reduced else size for axis, size in enumerate(shape)]
    if not same_sizes(root.outputs[0].shape, kept):
        return no("other axes are added")
    return again(op, node, node.inputs, keepdims=1)


def reduced_axes(node: ir.Node) -> set[int] | None:
    """The axes that a reduction removes, None when they are not known."""
    shape = node.inputs[0].shape
    given = [attribute_of(node, "axis", 0)] if node.op_type in PLACES else told_axes(node)
    return {axis % len(shape) for axis in given} if given and shape is not None else None


RESHAPED = P.one_of(*RESHAPES)(name="inner")


@rule(P.one_of(*RESHAPES)(one_or_two(RESHAPED), optional("axes"), name="outer"), set="default")
def reshape_elementwise_reshape(op, inner, first, second, outer):
    """Two changes of the shape around one or two elementwise operators are one after them, or none."""
    result = redone(op, (first, second), inner.outputs[0], inner.inputs[0], lambda constant: None)
    return (
        no("a constant has several elements") if result is None else reshaped_once(op, result, inner, outer)
    )


@rule(P.one_of(*RESHAPES)(gated(RESHAPED), optional("axes"), name="outer"), set="default")
def reshape_gate_reshape(op, inner, gate, product, outer):
    """The same around a value times a function of it, as x * sigmoid(x).

    Measured with onnxruntime 1.31: EfficientNetB0 of Keras 308 nodes instead of 340, 1.00 of the time.
    """
    x = inner.inputs[0]
    return reshaped_once(op, again(op, product, [x, again(op, gate, [x])]), inner, outer)


def reshaped_once(op, result: ir.Value, inner: ir.Node, outer: ir.Node) -> ir.Value | Declined:
    """A value, computed of what *inner* reshapes, in the shape that *outer* gives."""
    x = inner.inputs[0]
    if same_sizes(x.shape, outer.outputs[0].shape):
        return result
    target = reshape_target(
        x.shape, outer.outputs[0].shape, not (refuses_empty(inner) or refuses_empty(outer))
    )
    return no("several sizes are not static") if target is None else op.Reshape(result, target)


@rule(
    P.one_of(*BINARY)(
        P.one_of("Reshape", "Squeeze", "Unsqueeze")(x, shape, name="left"),
        P.one_of("Reshape", "Squeeze", "Unsqueeze")(y, shape, name="right"),
        name="node",
    ),
    set="default",
)
def reshaped_operands(op, x, y, shape, left, right, node):
    """Two operands whose shapes are changed alike: the result's is."""
    if left.op_type != right.op_type or x.shape is None or y.shape is None:
        return no("their shapes are not changed alike")
    fits = same_sizes(x.shape, y.shape) if left.op_type == "Reshape" else len(x.shape) == len(y.shape)
    if not fits:
        return no("they have other shapes")
    operands = [x, y] if node.inputs[0] is left.outputs[0] else [y, x]
    return again(op, left, [again(op, node, operands), shape])


# ---- Expand


@rule(P.Expand(x, shape, name="node"), set="default")
def expand_nothing(op, x, shape, node):
    """An Expand to the shape that a value has."""
    return x if has_shape_of(x, node) else None


@rule(P.Expand(P.Expand(x, var("first")), var("second")), set="default")
def expand_expand(op, x, first, second, root):
    """Two Expands are one."""
    result = root.outputs[0].shape
    if result is not None and result.is_static():
        return op.Expand(x, list(result))
    before, after = ints_of(first), ints_of(second)
    if before is None or after is None:
        return no("the shapes are computed")
    width = max(len(before), len(after))
    before, after = ([1] * (width - len(sizes)) + sizes for sizes in (before, after))
    return op.Expand(x, [a if b == 1 else b for a, b in zip(before, after)])


PIECE = 256
"""Elements in a row that are repeated, or that repeat one, from which on broadcasting is faster than Expand in all cases.

Measured with onnxruntime 1.31 on 40 shapes: 0.46 to 0.96 of the time above; below up to 1.27, with Where up to 1.55.
"""


def broadcasts_fast(shape: Sequence[Size] | None, result: Sequence[Size] | None) -> bool:
    """Whether the last axes, as far as all or none of them are repeated, have enough elements; an unknown size has."""
    if shape is None or result is None:
        return False
    pairs = sizes_of_both(shape, result)
    piece = list(itertools.takewhile(lambda pair: (pair[0] == 1) == (pairs[0][0] == 1), pairs))
    known = math.prod(new for _, new in piece if isinstance(new, int))
    unknown = any(not isinstance(new, int) for _, new in piece)
    is_little = all(isinstance(n, int) for n in result) and math.prod(result) <= 4 * PIECE
    return known >= PIECE or unknown or len(piece) == len(pairs) or is_little


def repeats_numbers(shape: Sequence[Size] | None, result: Sequence[Size] | None) -> bool:
    """Whether the last axes repeat each number, and no axis before them is repeated.

    Operators of two operands have a loop for one number. Measured with onnxruntime 1.31, six operators, rows of 2 to 768 elements: 0.37 to 0.93 of the
    time of Expand; beside another axis that is repeated up to 1.31, in a Where up to 1.22.
    """
    if shape is None or result is None:
        return False
    repeated = [old == 1 for old, _ in sizes_of_both(shape, result)]
    return repeated[:1] == [True] and repeated == sorted(repeated, reverse=True)


def sizes_of_both(shape: Sequence[Size], result: Sequence[Size]) -> list[tuple[Size, Size]]:
    """The sizes of the axes before and after, from the last on, without those of one element."""
    sizes = zip([1] * (len(result) - len(shape)) + list(shape), result)
    return [(old, new) for old, new in sizes if new != 1][::-1]


@rule(step(P.Expand(x, shape, name="expand", shared=True), "node"), set="default", looks_further=True)
def elementwise_of_expanded(op, x, shape, expand, node):
    """What is repeated is computed before, once for each element; a reader that broadcasts then needs no Expand.

    As grids of detectors are written: ``grid.expand(...) - 0.5``. Measured with onnxruntime 1.31: a product and an exponential 0.34 to 0.84 of the
    time, a grid 0.96 to 1.00; the quantiles of Gumbel, where the sign of ``-torch.ones_like(x)`` is not all that is read, 0.81 to 0.94.
    """
    dtype, expanded = node.outputs[0].dtype, expand.outputs[0]
    if number_of(x) is None and (len(expanded.uses()) > 1 or expanded.is_graph_output()):
        return no("all that is repeated is read, too, and it is no number")
    if x.dtype == ir.DataType.BOOL and (number_of(x) is None or dtype != x.dtype):
        return no("masks have rules of their own")
    if dtype is None or not computes(op, "Expand", dtype):
        return no("onnxruntime does not repeat this dtype")
    result = redone(op, [node], expanded, x, lambda constant: None)
    return no("a constant of several elements") if result is None else op.Expand(result, shape)


EXPANDED = P.Expand(x, shape, name="expand", shared=True)


@rule(
    P.one_of(*BINARY)(EXPANDED, y, name="node") | P.one_of(*BINARY)(y, EXPANDED, name="node"),
    set="default",
    looks_further=True,
)
def expanded_operand(op, x, expand, node):
    """An operand that the other one broadcasts as far needs no Expand."""
    return without_expand(op, node, expand, x)


def without_expand(op, node: ir.Node, expand: ir.Node, x: ir.Value) -> ir.Value | None:
    """*node* of *x* instead of its *expand*, when each reader of that has a result of the same shape."""
    expanded = expand.outputs[0]
    is_fast = node.op_type in BINARY and repeats_numbers(x.shape, expanded.shape)
    if not is_fast and not broadcasts_fast(x.shape, expanded.shape):
        return no("the pieces that it repeats are small")
    if not all_readers(expanded, broadcasts, expanded, x.shape):
        return no("a result may be smaller")
    return of_less(op, node, expand, x)


def broadcasts(node: ir.Node, index: int, expanded: ir.Value, shape: Sequence[Size]) -> bool:
    """Whether a reader of *expanded* gives the same result with one of this *shape*; the first operand of PRelu has its shape."""
    if not is_of(node, *BINARY, "Where"):
        return False
    if node.op_type == "PRelu" and not index:
        return False
    shapes = [shape if value is expanded else value.shape for value in node.inputs]
    return same_sizes(broadcast(shapes), node.outputs[0].shape)


@rule(P.Where(name="node"), set="default", looks_further=True)
def expanded_operands_of_where(op, node):
    """The same for the operands of Where."""
    for expand in (producer_of(value, "Expand") for value in node.inputs):
        if expand is not None:
            result = without_expand(op, node, expand, expand.inputs[0])
            if isinstance(result, ir.Value):
                return result
    return None


REPEATED = P.one_of("Expand", "Tile")(x, shape, name="expand", shared=True)
MASK = P.Where(REPEATED, const("a"), const("b"), name="node", shared=True)
ROWS = P.Gather(var("table"), REPEATED, name="node", shared=True)


@rule(P.Add(y, MASK | ROWS), set="default", looks_further=True)
def add_of_expanded(op, x, y, table, a, b, expand, node):
    """A mask of two numbers, or rows that are looked up, that an addition broadcasts as far need no Expand, nor a Tile.

    Only where matrices are repeated whole: operators of attention take no mask of one query for all.
    """
    value = node.outputs[0]
    shape = shape_of_less(x, expand, table, a, b, node)
    if shape is None or value.shape is None or not same_sizes(shape[-2:], value.shape[-2:]):
        return no("rows or columns are repeated, or elements in turns")
    if not broadcasts_fast(shape, value.shape):
        return no("the pieces that it repeats are small")
    if not all_readers(value, broadcasts, value, shape):
        return no("a result may be smaller")
    return op.Add(y, of_less(op, node, expand, x))


def shape_of_less(x: ir.Value, expand: ir.Node, table, a, b, node: ir.Node) -> list[Size] | None:
    """The shape of what a Where of two numbers, or a Gather, makes of *x* instead of its *expand*, None when it is not known."""
    result = expand.outputs[0].shape
    if x.shape is None or result is None:
        return None
    if expand.op_type == "Tile" and not all(
        old == 1 or is_same(old, new) for old, new in zip(x.shape, result)
    ):
        return None
    if table is not None:
        along = table.shape is not None and attribute_of(node, "axis", 0) in (0, -len(table.shape))
        return [*x.shape, *table.shape[1:]] if along else None
    if number_of(a) is None or number_of(b) is None or len(x.shape) < max(len(a.shape), len(b.shape)):
        return None
    return list(x.shape)


def of_less(op, node: ir.Node, expand: ir.Node, x: ir.Value) -> ir.Value:
    """*node* of *x* instead of its *expand*."""
    return again(op, node, [x if value is expand.outputs[0] else value for value in node.inputs])
