"""Scattering along an axis: scatter, scatter_add, scatter_reduce, index_add, index_copy.

Source of semantics: https://pytorch.org/docs/stable/generated/torch.Tensor.scatter_.html, ONNX ScatterElements-18.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.conversion import scalar
from experimental_experiment.torch_interpreter.aten.masking import flat
from experimental_experiment.torch_interpreter.aten.shaping import expanded, reshaped
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import has_size, sizes_of

aten = torch.ops.aten

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64

REDUCTIONS = {
    **dict.fromkeys(("add", "sum", "mean"), "add"),
    **dict.fromkeys(("multiply", "prod"), "mul"),
    "amax": "max",
    "amin": "min",
}
"""Names of torch and of ONNX."""


@translates(aten.index_add.default)
def index_add(op, self, dim, index, source, alpha):
    """Add slices of *source* to the slices at the positions of a vector."""
    if alpha != 1 or isinstance(alpha, ir.Value):
        source = (
            op.Mul(source, scalar(op, alpha, source.dtype))
            if source.dtype != BOOL
            else op.And(source, op.constant(bool(alpha)))
        )
    return with_lines(op, self, dim, index, source, "add")


@translates(aten.index_copy.default)
def index_copy(op, self, dim, index, source):
    """Copy slices of *source* to the positions of a vector."""
    return with_lines(op, self, dim, index, source)


@translates(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(op, self, dim, index, value):
    """One value in the slices at the positions of a vector."""
    value = scalar(op, value, self.dtype)
    if rank(self) == 0:
        return scattered(op, self, dim, flat(op, index), value)
    axis = dim % rank(self)
    index = flat(op, index)
    nowhere = expanded(op, op.constant(False), [op.size(self, axis)])
    here = expanded(op, op.constant(True), sizes_of(op, index))
    chosen = op.ScatterElements(nowhere, op.Cast(index, to=INT64), here)
    return op.Where(op.Unsqueeze(chosen, list(range(1, rank(self) - axis))), value, self)


@translates(aten.index_reduce.default)
def index_reduce(op, self, dim, index, source, reduce, include_self):
    """Reduce slices of *source* into the slices at the positions of a vector."""

    def write(x, values, reduction=None):
        values = expanded(op, scalar(op, values, x.dtype), sizes_of(op, source))
        return with_lines(op, x, dim, index, values, reduction)

    def count(number):
        return count_of_slices(op, self, dim, index, number)

    return reduced_into(op, self, source, reduce, include_self, write, count)


@translates(aten.put.default)
def put(op, self, index, source, accumulate):
    """Write elements at flat positions."""
    values = scattered(
        op, flat(op, self), 0, flat(op, index), flat(op, source), "add" if accumulate else None
    )
    return reshaped(op, values, sizes_of(op, self))


@translates(aten.scatter.src)
def scatter(op, self, dim, index, src):
    """Along one axis, the elements go to the positions that *index* holds."""
    return scattered(op, self, dim, index, src)


@translates(aten.scatter.value)
def scatter_value(op, self, dim, index, value):
    """Along one axis, a number goes to the positions that *index* holds."""
    return scattered(op, self, dim, index, value)


@translates(aten.scatter.reduce)
def scatter_with(op, self, dim, index, src, reduce):
    """Add to, or multiply, what is there."""
    return scattered(op, self, dim, index, src, REDUCTIONS[reduce])


@translates(aten.scatter.value_reduce)
def scatter_value_with(op, self, dim, index, value, reduce):
    """Add a number to, or multiply, what is there."""
    return scattered(op, self, dim, index, value, REDUCTIONS[reduce])


@translates(aten.scatter_add.default)
def scatter_add(op, self, dim, index, src):
    """Add to what is there."""
    return scattered(op, self, dim, index, src, "add")


@translates(aten.scatter_reduce.two)
def scatter_reduce(op, self, dim, index, src, reduce, include_self):
    """Reduce what comes to a position, with what is there or without."""

    def write(x, values, reduction=None):
        return scattered(op, x, dim, index, values, reduction)

    def count(number):
        axis = dim % max(rank(self), 1)
        has_slices = 1 < rank(self) == rank(index) and are_whole(self, index, axis)
        vector = vector_along(op, index, axis) if has_slices else None
        if vector is not None:
            return count_of_slices(op, self, dim, vector, number)
        return write(expanded(op, number, sizes_of(op, self)), 1, "add")

    return reduced_into(op, self, src, reduce, include_self, write, count)


# ---- helpers


def scattered(op, x: ir.Value, dim: int, index: ir.Value, src, reduction: str | None = None) -> ir.Value:
    """ScatterElements of a value, or of the part of a tensor that *index* covers; an empty *index* may have any rank."""
    sizes = sizes_of(op, x)
    if rank(x) != rank(index) and rank(x) and rank(index):
        return x
    if rank(x) == 0 or rank(index) == 0:
        x, index = flat(op, x), flat(op, index)
        src = flat(op, src) if isinstance(src, ir.Value) else src
    src = covered(op, src, index, x.dtype)
    result = op.ScatterElements(x, op.Cast(index, to=INT64), src, axis=dim, reduction=reduction)
    return op.Reshape(result, op.constant([], INT64)) if not sizes and rank(result) else result


def with_lines(
    op, x: ir.Value, dim: int, index: ir.Value, source: ir.Value, reduction: str | None = None
) -> ir.Value:
    """The slices of *source* at the positions of a vector, which one of the first axis has whole."""
    if rank(x) < 2 or dim % rank(x):
        return scattered(op, x, dim, *lines(op, x, dim, index, source), reduction)
    positions = op.Unsqueeze(op.Cast(flat(op, index), to=INT64), [1])
    return op.ScatterND(x, positions, source, reduction=reduction)


def are_whole(x: ir.Value, indices: ir.Value, axis: int) -> bool:
    """Whether all axes but one have the same size in both."""
    sizes = zip(x.shape, indices.shape)
    return all(
        one == other and one != ir.SymbolicDim(None)
        for place, (one, other) in enumerate(sizes)
        if place != axis
    )


def vector_along(op, indices: ir.Value, axis: int) -> ir.Value | None:
    """The positions as a tensor of one element along all axes but one, None when they differ along another one."""
    if indices.const_value is not None:
        places = indices.const_value.numpy()
        first = places[tuple(slice(None) if place == axis else slice(1) for place in range(places.ndim))]
        return op.constant(first) if first.size and (places == first).all() else None
    node = producer_of(indices, "Cast", "Expand")
    if node is not None and node.op_type == "Cast":
        vector = vector_along(op, node.inputs[0], axis)
        return None if vector is None else op.Cast(vector, to=indices.dtype)
    if node is None:
        return None
    vector = node.inputs[0]
    sizes = [1] * (rank(indices) - rank(vector)) + list(vector.shape)
    is_vector = all(size == 1 for place, size in enumerate(sizes) if place != axis)
    return vector if is_vector and sizes[axis] == indices.shape[axis] else None


def count_of_slices(op, x: ir.Value, dim: int, index: ir.Value, number: ir.Value) -> ir.Value:
    """*number* and how many slices come to the positions of a vector, broadcast to *x*."""
    axis = dim % max(rank(x), 1)
    numbers = expanded(op, number, sizes_of(op, x)[axis : axis + 1])
    numbers = scattered(op, numbers, 0, flat(op, index), 1, "add")
    return op.Unsqueeze(numbers, list(range(1, rank(x) - axis)))


def lines(op, x: ir.Value, dim: int, index: ir.Value, source: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The positions of a vector for every element of the slices they are for, and *source* in that rank."""
    if rank(x) == 0:
        return flat(op, index), flat(op, source)
    axis = dim % rank(x)
    column = op.Unsqueeze(flat(op, index), [other for other in range(rank(x)) if other != axis])
    return expanded(op, column, sizes_of(op, source)) if rank(source) else column, source


def covered(op, src, index: ir.Value, dtype: ir.DataType) -> ir.Value:
    """The elements that go to the positions of *index*: a number everywhere, or the beginning of every axis."""
    src = scalar(op, src, dtype)
    if rank(src) == 0:
        return expanded(op, src, sizes_of(op, index))
    longer = [axis for axis, size in enumerate(sizes_of(op, index)) if not has_size(src, axis, size)]
    if not longer:
        return src
    ends = op.shape([op.size(index, axis) for axis in longer])
    return op.Slice(src, [0] * len(longer), ends, longer)


def neutral(reduce: str, dtype: ir.DataType) -> int | float:
    """What changes nothing in a reduction."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    sign = 1 if reduce == "amin" else -1
    if dtype == BOOL:
        return reduce == "amin"
    if dtype.is_floating_point():
        return sign * float("inf")
    limits = torch.iinfo(getattr(torch, dtype.name.lower()))
    return limits.max if reduce == "amin" else limits.min


def is_everywhere(x: ir.Value, number: int | float) -> bool:
    """Whether all elements of a tensor are known to be this number."""
    node = producer_of(x, "Expand")
    if node is not None:
        x = node.inputs[0]
    return is_small(x) and bool((x.const_value.numpy() == number).all())


def reduced_into(
    op, x: ir.Value, values: ir.Value, reduce: str, include_self: bool, write: Callable, count: Callable
) -> ir.Value:
    """*x* in which *values* are reduced, with the elements that stood where they go when *include_self*. The mean of integers is rounded
    towards minus infinity.

    ``write(x, values, reduction)`` places values, or one number, there; ``count(number)`` adds to a number how many come to each element.
    """
    if reduce == "mean" and x.dtype == BOOL:
        raise Untranslatable("the mean of booleans")
    start = neutral(reduce, x.dtype)
    base = x if include_self or is_everywhere(x, start) else write(x, start)
    total = write(base, values, REDUCTIONS[reduce])
    if reduce != "mean":
        return total
    one, is_float = op.constant(1, x.dtype), x.dtype.is_floating_point()
    counts = count(op.constant(int(include_self), x.dtype))
    if not (include_self and is_float):  # few integers wrap around to 0
        counts = op.Max(counts, one)
    if is_float:
        return op.Div(total, counts)
    return op.Div(op.Sub(total, op.Mod(total, counts)), counts)
