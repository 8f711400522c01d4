"""What is cheap to avoid while emitting: nodes that change nothing, a reshape of a reshape, what onnxruntime gets wrong.

Each function receives the emitter, the inputs and the attributes of the node about to be written, and returns an equal
value, or None.
"""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes


def cast(op, x, *, to, saturate=None):
    """Cast to the dtype it has; to float8 as torch overflows: E4M3FN to its largest number, the others do not saturate."""
    if x.dtype == to:
        return x
    if to not in dtypes.FLOAT8 or saturate is not None:
        return None
    if to == ir.DataType.FLOAT8E5M2:  # onnxruntime makes NaN of what rounds up to infinity
        x = op.Cast(x, to=ir.DataType.FLOAT)
        x = op.Where(op.GreaterOrEqual(op.Abs(x), 61440.0), op.Mul(x, float("inf")), x)
    return op.Cast(x, to=to, saturate=int(to == ir.DataType.FLOAT8E4M3FN))


def cast_like(op, x, like):
    """CastLike is a Cast to a dtype that is known."""
    return op.Cast(x, to=like.dtype) if like.dtype is not None else None


def identity(op, x):
    """Identity is its input."""
    return x


def log(op, x):
    """The logarithm of a sigmoid that onnxruntime rounds to 0: its digits come back with ``1 / (1 + exp(-x))``."""
    sigmoid = x.producer()
    if sigmoid is None or sigmoid.op_type != "Sigmoid" or x.dtype != ir.DataType.FLOAT:
        return None
    return op.Log(op.Reciprocal(op.Add(op.Exp(op.Neg(sigmoid.inputs[0])), 1.0)))


def concat(op, *inputs, axis):
    """Concat of one input."""
    return inputs[0] if len(inputs) == 1 else None


def transpose(op, x, *, perm=None):
    """A permutation that moves nothing; a transposition of a transposition."""
    if perm is None:
        return None
    if list(perm) == list(range(len(perm))):
        return x
    inner = x.producer()
    if (
        inner is not None
        and inner.op_type == "Transpose"
        and inner.graph is op.graph
        and "perm" in inner.attributes
    ):
        first = inner.attributes["perm"].as_ints()
        return op.Transpose(inner.inputs[0], perm=[first[axis] for axis in perm])
    return None


def reshape(op, x, shape, *, allowzero=0):
    """A reshape to the static shape it has; a reshape of a reshape."""
    target = shape.const_value
    if target is None:
        return None
    sizes = target.numpy().tolist()
    if x.shape is not None and x.shape.is_static() and list(x.shape) == sizes:
        return x
    inner = x.producer()
    if inner is not None and inner.op_type == "Reshape" and inner.graph is op.graph and 0 not in sizes:
        return op.Reshape(inner.inputs[0], shape)
    return None


def expand(op, x, shape):
    """An expansion to the static shape it has."""
    target = shape.const_value
    if target is None or x.shape is None or len(x.shape) < target.size:
        return None
    sizes = [1] * (len(x.shape) - target.size) + target.numpy().tolist()
    return x if all(size in (1, known) for size, known in zip(sizes, x.shape)) else None


def shape(op, x, *, start=0, end=None):
    """The sizes of static axes are a constant."""
    if x.shape is None:
        return None
    sizes = list(x.shape)[start:end]
    return op.shape(sizes) if all(isinstance(size, int) for size in sizes) else None


def squeeze(op, x, axes=None):
    """A squeeze of no axis, of the unsqueezed axes."""
    return no_axes(x, axes)


def unsqueeze(op, x, axes=None):
    """An unsqueeze of no axis; of a size that is known as a vector."""
    if axes is not None and axes.const_value is not None and axes.const_value.numpy().tolist() == [0]:
        vector = x.meta.get("vector")
        if vector is not None:
            return vector
    return no_axes(x, axes)


def no_axes(x: ir.Value, axes: ir.Value | None) -> ir.Value | None:
    """*x* when *axes* is an empty constant."""
    return x if axes is not None and axes.const_value is not None and axes.const_value.size == 0 else None


def matmul(op, a, b):
    """Zeros for a product over an empty axis; matrices instead of a vector where that axis may be empty.

    onnxruntime 1.31 does not set the results of products over nothing with a vector, or with a transposed matrix.
    """
    if not (a.shape and b.shape):
        return None
    summed, ranks = a.shape[-1], (len(a.shape), len(b.shape))
    if summed == 0 and ranks != (1, 1):
        row = op.Expand(op.constant(0, a.dtype), op.shape([*(op.size(a, k) for k in range(ranks[0] - 1)), 1]))
        rows = [op.size(b, k) for k in range(ranks[1])]
        rows[max(0, ranks[1] - 2)] = 1
        return op.MatMul(row, op.Expand(op.constant(0, b.dtype), op.shape(rows)))
    if isinstance(summed, int) or (1 not in ranks) or ranks == (1, 1):
        return None
    if ranks[0] == 1:
        row = op.shape([*(op.size(b, k) for k in range(ranks[1] - 2)), 1, op.size(a, 0)])
        return op.Squeeze(op.MatMul(op.Expand(a, row), b), [ranks[1] - 2])
    return op.Squeeze(op.MatMul(a, op.Unsqueeze(b, [1])), [ranks[0] - 1])


def reduction(op_type: str):
    """The simplification of a reduction: axes are counted from the start.

    onnxruntime 1.31 returns a tensor without elements as it is when an axis is negative.
    """

    def simplify(op, x, axes=None, **attributes):
        if axes is None or axes.const_value is None or x.shape is None:
            return None
        counted = axes.const_value.numpy().tolist()
        if all(axis >= 0 for axis in counted):
            return None
        return op.emit(op_type, (x, [axis % len(x.shape) for axis in counted]), attributes)

    return simplify


def position(op_type: str):
    """The simplification of ArgMax and ArgMin, which onnxruntime 1.31 fails in the same way."""

    def simplify(op, x, *, axis=0, **attributes):
        if axis >= 0 or x.shape is None:
            return None
        return op.emit(op_type, (x,), {"axis": axis % len(x.shape), **attributes})

    return simplify


REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)

SIMPLIFICATIONS = {
    "Cast": cast,
    "CastLike": cast_like,
    "Concat": concat,
    "Expand": expand,
    "Identity": identity,
    "Log": log,
    "MatMul": matmul,
    "Reshape": reshape,
    "Shape": shape,
    "Squeeze": squeeze,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
    **{op_type: position(op_type) for op_type in ("ArgMax", "ArgMin")},
    **{op_type: reduction(op_type) for op_type in REDUCTIONS},
}
