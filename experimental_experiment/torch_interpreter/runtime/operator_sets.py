"""Operators that older sets write in another form: attributes that are inputs today, attributes that came later.

Source of semantics: the versions 13 to 26 of ai.onnx in ``onnx.defs``. A dtype that an old version lacks is cast around by
`kernels`; an attribute or an operator that nothing here replaces is refused with the version that has it (`dtypes`).
"""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.runtime.reductions import REDUCTIONS
from experimental_experiment.torch_interpreter.runtime.table import before


@before(
    18,
    *(name for name in REDUCTIONS if name != "ReduceSum"),
    when="with axes",
    because="the axes are an attribute",
    nodes=0,
)
def axes_as_attribute(op, x, axes=None, *, operator, noop_with_empty_axes=0, **attributes):
    """The same reduction; axes that are computed are refused."""
    if axes is None and not noop_with_empty_axes:
        return None
    if axes is not None and axes.const_value is None:
        raise Untranslatable(
            f"the axes of ONNX {operator} are computed in opset {op.opset}: raise target_opset to 18"
        )
    given = [] if axes is None else axes.const_value.numpy().tolist()
    if not given and noop_with_empty_axes:
        return x
    return op.emit(operator, (x,), {"axes": given or None, **attributes})


@before(19, "Cast", when="from or to float8", because="there is no float8", nodes=0)
def without_float8(op, x, *, to, **attributes):
    """Nothing: it is refused."""
    if {x.dtype, to} & dtypes.FLOAT8:
        raise Untranslatable("ONNX has no float8 before opset 19: raise target_opset to 19")


@before(15, "CastLike", because="it does not exist", nodes=0)
def a_cast(op, x, like):
    """A Cast to the dtype, which is known."""
    return op.Cast(x, to=like.dtype)


@before(
    14,
    "Reshape",
    when="allowzero=1",
    because="a 0 in the shape is always the size that the tensor had there",
    nodes=0,
)
def without_zeros(op, x, shape, *, allowzero=0):
    """The same sizes where none is 0; with a computed size of 0, a tensor without elements is reshaped as far as ONNX can."""
    if not allowzero:
        return None
    sizes = shape.const_value.numpy().tolist() if shape.const_value is not None else []
    moved = [axis for axis, size in enumerate(sizes) if size == 0 and not keeps_zero(x, axis)]
    if moved:
        raise Untranslatable(
            f"a size of 0 in ONNX Reshape does not exist in opset {op.opset}: raise target_opset to 14"
        )
    return op.Reshape(x, shape)


def keeps_zero(x: ir.Value, axis: int) -> bool:
    """Whether a tensor has no element along this axis."""
    return x.shape is not None and axis < len(x.shape) and x.shape[axis] == 0


@before(
    16,
    "RoiAlign",
    when="boxes are moved by half a pixel",
    because="there is no ``coordinate_transformation_mode``",
    nodes=0,
)
def without_half_pixels(op, *inputs, coordinate_transformation_mode="half_pixel", **attributes):
    """The only way of opset 10, ``output_half_pixel``; the other one is refused."""
    if coordinate_transformation_mode == "half_pixel":
        raise Untranslatable(
            f"ONNX RoiAlign does not move boxes by half a pixel in opset {op.opset}: raise target_opset to 16"
        )
    return op.RoiAlign(*inputs, **attributes)


@before(
    18,
    "ScatterElements",
    "ScatterND",
    when="reduction is max or min",
    because="elements are only added and multiplied",
    nodes=0,
)
def without_extrema(op, *inputs, operator, reduction="none", **attributes):
    """Nothing: it is refused."""
    if reduction in ("max", "min"):
        raise Untranslatable(
            f"ONNX {operator} has no reduction={reduction!r} in opset {op.opset}: raise target_opset to 18"
        )


@before(15, "Shape", when="of some axes", because="it has no start and no end", nodes=1)
def slice_of_sizes(op, x, *, start=0, end=None):
    """All sizes, of which some are taken."""
    if start == 0 and end is None:
        return None
    sizes = op.Shape(x)
    if end is not None and end - start == 1:
        return op.Gather(sizes, [start], axis=0)
    return op.Slice(sizes, [start], [INT64_MAX if end is None else end], [0])


@before(18, "Split", when="num_outputs", because="it has no num_outputs", nodes="0, 4 for a dynamic size")
def given_sizes(op, x, split=None, *, outputs, axis=0, num_outputs=None):
    """The size of each part; the last one may be smaller."""
    if num_outputs is None:
        return None
    size = op.size(x, axis % rank(x))
    if isinstance(size, int):
        part = -(-size // num_outputs)
        sizes = [min(part, max(0, size - k * part)) for k in range(num_outputs)]
        return op.Split(x, sizes, axis=axis, outputs=outputs)
    part = op.Div(op.Add(size, num_outputs - 1), num_outputs)
    last = op.Sub(size, op.Mul(part, num_outputs - 1))
    return op.Split(x, op.shape([*[part] * (num_outputs - 1), last]), axis=axis, outputs=outputs)
