"""Reshapes, squeezes, expansions."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, attribute_of, ints_of, var
from experimental_experiment.xoptim.rules import no, rule

x, shape, axes = var("x"), var("shape"), var("axes")


@rule(
    P.Reshape(
        P.one_of("Reshape", "Flatten", "Squeeze", "Unsqueeze")(name="inner", shared=True), shape, name="outer"
    ),
    set="default",
)
def reshape_reshape(op, inner, shape, outer):
    """A Reshape of a Reshape, or of what only changes the shape, is the last one, where it copies no size of the first."""
    sizes = ints_of(shape)
    if attribute_of(outer, "allowzero", 0) or (sizes is not None and 0 not in sizes):
        return op.Reshape(inner.inputs[0], shape, allowzero=attribute_of(outer, "allowzero"))
    return no("it may copy a size")


@rule(P.Reshape(x, shape, name="node"), set="default")
def reshape_nothing(op, x, shape, node):
    """A Reshape to the shape that a value has."""
    sizes, result = ints_of(shape), node.outputs[0].shape
    if sizes is None or x.shape is None or result is None or len(sizes) != len(x.shape):
        return None
    unknown = [k for k, size in enumerate(sizes) if size == -1]
    if len(unknown) > 1:
        return None
    same = all(size in (0, -1) or size == known for size, known in zip(sizes, x.shape))
    return x if same and not attribute_of(node, "allowzero", 0) else None


@rule(P.Squeeze(P.Unsqueeze(x, axes, shared=True), var("squeezed")), set="default")
def squeeze_unsqueeze(op, x, axes, squeezed):
    """A Squeeze of the axes that an Unsqueeze adds."""
    added, removed = ints_of(axes), ints_of(squeezed)
    if added is None or removed is None or x.shape is None:
        return no("axes or rank unknown")
    width = len(x.shape) + len(added)
    same = sorted(axis % width for axis in added) == sorted(axis % width for axis in removed)
    return x if same else None


@rule(P.Unsqueeze(P.Squeeze(x, axes, shared=True), var("added")), set="default")
def unsqueeze_squeeze(op, x, axes, added):
    """An Unsqueeze of the axes that a Squeeze removes."""
    removed, back = ints_of(axes), ints_of(added)
    if removed is None or back is None or x.shape is None:
        return no("axes or rank unknown")
    width = len(x.shape)
    same = sorted(axis % width for axis in removed) == sorted(axis % width for axis in back)
    return x if same else None


@rule(P.Unsqueeze(P.Unsqueeze(x, axes), var("added")), set="default")
def unsqueeze_unsqueeze(op, x, axes, added):
    """Two Unsqueezes are one."""
    first, second = ints_of(axes), ints_of(added)
    if first is None or second is None or x.shape is None:
        return no("axes or rank unknown")
    width = len(x.shape) + len(first)
    first = sorted(axis % width for axis in first)
    width += len(second)
    second = sorted(axis % width for axis in second)
    free = [axis for axis in range(width) if axis not in second]
    return op.Unsqueeze(x, sorted([*second, *(free[axis] for axis in first)]))


@rule(P.Expand(x, shape, name="node"), set="default")
def expand_nothing(op, x, shape, node):
    """An Expand to the shape that a value has."""
    result = node.outputs[0].shape
    if x.shape is None or result is None or len(x.shape) != len(result):
        return None
    return x if all(is_same(a, b) for a, b in zip(x.shape, result)) else None


def is_same(a: int | ir.SymbolicDim, b: int | ir.SymbolicDim) -> bool:
    """Whether two sizes are known to be equal: numbers, or dimensions of one name."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    return a.value is not None and a.value == b.value
