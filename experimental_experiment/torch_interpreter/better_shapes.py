"""What is known of the shapes of results that ONNX does not infer, or infers otherwise than runtimes compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

TO_THE_END = frozenset((2**31 - 1, 2**63 - 1))
"""Ends of slices that onnxruntime takes for the end of an axis in either direction: backwards, before the first element."""


def know_number(node: ir.Node) -> None:
    """Give the results of a TopK their size, where ONNX infers none: of an axis of unknown size."""
    number = node.inputs[1].const_value if len(node.inputs) > 1 else None  # an attribute before opset 10
    for output in node.outputs if number is not None else ():
        if output.shape is not None:
            sizes = list(output.shape)
            sizes[node.attributes.get_int("axis", -1)] = int(number.numpy()[0])
            output.shape = ir.Shape(sizes)


def know_slice(node: ir.Node) -> None:
    """What a Slice takes whole has the size that it had; what runtimes take otherwise has none."""
    know_other_axes(node)
    if ends_otherwise(node):
        axes, result = node.inputs[3], node.outputs[0].shape
        given = () if axes is None or axes.const_value is None else axes.const_value.numpy()
        taken = {int(axis) % len(result) for axis in given} or range(len(result))
        node.outputs[0].shape = ir.Shape(
            [None if axis in taken else size for axis, size in enumerate(result)]
        )


def ends_otherwise(node: ir.Node) -> bool:
    """Whether a Slice of constant bounds goes backwards to what ONNX's text says is behind its axis, see `TO_THE_END`."""
    if len(node.inputs) < 5 or node.outputs[0].shape is None:
        return False
    ends, steps = (None if value is None else value.const_value for value in node.inputs[2:5:2])
    return ends is not None and steps is not None and are_backwards_to_the_end(ends.numpy(), steps.numpy())


def are_backwards_to_the_end(ends: Iterable[int], steps: Iterable[int]) -> bool:
    """Whether one of the slices of these ends and steps takes nothing by ONNX's text, all before its start in onnxruntime."""
    return any(step < 0 and int(end) in TO_THE_END for end, step in zip(ends, steps))


def know_other_axes(node: ir.Node) -> None:
    """Give the result of a Slice with bounds that are computed the sizes of the axes that it takes whole: ONNX infers none of them."""
    x, result = node.inputs[0], node.outputs[0]
    axes = node.inputs[3].const_value if len(node.inputs) > 3 and node.inputs[3] is not None else None
    if axes is None or x.shape is None or result.shape is None:
        return
    sizes = list(result.shape)
    taken = {int(axis) % len(sizes) for axis in axes.numpy()}
    result.shape = ir.Shape([size if axis in taken else x.shape[axis] for axis, size in enumerate(sizes)])


def know_repeated(node: ir.Node) -> None:
    """Where an operand of an Einsum has 1 of what another one has more of, the result has as many: ONNX infers the size of the first operand."""
    sizes = sizes_of_einsum(node)
    if sizes is not None:
        node.outputs[0].shape = ir.Shape(map(repeated_size, sizes))


def sizes_of_einsum(node: ir.Node) -> list[list[int | ir.SymbolicDim]] | None:
    """The sizes that the operands of an Einsum have of each axis of its result; None where a rank is unknown or axes have no letters."""
    operands, _, result = node.attributes.get_string("equation", "").replace(" ", "").partition("->")
    letters = operands.split(",")
    shapes = [None if value is None else value.shape for value in node.inputs]
    if not result or "." in operands or len(letters) != len(shapes):
        return None
    found: dict[str, list[int | ir.SymbolicDim]] = {letter: [] for letter in result}
    for term, shape in zip(letters, shapes):
        if shape is None or len(shape) != len(term):
            return None
        for letter, size in zip(term, shape):
            if letter in found:
                found[letter].append(size)
    return [found[letter] for letter in result]


def repeated_size(sizes: Sequence[int | ir.SymbolicDim]) -> int | ir.SymbolicDim | None:
    """The size of what has these sizes, where 1 is repeated as often as needed; None where names differ."""
    number = max((size for size in sizes if isinstance(size, int)), default=1)
    names = [size for size in sizes if not isinstance(size, int)]
    if number > 1 or not names:
        return number
    return names[0] if all(size.value == names[0].value for size in names) else None


def know_attended(node: ir.Node) -> None:
    """The sizes of an Attention's results that ONNX does not know have none: it infers 0."""
    for output in node.outputs:
        if output.shape is not None and 0 in output.shape:
            output.shape = ir.Shape([size or None for size in output.shape])


def know_length(node: ir.Node) -> None:
    """Where the length of a DFT is not known, the axis has no size: ONNX infers the one that it had."""
    length, axis = (node.inputs[at] if len(node.inputs) > at else None for at in (1, 2))
    shape = node.outputs[0].shape
    if length is None or length.const_value is not None or shape is None:
        return
    taken = list(range(len(shape) - 1))  # but for the real and the imaginary part
    if axis is not None and axis.const_value is not None:
        taken = [int(axis.const_value.numpy()) % len(shape)]
    elif "axis" in node.attributes:  # before opset 20
        taken = [node.attributes.get_int("axis", 1) % len(shape)]
    node.outputs[0].shape = ir.Shape([None if at in taken else size for at, size in enumerate(shape)])


KNOWN_BETTER: dict[str, Callable[[ir.Node], None]] = {
    "Attention": know_attended,
    "DFT": know_length,
    "Einsum": know_repeated,
    "Slice": know_slice,
    "TopK": know_number,
}
"""What is known of the shapes of results that ONNX does not infer, by operator."""
