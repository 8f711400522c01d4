"""Splitting: split, chunk, unbind, tensor_split and its relatives; a tensor cut into pieces along an axis.

Source of semantics: https://pytorch.org/docs/stable/torch.html#indexing-slicing-joining-mutating-ops and ONNX Split-18.
"""

from __future__ import annotations

import itertools

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.slicing import put_select, put_sliced, select, sliced
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates, writes_through
from experimental_experiment.torch_interpreter.sizes import Size, minus, plus, quotient, times

aten = torch.ops.aten


@translates(aten.chunk.default, aten.unsafe_chunk.default)
def chunk(op, self, chunks, dim):
    """At most *chunks* pieces of equal sizes, the last one smaller."""
    size = op.size(self, dim)
    if isinstance(size, int) and size:
        return split(op, self, -(-size // chunks), dim)
    if isinstance(size, int):  # as many pieces of nothing as are asked for
        return [self] * number_of_results(op)
    if chunks == number_of_results(op) == 2:
        return tensor_split(op, self, 2, dim)
    return split(op, self, quotient(op, plus(op, size, chunks - 1), chunks), dim)


@writes_through(aten.chunk.default)
def put_chunk(op, base, new, chunks, dim, position):
    """The other pieces around the new one."""
    return with_piece(op, chunk(op, base, chunks, dim), new, dim, position)


@translates(aten.dsplit.int)
def dsplit(op, self, sections):
    """Equal pieces along the third axis."""
    return tensor_split(op, self, sections, 2)


@writes_through(aten.dsplit.int)
def put_dsplit(op, base, new, sections, position):
    """The other pieces around the new one."""
    return with_piece(op, dsplit(op, base, sections), new, 2, position)


@translates(aten.dsplit.array)
def dsplit_at(op, self, indices):
    """Pieces of the third axis that begin at these positions."""
    return tensor_split_at(op, self, indices, 2)


@writes_through(aten.dsplit.array)
def put_dsplit_at(op, base, new, indices, position):
    """The slice of one piece."""
    return put_tensor_split_at(op, base, new, indices, 2, position)


@translates(aten.hsplit.int)
def hsplit(op, self, sections):
    """Equal pieces along the second axis, or the only one."""
    return tensor_split(op, self, sections, min(1, rank(self) - 1))


@writes_through(aten.hsplit.int)
def put_hsplit(op, base, new, sections, position):
    """The other pieces around the new one."""
    return with_piece(op, hsplit(op, base, sections), new, min(1, rank(base) - 1), position)


@translates(aten.hsplit.array)
def hsplit_at(op, self, indices):
    """Pieces of the second axis, or the only one, that begin at these positions."""
    return tensor_split_at(op, self, indices, min(1, rank(self) - 1))


@writes_through(aten.hsplit.array)
def put_hsplit_at(op, base, new, indices, position):
    """The slice of one piece."""
    return put_tensor_split_at(op, base, new, indices, min(1, rank(base) - 1), position)


@translates(aten.split.Tensor, aten.split_copy.Tensor, aten.unsafe_split.Tensor)
def split(op, self, split_size, dim):
    """Pieces of *split_size*, the last one smaller; torch.export has fixed their number."""
    size = op.size(self, dim)
    if isinstance(size, int) and isinstance(split_size, int):
        sizes = [min(split_size, size - start) for start in range(0, size, split_size or 1)] or [size]
        return pieces(op, self, sizes, dim)
    count = number_of_results(op)
    last = minus(op, size, times(op, split_size, count - 1))
    return pieces(op, self, [*[split_size] * (count - 1), last], dim)


@writes_through(aten.split.Tensor, aten.unsafe_split.Tensor)
def put_split(op, base, new, split_size, dim, position):
    """The other pieces around the new one."""
    return with_piece(op, split(op, base, split_size, dim), new, dim, position)


@translates(
    aten.split_with_sizes.default, aten.unsafe_split_with_sizes.default, aten.split_with_sizes_copy.default
)
def split_with_sizes(op, self, split_sizes, dim):
    """Pieces of the given sizes."""
    return pieces(op, self, split_sizes, dim)


@writes_through(aten.split_with_sizes.default, aten.unsafe_split_with_sizes.default)
def put_split_with_sizes(op, base, new, split_sizes, dim, position):
    """The other pieces around the new one."""
    return with_piece(op, pieces(op, base, split_sizes, dim), new, dim, position)


@translates(aten.split.sizes)
def split_sizes(op, self, split_size, dim):
    """Pieces of the given sizes."""
    return pieces(op, self, split_size, dim)


@writes_through(aten.split.sizes)
def put_split_sizes(op, base, new, split_size, dim, position):
    """The other pieces around the new one."""
    return with_piece(op, pieces(op, base, split_size, dim), new, dim, position)


@translates(aten.tensor_split.sections)
def tensor_split(op, self, sections, dim):
    """That many pieces, the first ones larger by one where the size does not divide."""
    size = op.size(self, dim)
    count = sections if isinstance(sections, int) else number_of_results(op)
    if isinstance(size, int):
        sizes = [size // count + (position < size % count) for position in range(count)]
        return pieces(op, self, sizes, dim)
    if count == 1:
        return [self]
    lengths = op.Div(op.Add(op.shape([size]), list(reversed(range(count)))), count)
    return list(op.Split(self, lengths, axis=dim % rank(self), outputs=count))


@writes_through(aten.tensor_split.sections)
def put_tensor_split(op, base, new, sections, dim, position):
    """The other pieces around the new one."""
    return with_piece(op, tensor_split(op, base, sections, dim), new, dim, position)


@translates(aten.tensor_split.indices)
def tensor_split_at(op, self, indices, dim):
    """Pieces that begin at these positions."""
    bounds = [0, *indices, None]
    return [sliced(op, self, dim, start, end) for start, end in itertools.pairwise(bounds)]


@writes_through(aten.tensor_split.indices)
def put_tensor_split_at(op, base, new, indices, dim, position):
    """The slice of one piece."""
    bounds = [0, *indices, None]
    return put_sliced(op, base, new, dim, bounds[position], bounds[position + 1])


@translates(aten.tensor_split.tensor_indices_or_sections)
def tensor_split_by(op, self, tensor_indices_or_sections, dim):
    """A vector holds where the pieces begin; the number of pieces, a constant, is a 0-d tensor."""
    given = tensor_indices_or_sections
    if rank(given) == 1:
        count = number_of_results(op) - 1
        return tensor_split_at(op, self, [op.Gather(given, place, axis=0) for place in range(count)], dim)
    return tensor_split(op, self, given.const_value.numpy().item(), dim)


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


@translates(aten.vsplit.int)
def vsplit(op, self, sections):
    """Equal pieces along the first axis."""
    return tensor_split(op, self, sections, 0)


@writes_through(aten.vsplit.int)
def put_vsplit(op, base, new, sections, position):
    """The other pieces around the new one."""
    return with_piece(op, vsplit(op, base, sections), new, 0, position)


@translates(aten.vsplit.array)
def vsplit_at(op, self, indices):
    """Pieces of the first axis that begin at these positions."""
    return tensor_split_at(op, self, indices, 0)


@writes_through(aten.vsplit.array)
def put_vsplit_at(op, base, new, indices, position):
    """The slice of one piece."""
    return put_tensor_split_at(op, base, new, indices, 0, position)


# ---- helpers


def number_of_results(op) -> int:
    """How many results torch.export saw."""
    return len(op.context.node.meta["val"])


def pieces(op, x: ir.Value, sizes: list[Size], dim: int) -> list[ir.Value]:
    """*x* cut along one axis."""
    if len(sizes) == 1:
        return [x]
    return list(op.Split(x, op.shape(sizes), axis=dim % rank(x), outputs=len(sizes)))


def with_piece(op, parts: list[ir.Value], new: ir.Value, dim: int, position: int) -> ir.Value:
    """The pieces put together, *new* in the place of one of them."""
    parts = [*parts[:position], new, *parts[position + 1 :]]
    return op.Concat(*parts, axis=dim)
