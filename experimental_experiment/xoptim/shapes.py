"""What rules know of shapes: sizes that are equal, constants that say the same as a computed shape."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.xoptim.pattern import attribute_of, ints_of

Size = int | ir.SymbolicDim


def is_same(a: Size, b: Size) -> bool:
    """Whether two sizes are known to be equal: numbers, or dimensions of one name."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    return a.value is not None and a.value == b.value


def is_open(size: int | ir.SymbolicDim) -> bool:
    """Whether a size has no name but the one that onnx's inference makes up."""
    return not isinstance(size, int) and (size.value is None or size.value.startswith("unk__"))


def joined_shape(old: ir.Shape | None, new: ir.Shape | None) -> ir.Shape | None:
    """The *old* shape of a value, with the sizes of the *new* one where it tells more: a number is more than a name, a name than none."""
    if old is None or new is None or len(old) != len(new):
        return new if old is None else old
    sizes = [told(a, b) for a, b in zip(old.dims, new.dims)]
    return old if sizes == list(old.dims) else ir.Shape(sizes)


def told(a: Size, b: Size) -> Size:
    """The one of two sizes that tells more."""
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    return b if is_open(a) else a


def same_sizes(a: Sequence[Size] | None, b: Sequence[Size] | None) -> bool:
    """Whether two shapes are known to be equal."""
    return a is not None and b is not None and len(a) == len(b) and all(map(is_same, a, b))


def has_shape_of(value: ir.Value, node: ir.Node) -> bool:
    """Whether a value is known to have the shape of the result of *node*."""
    return same_sizes(value.shape, node.outputs[0].shape)


def same_shape_of_elements(a: Sequence[Size] | None, b: Sequence[Size] | None) -> bool:
    """Whether two shapes of the same elements are known to be equal: where all sizes but one are, that one is too."""
    if a is None or b is None or len(a) != len(b):
        return False
    return len(a) - sum(map(is_same, a, b)) <= 1


def are_different(a: Sequence[Size] | None, b: Sequence[Size] | None) -> bool:
    """Whether two shapes of one rank have different numbers along an axis."""
    if a is None or b is None:
        return False
    return any([isinstance(one, int) and isinstance(other, int) and one != other for one, other in zip(a, b)])


def broadcast(shapes: Iterable[Sequence[Size] | None]) -> list[Size] | None:
    """The shape that these broadcast to, None when it is not known.

    A size without a number may be 1: it broadcasts with 1 and with itself only.
    """
    result: list[Size] = []
    for shape in shapes:
        if shape is None:
            return None
        width = max(len(result), len(shape))
        pairs = zip(
            [1] * (width - len(result)) + result, [1] * (width - len(shape)) + list(shape), strict=True
        )
        result = []
        for a, b in pairs:
            if not (a == 1 or b == 1 or is_same(a, b)):
                return None
            result.append(b if a == 1 else a)
    return result


def adds_no_axes(node: ir.Node, x: ir.Value) -> bool:
    """Whether the result of *node*, of *x* and a constant of one element, has the shape of *x*."""
    other = node.inputs[node.inputs[0] is x]
    return x.shape is not None and len(other.shape) <= len(x.shape)


def reshape_target(
    shape: Sequence[Size] | None, result: Sequence[Size] | None, may_be_empty: bool = True
) -> list[int] | None:
    """The constant with which Reshape turns *shape* into *result*: 0 copies a size, -1 stands for one other; None if there is none.

    With *may_be_empty*, 0 and -1 do not stand together: onnxruntime refuses -1 where a copied size is 0.
    """
    if shape is None or result is None or any(size == 0 for size in result):
        return None
    target = []
    for axis, size in enumerate(result):
        if isinstance(size, int):
            target.append(size)
        else:
            target.append(0 if axis < len(shape) and is_same(size, shape[axis]) else -1)
    if target.count(-1) > 1 or (may_be_empty and -1 in target and 0 in target):
        return None
    return target


UNKNOWN = ir.SymbolicDim(None)
"""A size of which nothing is known."""


def told_sizes(value: ir.Value, depth: int = 4) -> list[Size] | None:
    """What the few nodes before a computed vector of sizes tell of each of them, None when not even how many there are."""
    known = ints_of(value)
    if known is not None:
        return known
    node = producer_of(value) if depth else None
    operator = None if node is None else node.op_type
    if operator == "Shape" and node.inputs[0].shape is not None:
        return list(node.inputs[0].shape)[slice(attribute_of(node, "start"), attribute_of(node, "end"))]
    if operator in ("Squeeze", "Unsqueeze") or (operator == "Reshape" and ints_of(node.inputs[1]) == [-1]):
        return told_sizes(node.inputs[0], depth - 1)
    if operator == "Concat" and (attribute_of(node, "axis") == 0 or len(value.shape or ()) == 1):
        pieces = [told_sizes(piece, depth - 1) for piece in node.inputs]
        return None if None in pieces else [size for piece in pieces for size in piece]
    shape = value.shape
    return None if shape is None or not shape.is_static() else [UNKNOWN] * math.prod(shape)


def listed(shape: ir.Value) -> list[int | ir.Value] | None:
    """The sizes in a vector, numbers and vectors of one element, None where a piece may have several."""
    numbers = ints_of(shape)
    if numbers is not None:
        return numbers
    node = producer_of(shape, "Concat")
    sizes: list[int | ir.Value] = []
    for piece in [shape] if node is None else node.inputs:
        numbers = ints_of(piece)
        if numbers is None and (piece.shape is None or list(piece.shape) != [1]):
            return None
        sizes += [piece] if numbers is None else numbers
    return sizes


def shape_after(node: ir.Node) -> list[Size] | None:
    """The shape of the result of *node*; what inference left open of a Reshape is read from the vector of sizes."""
    result = node.outputs[0].shape
    told = told_sizes(node.inputs[1]) if node.op_type == "Reshape" else None
    if told is None:
        return None if result is None else list(result)
    before = node.inputs[0].shape or ()
    for axis, size in enumerate(told):
        if isinstance(size, int) and size == 0 and not attribute_of(node, "allowzero", 0):
            told[axis] = before[axis] if axis < len(before) else UNKNOWN
        elif isinstance(size, int) and size < 0:
            told[axis] = UNKNOWN
    if result is None or len(result) != len(told):
        return told
    return [size if size != UNKNOWN else other for size, other in zip(result, told)]
