"""Transposing: transpose, permute, t, movedim, flip, roll, rot90; the elements change places along axes.

Source of semantics: https://pytorch.org/docs/stable/torch.html#indexing-slicing-joining-mutating-ops.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.registry import translates, writes_through
from experimental_experiment.torch_interpreter.sizes import is_int, is_static, minus, sizes_of, take_sizes

aten = torch.ops.aten

MANY, MANY_SINGLE, SMALL = 2048, 512, 16
"""How many pieces, and single elements, of at most how many elements are not copied one by one, see `has_small_pieces`."""


@translates(aten.movedim.int, aten.movedim.intlist, aten.moveaxis.int, aten.moveaxis.intlist)
def movedim(op, self, source, destination):
    """Move some axes to new places; the others keep their order."""
    return op.Transpose(self, perm=moving(rank(self), source, destination))


@writes_through(aten.movedim.int, aten.movedim.intlist, aten.moveaxis.int, aten.moveaxis.intlist)
def put_movedim(op, base, new, source, destination):
    """Move the axes back."""
    return op.Transpose(new, perm=moving(rank(base), destination, source))


@translates(aten.numpy_T.default)
def numpy_t(op, self):
    """All axes in reverse order."""
    return op.Transpose(self, perm=list(range(rank(self)))[::-1])


@writes_through(aten.numpy_T.default)
def put_numpy_t(op, base, new):
    """Reversing twice changes nothing."""
    return numpy_t(op, new)


@translates(aten.permute.default, aten.permute_copy.default)
def permute(op, self, dims):
    """The axes in another order."""
    return op.Transpose(self, perm=[dim % rank(self) for dim in dims])


@writes_through(aten.permute.default)
def put_permute(op, base, new, dims):
    """The axes in their first order."""
    return op.Transpose(new, perm=inverse([dim % rank(base) for dim in dims]))


@translates(
    aten.adjoint.default,
    aten.mH.default,
    aten.mT.default,
    aten.matrix_H.default,
    aten.t.default,
    aten.t_copy.default,
)
def t(op, self):
    """Exchange the last two axes; a tensor with fewer axes stays."""
    return swapped(op, self, -2, -1) if rank(self) > 1 else self


@writes_through(aten.adjoint.default, aten.mH.default, aten.mT.default, aten.matrix_H.default, aten.t.default)
def put_t(op, base, new):
    """Exchanging twice changes nothing."""
    return t(op, new)


@translates(aten.transpose.int, aten.transpose_copy.int, aten.swapdims.default)
def transpose(op, self, dim0, dim1):
    """Exchange two axes."""
    return swapped(op, self, dim0, dim1)


@writes_through(aten.transpose.int, aten.swapdims.default)
def put_transpose(op, base, new, dim0, dim1):
    """Exchanging twice changes nothing."""
    return swapped(op, new, dim0, dim1)


@translates(aten.swapaxes.default)
def swapaxes(op, self, axis0, axis1):
    """Exchange two axes."""
    return swapped(op, self, axis0, axis1)


@writes_through(aten.swapaxes.default)
def put_swapaxes(op, base, new, axis0, axis1):
    """Exchanging twice changes nothing."""
    return swapped(op, new, axis0, axis1)


@translates(aten.flip.default)
def flip(op, self, dims):
    """Reverse the order along some axes."""
    if not dims or rank(self) == 0:
        return self
    return op.Slice(
        self, [-1] * len(dims), [-(2**63)] * len(dims), [d % rank(self) for d in dims], [-1] * len(dims)
    )


@translates(aten.fliplr.default)
def fliplr(op, self):
    """Reverse the second axis."""
    return flip(op, self, [1])


@translates(aten.flipud.default)
def flipud(op, self):
    """Reverse the first axis."""
    return flip(op, self, [0])


@translates(aten.rot90.default)
def rot90(op, self, k, dims):
    """Quarter turns in the plane of two axes."""
    turns = k % 4
    flipped = {0: [], 1: [dims[1]], 2: dims, 3: [dims[0]]}[turns]
    self = flip(op, self, flipped)
    return swapped(op, self, *dims) if turns % 2 else self


@translates(aten.roll.default)
def roll(op, self, shifts, dims):
    """Shift along axes, what falls off one end coming back at the other; without axes, in flat order."""
    if not dims:
        flat = op.Reshape(self, [-1])
        return (
            reshaped(op, roll(op, flat, shifts, [0]), sizes_of(op, self))
            if rank(self) != 1
            else roll(op, self, shifts, [0])
        )
    for shift, dim in zip(shifts, dims):
        self = rolled(op, self, shift, dim)
    return self


def rolled(op, self, shift, dim: int) -> ir.Value:
    """Shift along one axis."""
    size = op.size(self, dim)
    if is_int(shift, 0) or (is_static(size, shift) and shift % max(size, 1) == 0):
        return self
    if is_static(size, shift) and not has_small_pieces(self, dim % rank(self)):
        return op.Gather(self, op.constant(np.roll(np.arange(size), shift)), axis=dim % rank(self))
    if is_static(size, shift):
        start = [-shift % size]
    elif shift in (1, -1):  # inside of any axis
        start = [-shift]
    else:
        start = op.Mod(op.shape([minus(op, 0, shift)]), op.Max(op.shape([size]), [1]))
    behind, before = op.Slice(self, start, [INT64_MAX], [dim]), op.Slice(self, [0], start, [dim])
    result = op.Concat(behind, before, axis=dim)
    take_sizes(op, result, self)
    return result


def has_small_pieces(x: ir.Value, axis: int) -> bool:
    """Whether the elements of an axis are many small pieces of memory, which Gather copies one by one.

    onnxruntime 1.31.1, float32, the last axis, Gather and two Slices with a Concat: 16 x 32 elements 5.3 and 4.7 microseconds, 16 x 127
    9.6 and 5.2; 512 pieces of 4 5.2 and 5.0, 16384 46.9 and 16.9; pieces of 40 elements take the same time.
    """
    pieces, widths = x.shape[: axis + 1], x.shape[axis + 1 :]
    if not all(isinstance(size, int) for size in widths) or math.prod(widths) > SMALL:
        return False
    least = MANY_SINGLE if math.prod(widths) == 1 else MANY
    return math.prod(size for size in pieces if isinstance(size, int)) >= least


# ---- helpers that other families share


def inverse(perm: list[int]) -> list[int]:
    """The permutation that undoes *perm*."""
    return sorted(range(len(perm)), key=perm.__getitem__)


def swapped(op, x: ir.Value, first: int, second: int) -> ir.Value:
    """*x* with two axes exchanged."""
    if rank(x) == 0:
        return x
    perm = list(range(rank(x)))
    perm[first], perm[second] = perm[second], perm[first]
    return op.Transpose(x, perm=perm)


def transposed(op, x: ir.Value) -> ir.Value:
    """Matrices with rows and columns, the last two axes, exchanged."""
    return swapped(op, x, -2, -1)


def moving(count: int, source: int | list[int], destination: int | list[int]) -> list[int]:
    """The permutation of *count* axes that moves *source* to *destination*."""
    if count == 0:
        return []
    sources = [axis % count for axis in (source if isinstance(source, list) else [source])]
    places = [axis % count for axis in (destination if isinstance(destination, list) else [destination])]
    perm = [axis for axis in range(count) if axis not in sources]
    for place, axis in sorted(zip(places, sources)):
        perm.insert(place, axis)
    return perm
