"""Shaping: view, reshape, flatten, unflatten, squeeze, unsqueeze, expand; the elements stay in order.

Source of semantics: https://pytorch.org/docs/stable/tensor_view.html and ONNX Reshape-14, Expand-13.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates, writes_through
from experimental_experiment.torch_interpreter.sizes import (
    Size,
    broadcast_sizes,
    has_shape,
    is_int,
    is_static,
    know_sizes,
    label,
    quotient,
    same_sizes,
    sizes_of,
    static,
    volume,
)

aten = torch.ops.aten


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
    return expanded(op, self, sizes_of(op, other))


@translates(aten.broadcast_tensors.default)
def broadcast_tensors(op, tensors):
    """Every tensor expanded to the sizes that all share."""
    sizes = broadcast_sizes(op, *tensors)
    if sum(rank(x) < len(sizes) or not all(same_sizes(op, x, sizes)) for x in tensors) > 2:
        op.shape(sizes)  # one for all of them
    return [expanded(op, tensor, sizes) for tensor in tensors]


@translates(aten.flatten.using_ints)
def flatten(op, self, start_dim, end_dim):
    """Merge a range of axes; a 0-d tensor gets one axis."""
    if rank(self) == 0:
        return reshaped(op, self, [1])
    start, end = start_dim % rank(self), end_dim % rank(self)
    if start == end:
        return self
    sizes = sizes_of(op, self)
    if rank(self) - (end - start) == 2 and not self.shape.is_static():
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
    return reshaped(op, self, sizes_of(op, other))


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
            missing = quotient(op, op.size(self, dim), others)
            sizes = [missing if size == -1 else size for size in sizes]
    around = sizes_of(op, self)
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
    return reshaped(op, new, sizes_of(op, base))


# ---- helpers that other families share


def merged(op, x: ir.Value, start: int, end: int) -> Size:
    """The number of elements of a range of axes: -1 when it is the only unknown of the shape of *x*."""
    inside, outside = x.shape[start:end], [*x.shape[:start], *x.shape[end:]]
    if any(not isinstance(size, int) for size in inside) and all(
        isinstance(size, int) and size for size in outside
    ):
        return -1
    return volume(op, sizes_of(op, x)[start:end])


def reshaped(op, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """*x* in another shape, which is constant where 0 (the size that *x* has there) and -1 say it all: no node computes it then.

    -1 stands for what the caller says, or for the only size that is not known: beside another one, which may be 0, it would be
    a division by zero.
    """
    sizes = with_missing_size(op, x, [static(size) for size in sizes])
    copied = same_sizes(op, x, sizes)
    if len(sizes) == rank(x) and all(copied):
        return x
    unknown = [position for position, size in enumerate(sizes) if not is_static(size)]
    if 0 in sizes:
        return op.Reshape(x, op.shape(sizes), allowzero=1)
    told = list(sizes)
    if all(copied[position] for position in unknown) and (len(unknown) > 1 or -1 in sizes):
        unknown, sizes = [], [0 if position in unknown else size for position, size in enumerate(sizes)]
    elif len(unknown) == 1 and -1 not in sizes:
        sizes[unknown.pop()] = -1
    result = op.Reshape(x, op.shape(sizes), allowzero=1 if unknown and -1 not in sizes else 0)
    know_sizes(op, result, told)
    return result


def with_missing_size(op, x: ir.Value, sizes: list[Size]) -> list[Size]:
    """Replace -1 by the size that it stands for, if it is static or one that *x* has."""
    if -1 not in sizes:
        return sizes
    left = sizes_of(op, x)
    for size in sizes:
        if not is_static(size):
            same = next((own for own in left if own is size or label(own) == label(size) is not None), None)
            if same is None:
                return sizes
            left.remove(same)
    given = math.prod(abs(size) for size in sizes if is_static(size))
    known = math.prod(size for size in left if is_static(size))
    symbolic = [size for size in left if not is_static(size)]
    if given == 0 or (symbolic and (len(symbolic) > 1 or known != given)):
        return sizes
    missing = symbolic[0] if symbolic else known // given
    return [missing if is_int(size, -1) else size for size in sizes]


def expanded(op, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """*x* broadcast to these sizes, of which -1 and those that it has already are not written."""
    sizes = [static(size) for size in sizes]
    lead = len(sizes) - rank(x)
    has = [False] * lead + same_sizes(op, x, sizes[lead:])
    kept = [1 if same or is_int(size, -1) else size for same, size in zip(has, sizes)]
    while lead <= 0 and kept and is_int(kept[0], 1):
        del kept[0]
    if lead <= 0 and not kept:
        return x
    # a shape that was written for a Reshape may have a -1, which Expand does not take
    is_shared = -1 not in sizes and has_shape(op, sizes) and not is_static(*kept)
    result = op.Expand(x, op.shape(sizes if is_shared else kept))
    know_sizes(op, result, sizes)
    return result
