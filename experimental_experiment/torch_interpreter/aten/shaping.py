"""Shaping: view, reshape, flatten, unflatten, squeeze, unsqueeze, expand; the elements stay in order.

Source of semantics: https://pytorch.org/docs/stable/tensor_view.html and ONNX Reshape-14, Expand-13.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates, writes_through

aten = torch.ops.aten


class Axis(NamedTuple):
    """The size of one axis of a value, written only where it is needed."""

    x: ir.Value
    axis: int


Size = int | ir.Value | Axis


@translates(aten.expand.default, aten.expand_copy.default)
def expand(op, self, size, implicit):
    """Repeat the axes of size 1, and new ones in front; -1 keeps a size."""
    return expanded(op, self, size)


@translates(aten.broadcast_to.default)
def broadcast_to(op, self, size):
    """Another name of expand."""
    return expanded(op, self, size)


@translates(aten.expand_as.default)
def expand_as(op, self, other):
    """Expand to the sizes of another tensor."""
    return expanded(op, self, sizes_of(other))


@translates(aten.broadcast_tensors.default)
def broadcast_tensors(op, tensors):
    """Every tensor expanded to the sizes that all share."""
    sizes = broadcast_sizes(*tensors)
    return [expanded(op, tensor, sizes) for tensor in tensors]


@translates(aten.flatten.using_ints)
def flatten(op, self, start_dim, end_dim):
    """Merge a range of axes; a 0-d tensor gets one axis."""
    if rank(self) == 0:
        return reshaped(op, self, [1])
    start, end = start_dim % rank(self), end_dim % rank(self)
    if start == end:
        return self
    sizes = sizes_of(self)
    if rank(self) - (end - start) == 2 and not known_sizes(self):
        return op.Flatten(self, axis=end + 1 if start == 0 else start)
    return reshaped(op, self, [*sizes[:start], merged(op, self, start, end + 1), *sizes[end + 1 :]])


@translates(aten.ravel.default)
def ravel(op, self):
    """One axis."""
    return reshaped(op, self, [-1])


@translates(aten.reshape.default)
def reshape(op, self, shape):
    """The same elements in order, in another shape."""
    return reshaped(op, self, shape)


@translates(aten._reshape_alias.default)
def reshape_alias(op, self, size, stride):
    """A view of a contiguous tensor; its strides say nothing that its sizes do not."""
    return reshaped(op, self, size)


@translates(aten.view_as.default, aten.reshape_as.default)
def view_as(op, self, other):
    """The shape of another tensor."""
    return reshaped(op, self, sizes_of(other))


@translates(aten.squeeze.default, aten.squeeze_copy.default)
def squeeze(op, self):
    """Remove the axes of size 1; a symbolic size is not 1, which torch.export has made sure of."""
    return op.Squeeze(self, [axis for axis, size in enumerate(self.shape) if size == 1])


@translates(aten.squeeze.dim, aten.squeeze_copy.dim, aten.squeeze.dims, aten.squeeze_copy.dims)
def squeeze_dim(op, self, dim):
    """Remove those of the given axes that have size 1."""
    if rank(self) == 0:
        return self
    given = [axis % rank(self) for axis in (dim if isinstance(dim, list) else [dim])]
    return op.Squeeze(self, [axis for axis in sorted(given) if self.shape[axis] == 1])


@translates(aten.unflatten.int)
def unflatten(op, self, dim, sizes):
    """Split one axis into several; one of them may be -1."""
    dim = dim % rank(self)
    if -1 in sizes:
        others = math.prod(size for size in sizes if isinstance(size, int) and size != -1)
        if all(isinstance(size, int) for size in sizes) and others:
            whole = op.size(self, dim)
            missing = whole // others if isinstance(whole, int) else op.Div(whole, others)
            sizes = [missing if size == -1 else size for size in sizes]
    around = sizes_of(self)
    return reshaped(op, self, [*around[:dim], *sizes, *around[dim + 1 :]])


@translates(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def unsqueeze(op, self, dim):
    """One more axis, of size 1."""
    return op.Unsqueeze(self, [dim % (rank(self) + 1)])


@translates(aten.view.default, aten.view_copy.default, aten._unsafe_view.default, aten._reshape_copy.default)
def view(op, self, size):
    """The same elements in order, in another shape."""
    return reshaped(op, self, size)


@writes_through(
    aten._reshape_alias.default,
    aten._unsafe_view.default,
    aten.broadcast_to.default,
    aten.expand.default,
    aten.expand_as.default,
    aten.flatten.using_ints,
    aten.ravel.default,
    aten.reshape.default,
    aten.reshape_as.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unflatten.int,
    aten.unsqueeze.default,
    aten.view.default,
    aten.view_as.default,
)
def put_reshape(op, base, new):
    """The same elements in order, in the shape of the base; what expand repeats is never written here."""
    return reshaped(op, new, sizes_of(base))


# ---- helpers that other families share


def sizes_of(x: ir.Value) -> list[Size]:
    """The sizes of *x*, none of them written yet."""
    return [size if isinstance(size, int) else Axis(x, axis) for axis, size in enumerate(x.shape)]


def known_sizes(x: ir.Value) -> bool:
    """Whether all sizes of *x* are static."""
    return x.shape.is_static()


def label(size: Size) -> int | str | None:
    """What is known of a size: the int, the expression of a symbolic one, None when it has no name."""
    if isinstance(size, Axis):
        known = size.x.shape[size.axis]
        return known if isinstance(known, int) else known.value
    if isinstance(size, ir.Value):
        return size.meta.get("size")
    return size


def static(size: Size) -> Size:
    """A size as an int when it is constant."""
    if isinstance(size, ir.Value) and size.const_value is not None:
        return int(size.const_value.numpy().reshape(-1)[0])
    return label(size) if isinstance(size, Axis) and isinstance(label(size), int) else size


def written(op, sizes: Sequence[Size]) -> list[int | ir.Value]:
    """The sizes with those of axes written."""
    return [op.size(*size) if isinstance(size, Axis) else size for size in sizes]


def same_sizes(x: ir.Value, sizes: Sequence[Size]) -> list[bool]:
    """Whether each size is known to be the one *x* has at that position."""
    dims = [label(size) for size in sizes_of(x)]
    return [
        position < len(dims) and dims[position] is not None and label(size) == dims[position]
        for position, size in enumerate(sizes)
    ]


def broadcast_sizes(*tensors: ir.Value) -> list[Size]:
    """The sizes that the tensors broadcast to; a symbolic size is not 1."""
    width = max((rank(tensor) for tensor in tensors), default=0)
    sizes: list[Size] = [1] * width
    for tensor in tensors:
        for axis, size in enumerate(sizes_of(tensor), start=width - rank(tensor)):
            if sizes[axis] == 1 or (isinstance(size, int) and size != 1):
                sizes[axis] = size
    return sizes


def merged(op, x: ir.Value, start: int, end: int) -> int | ir.Value:
    """The number of elements of a range of axes: -1 when it is the only unknown of the shape of *x*."""
    inside, outside = x.shape[start:end], [*x.shape[:start], *x.shape[end:]]
    if all(isinstance(size, int) for size in inside):
        return math.prod(inside)
    if all(isinstance(size, int) and size for size in outside):
        return -1
    return op.scalar(op.ReduceProd(op.shape_of(x, start, end), keepdims=1))


def reshaped(op, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """*x* in another shape, which is constant whenever -1 or copied sizes say it: no node computes it then."""
    sizes = with_missing_size(x, [static(size) for size in sizes])
    copied = same_sizes(x, sizes)
    if len(sizes) == rank(x) and all(copied):
        return x
    unknown = [position for position, size in enumerate(sizes) if not isinstance(size, int)]
    if 0 not in sizes:
        if -1 not in sizes and len(unknown) == 1:
            sizes[unknown[0]], unknown = -1, []
        elif -1 not in sizes and all(copied[position] for position in unknown):
            return op.Reshape(x, [0 if position in unknown else size for position, size in enumerate(sizes)])
    if not unknown and 0 not in sizes:
        return op.Reshape(x, sizes)
    return op.Reshape(x, op.shape(written(op, sizes)), allowzero=0 if -1 in sizes else 1)


def with_missing_size(x: ir.Value, sizes: list[Size]) -> list[Size]:
    """Replace -1 by the static size that it stands for, if it is one."""
    if -1 not in sizes:
        return sizes
    left = [label(size) for size in sizes_of(x)]
    given = 1
    for size in sizes:
        if isinstance(size, int):
            given *= abs(size)
        elif label(size) is not None and label(size) in left:
            left.remove(label(size))
        else:
            return sizes
    if given == 0 or not all(isinstance(size, int) for size in left):
        return sizes
    return [math.prod(left) // given if size == -1 and isinstance(size, int) else size for size in sizes]


def expanded(op, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """*x* broadcast to these sizes, of which -1 and those that it has already are not written."""
    sizes = [static(size) for size in sizes]
    lead = len(sizes) - rank(x)
    has = [False] * lead + same_sizes(x, sizes[lead:])
    kept = [1 if same or (isinstance(size, int) and size == -1) else size for same, size in zip(has, sizes)]
    if lead == 0 and all(isinstance(size, int) and size == 1 for size in kept):
        return x
    return op.Expand(x, op.shape(written(op, kept)))
