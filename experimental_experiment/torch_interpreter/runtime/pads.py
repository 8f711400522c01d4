"""Padding: amounts that crop, modes that an operator set lacks."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.runtime.table import before, repairs
from experimental_experiment.torch_interpreter.sizes import Size, counted, is_int, plus


@repairs(
    "Pad",
    when="mode edge or reflect, an amount is negative, and another one may reach what it takes away",
    because="it crops first, and refuses what then reaches too far",
    nodes=1,
)
def cropped_last(op, x, pads, value=None, axes=None, *, mode="constant"):
    """Pad by the amounts that are not negative, then a Slice."""
    amounts = numbers_of(op, pads)
    crops = [isinstance(amount, int) and amount < 0 for amount in amounts]
    if mode not in ("edge", "reflect") or not any(crops):
        return None
    if keeps_what_is_read(x, amounts, axes, mode):
        return None
    kept = [0 if crop else amount for crop, amount in zip(crops, amounts)]
    if not all(is_int(amount, 0) for amount in kept):
        x = op.Pad(x, op.shape(kept), None, axes, mode=mode)
    padded = range(rank(x)) if axes is None else axes.const_value.numpy().tolist()
    begin, end = (
        [-amount if crop else 0 for crop, amount in zip(crops[half], amounts[half])]
        for half in (slice(len(padded)), slice(len(padded), None))
    )
    bounds = [bound for bound in zip(begin, end, padded) if bound[0] or bound[1]]
    starts = [start for start, _, _ in bounds]
    ends = [-back if back else INT64_MAX for _, back, _ in bounds]
    return op.Slice(x, starts, ends, [axis for _, _, axis in bounds])


def keeps_what_is_read(x: ir.Value, amounts: list[Size], axes: ir.Value | None, mode: str) -> bool:
    """Whether the elements that each axis is continued with are certainly among those that the negative amounts leave."""
    padded = range(rank(x)) if axes is None else axes.const_value.numpy().tolist()
    for axis, *both in zip(padded, amounts, amounts[len(padded) :]):
        size = x.shape[axis]
        if not all(isinstance(number, int) for number in (size, *both)):
            return False
        left = size + sum(min(amount, 0) for amount in both)
        if left < 1 or (mode == "reflect" and max(both) >= left):
            return False
    return True


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
    node = producer_of(pads, "Concat")
    if node is not None:
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


def wrapped(op, positions, size, first, last):
    """Circular padding: torch crops first, then positions are modulo what is left."""
    start, stop = (op.Max(op.Neg(op.constant(amount)), 0) for amount in (first, last))
    return op.Add(op.Mod(op.Sub(positions, start), op.Sub(op.Sub(op.constant(size), start), stop)), start)
