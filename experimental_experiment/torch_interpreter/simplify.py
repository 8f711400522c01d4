"""What is cheap to avoid while emitting: nodes that change nothing, a reshape of a reshape, the square of a power.

Each function receives the emitter, the inputs and the attributes of the node about to be written, and returns an equal
value, or None.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.dtypes import HALVES
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.sizes import squeezed_vector
from experimental_experiment.torch_interpreter.torch_versions import float8_saturates

FLOAT, DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE
ROUNDED_ONCE = {(a, b) for half in HALVES for a, b in ((half, FLOAT), (half, DOUBLE), (FLOAT, half))}
"""Casts of constants in which every runtime rounds alike; float64 becomes a half through float32 in some."""


# ---- arithmetic with a number that changes nothing


def add(op, a, b):
    """A sum with 0, which is another number for -0.0 only."""
    if op.context.special_values and a.dtype in dtypes.FLOATS:
        return None
    return unless_both(a, b, 0)


def sub(op, a, b):
    """A difference to 0."""
    return unless(a, b, 0)


def mul(op, a, b):
    """A product with 1."""
    return unless_both(a, b, 1)


def div(op, a, b):
    """A quotient by 1."""
    return unless(a, b, 1)


def power(op, a, b):
    """The first power is the number itself, the second one a product."""
    if holds_only(b, 2) and is_broadcast_to(b, a):
        return op.Mul(a, a)
    return unless(a, b, 1) if a.dtype == b.dtype else None


def logical_and(op, a, b):
    """And with true."""
    return unless_both(a, b, True)


def logical_or(op, a, b):
    """Or with false."""
    return unless_both(a, b, False)


def unless_both(a: ir.Value, b: ir.Value, neutral: Any) -> ir.Value | None:
    """The other operand when one holds *neutral* only and has no larger shape."""
    return unless(a, b, neutral) or unless(b, a, neutral)


def unless(x: ir.Value, other: ir.Value, neutral: Any) -> ir.Value | None:
    """*x* when *other* holds *neutral* only and has no larger shape."""
    return x if holds_only(other, neutral) and is_broadcast_to(other, x) else None


def holds_only(value: ir.Value, number: Any) -> bool:
    """Whether a value is a constant of one element, that number."""
    return (
        value.const_value is not None
        and value.const_value.size == 1
        and value.const_value.numpy().item() == number
    )


def is_broadcast_to(one: ir.Value, x: ir.Value) -> bool:
    """Whether the result of an operator on a value of one element and *x* has the shape of *x*."""
    return len(one.shape) == 0 or (x.shape is not None and len(one.shape) <= len(x.shape))


# ---- casts and shapes


def cast(op, x, *, to, saturate=None, round_mode=None):
    """Cast to the dtype it has; there and back; between halves and wider floats when it is constant; to float8 as torch overflows.

    onnxruntime itself removes what casts there and back, and loses the value that a loop reads from outside.
    E4M3FN overflows to its largest number where torch does so, the others do not saturate.
    """
    to = ir.DataType(to)
    if x.dtype == to:
        return x
    inner = op.producer(x)
    is_back = inner is not None and inner.op_type == "Cast" and inner.inputs[0].dtype == to
    if is_back and dtypes.holds(x.dtype, to):
        return inner.inputs[0]
    if (x.dtype, to) in ROUNDED_ONCE and is_small(x):
        return op.computed("Cast", [x], x.const_value.numpy(), to)
    if to not in dtypes.FLOAT8 or saturate is not None:
        return None
    saturate = int(to == ir.DataType.FLOAT8E4M3FN and float8_saturates())
    return op.Cast(x, to=to, saturate=saturate, round_mode=round_mode)


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
    inner = op.producer(x)
    if inner is not None and inner.op_type == "Transpose" and "perm" in inner.attributes:
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
    inner = op.producer(x)
    if inner is not None and inner.op_type == "Reshape" and 0 not in sizes:
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
    """The sizes of static axes are a constant; others are those of what was cast for want of a kernel, which goes on."""
    inner = op.producer(x)
    if inner is not None and x in op.context.cast_from and op.context.cast_from[x] in inner.inputs:
        return op.Shape(inner.inputs[0], start=start, end=end)
    if x.shape is None:
        return None
    sizes = list(x.shape)[start:end]
    return op.shape(sizes) if all(isinstance(size, int) for size in sizes) else None


def squeeze(op, x, axes=None):
    """A squeeze of no axis, of the unsqueezed axes."""
    return no_axes(x, axes)


def unsqueeze(op, x, axes=None):
    """An unsqueeze of no axis; of the only element of a vector; of an unsqueeze."""
    if axes is None or axes.const_value is None:
        return None
    inner, added = op.producer(x), axes.const_value.numpy().tolist()
    if added == [0] and squeezed_vector(x) is not None:
        return squeezed_vector(x)
    if inner is None or inner.op_type != "Unsqueeze" or x.shape is None:
        return no_axes(x, axes)
    before = inner.inputs[1].const_value if len(inner.inputs) > 1 else None
    if before is None:
        return no_axes(x, axes)
    return op.Unsqueeze(inner.inputs[0], unsqueezed_axes(before.numpy().tolist(), added, len(x.shape)))


def unsqueezed_axes(before: list[int], added: list[int], rank: int) -> list[int]:
    """The axes that two Unsqueeze add, counted in the result of the second one; *rank* is that of the first one's."""
    new = {axis % (rank + len(added)) for axis in added}
    kept = [axis for axis in range(rank + len(added)) if axis not in new]
    return sorted(new | {kept[axis] for axis in before})


def reduction(op, x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    """A reduction of one number, which has no axis."""
    return x if x.shape is not None and len(x.shape) == 0 else None


def no_axes(x: ir.Value, axes: ir.Value | None) -> ir.Value | None:
    """*x* when *axes* is an empty constant."""
    return x if axes is not None and axes.const_value is not None and axes.const_value.size == 0 else None


SIMPLIFICATIONS = {
    "Add": add,
    "And": logical_and,
    "Cast": cast,
    "CastLike": cast_like,
    "Concat": concat,
    "Div": div,
    "Expand": expand,
    "Identity": identity,
    "Mul": mul,
    "Or": logical_or,
    "Pow": power,
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), reduction),
    "Reshape": reshape,
    "Shape": shape,
    "Squeeze": squeeze,
    "Sub": sub,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
