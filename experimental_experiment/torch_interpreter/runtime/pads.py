"""Padding: amounts that crop, modes that an operator set lacks."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.runtime.table import before, repairs
from experimental_experiment.torch_interpreter.sizes import Size, counted, is_int, plus


@repairs(
    "Pad",
    when="mode edge or reflect, and an amount is negative",
    because="it crops first, and refuses what then reaches too far",
    nodes="8 to 10 an axis of dynamic size, otherwise 1",
)
def gathered_inside(op, x, pads, value=None, axes=None, *, mode="constant"):
    """The elements at positions that are moved into each axis."""
    position = {"edge": repeated, "reflect": mirrored}.get(mode)
    amounts = numbers_of(op, pads)
    if position is None or not any(isinstance(amount, int) and amount < 0 for amount in amounts):
        return None
    return gathered(op, x, amounts, axes, position)


@repairs(
    "Pad",
    when="mode wrap of a tensor without elements",
    because="it is refused",
    nodes="1 an axis",
)
def wrapped_nothing(op, x, pads, value=None, axes=None, *, mode="constant"):
    """The elements at positions modulo each axis."""
    if mode != "wrap" or 0 not in x.shape:
        return None
    return gathered(op, x, numbers_of(op, pads), axes, wrapped)


@before(
    19,
    "Pad",
    when="mode wrap",
    because="the mode does not exist",
    nodes="10 an axis of dynamic size, otherwise 1",
)
def gathered_around(op, x, pads, value=None, axes=None, *, mode="constant"):
    """The elements at positions modulo each axis."""
    return gathered(op, x, numbers_of(op, pads), axes, wrapped) if mode == "wrap" else None


def numbers_of(op, pads: ir.Value) -> list[Size]:
    """The numbers of a vector, those that are not known now as 0-d values."""
    if pads.const_value is not None:
        return pads.const_value.numpy().tolist()
    node = pads.producer()
    if node is not None and node.op_type == "Concat":
        return [amount for part in node.inputs for amount in numbers_of(op, part)]
    return [op.Gather(pads, position) for position in range(pads.shape[0])]


def gathered(op, x, amounts: list[Size], axes: ir.Value | None, position: Callable) -> ir.Value:
    """Pad by gathering, on each axis, the positions from -begin to size + end as *position* brings them inside."""
    found = range(rank(x)) if axes is None else axes.const_value.numpy().tolist()
    for axis, first, last in zip(found, amounts, amounts[len(found) :]):
        if is_int(first, 0) and is_int(last, 0):
            continue
        size = op.size(x, axis)
        positions = op.Sub(counted(op, plus(op, plus(op, size, first), last)), first)
        x = op.Gather(x, position(op, positions, size, first, last), axis=axis)
    return x


def repeated(op, positions, size, first, last):
    """Replication: positions kept within the axis."""
    return op.Min(op.Max(positions, 0), op.Sub(op.constant(size), 1))


def mirrored(op, positions, size, first, last):
    """Reflection: positions folded at the first element, then at the last one."""
    end = op.Sub(op.constant(size), 1)
    return op.Sub(end, op.Abs(op.Sub(end, op.Abs(positions))))


def wrapped(op, positions, size, first, last):
    """Circular padding: torch crops first, then positions are modulo what is left."""
    start, stop = (op.Max(op.Neg(op.constant(amount)), 0) for amount in (first, last))
    return op.Add(op.Mod(op.Sub(positions, start), op.Sub(op.Sub(op.constant(size), start), stop)), start)
