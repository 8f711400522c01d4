"""Fourier transforms: digits, the axis as an attribute."""

from __future__ import annotations

import math

import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.fourier import conjugate
from experimental_experiment.torch_interpreter.aten.spectrogram import transform_of_frames
from experimental_experiment.torch_interpreter.aten.transposing import inverse
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.runtime import kernels
from experimental_experiment.torch_interpreter.runtime.table import before, repairs

FAR = 64
"""How far apart elements are that are brought together."""


@repairs(
    "DFT",
    when="another axis than the last one, 64 elements or more apart",
    because="it takes up to three times as long",
    nodes=2,
)
def along_the_last_axis(op, x, dft_length=None, axis=None, **attributes):
    """Two transpositions around that of the last axis.

    onnxruntime 1.31.1 with AVX2, float64, time with them: 64 elements (a power of two) that are 256 apart 0.33 to 0.39, 100 of them 1.05 to
    1.12; 4096 that are 16 apart 0.5 to 0.6; 512 that are 8 apart 1.3 to 1.75.
    """
    if axis is None or axis.const_value is None:
        return None
    place, parts = int(axis.const_value.numpy()) % rank(x), rank(x) - 1
    following = x.shape[place + 1 : -1]
    if not all(isinstance(size, int) for size in following) or math.prod(following) < FAR:
        return None
    order = [*(other for other in range(parts) if other != place), place, parts]
    result = op.DFT(op.Transpose(x, perm=order), dft_length, parts - 1, **attributes)
    return op.Transpose(result, perm=inverse(order))


@repairs(
    "DFT",
    when="float32, a size that is no power of two or not known",
    because="half of the digits are lost",
    nodes=2,
)
def in_float64(op, x, dft_length=None, axis=None, **attributes):
    """Computed in float64, in which the transform of another axis goes on."""
    if x.dtype != ir.DataType.FLOAT or (dft_length is not None and is_power_of_two(dft_length)):
        return None
    wide = kernels.unrounded(op, x, ir.DataType.DOUBLE)
    wide = op.Cast(x, to=ir.DataType.DOUBLE) if wide is None else wide
    return kernels.narrowed(op, op.DFT(wide, dft_length, axis, **attributes), x.dtype)


@repairs(
    "DFT",
    when="float64, inverse, a size that is no power of two or not known",
    because="it is divided by the size in float32",
    nodes=12,
)
def divided_in_float64(op, x, dft_length=None, axis=None, inverse=0, onesided=0):
    """The conjugate of the transform of the conjugate, divided by the size; of float32 numbers, float32 has the digits.

    Half a signal is followed by its other half first; what comes out is real.
    """
    of_float32 = any(row.rewrite is in_float64 for row in op.context.applying)
    if not inverse or x.dtype != ir.DataType.DOUBLE or of_float32:
        return None
    length = op.Gather(op.Shape(x), axis)
    size = dft_length
    if size is None:
        size = op.Mul(op.Sub(length, 1), 2) if onesided else length
    if is_power_of_two(size):
        return None
    if not onesided:
        result = conjugate(op, op.DFT(conjugate(op, x), dft_length, axis))
    else:
        others = op.Slice(x, op.Unsqueeze(op.Sub(size, length), [0]), [0], op.Unsqueeze(axis, [0]), [-1])
        whole = op.Concat(conjugate(op, x), others, axis=int(axis.const_value.numpy()))
        result = op.Slice(op.DFT(whole, None, axis), [0], [1], [-1])
    return op.Div(result, op.Cast(size, to=x.dtype))


@repairs(
    "DFT",
    when="a length that is not known, of an axis whose size may have a name",
    because="the result is said to have that size, and may get a smaller buffer",
    nodes=2,
)
def of_an_axis_without_name(op, x, dft_length=None, axis=None, **attributes):
    """The transform of what a Slice up to the length has taken, whose size has no name."""
    if dft_length is None or dft_length.const_value is not None or axis is None or axis.const_value is None:
        return None
    place = int(axis.const_value.numpy())
    if not has_a_name(x, place):
        return None
    taken = op.Slice(x, [0], op.shape([dft_length]), [place])
    return op.DFT(taken, dft_length, axis, **attributes)


def has_a_name(x: ir.Value, axis: int) -> bool:
    """Whether the runtime may have a name, or a number, for the size of an axis: none where a node before has cut or continued it."""
    node = producer_of(x)
    if node is None or isinstance(x.shape[axis], int):
        return True
    if node.op_type == "Pad":
        return node.inputs[1].const_value is not None
    if node.op_type == "Slice":
        ends, axes = (value.const_value for value in node.inputs[2:4])
        return ends is not None or axes is None or axis not in axes.numpy()
    if node.op_type == "DFT" and node.attributes.get_int("onesided", 0) and axis_of(node) == axis:
        return False
    is_same = node.op_type in ("Cast", "DFT") or is_of_the_last_axis(node)
    return not is_same or has_a_name(node.inputs[0], axis)


def is_of_the_last_axis(node: ir.Node) -> bool:
    """Whether a node is an Unsqueeze behind all axes."""
    axes = node.inputs[1].const_value if node.op_type == "Unsqueeze" else None
    return axes is not None and axes.numpy().tolist() == [rank(node.inputs[0])]


def axis_of(node: ir.Node) -> int | None:
    """The axis of a DFT, which is an input or an attribute."""
    if "axis" in node.attributes:
        return node.attributes.get_int("axis", 0)
    along = node.inputs[2].const_value if len(node.inputs) > 2 and node.inputs[2] is not None else None
    return None if along is None else int(along.numpy())


def is_power_of_two(size: ir.Value) -> bool:
    """Whether a size is known to be one."""
    if size.const_value is None:
        return False
    number = int(size.const_value.numpy())
    return not number & (number - 1)


@before(20, "DFT", because="the axis is an attribute", nodes=0)
def along_an_attribute(op, x, dft_length=None, axis=None, **attributes):
    """The axis as an attribute; ONNX infers no rank when the size is not known."""
    if axis is None or axis.const_value is None:
        return None
    result = op.emit("DFT", (x, dft_length), {"axis": int(axis.const_value.numpy()), **attributes})
    if result.shape is None:
        result.shape = ir.Shape([None] * rank(x))
    return result


@before(17, "STFT", because="it is not there", nodes=10)
def of_frames(op, signal, frame_step, window=None, frame_length=None, onesided=1):
    """The transform of each frame, a product with a matrix; DFT is not there either for frames that are larger than 1024."""
    numbers = [number.const_value for number in (frame_step, frame_length) if number is not None]
    if len(numbers) < 2 or None in numbers:
        return None
    hop, n_fft = (int(number.numpy()) for number in numbers)
    return transform_of_frames(op, op.Squeeze(signal, [2]), False, hop, window, n_fft, onesided)
