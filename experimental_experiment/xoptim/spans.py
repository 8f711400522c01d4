"""Spans: what a Slice takes along which axis, and the axes of nodes."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.better_shapes import are_backwards_to_the_end
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, INT64_MIN
from experimental_experiment.xoptim.pattern import P, attribute_of, const, ints_of, optional

ENDLESS = 1 << 31
"""An end of this size or more is behind every axis."""

PLACES = const("starts"), const("ends"), optional("axes"), optional("steps")
"""The inputs of a Slice of constant positions."""

Span = tuple[int, int, int]
"""Start, end and step of a slice along one axis."""


def slice_of(value, name: str):
    """A Slice of constant positions."""
    return P.Slice(value, *PLACES, name=name)


def spans_of(node: ir.Node) -> dict[int, Span] | None:
    """What a Slice takes along which axis, None when that is not constant, the rank not known, or runtimes take other elements."""
    shape = node.inputs[0].shape
    values = node.inputs[1:]
    given = [ints_of(value) for value in values]
    if shape is None or not given or any(a is None and b is not None for a, b in zip(given, values)):
        return None
    starts, ends, axes, steps = given + [None] * (4 - len(given))
    axes = range(len(starts)) if axes is None else [axis % len(shape) for axis in axes]
    if steps is not None and are_backwards_to_the_end(ends, steps):
        return None
    return dict(zip(axes, zip(starts, ends, steps or [1] * len(starts), strict=True), strict=True))


def sliced(op, x: ir.Value, spans: dict[int, Span]) -> ir.Value:
    """The Slice of *x* that takes *spans*."""
    axes = sorted(spans)
    starts, ends, steps = (list(column) for column in zip(*(spans[axis] for axis in axes)))
    return op.Slice(x, starts, ends, axes, None if set(steps) == {1} else steps)


def takes_all(span: Span, size: int | ir.SymbolicDim) -> bool:
    """Whether a slice of step 1 takes all of an axis."""
    start, end, _ = span
    if isinstance(size, int) and size >= 0:  # that of a node that no runtime runs is not
        return slice(start, end).indices(size) == (0, size, 1)
    return start == 0 and end >= ENDLESS


def takes_along(spans: dict[int, Span] | None, axis: int) -> bool:
    """Whether a Slice takes elements that follow one another along one axis."""
    return spans is not None and list(spans) == [axis] and spans[axis][2] == 1


def span_along(node: ir.Node, axis: int) -> tuple[int, int] | None:
    """Start and end of a Slice of neighbours along this axis alone, counted from the first one; None otherwise."""
    spans = spans_of(node)
    if spans is None or not takes_along(spans, axis):
        return None
    start, end, _ = spans[axis]
    size = node.inputs[0].shape[axis]
    if isinstance(size, int):
        start, end, _ = slice(start, end).indices(size)
    return (start, end) if 0 <= start <= end else None


def elements(axis: range, span: Span) -> range:
    """What a slice takes of an axis: backwards from before the first element it is that one, where Python takes nothing."""
    start, end, step = span
    return axis[max(start, -len(axis)) if step < 0 else start : end : step]


def composed(first: Span, second: Span, size: int | ir.SymbolicDim) -> Span | None:
    """The slice that takes *second* of what *first* takes of an axis, None when that depends on its size."""
    if isinstance(size, int):
        taken = elements(elements(range(size), first), second)
        if len(taken) == 0:
            return 0, 0, 1
    elif min(*first, *second) < 0:
        return None
    else:
        taken = elements(range(*first), second)
    end = INT64_MIN if taken.stop < 0 else INT64_MAX if taken.stop >= ENDLESS else taken.stop
    return min(taken.start, INT64_MAX), end, taken.step


def axis_of(node: ir.Node) -> int | None:
    """The axis of a node counted from the first one, None when the rank is unknown."""
    axis, shape = attribute_of(node, "axis", 0), node.inputs[0].shape
    return axis if axis >= 0 else None if shape is None else axis + len(shape)


def told_axes(node: ir.Node) -> list[int] | None:
    """The axes that a node is told, by an input or, before that, by an attribute; none when it is told none, None when they are not known."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return ints_of(node.inputs[1])
    return attribute_of(node, "axes", [])


def shape_span(node: ir.Node) -> tuple[int, int] | None:
    """The first axis that a Shape tells and the one after the last, None when the rank is unknown."""
    shape = node.inputs[0].shape
    if shape is None:
        return None
    start, end, _ = slice(attribute_of(node, "start"), attribute_of(node, "end")).indices(len(shape))
    return start, max(start, end)
