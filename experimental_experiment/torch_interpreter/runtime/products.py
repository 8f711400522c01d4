"""Matrix products: vectors, empty axes."""

from __future__ import annotations

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.runtime.table import repairs


@repairs(
    "MatMul",
    when="one operand has one axis, the other several",
    because="a Transpose before it is fused although it moves other axes (error 4 on a 5 x 5 matrix); over an empty axis the result is never set",
    nodes=2,
)
def of_a_vector(op, a, b):
    """The vector is a matrix of one row or one column, and that axis is squeezed afterwards."""
    if not (a.shape and b.shape) or 1 not in (rank(a), rank(b)) or rank(a) == rank(b):
        return None
    if rank(a) == 1:
        return op.Squeeze(op.MatMul(op.Unsqueeze(a, [0]), b), [rank(b) - 2])
    return op.Squeeze(op.MatMul(a, op.Unsqueeze(b, [1])), [rank(a) - 1])


@repairs(
    "MatMul",
    when="the summed axis has size 0 in a static shape",
    because="the result of a product with a transposed matrix is never set",
    nodes=2,
)
def over_nothing(op, a, b):
    """A product of zeros over one element."""
    if not (a.shape and b.shape) or a.shape[-1] != 0 or rank(a) == rank(b) == 1:
        return None
    row = op.Expand(op.constant(0, a.dtype), op.shape([*(op.size(a, k) for k in range(rank(a) - 1)), 1]))
    rows = [op.size(b, k) for k in range(rank(b))]
    rows[max(0, rank(b) - 2)] = 1
    return op.MatMul(row, op.Expand(op.constant(0, b.dtype), op.shape(rows)))
