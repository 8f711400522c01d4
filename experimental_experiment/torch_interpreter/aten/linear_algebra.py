"""Linear algebra: linear, matmul and the products of matrices.

Source of semantics: https://pytorch.org/docs/stable/torch.html#blas-and-lapack-operations.
"""

from __future__ import annotations

import torch

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


@translates(aten.linear.default)
def linear(op, input, weight, bias):
    """``input @ weight.T + bias``; one Gemm for matrices, which keeps the weight as torch stores it."""
    if rank(input) == 2 and rank(weight) == 2:
        return op.Gemm(input, weight, bias, transB=1)
    product = op.MatMul(input, op.Transpose(weight, perm=[1, 0]) if rank(weight) == 2 else weight)
    return product if bias is None else op.Add(product, bias)
