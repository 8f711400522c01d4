"""What is cheap to avoid while emitting: nodes that change nothing, a reshape of a reshape.

Each function receives the emitter, the inputs and the attributes of the node about to be written, and returns an equal
value, or None.
"""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.errors import Untranslatable


def cast(op, x, *, to, saturate=None):
    """Cast to the dtype it has; to float8 as torch overflows: E4M3FN to its largest number, the others do not saturate."""
    if x.dtype == to:
        return x
    if op.opset < 19 and {x.dtype, to} & dtypes.FLOAT8:
        raise Untranslatable("ONNX has no float8 before opset 19: raise target_opset")
    if to not in dtypes.FLOAT8 or saturate is not None:
        return None
    return op.Cast(x, to=to, saturate=int(to == ir.DataType.FLOAT8E4M3FN))


def cast_like(op, x, like):
    """CastLike is a Cast to a dtype that is known."""
    return op.Cast(x, to=like.dtype) if like.dtype is not None else None


def identity(op, x):
    """Identity is its input."""
    return x


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


SIMPLIFICATIONS = {
    "Cast": cast,
    "CastLike": cast_like,
    "Concat": concat,
    "Expand": expand,
    "Identity": identity,
    "Reshape": reshape,
    "Shape": shape,
    "Squeeze": squeeze,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
