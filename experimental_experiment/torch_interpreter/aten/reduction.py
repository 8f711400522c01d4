"""Reductions: sum, mean, prod, extrema, logsumexp, any, all, count_nonzero over all axes or some of them.

Source of semantics: https://pytorch.org/docs/stable/torch.html#reduction-ops. Integers and booleans sum to int64.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.sorting import comparable
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.promotion import float_dtype
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
BOOL, INT64, UINT8 = ir.DataType.BOOL, ir.DataType.INT64, ir.DataType.UINT8


@translates(aten.all.default, aten._is_all_true.default)
def all_(op, self):
    """Whether all elements are true; True without any."""
    return truth(op, "ReduceMin", self, None)


@translates(aten.all.dim)
def all_dim(op, self, dim, keepdim):
    """Whether all elements along one axis are true."""
    return truth(op, "ReduceMin", self, dim, keepdim)


@translates(aten.all.dims)
def all_dims(op, self, dim, keepdim):
    """Whether all elements along some axes are true; an empty list reduces nothing."""
    return truth(op, "ReduceMin", self, () if dim == [] else dim, keepdim)


@translates(aten.amax.default)
def amax(op, self, dim, keepdim):
    """The largest element along axes."""
    return reduce(op, "ReduceMax", self, dim, keepdim)


@translates(aten.amin.default)
def amin(op, self, dim, keepdim):
    """The smallest element along axes."""
    return reduce(op, "ReduceMin", self, dim, keepdim)


@translates(aten.aminmax.default)
def aminmax(op, self, dim, keepdim):
    """The smallest and the largest element along one axis or all."""
    return amin(op, self, dim, keepdim), amax(op, self, dim, keepdim)


@translates(aten.any.default, aten._is_any_true.default)
def any_(op, self):
    """Whether an element is true; False without any."""
    return truth(op, "ReduceMax", self, None)


@translates(aten.any.dim)
def any_dim(op, self, dim, keepdim):
    """Whether an element along one axis is true."""
    return truth(op, "ReduceMax", self, dim, keepdim)


@translates(aten.any.dims)
def any_dims(op, self, dim, keepdim):
    """Whether an element along some axes is true; an empty list reduces nothing."""
    return truth(op, "ReduceMax", self, () if dim == [] else dim, keepdim)


@translates(aten.argmax.default)
def argmax(op, self, dim, keepdim):
    """The index of the first largest element, in the flattened tensor when *dim* is None."""
    return position(op, "ArgMax", self, dim, keepdim)


@translates(aten.argmin.default)
def argmin(op, self, dim, keepdim):
    """The index of the first smallest element, in the flattened tensor when *dim* is None."""
    return position(op, "ArgMin", self, dim, keepdim)


@translates(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def count_nonzero(op, self, dim):
    """How many elements are not zero; NaN is not."""
    return reduce(op, "ReduceSum", op.Cast(op.Cast(self, to=BOOL), to=INT64), dim)


@translates(aten.logsumexp.default)
def logsumexp(op, self, dim, keepdim):
    """``log(sum(exp(self)))``, stable; integers give float32."""
    return reduce(op, "ReduceLogSumExp", op.Cast(self, to=float_dtype(self)), dim, keepdim)


@translates(aten.max.default)
def max_(op, self):
    """The largest element."""
    return reduce(op, "ReduceMax", self, None)


@translates(aten.max.dim)
def max_dim(op, self, dim, keepdim):
    """The largest element along one axis and the index of the first one."""
    return selected(op, "ReduceMax", "ArgMax", self, dim, keepdim)


@translates(aten.mean.default)
def mean(op, self, dtype):
    """The mean of all elements."""
    return mean_dim(op, self, None, False, dtype)


@translates(aten.mean.dim)
def mean_dim(op, self, dim, keepdim, dtype):
    """The mean along axes; NaN over no element."""
    self = self if dtype is None else op.Cast(self, to=dtypes.onnx_dtype(dtype))
    return reduce(op, "ReduceMean", self, dim, keepdim)


@translates(aten.min.default)
def min_(op, self):
    """The smallest element."""
    return reduce(op, "ReduceMin", self, None)


@translates(aten.min.dim)
def min_dim(op, self, dim, keepdim):
    """The smallest element along one axis and the index of the first one."""
    return selected(op, "ReduceMin", "ArgMin", self, dim, keepdim)


@translates(aten.nanmean.default)
def nanmean(op, self, dim, keepdim, dtype):
    """The mean of what is not NaN; NaN over no such element."""
    summed = nansum(op, self, dim, keepdim, dtype)
    number = reduce(op, "ReduceSum", op.Cast(op.Not(op.IsNaN(self)), to=INT64), dim, keepdim)
    return op.Div(summed, op.CastLike(number, summed))


@translates(aten.nansum.default)
def nansum(op, self, dim, keepdim, dtype):
    """The sum along axes, NaN counting as zero."""
    if dim == [] and rank(self):
        raise Untranslatable(
            "nansum along no axis: torch adds all elements, but declares the shape of its input"
        )
    if self.dtype.is_floating_point():
        self = op.Where(op.IsNaN(self), op.CastLike(0.0, self), self)
    return sum_dim(op, self, dim, keepdim, dtype)


@translates(aten.prod.default)
def prod(op, self, dtype):
    """The product of all elements; 1 without any."""
    return reduce(op, "ReduceProd", accumulated(op, self, dtype), None)


@translates(aten.prod.dim_int)
def prod_dim(op, self, dim, keepdim, dtype):
    """The product along one axis."""
    return reduce(op, "ReduceProd", accumulated(op, self, dtype), dim, keepdim)


@translates(aten.sum.default)
def sum_(op, self, dtype):
    """The sum of all elements; 0 without any."""
    return reduce(op, "ReduceSum", accumulated(op, self, dtype), None)


@translates(aten.sum.dim_IntList)
def sum_dim(op, self, dim, keepdim, dtype):
    """The sum along axes; None and an empty list are all axes."""
    return reduce(op, "ReduceSum", accumulated(op, self, dtype), dim, keepdim)


@translates(aten.sum_to_size.default)
def sum_to_size(op, self, size):
    """The sum over the axes that a broadcast from *size* adds or expands."""
    fake = op.context.node.meta["val"]
    added = rank(self) - len(size)
    kept = [axis for axis in range(len(size)) if fake.shape[axis] == 1 and self.shape[axis + added] != 1]
    axes = [*range(added), *(axis + added for axis in kept)]
    if size and not axes:
        return self
    summed = reduce(op, "ReduceSum", accumulated(op, self, None), axes, True)
    return op.Reshape(summed, op.shape(size))


# ---- helpers


def accumulated(op, self, dtype: torch.dtype | None) -> ir.Value:
    """*self* in the dtype of its sum: *dtype*, otherwise int64 for integers and booleans."""
    if dtype is not None:
        return op.Cast(self, to=dtypes.onnx_dtype(dtype))
    return self if self.dtype in dtypes.FLOATS else op.Cast(self, to=INT64)


def axes_of(self, dim) -> list[int]:
    """The axes that *dim* names, not negative: an int, a list; None and an empty list are all, () is none."""
    if dim is None or dim == []:
        return list(range(rank(self)))
    dims = [dim] if isinstance(dim, int) else dim
    return sorted(axis % rank(self) for axis in dims) if rank(self) else []


def count(op, self, dim) -> int | ir.Value:
    """How many elements a reduction over *dim* takes, an int when that is static."""
    sizes = [op.size(self, axis) for axis in axes_of(self, dim)]
    if all(isinstance(size, int) for size in sizes):
        return math.prod(sizes)
    if len(sizes) == 1:
        return sizes[0]
    return op.Size(self) if len(sizes) == rank(self) else op.ReduceProd(op.shape(sizes), keepdims=0)


def position(op, op_type: str, self, dim, keepdim=False) -> ir.Value:
    """ArgMax or ArgMin along one axis, or in the flattened tensor."""
    if rank(self) == 0:
        return op.constant(0, INT64)
    key = comparable(op, self)
    if dim is not None:
        return op.emit(op_type, (key,), {"axis": dim, "keepdims": int(keepdim)})
    index = op.emit(op_type, (op.Reshape(key, [-1]),), {"axis": 0, "keepdims": 0})
    return op.Reshape(index, [1] * rank(self)) if keepdim else index


def reduce(op, op_type: str, self, dim, keepdim=False) -> ir.Value:
    """One ONNX reduction; *dim* as in `axes_of`."""
    axes = axes_of(self, dim)
    if rank(self) and not axes:
        return self
    whole = len(axes) == rank(self)
    return op.emit(op_type, (self, None if whole else axes), {"keepdims": int(keepdim)})


def selected(op, extreme: str, position_of: str, self, dim, keepdim) -> tuple[ir.Value, ir.Value]:
    """The extreme element along one axis, and its index. The index is written first: it sees a bfloat16 rounded, the element then, too."""
    index = position(op, position_of, self, dim, keepdim)
    return reduce(op, extreme, self, dim, keepdim), index


def truth(op, op_type: str, self, dim, keepdim=False) -> ir.Value:
    """Any or all as an extremum of booleans; uint8 stays uint8."""
    result = reduce(op, op_type, op.Cast(self, to=BOOL), dim, keepdim)
    return op.CastLike(result, self) if self.dtype == UINT8 else result
