"""Matrix products: vectors, empty axes, transposed batches."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.promotion import wide
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


@repairs(
    "MatMul",
    when="one operand is a Transpose that moves axis 0 to the last two, then cast (halves always are), the other of another rank",
    because="the fusion of the Transpose ends the process",
    nodes=1,
)
def cast_before_the_transposition(op, a, b):
    """The tensor is cast first, then transposed; halves are multiplied in float32."""
    if not (a.shape and b.shape) or rank(a) == rank(b) or not (transposition(a) or transposition(b)):
        return None
    dtype = wide(a.dtype)
    return op.Cast(op.MatMul(transposed_last(op, a, dtype), transposed_last(op, b, dtype)), to=a.dtype)


def transposed_last(op, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """*x* in *dtype*, cast before its `transposition` if there is one."""
    moved = transposition(x)
    if moved is None:
        return op.Cast(x, to=dtype)
    return op.Transpose(op.Cast(moved.inputs[0], to=dtype), perm=moved.attributes["perm"].as_ints())


def transposition(x: ir.Value) -> ir.Node | None:
    """The Transpose that gives *x*, by way of a Cast unless x is a half, and that moves axis 0 to the last two of several."""
    node = x.producer()
    if node is not None and node.op_type == "Cast":
        node = node.inputs[0].producer()
    elif wide(x.dtype) == x.dtype:
        return None
    if node is None or node.op_type != "Transpose":
        return None
    order = node.attributes["perm"].as_ints()
    return node if len(order) > 2 and 0 in order[-2:] else None
