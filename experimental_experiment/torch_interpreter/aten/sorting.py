"""Sorting: sort, topk, argsort and the order of elements.

Source of semantics: torch.sort and ONNX TopK-11, which puts the first one of equal elements first: every sort is stable.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.ordering import with_ordered_nan
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten
BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64


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


def comparable(op, self) -> ir.Value:
    """*self* in a dtype that ONNX orders: booleans are bytes."""
    return op.Cast(self, to=ir.DataType.UINT8) if self.dtype == BOOL else self


def ordered(op, self, k, dim: int, descending: bool) -> tuple[ir.Value, ir.Value]:
    """The first *k* elements (None: all) along one axis in order, and their indices."""
    if rank(self) == 0:
        return self, op.constant(0, INT64)
    number = op.shape([op.size(self, dim) if k is None else k])
    values, indices = op.TopK(comparable(op, self), number, axis=dim, largest=int(descending), outputs=2)
    return op.Cast(values, to=self.dtype), indices


def ordered_with_nan(op, self, dim: int) -> tuple[ir.Value, ir.Value]:
    """All elements along one axis from the smallest on, and their indices; NaN, which `ordered` may put anywhere, is the largest element."""
    if self.dtype not in dtypes.FLOATS or rank(self) == 0:
        return ordered(op, self, None, dim, False)
    _, indices = ordered(op, with_ordered_nan(op, self, math.inf), None, dim, False)
    return op.GatherElements(self, indices, axis=dim), indices
