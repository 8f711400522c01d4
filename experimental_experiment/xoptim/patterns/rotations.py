"""Pairs of numbers that turn, as rotary embeddings write them that know no tables of doubled angles.

``(a * cos - b * sin, b * cos + a * sin)`` of the halves of each head, of every two neighbours, or of complex numbers: one product of all,
one of the pairs the other way round. What is made of the tables is written once for all layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.pattern import P, attribute_of, ints_of, number_of, var
from experimental_experiment.xoptim.rules import no, rule
from experimental_experiment.xoptim.shapes import same_shape_of_elements
from experimental_experiment.xoptim.spans import spans_of

sin = var("sin")

HALVES, ELEMENTS, EVERY_OTHER = "halves", "elements", "every other"
"""What the members of pairs are of their last axis: its halves, its two elements, its even and odd ones."""


def sum_of_products(name: str):
    """The sum or the difference of two products."""
    products = P.Mul(var(f"{name}_a"), var(f"{name}_b")), P.Mul(var(f"{name}_c"), var(f"{name}_d"))
    return P.Add(*products, name=name) | P.Sub(*products, name=name)


def in_pair(pattern):
    """A member of pairs as it stands, or with an axis for the pair."""
    return pattern | P.Unsqueeze(pattern, var("axes"))


FIRST, SECOND = sum_of_products("first"), sum_of_products("second")


@dataclasses.dataclass(frozen=True)
class Turn:
    """What four products turn.

    Attributes:
        x: what holds the pairs.
        kind: where their members stand in it: `HALVES`, `ELEMENTS` or `EVERY_OTHER`.
        cos, sin: the tables.
        is_backwards: whether it turns by the opposite angles.
    """

    x: ir.Value
    kind: str
    cos: ir.Value
    sin: ir.Value
    is_backwards: bool


@rule(P.Concat(FIRST, SECOND, name="joined"), set="default", looks_further=True)
def rotation_of_halves(op, found, joined):
    """The halves of each head, turned by four products, are turned by two, whose tables hold each angle twice for all layers.

    Measured with onnxruntime 1.31: 0.80 to 0.87 of the time.
    """
    turn, shape = turn_of(found), joined.outputs[0].shape
    if turn is None or turn.kind != HALVES or shape is None:
        return no("no halves that turn")
    if attribute_of(joined, "axis") not in (-1, len(shape) - 1):
        return no("the halves are joined elsewhere")
    half = turn.x.shape[-1] // 2
    if half == 1:
        return no("the axis of the pairs of neighbours")
    if not all(ends_with(table, [half]) for table in (turn.cos, turn.sin)):
        return no("the tables have other sizes")
    cos, sin = (op.once("Concat", table, table, axis=-1) for table in (turn.cos, turn.sin))
    first, second = op.Split(turn.x, axis=-1, num_outputs=2, outputs=2)
    swapped = op.Concat(second, first, axis=-1)
    signs = [-1.0] * half + [1.0] * half
    return turned(op, turn, turn.x, swapped, cos, sin, signs)


@rule(
    P.Reshape(P.Concat(in_pair(FIRST), in_pair(SECOND), name="joined"), var("shape")),
    set="default",
    looks_further=True,
)
def rotation_of_pairs(op, found, joined, root):
    """The same of neighbours, complex numbers or every other element that is stacked again.

    Measured with onnxruntime 1.31: 0.80 to 0.94 of the time for complex numbers, 0.77 to 0.89 for elements.
    """
    turn = turn_of(found)
    shape = joined.outputs[0].shape
    if (
        turn is None
        or shape is None
        or len(shape) < 2
        or attribute_of(joined, "axis") not in (-1, len(shape) - 1)
    ):
        return no("no pairs that turn")
    *others, half, width = shape
    if (
        width != 2
        or not isinstance(half, int)
        or not same_shape_of_elements(root.outputs[0].shape, [*others, 2 * half])
    ):
        return no("the pairs are not joined again")
    axes = found["axes"]
    is_apart = axes is None and turn.kind == HALVES  # complex numbers: the axis of the pair stays
    if not is_apart and (
        turn.kind == HALVES or axes is None or ints_of(axes) not in ([-1], [len(others) + 1])
    ):
        return no("the pairs stand elsewhere")
    size = [half, 1] if is_apart else [half]
    if not all(ends_with(table, size) for table in (turn.cos, turn.sin)):
        return no("the tables have other sizes")
    own = [2 * half] if turn.kind == EVERY_OTHER else [half, 2]
    if not ends_with(turn.x, own) or len(turn.x.shape) != len(others) + len(own):
        return no("the tables have more axes or pairs")
    pairs = turn.x if turn.kind != EVERY_OTHER else op.Reshape(turn.x, [*[0] * len(others), half, 2])
    x = turn.x if turn.kind == EVERY_OTHER else op.Reshape(pairs, [*[0] * len(others), 2 * half])
    cos, sin = (doubled(op, table, is_apart) for table in (turn.cos, turn.sin))
    return turned(op, turn, x, neighbours_swapped(op, pairs), cos, sin, [-1.0, 1.0] * half)


ODD = P.Unsqueeze(P.Neg(var("odd")), var("axes"))
EVEN = P.Unsqueeze(var("even"), var("axes")) | var("column")
EVERY_TWO = P.Reshape(P.Concat(ODD, EVEN, name="joined"), var("shape"), name="flat")


@rule(P.Mul(EVERY_TWO, sin), set="default", looks_further=True)
def rotation_of_every_two(op, odd, even, column, sin, axes, joined, flat):
    """``stack((-x[..., 1::2], x[..., ::2]))`` times the sine, as in GPT-J: pairs the other way round, the sign in the table.

    Also of elements that were unbound, as in diffusers. Measured with onnxruntime 1.31, the rotation as a whole: 0.56 to 0.79 of the time, 0.92 to
    1.01 for elements.
    """
    second = part_of(odd)
    first = part_of(even or column)
    if even is None and first is not None and first[1] == HALVES and first[0].shape[-1] == 2:
        first = (first[0], ELEMENTS, first[2])  # the axis of the pair stays
    if first is None or second is None or first[1] not in (EVERY_OTHER, ELEMENTS):
        return no("not every other element")
    x, kind, _ = first
    if kind == ELEMENTS and len(x.shape) < 2:
        return no("a single pair")
    if second != (x, kind, 1) or first[2] != 0 or (column is not None and kind != ELEMENTS):
        return no("not every other element")
    others = list(x.shape[:-1] if kind == EVERY_OTHER else x.shape[:-2])
    half = x.shape[-1] // 2 if kind == EVERY_OTHER else x.shape[-2]
    last = len(others) + 1
    if ints_of(axes) not in ([-1], [last]) or attribute_of(joined, "axis") not in (-1, last):
        return no("the pairs stand elsewhere")
    if not isinstance(half, int) or not same_shape_of_elements(flat.outputs[0].shape, [*others, 2 * half]):
        return no("the pairs are not joined again")
    if not ends_with(sin, [2 * half]):
        return no("the table has another size")
    pairs = op.Reshape(x, [*[0] * len(others), half, 2]) if kind == EVERY_OTHER else x
    signs = op.constant([-1.0, 1.0] * half, sin.dtype)
    return op.Mul(neighbours_swapped(op, pairs), op.once("Mul", sin, signs))


# ---- what is turned


def turn_of(found: Mapping[str, Any]) -> Turn | None:
    """What two sums of products turn, None when they do not."""
    sums = []
    for name in ("first", "second"):
        sign = -1 if found[name].op_type == "Sub" else 1
        factors = [unsigned(found[f"{name}_{letter}"]) for letter in "abcd"]
        sums.append([(1, *factors[:2]), (sign, *factors[2:])])
    first, *others = [
        [part[:2] for part in (part_of(value) for _, value in factors) if part is not None]
        for terms in sums
        for _, *factors in terms
    ]
    shared = [holder for holder in first if all(holder in other for other in others)]
    if not shared:
        return None
    # the numbers of a complex table are pairs, too, which all heads share
    x, kind = min(shared, key=lambda holder: list(holder[0].shape).count(1))
    rows = [by_member(x, terms) for terms in sums]
    if any(set(row) != {0, 1} for row in rows):
        return None
    (straight, cos), (back, sin) = rows[0][0], rows[0][1]
    (other, same), (forth, own) = rows[1][1], rows[1][0]
    if not straight == other == 1 or cos is not same or sin is not own or back == forth:
        return None
    return Turn(x, kind, cos, sin, back == 1)


def unsigned(value: ir.Value) -> tuple[int, ir.Value]:
    """A factor as its sign and the rest: a Neg before the product is one behind it."""
    node = producer_of(value, "Neg")
    return (1, value) if node is None else (-1, node.inputs[0])


def by_member(x: ir.Value, terms: list) -> dict[int, tuple[int, ir.Value]]:
    """The sign and the table of each member of the pairs of *x* in a sum; of a product of two members none: neither is a table."""
    row = {}
    for sign, *factors in terms:
        members = [
            (part_of(member), other * one, table)
            for (one, member), (other, table) in (factors, factors[::-1])
        ]
        of_x = [
            (part[2], factor, table) for part, factor, table in members if part is not None and part[0] is x
        ]
        if len(of_x) == 1:
            [(place, factor, table)] = of_x
            row[place] = sign * factor, table
    return row


def part_of(value: ir.Value) -> tuple[ir.Value, str, int] | None:
    """What a value is the first or the second member of all pairs of, where these stand, and which member; None of anything else."""
    node = producer_of(value)
    if node is None or not node.inputs or node.inputs[0] is None or node.inputs[0].shape is None:
        return None
    x = node.inputs[0]
    last = len(x.shape) - 1
    width = x.shape[-1] if last >= 0 else None
    if not isinstance(width, int) or width % 2 or not width:
        return None
    if node.op_type == "Split" and attribute_of(node, "axis", 0) in (-1, last) and len(node.outputs) == 2:
        return (x, HALVES, value.index()) if ends_with(value, [width // 2]) else None
    if node.op_type == "Gather" and attribute_of(node, "axis", 0) in (-1, last) and width == 2:
        number = number_of(node.inputs[1]) if value.shape is not None and len(value.shape) == last else None
        return None if number is None else (x, ELEMENTS, int(number) % 2)
    if node.op_type == "Slice":
        spans = spans_of(node)
        if spans is None or list(spans) != [last]:
            return None
        taken = range(width)[slice(*spans[last])]
        places = {
            (HALVES, 0): range(width // 2),
            (HALVES, 1): range(width // 2, width),
            (EVERY_OTHER, 0): range(0, width, 2),
            (EVERY_OTHER, 1): range(1, width, 2),
        }
        return next(((x, *place) for place, numbers in places.items() if taken == numbers), None)
    return None


def ends_with(value: ir.Value, sizes: list[int]) -> bool:
    """Whether the last axes of a value are known to have these sizes, and its dtype is known."""
    return value.dtype is not None and value.shape is not None and list(value.shape[-len(sizes) :]) == sizes


# ---- what is written


def turned(op, turn: Turn, x, swapped, cos, sin, signs: list[float]) -> ir.Value:
    """``x * cos + swapped * signed sin``."""
    signs = [-sign for sign in signs] if turn.is_backwards else signs
    return op.Add(op.Mul(x, cos), op.Mul(swapped, op.once("Mul", sin, op.constant(signs, sin.dtype))))


def neighbours_swapped(op, pairs: ir.Value) -> ir.Value:
    """[..., count, 2] as [..., 2 * count], the members of each pair the other way round."""
    first, second = op.Split(pairs, axis=-1, num_outputs=2, outputs=2)
    return op.Reshape(op.Concat(second, first, axis=-1), [*[0] * (len(pairs.shape) - 2), 2 * pairs.shape[-2]])


def doubled(op, table: ir.Value, is_apart: bool) -> ir.Value:
    """[..., count], or [..., count, 1], as [..., 2 * count], each number twice in a row; once for all layers."""
    axes = len(table.shape) - 1 if is_apart else len(table.shape)
    count = table.shape[axes - 1]
    column = table if is_apart else op.once("Unsqueeze", table, op.constant([axes]))
    both = op.once("Concat", column, column, axis=-1)
    return op.once("Reshape", both, op.constant([*[0] * (axes - 1), 2 * count]))
