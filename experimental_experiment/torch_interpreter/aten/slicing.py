"""Slicing: slice, select, narrow, and the way back, which writes the slice.

Source of semantics: https://pytorch.org/docs/stable/tensor_view.html and ONNX Slice-13.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.creation import filled
from experimental_experiment.torch_interpreter.aten.transposing import swapped
from experimental_experiment.torch_interpreter.dtypes import torch_dtype
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.registry import translates, writes_through
from experimental_experiment.torch_interpreter.sizes import Size, has_size, larger, plus, smaller

aten = torch.ops.aten


@translates(aten.narrow.default, aten.narrow_copy.default)
def narrow(op, self, dim, start, length):
    """*length* elements from *start*, which may count from the end."""
    start = from_front(op, start, self, dim)
    return sliced(op, self, dim, start, plus(op, start, length))


@writes_through(aten.narrow.default)
def put_narrow(op, base, new, dim, start, length):
    """The elements before, the new ones, those after."""
    start = from_front(op, start, base, dim)
    return put_sliced(op, base, new, dim, start, plus(op, start, length))


@translates(aten.select.int, aten.select_copy.int)
def select(op, self, dim, index):
    """The elements at one position of an axis, which goes away."""
    return op.Gather(self, index, axis=dim % rank(self))


@writes_through(aten.select.int)
def put_select(op, base, new, dim, index):
    """The base in which one position is *new*, as in a slice; a scatter when the index is computed: a Concat needs nodes for its bounds."""
    dim = dim % rank(base)
    if isinstance(index, ir.Value) and dim == 0:
        return op.ScatterND(base, op.shape([index]), new)
    new = op.Unsqueeze(new, [dim])
    if isinstance(index, ir.Value):
        return op.ScatterElements(base, op.Expand(index, op.Shape(new)), new, axis=dim)
    return put_sliced(op, base, new, dim, index, index + 1 if index != -1 else INT64_MAX)


@translates(aten.select_backward.default)
def select_backward(op, grad_output, input_sizes, dim, index):
    """Zeros, and the gradient at one position."""
    zeros = filled(op, input_sizes, 0, torch_dtype(grad_output.dtype))
    return put_select(op, zeros, grad_output, dim, index)


@translates(aten.select_scatter.default)
def select_scatter(op, self, src, dim, index):
    """*self* with other elements at one position of an axis."""
    return put_select(op, self, op.Cast(src, to=self.dtype), dim, index)


@translates(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(op, self, dim, start, end, step):
    """``self[start:end:step]`` along one axis; bounds are clamped, negative ones count from the end."""
    return sliced(op, self, dim, start, end, step)


@writes_through(aten.slice.Tensor)
def put_slice(op, base, new, dim, start, end, step):
    """The base in which ``base[start:end:step]`` is *new*."""
    return put_sliced(op, base, new, dim, start, end, step)


@translates(aten.slice_backward.default)
def slice_backward(op, grad_output, input_sizes, dim, start, end, step):
    """Zeros, and the gradient in a slice."""
    zeros = filled(op, input_sizes, 0, torch_dtype(grad_output.dtype))
    return put_sliced(op, zeros, grad_output, dim, start, end, step)


@translates(aten.slice_scatter.default)
def slice_scatter(op, self, src, dim, start, end, step):
    """*self* with other elements in a slice."""
    return put_sliced(op, self, op.Cast(src, to=self.dtype), dim, start, end, step)


# ---- helpers that other families share


def from_front(op, start: Size, x: ir.Value, dim: int) -> Size:
    """A position that may count from the end, counted from the front."""
    if isinstance(start, int):
        return start if start >= 0 else plus(op, op.size(x, dim), start)
    return op.Where(op.Less(start, 0), op.Add(start, op.size(x, dim)), start)


def is_whole(x: ir.Value, dim: int, start: Size | None, end: Size | None, step: Size = 1) -> bool:
    """Whether a slice is known to take a whole axis."""
    if isinstance(start, ir.Value) or isinstance(step, ir.Value) or (start or 0) != 0 or step != 1:
        return False
    if isinstance(end, ir.Value):
        return has_size(x, dim, end)
    size = x.shape[dim]
    return end is None or end == INT64_MAX or (isinstance(size, int) and end >= size)


def sliced(
    op, x: ir.Value, dim: int, start: Size | None, end: Size | None = None, step: Size = 1
) -> ir.Value:
    """``x[start:end:step]`` along one axis, with Python's rules for the bounds."""
    if is_whole(x, dim, start, end, step):
        return x
    start = 0 if start is None else start
    end = INT64_MAX if end is None else end
    return op.Slice(x, op.shape([start]), op.shape([end]), [dim % rank(x)], op.shape([step]))


def put_sliced(
    op,
    base: ir.Value,
    new: ir.Value,
    dim: int,
    start: Size | None,
    end: Size | None,
    step: Size = 1,
) -> ir.Value:
    """*base* in which ``base[start:end:step]`` along one axis is *new*."""
    if is_whole(base, dim, start, end, step):
        return new
    if isinstance(step, ir.Value) or step != 1:
        return put_positions(op, base, new, dim, start, end, step)
    parts = [new]
    if isinstance(start, ir.Value) or (start or 0) != 0:
        parts.insert(0, sliced(op, base, dim, 0, start))
    if end is not None and (isinstance(end, ir.Value) or end != INT64_MAX):
        parts.append(
            sliced(op, base, dim, end if is_ordered(start, end) else last_bound(op, base, dim, start, end))
        )
    return op.Concat(*parts, axis=dim % rank(base))


def is_ordered(start: Size | None, end: Size) -> bool:
    """Whether the end of a slice is known not to come before its start."""
    if isinstance(start, ir.Value) or isinstance(end, ir.Value):
        return False
    start = start or 0
    return start <= end if (start < 0) == (end < 0) else start == 0


def last_bound(op, x: ir.Value, dim: int, start: Size | None, end: Size) -> Size:
    """Where the elements after a slice begin: its end, or its start when it is empty."""
    size = op.size(x, dim)
    bounds = []
    for bound in (0 if start is None else start, end):
        bounds.append(smaller(op, larger(op, from_front(op, bound, x, dim), 0), size))
    return larger(op, *bounds)


def put_positions(
    op, base: ir.Value, new: ir.Value, dim: int, start: Size | None, end: Size | None, step: Size
):
    """Write every *step*-th position: a ScatterND along the axis, moved to the front."""
    positions = sliced(op, op.Range(0, op.size(base, dim), 1), 0, start, end, step)
    front = op.ScatterND(swapped(op, base, 0, dim), op.Unsqueeze(positions, [1]), swapped(op, new, 0, dim))
    return swapped(op, front, 0, dim)
