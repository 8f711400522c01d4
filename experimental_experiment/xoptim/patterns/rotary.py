"""Rotary embedding: halves of each head turned by an angle that depends on the position.

As written by hand: ``x * cos + concat(-x[..., half:], x[..., :half]) * sin``, with tables that hold each angle twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter import sizes
from experimental_experiment.torch_interpreter.producers import attributes_of, producer_of
from experimental_experiment.xoptim.pattern import (
    P,
    attribute_of,
    const,
    constant_of,
    ints_of,
    number_of,
    var,
)
from experimental_experiment.xoptim.rules import no, rule
from experimental_experiment.xoptim.shapes import is_same, same_shape_of_elements, same_sizes, shape_after
from experimental_experiment.xoptim.spans import span_along, told_axes

x, cos, sin = var("x"), var("cos"), var("sin")
FIRST = P.Slice(x, ..., name="first") | P.Split(x, ..., name="first")
SECOND = P.Slice(x, ..., name="second") | P.Split(x, ..., name="second", output=1)
TURNED = P.Mul(P.Concat(P.Neg(SECOND), FIRST, name="turned"), sin, name="product")
SIGNED = P.Mul(sin, const("signs"), shared=True) | const("signed")
SWAPPED = P.Mul(P.Concat(SECOND, FIRST, name="turned"), SIGNED)
MEMBERS = [
    P.Split(var("pairs"), ..., name=name, output=place) for place, name in enumerate(("first", "second"))
]
NEIGHBOURS = P.Mul(P.Reshape(P.Concat(*MEMBERS[::-1], name="turned"), var("joined"), name="flat"), SIGNED)
ROTATED = P.Add(P.Mul(x, cos), TURNED | SWAPPED | NEIGHBOURS)


@rule(ROTATED, set="default", since=23, looks_further=True)
def rotary_embedding(op, x, found):
    """The operator of opset 23, with tables of each angle once, which all layers share.

    Measured with onnxruntime 1.31: 0.39 of the time for one token, 0.34 for 128.
    """
    rotation = rotation_in(op, found)
    if rotation is None:
        return no("no halves or neighbours, or tables of other angles")
    return by_operator(op, x, rotation, *(of_batch(op, table, x) for table in rotation.tables))


@rule(P.Add(P.Mul(x, cos), TURNED), set="default", before=23)
def rotation_without_neg(op, x, sin, first, second, turned, product):
    """The sign goes to the table, which all layers share: ``x * cos + concat(x[..., half:], x[..., :half]) * signed sin``.

    Measured with onnxruntime 1.31: 0.96 of the time for one token, 0.93 for 128.
    """
    half = half_of(x, first, second, turned)
    if half is None or sin.dtype is None or not sin.shape or not is_same(sin.shape[-1], 2 * half):
        return no("no halves")
    signs = op.constant([-1.0] * half + [1.0] * half, sin.dtype)
    left, right = op.Split(x, axis=-1, num_outputs=2, outputs=2)
    return {product.outputs[0]: op.Mul(op.Concat(right, left, axis=-1), op.once("Mul", sin, signs))}


def half_of(x: ir.Value, first: ir.Node, second: ir.Node, turned: ir.Node) -> int | None:
    """Half the size of the last axis, when these nodes are the two halves of *x*, the second before the first."""
    if x.shape is None or not len(x.shape) or not isinstance(x.shape[-1], int) or x.shape[-1] % 2:
        return None
    width, last = x.shape[-1], len(x.shape) - 1
    half = width // 2
    if attribute_of(turned, "axis") not in (-1, last):
        return None
    if first.op_type == "Split":
        sizes = ints_of(first.inputs[1]) if len(first.inputs) > 1 else attribute_of(first, "split")
        equal = first is second and len(first.outputs) == 2 and sizes in (None, [half, half])
        return half if equal and attribute_of(first, "axis", 0) in (-1, last) else None
    if second.op_type != "Slice" or not half:
        return None
    spans = span_along(first, last), span_along(second, last)
    return half if spans == ((0, half), (half, width)) else None


class Rotation(NamedTuple):
    """What turns the heads of [batch, heads, positions, size], or of [batch, positions, heads, size].

    Attributes:
        positions: the axis of the positions: 2 or 1.
        tables: cosine and sine of each angle once, [1 or batch, positions, size / 2].
        is_interleaved: whether neighbours turn, no halves.
    """

    positions: int
    tables: list[ir.Value]
    is_interleaved: bool


def rotation_in(op, found: Mapping[str, Any]) -> Rotation | None:
    """What a match of `ROTATED` says, None when it is no rotation, or one that the operators do not have."""
    x, cos, flat = (found[name] for name in ("x", "cos", "flat"))
    if (
        x.shape is None
        or len(x.shape) != 4
        or not isinstance(x.shape[-1], int)
        or x.dtype != ir.DataType.FLOAT
    ):
        return None
    half = x.shape[-1] // 2
    if flat is not None:
        if not are_neighbours(found):
            return None
    elif half_of(x, found["first"], found["second"], found["turned"]) is None:
        return None
    signed = sine_of(op, found, np.repeat([-1.0, 1.0], half) if flat is None else np.tile([-1.0, 1.0], half))
    if signed is None:
        return None
    sin, is_backwards = signed
    positions = next(
        (axis for axis in (2, 1) if all(stands_at(table, x, axis) for table in (cos, sin))), None
    )
    if positions is None:
        return None
    once = first_half if flat is None else first_of_pairs
    tables = []
    for table, sign in ((cos, 1), (sin, -1 if is_backwards else 1)):
        part = each_once(op, table, once)
        if part is None:
            return None
        tables.append(by_position(op, part if sign == 1 else op.Neg(part), positions))
    return Rotation(positions, tables, flat is not None)


def sine_of(op, found: Mapping[str, Any], signs: np.ndarray) -> tuple[ir.Value, bool] | None:
    """The table of the sine without these *signs*, and whether it has the opposite ones; None when it has others."""
    if found["signs"] is not None:
        given = constant_of(found["signs"]).numpy()
        if not 0 < given.ndim <= 4 or given.size != given.shape[-1]:  # along another axis, or one more
            return None
        given = given.reshape(-1)
        is_backwards = np.array_equal(given, -signs)
        return (found["sin"], is_backwards) if is_backwards or np.array_equal(given, signs) else None
    if found["signed"] is None:
        return found["sin"], False
    table = constant_of(found["signed"]).numpy()
    if table.shape[-1:] != signs.shape:
        return None
    key = "sine", found["signed"], signs.tobytes()
    return once_for_all(op, key, "sine", (table * signs).astype(table.dtype)), False


def are_neighbours(found: Mapping[str, Any]) -> bool:
    """Whether the pairs that are swapped are the neighbours of *x*, and stand as there in the end: all show the same elements."""
    x, pairs, first, second = (found[name] for name in ("x", "pairs", "first", "second"))
    if first is not second or len(first.outputs) != 2 or pairs.shape is None or len(pairs.shape) != 5:
        return False
    if (
        pairs.shape[-1] != 2
        or attribute_of(first, "axis", 0) not in (-1, 4)
        or attribute_of(found["turned"], "axis") not in (-1, 4)
    ):
        return False
    is_same_tensor = not {pairs, shown_by(pairs)}.isdisjoint({x, shown_by(x)})
    sizes = [*pairs.shape[:3], x.shape[-1]]
    return (
        is_same_tensor
        and pairs.shape[3] * 2 == x.shape[-1]
        and all(same_shape_of_elements(shape, x.shape) for shape in (sizes, shape_after(found["flat"])))
    )


def shown_by(value: ir.Value) -> ir.Value:
    """What a Reshape shows in another shape, or the value itself."""
    node = producer_of(value, "Reshape")
    return value if node is None else node.inputs[0]


def stands_at(table: ir.Value, x: ir.Value, axis: int) -> bool:
    """Whether a table has a row for each position of *x*, which stand at *axis*, the same one for all heads."""
    if table.shape is None or len(table.shape) > 4:
        return False
    shape = [*[1] * (4 - len(table.shape)), *table.shape]
    is_for_batch = shape[0] == 1 or is_same(shape[0], x.shape[0])
    return (
        is_for_batch
        and shape[3 - axis] == 1
        and is_same(shape[axis], x.shape[axis])
        and shape[3] == x.shape[3]
    )


def by_position(op, table: ir.Value, axis: int) -> ir.Value:
    """A table whose positions stand at *axis* of four as [1 or batch, positions, angles]."""
    heads = 3 - axis - (4 - len(table.shape))
    rows = table if heads < 0 else op.Squeeze(table, [heads])
    missing = 3 - len(rows.shape)
    return op.Unsqueeze(rows, list(range(missing))) if missing else rows


def by_operator(op, x: ir.Value, rotation: Rotation, *inputs: ir.Value, domain: str = "") -> ir.Value:
    """RotaryEmbedding of *x* and further inputs; heads that stand in their tokens are rows for it."""
    given: dict[str, Any] = {"interleaved": 1} if rotation.is_interleaved else {}
    if rotation.positions == 2:
        return op.RotaryEmbedding(x, *inputs, **given, domain=domain)
    heads, size = x.shape[2:]
    if not isinstance(heads, int):
        return no("the number of heads is unknown")
    rows = op.Reshape(x, [0, 0, heads * size])
    turned = op.RotaryEmbedding(rows, *inputs, num_heads=heads, **given, domain=domain)
    return op.Reshape(turned, [0, 0, heads, size])


# ---- each angle once


def each_once(op, table: ir.Value, once: Callable, reach: int = 8) -> ir.Value | None:
    """Half of the last axis, computed instead of the whole, where *once* says how each number stands there twice; else None."""
    part = once(op, table)
    node = producer_of(table)
    if part is not None or node is None or not reach:
        return part
    if node.op_type in ("Cos", "Sin", "Cast", "Neg"):
        part = each_once(op, node.inputs[0], once, reach - 1)
        return part if part is None else op.emit(node.op_type, [part], attributes_of(node))
    if node.op_type == "Unsqueeze" and table.shape is not None:
        axes = told_axes(node)
        part = each_once(op, node.inputs[0], once, reach - 1)
        moves_last = axes is None or -1 in axes or len(table.shape) - 1 in axes
        return None if part is None or moves_last else op.Unsqueeze(part, axes)
    if node.op_type == "Mul":
        for value, factor in (node.inputs, node.inputs[::-1]):
            if number_of(factor) is not None:
                part = each_once(op, value, once, reach - 1)
                return part if part is None else op.Mul(part, factor)
    if (
        node.op_type == "Gather"
        and attribute_of(node, "axis", 0) == 0
        and constant_of(node.inputs[0]) is not None
    ):
        part = each_once(op, node.inputs[0], once, reach - 1) if len(node.inputs[0].shape) > 1 else None
        return part if part is None else op.Gather(part, node.inputs[1], axis=0)
    if node.op_type == "Slice" and table.shape is not None:  # the first positions of a table
        axes = ints_of(node.inputs[3]) if len(node.inputs) > 3 else None
        if not axes or not {-1, len(table.shape) - 1}.isdisjoint(axes):
            return None
        part = each_once(op, node.inputs[0], once, reach - 1)
        return part if part is None else op.Slice(part, *node.inputs[1:])
    return None


def first_half(op, table: ir.Value) -> ir.Value | None:
    """The first half of the last axis where the second one is the same, else None."""
    tensor = constant_of(table)
    if tensor is not None:
        array = tensor.numpy()
        parts = np.split(array, 2, axis=-1) if array.ndim and array.shape[-1] % 2 == 0 else [array, None]
        return constant_part(op, table, parts)
    node = producer_of(table, "Concat")
    if node is None:
        return None
    is_last = attribute_of(node, "axis") in (-1, len(table.shape) - 1)
    return node.inputs[0] if is_last and len(node.inputs) == 2 and len(set(node.inputs)) == 1 else None


def first_of_pairs(op, table: ir.Value) -> ir.Value | None:
    """Every second number where its neighbour is the same, else None."""
    tensor = constant_of(table)
    if tensor is not None:
        array = tensor.numpy()
        return constant_part(op, table, [array[..., ::2], array[..., 1::2]]) if array.ndim else None
    node = producer_of(table, "Reshape")
    twice = None if node is None else producer_of(node.inputs[0], "Concat", "Expand")
    if twice is None:
        return None
    before, after, last = twice.inputs[0].shape, twice.outputs[0].shape, table.shape[-1]
    if before is None or after is None or not isinstance(last, int):
        return None
    if len(before) != len(after) or list(before[-2:]) != [last // 2, 1] or list(after[-2:]) != [last // 2, 2]:
        return None
    is_repeated = same_sizes(before[:-1], after[:-1]) and len(set(twice.inputs)) == (
        1 if twice.op_type == "Concat" else 2
    )
    if not is_repeated:
        return None
    if same_sizes(before[:-2], table.shape[:-1]):
        return op.Squeeze(twice.inputs[0], [len(before) - 1])
    target = ints_of(node.inputs[1])  # it adds an axis too, that of the heads, or joins some
    if target is None or target[-1] != last or 0 in target[len(before) - 1 :]:
        return None
    return op.Reshape(twice.inputs[0], [*target[:-1], last // 2], allowzero=attribute_of(node, "allowzero"))


def constant_part(op, table: ir.Value, parts: Sequence[np.ndarray]) -> ir.Value | None:
    """The first part of a constant where the second one is the same, else None."""
    if not np.array_equal(*parts):
        return None
    # the strides tell halves from neighbours
    return once_for_all(op, ("part", table, parts[0].strides), f"{table.name}_once", parts[0])


def once_for_all(op, key: tuple, name: str, table: np.ndarray) -> ir.Value:
    """A table that is stored once for all layers, which ask for it by the same *key*."""
    known = op.context.written.get(key)
    if known is None or not known.is_initializer():
        known = op.context.written[key] = op.weight(name, ir.tensor(np.ascontiguousarray(table)))
    return known


def of_batch(op, table: ir.Value, x: ir.Value) -> ir.Value:
    """A table for each sample of the batch: the operator does not broadcast."""
    if is_same(table.shape[0], x.shape[0]):
        return table
    return op.Expand(table, op.Concat(batch_of(op, x), [1, 1], axis=0))


def batch_of(op, x: ir.Value) -> ir.Value:
    """The size of the first axis, read from an input of the model where one has it: the same for all layers."""
    name = None if isinstance(x.shape[0], int) else x.shape[0].value
    graph = op.context.root
    for value in graph.inputs if name is not None and isinstance(graph, ir.Graph) else ():
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and size.value == name:
                return sizes.shape_between(op, value, axis, axis + 1)
    return sizes.shape_between(op, x, 0, 1)
