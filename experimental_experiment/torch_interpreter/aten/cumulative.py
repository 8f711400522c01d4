"""Cumulative operators: cumsum.

Source of semantics: torch.cumsum and ONNX CumSum-14.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.aten.reduction import accumulated
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


@translates(aten.cumsum.default)
def cumsum(op, self, dim, dtype):
    """The sum of all elements up to each one along an axis; integers and booleans sum to int64."""
    self = accumulated(op, self, dtype)
    return op.CumSum(self, dim) if rank(self) else self
