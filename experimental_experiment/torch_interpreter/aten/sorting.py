"""Sorting: sort, topk, argsort and the order of elements.

Source of semantics: torch.sort and ONNX TopK-11. torch's NaN is larger than infinity; onnxruntime's TopK does not order NaN,
but is stable: of equal elements the first one comes first.
"""

from __future__ import annotations

import math
import sys

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64
DOUBLE, FLOAT = ir.DataType.DOUBLE, ir.DataType.FLOAT


@translates(aten.argsort.default)
def argsort(op, self, dim, descending):
    """The indices that sort, equal elements staying in order."""
    return ordered(op, self, None, dim, descending)[1]


@translates(aten.argsort.stable)
def argsort_stable(op, self, stable, dim, descending):
    """The indices that sort; always stable."""
    return ordered(op, self, None, dim, descending)[1]


@translates(aten.msort.default)
def msort(op, self):
    """The elements along the first axis in order."""
    return ordered(op, self, None, 0, False)[0]


@translates(aten.sort.default)
def sort(op, self, dim, descending):
    """All elements along one axis in order, and where they were."""
    return ordered(op, self, None, dim, descending)


@translates(aten.sort.stable)
def sort_stable(op, self, stable, dim, descending):
    """All elements along one axis in order, and where they were; always stable."""
    return ordered(op, self, None, dim, descending)


@translates(aten.topk.default)
def topk(op, self, k, dim, largest, sorted):
    """The k largest or smallest elements along one axis, in order, and where they were."""
    return ordered(op, self, k, dim, largest)


def comparable(op, self, nan: float) -> ir.Value:
    """*self* as numbers that ONNX orders as torch does, NaN beyond all others: *nan* is inf or -inf.

    Floats go to a wider dtype, where infinities are large finite numbers; float64 is halved instead.
    """
    if self.dtype == BOOL:
        return op.Cast(self, to=ir.DataType.UINT8)
    if self.dtype not in dtypes.FLOATS:
        return self
    if self.dtype == DOUBLE:
        wide, bound = op.Mul(self, 0.5), sys.float_info.max
    else:
        narrow = self.dtype == ir.DataType.FLOAT16
        wide, bound = op.Cast(self, to=FLOAT if narrow else DOUBLE), 1e30 if narrow else 1e300
    return op.Where(op.IsNaN(self), op.CastLike(nan, wide), op.Clip(wide, -bound, bound))


def ordered(op, self, k, dim: int, descending: bool) -> tuple[ir.Value, ir.Value]:
    """The first *k* elements (None: all) along one axis in order, NaN being the largest, and their indices."""
    if rank(self) == 0:
        return self, op.constant(0, INT64)
    key = comparable(op, self, math.inf)
    number = op.shape([op.size(self, dim) if k is None else k])
    values, indices = op.TopK(key, number, axis=dim, largest=int(descending), outputs=2)
    return values if key is self else op.GatherElements(self, indices, axis=dim), indices
