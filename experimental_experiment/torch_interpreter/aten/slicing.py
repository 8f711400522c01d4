"""Slicing: slice, select, narrow, split, chunk, unbind, and the way back, which writes the slice.

Source of semantics: https://pytorch.org/docs/stable/tensor_view.html and ONNX Slice-13, Split-18.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.transposing import swapped
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates, writes_through

aten = torch.ops.aten

Bound = int | ir.Value


@translates(aten.chunk.default, aten.unsafe_chunk.default)
def chunk(op, self, chunks, dim):
    """At most *chunks* pieces of equal sizes, the last one smaller."""
    size = op.size(self, dim)
    if isinstance(size, int):
        return split(op, self, max(1, -(-size // chunks)) if size else 0, dim)
    return split(op, self, op.Div(op.Add(size, chunks - 1), chunks), dim)


@writes_through(aten.chunk.default)
def put_chunk(op, base, new, chunks, dim, position):
    """The other pieces around the new one."""
    return joined(op, chunk(op, base, chunks, dim), new, dim, position)


@translates(aten.narrow.default, aten.narrow_copy.default)
def narrow(op, self, dim, start, length):
    """*length* elements from *start*, which may count from the end."""
    start = from_front(op, start, self, dim)
    return sliced(op, self, dim, start, added(op, start, length))


@writes_through(aten.narrow.default)
def put_narrow(op, base, new, dim, start, length):
    """The elements before, the new ones, those after."""
    start = from_front(op, start, base, dim)
    return put_sliced(op, base, new, dim, start, added(op, start, length))


@translates(aten.narrow.Tensor)
def narrow_tensor(op, self, dim, start, length):
    """*start* is a 0-d integer tensor."""
    return narrow(op, self, dim, op.Reshape(op.Cast(start, to=ir.DataType.INT64), []), length)


@writes_through(aten.narrow.Tensor)
def put_narrow_tensor(op, base, new, dim, start, length):
    """*start* is a 0-d integer tensor."""
    return put_narrow(op, base, new, dim, op.Reshape(op.Cast(start, to=ir.DataType.INT64), []), length)


@translates(aten.select.int, aten.select_copy.int)
def select(op, self, dim, index):
    """The elements at one position of an axis, which goes away."""
    return op.Gather(self, index, axis=dim % rank(self))


@writes_through(aten.select.int)
def put_select(op, base, new, dim, index):
    """A slice of one element."""
    return put_sliced(op, base, op.Unsqueeze(new, [dim % rank(base)]), dim, index, after(op, index))


@translates(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(op, self, dim, start, end, step):
    """``self[start:end:step]`` along one axis; bounds are clamped, negative ones count from the end."""
    return sliced(op, self, dim, start, end, step)


@writes_through(aten.slice.Tensor)
def put_slice(op, base, new, dim, start, end, step):
    """The base in which ``base[start:end:step]`` is *new*."""
    return put_sliced(op, base, new, dim, start, end, step)


@translates(aten.split.Tensor, aten.unsafe_split.Tensor)
def split(op, self, split_size, dim):
    """Pieces of *split_size*, the last one smaller; torch.export has fixed their number."""
    size = op.size(self, dim)
    if isinstance(size, int) and isinstance(split_size, int):
        sizes = [min(split_size, size - start) for start in range(0, size, split_size or 1)] or [size]
        return pieces(op, self, sizes, dim)
    count = number_of_results(op)
    last = op.Sub(size, op.Mul(op.constant(split_size), count - 1))
    return pieces(op, self, [*[split_size] * (count - 1), last], dim)


@writes_through(aten.split.Tensor)
def put_split(op, base, new, split_size, dim, position):
    """The other pieces around the new one."""
    return joined(op, split(op, base, split_size, dim), new, dim, position)


@translates(
    aten.split_with_sizes.default, aten.unsafe_split_with_sizes.default, aten.split_with_sizes_copy.default
)
def split_with_sizes(op, self, split_sizes, dim):
    """Pieces of the given sizes."""
    return pieces(op, self, split_sizes, dim)


@writes_through(aten.split_with_sizes.default)
def put_split_with_sizes(op, base, new, split_sizes, dim, position):
    """The other pieces around the new one."""
    return joined(op, pieces(op, base, split_sizes, dim), new, dim, position)


@translates(aten.split.sizes)
def split_sizes(op, self, split_size, dim):
    """Pieces of the given sizes."""
    return pieces(op, self, split_size, dim)


@writes_through(aten.split.sizes)
def put_split_sizes(op, base, new, split_size, dim, position):
    """The other pieces around the new one."""
    return joined(op, pieces(op, base, split_size, dim), new, dim, position)


@translates(aten.unbind.int, aten.unbind_copy.int)
def unbind(op, self, dim):
    """The elements at every position of an axis."""
    size = op.size(self, dim)
    count = size if isinstance(size, int) else number_of_results(op)
    return [select(op, self, dim, index) for index in range(count)]


@writes_through(aten.unbind.int)
def put_unbind(op, base, new, dim, position):
    """A slice of one element."""
    return put_select(op, base, new, dim, position)


# ---- helpers that other families share


def number_of_results(op) -> int:
    """How many results torch.export saw."""
    return len(op.context.node.meta["val"])


def pieces(op, x: ir.Value, sizes: list[Bound], dim: int) -> list[ir.Value]:
    """*x* cut along one axis."""
    if len(sizes) == 1:
        return [x]
    return list(op.Split(x, op.shape(sizes), axis=dim % rank(x), outputs=len(sizes)))


def joined(op, parts: list[ir.Value], new: ir.Value, dim: int, position: int) -> ir.Value:
    """The pieces put together, *new* in the place of one of them."""
    parts = [*parts[:position], new, *parts[position + 1 :]]
    return op.Concat(*parts, axis=dim)


def added(op, first: Bound, second: Bound) -> Bound:
    """The sum of two sizes."""
    if isinstance(first, int) and isinstance(second, int):
        return first + second
    return op.Add(op.constant(first), second)


def after(op, index: Bound) -> Bound:
    """The end of the slice that holds the only position *index*, which may count from the end."""
    if isinstance(index, int):
        return index + 1 if index != -1 else INT64_MAX
    return op.Where(op.Equal(index, -1), INT64_MAX, op.Add(index, 1))


def from_front(op, start: Bound, x: ir.Value, dim: int) -> Bound:
    """A position that may count from the end, counted from the front."""
    if isinstance(start, int):
        return start if start >= 0 else added(op, op.size(x, dim), start)
    return op.Where(op.Less(start, 0), op.Add(start, op.size(x, dim)), start)


def is_whole(x: ir.Value, dim: int, start: Bound | None, end: Bound | None, step: Bound = 1) -> bool:
    """Whether a slice is known to take a whole axis."""
    if isinstance(start, ir.Value) or isinstance(step, ir.Value) or (start or 0) != 0 or step != 1:
        return False
    size = x.shape[dim]
    if isinstance(end, ir.Value):
        return not isinstance(size, int) and size.value is not None and end.meta.get("size") == size.value
    return end is None or end == INT64_MAX or (isinstance(size, int) and end >= size)


def sliced(
    op, x: ir.Value, dim: int, start: Bound | None, end: Bound | None = None, step: Bound = 1
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
    start: Bound | None,
    end: Bound | None = None,
    step: Bound = 1,
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


def is_ordered(start: Bound | None, end: Bound) -> bool:
    """Whether the end of a slice is known not to come before its start."""
    if isinstance(start, ir.Value) or isinstance(end, ir.Value):
        return False
    start = start or 0
    return start <= end if (start < 0) == (end < 0) else start == 0


def last_bound(op, x: ir.Value, dim: int, start: Bound | None, end: Bound) -> ir.Value:
    """Where the elements after a slice begin: its end, or its start when it is empty."""
    size = op.constant(op.size(x, dim))
    bounds = []
    for bound in (0 if start is None else start, end):
        bound = op.constant(from_front(op, bound, x, dim))
        bounds.append(op.Min(op.Max(bound, 0), size))
    return op.Max(*bounds)


def put_positions(
    op, base: ir.Value, new: ir.Value, dim: int, start: Bound | None, end: Bound | None, step: Bound
):
    """Write every *step*-th position: a ScatterND along the axis, moved to the front."""
    positions = sliced(op, op.Range(0, op.size(base, dim), 1), 0, start, end, step)
    front = op.ScatterND(swapped(op, base, 0, dim), op.Unsqueeze(positions, [1]), swapped(op, new, 0, dim))
    return swapped(op, front, 0, dim)


def refuse_data(name: str, value: ir.Value) -> list[int]:
    """The elements of a constant tensor; Untranslatable when it is not one."""
    if value.const_value is None:
        raise Untranslatable(f"{name} is data, not a constant")
    return value.const_value.numpy().reshape(-1).tolist()
