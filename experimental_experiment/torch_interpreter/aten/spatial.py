"""What convolution, pooling and resizing share: arguments per spatial axis, inputs without a batch, sliding windows.

Source of semantics: the shape formulas of torch.nn.Conv2d, torch.nn.MaxPool2d and torch.nn.AvgPool2d.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.sizes import (
    Size,
    counted,
    is_int,
    is_static,
    minus,
    plus,
    quotient,
    times,
)

FEW = 4
"""Rows below are gathered element by element."""


def per_axis(numbers: int | Sequence[int], count: int, default: Sequence[int] = ()) -> list[int]:
    """One number for each of *count* spatial axes: a single one is repeated, an empty list is *default*."""
    numbers = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
    if not numbers:
        return list(default)
    if any(isinstance(number, ir.Value) for number in numbers):
        raise Untranslatable("a stride, a padding, a dilation or a kernel size that is not a constant")
    return numbers * count if len(numbers) == 1 else numbers


def batched(op, x: ir.Value, axes: int, function: Callable):
    """``function(x)`` for *x* of shape (N, C, *axes*); a batch of one is added to (C, *axes*) and taken off the results."""
    if rank(x) == axes + 2:
        return function(x)
    results = function(op.Unsqueeze(x, [0]))
    if isinstance(results, tuple):
        return tuple(op.Squeeze(result, [0]) for result in results)
    return op.Squeeze(results, [0])


# ---- windows


def picked(op, x: ir.Value, index: ir.Value, axis: int) -> ir.Value:
    """The entries of one axis at the positions *index* (k, n): that axis becomes two, (k, n)."""
    return op.Gather(x, index, axis=axis)


def in_rows(op, tensors: Sequence[ir.Value], axis: int, function: Callable) -> ir.Value:
    """``function(*tensors, axis)``, which gathers along an axis: in rows, as that of transposed tensors when the axis is the last one.

    onnxruntime 1.31.1 copies the elements along the last axis one by one: 64 x 20 x 20 to a width of 40 take 139 microseconds, 23 as rows.
    """
    axes = rank(tensors[0])
    rows = [x.shape[-2] if axes > 1 else 1 for x in tensors]
    if axis < axes - 1 or all(isinstance(count, int) and count < FEW for count in rows):
        return function(*tensors, axis)
    order = [*range(axes - 2), axes - 1, axes - 2]
    return op.Transpose(function(*(op.Transpose(x, perm=order) for x in tensors), axis - 1), perm=order)


def windows(
    op,
    x: ir.Value,
    kernel: Sequence[Size],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[ir.Value, list[Size]]:
    """Every window of *x* (N, C, *spatial*), already padded: (N, C, k1, out1, k2, out2, ...) and the sizes out1, out2."""
    counts = []
    for position, (k, s, d) in enumerate(zip(kernel, stride, dilation)):
        axis = 2 + 2 * position
        index, count = window_positions(op, op.size(x, axis), k, s, d)
        x = picked(op, x, index, axis)
        counts.append(count)
    return x, counts


def window_positions(op, size: Size, k: Size, s: int, d: int) -> tuple[ir.Value, Size]:
    """The positions (k, count) of the elements of the windows of an axis, and how many windows it has."""
    count = window_count(op, size, k, s, d)
    return op.Add(op.Unsqueeze(counted(op, k, d), [1]), counted(op, count, s)), count


def window_count(op, size: Size, k: Size, s: int, d: int) -> Size:
    """How many windows an axis has."""
    reach = plus(op, times(op, minus(op, k, 1), d), 1)
    return plus(op, quotient(op, minus(op, size, reach), s), 1)


def columns(op, x: ir.Value, kernel: Sequence[Size], stride: Sequence[int], dilation: Sequence[int]):
    """The windows with kernel axes before output axes: (N, C, k1, k2, ..., out1, out2, ...), and the sizes out1, out2.

    Along the last axis a Gather copies element by element, a Slice for each element of the kernel copies rows: measured with onnxruntime
    1.31, 0.08 to 0.4 of the time for kernels of 2 to 9.
    """
    axes = len(kernel)
    if list(kernel) == list(stride) and all(d == 1 for d in dilation):
        return blocks(op, x, kernel)
    is_sliced = is_static(kernel[-1]) and kernel[-1] <= SLICED
    gathered = axes - 1 if is_sliced else axes
    taken, counts = windows(op, x, kernel[:gathered], stride, dilation)
    last = 2 + 2 * gathered
    order = [0, 1, *range(2, last, 2), *range(3, last, 2)]
    if not is_sliced:
        return op.Transpose(taken, perm=order), counts
    if gathered > 1:
        taken = op.Transpose(taken, perm=[*order, last])
    taken, rows = op.Unsqueeze(taken, [1 + axes]), []
    count = window_count(op, op.size(x, 1 + axes), kernel[-1], stride[-1], dilation[-1])
    for place in range(kernel[-1]):
        # what the elements of the kernel behind this one need is left out
        behind = (kernel[-1] - 1 - place) * dilation[-1]
        end = -behind if behind else INT64_MAX
        rows.append(op.Slice(taken, [place * dilation[-1]], [end], [-1], stride[-1:]))
    return op.Concat(*rows, axis=1 + axes) if len(rows) > 1 else rows[0], [*counts, count]


def blocks(op, x: ir.Value, kernel: Sequence[int]) -> tuple[ir.Value, list[Size]]:
    """`columns` of windows that stand side by side; what is left at the end of an axis is in none of them."""
    axes = [*range(2, 2 + len(kernel))]
    sizes = [op.size(x, axis) for axis in axes]
    counts = [quotient(op, size, k) for size, k in zip(sizes, kernel)]
    ends = [times(op, count, k) for count, k in zip(counts, kernel)]
    if ends != sizes:
        x = op.Slice(x, [0] * len(axes), op.shape(ends), axes)
    inner = [size for pair in zip(counts, kernel) for size in pair]
    apart = reshaped(op, x, [op.size(x, 0), op.size(x, 1), *inner])
    first = [*range(2, 2 + 2 * len(kernel), 2)]
    return op.Transpose(apart, perm=[0, 1, *(axis + 1 for axis in first), *first]), counts


SLICED = 16
"""Elements of a kernel along its last axis up to which there is a Slice for each."""


# ---- edges


def short_of(op, size: Size, factor: int) -> Size:
    """How much a size lacks to a multiple of *factor*."""
    return -size % factor if is_static(size) else op.Mod(op.Neg(size), factor)


def padded(op, x: ir.Value, begin: Sequence[Size], end: Sequence[Size], value: float = 0) -> ir.Value:
    """*x* (N, C, *spatial*) with *value* around its spatial axes."""
    return padded_by(op, x, [0, 0, *begin, 0, 0, *end], value)


def padded_along(
    op,
    x: ir.Value,
    axes: Iterable[int],
    begin: Sequence[Size],
    end: Sequence[Size],
    value: float | ir.Value | None = None,
    mode: str = "constant",
) -> ir.Value:
    """*x* continued before and after some axes, see `padded_by`."""
    amounts: list[Size] = [0] * (2 * rank(x))
    for axis, before, after in zip(axes, begin, end):
        amounts[axis % rank(x)], amounts[rank(x) + axis % rank(x)] = before, after
    return padded_by(op, x, amounts, value, mode)


def padded_by(
    op, x: ir.Value, amounts: Sequence[Size], value: float | ir.Value | None = None, mode: str = "constant"
) -> ir.Value:
    """*x* continued by *amounts*, those before all axes, then those after, with a *value* (None: zeros) or in another mode of Pad.

    Always of all axes: a runtime that moves a Transpose over a Pad may forget its input *axes*.
    """
    if all(is_int(size, 0) for size in amounts):
        return x
    return op.Pad(x, op.shape(amounts), None if value is None else op.constant(value, x.dtype), mode=mode)
