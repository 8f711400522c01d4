"""The padding of a Conv: zeros around what it reads go into it, what is cut of its results leaves it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import is_of
from experimental_experiment.xoptim.pattern import (
    P,
    all_readers,
    attribute_of,
    const,
    constant_of,
    ints_of,
    number_of,
    optional,
    var,
)
from experimental_experiment.xoptim.periodic import NotPeriodic, computed, constant, of_size
from experimental_experiment.xoptim.rules import Declined, no, once_more, rule
from experimental_experiment.xoptim.shapes import Size, is_same, listed, told_sizes
from experimental_experiment.xoptim.spans import ENDLESS

x = var("x")


@rule(
    P.Conv(
        P.Pad(x, const("pads"), optional("value"), optional("axes"), name="pad", shared=True),
        var("weight"),
        optional("bias"),
        name="product",
    ),
    set="default",
    looks_further=True,
)
def padding_of_product(op, x, pads, value, axes, pad, weight, bias, product):
    """Zeros around the images that only Convs read are their own padding."""
    if not all_readers(pad.outputs[0], is_conv):
        return no("another reads what is padded")
    if attribute_of(pad, "mode", "constant") != "constant":
        return no("the padding is no constant")
    if value is not None and (constant_of(value) is None or constant_of(value).numpy().any()):
        return no("the padding may be something else than zeros")
    if attribute_of(product, "auto_pad", "NOTSET") != "NOTSET":
        return no("the padding depends on the size")
    sides = ints_of(pads)
    if weight.shape is None or sides is None:
        return no("rank or padding unknown")
    rank = len(weight.shape)
    wide = list(range(rank)) if axes is None else ints_of(axes)
    if wide is None:
        return no("axes unknown")
    added = np.zeros((2, rank), np.int64)
    added[:, [axis % rank for axis in wide]] = np.reshape(sides, (2, -1))
    if added[:, :2].any() or (added < 0).any():
        return no("more than the space is padded, or it is cut")
    own = attribute_of(product, "pads") or [0] * (2 * (rank - 2))
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return once_more(op, product, inputs, pads=[int(size) for size in added[:, 2:].ravel() + own])[0]


PADDED = P.Pad(x, var("sides"), optional("value"), name="pad")


@rule(P.Conv(PADDED, var("weight"), ..., name="window"), set="default", looks_further=True)
def padding_to_whole_strides(op, x, sides, value, pad, weight, window):
    """Zeros around images of any size that give a result for each stride, more of them behind than before, are ``auto_pad``.

    Convolutions of TensorFlow's models are padded so, see ``Conv2dSame`` of timm. Measured with onnxruntime 1.31: MobileNet v1 and v2 0.71 to 0.82 of the time.
    """
    kernel = () if weight.shape is None else weight.shape[2:]
    return with_auto_pad(op, x, sides, value, pad, window, kernel, 0.0)


@rule(P.MaxPool(PADDED, name="window"), set="default", special_values=False, looks_further=True)
def padding_to_whole_strides_of_maxima(op, x, sides, value, pad, window):
    """The same of a MaxPool and -inf; onnxruntime gives the lowest number where all of a window is -inf."""
    if attribute_of(window, "ceil_mode", 0) or len(window.outputs) > 1:
        return no("it is rounded up, or the places of the maxima are asked for")
    return with_auto_pad(op, x, sides, value, pad, window, attribute_of(window, "kernel_shape"), -math.inf)


def with_auto_pad(
    op,
    x: ir.Value,
    sides: ir.Value,
    value: ir.Value | None,
    pad: ir.Node,
    window: ir.Node,
    kernel: Sequence[Size],
    filling: float,
) -> ir.Value | Declined:
    """What *window* gives of *x* with ``auto_pad``, when *pad* surrounds *x* with just as many *filling*."""
    if x.shape is None or attribute_of(pad, "mode", "constant") != "constant":
        return no("the rank is unknown, or the padding is no constant")
    room, padded = len(x.shape) - 2, listed(sides)
    if padded is None or len(padded) != 2 * room + 4 or len(kernel) != room:
        return no("it is unknown what is padded")
    if padded[:2] + padded[room + 2 : room + 4] != [0, 0, 0, 0]:
        return no("more than the space is padded")
    if (0.0 if value is None else number_of(value)) != filling:
        return no("it is padded with something else")
    if attribute_of(window, "auto_pad", "NOTSET") != "NOTSET" or any(attribute_of(window, "pads", ())):
        return no("it pads more by itself")
    if any(step != 1 for step in attribute_of(window, "dilations", ())):
        return no("onnxruntime leaves out no elements with auto_pad")
    strides = attribute_of(window, "strides") or [1] * room
    for axis, (reach, stride) in enumerate(zip(kernel, strides), 2):
        if not is_whole(x.shape[axis], reach, stride, padded[axis], padded[axis + room + 2]):
            return no("another number of elements is padded, or one that is not known")
    return once_more(op, window, [x, *window.inputs[1:]], auto_pad="SAME_UPPER", pads=None)[0]


def is_whole(size: Size, kernel: Size, stride: int, before: int | ir.Value, behind: int | ir.Value) -> bool:
    """Whether what is padded before and behind an axis, of whatever size, gives a window for each stride: half of it, and the rest."""
    try:
        length = of_size(size)
        first, last = (
            constant(side) if isinstance(side, int) else computed(side) for side in (before, behind)
        )
        windows = (length + constant(stride - 1)) // constant(stride) - constant(1)
        missing = (windows * constant(stride) + of_size(kernel) - length).at_least(constant(0))
        half = missing // constant(2)
        return first.is_same(half) and last.is_same(missing - half)
    except NotPeriodic:
        return False


def is_conv(user: ir.Node, index: int) -> bool:
    """Whether a reader is a Conv."""
    return is_of(user, "Conv")


@rule(
    P.Slice(
        P.Conv(x, var("weight"), ..., name="product"),
        const("starts"),
        var("ends"),
        optional("axes"),
        optional("steps"),
    ),
    set="default",
    looks_further=True,
)
def padding_of_cut_product(op, x, weight, product, starts, ends, axes, steps):
    """What a Slice cuts at the ends of a Conv's results is less padding, as causal convolutions and those of even kernels are written.

    Measured with onnxruntime 1.31: causal convolutions 0.80 to 0.92 of the time, those of even kernels 0.95 to 0.98, a Mamba block 0.97. A ConvTranspose
    stays: with more padding it takes 1.4 of the time.
    """
    if attribute_of(product, "auto_pad", "NOTSET") != "NOTSET":
        return no("the padding depends on the size")
    if x.shape is None or weight.shape is None or not all(isinstance(size, int) for size in weight.shape[2:]):
        return no("the size of the images or of the kernel is unknown")
    rank = len(x.shape)
    firsts, lasts, along = ints_of(starts), told_sizes(ends), range(rank) if axes is None else ints_of(axes)
    if firsts is None or lasts is None or along is None:
        return no("it is unknown what is cut")
    if steps is not None and set(ints_of(steps) or [0]) != {1}:
        return no("results between others are cut")
    room = rank - 2
    pads = attribute_of(product, "pads") or [0] * (2 * room)
    strides, dilations = (attribute_of(product, name) or [1] * room for name in ("strides", "dilations"))
    for axis, first, last in zip(along, firsts, lasts, strict=True):
        place = axis % rank - 2
        if place < 0:
            return no("samples or channels are cut")
        reach = dilations[place] * (weight.shape[place + 2] - 1)
        left = padding_left(x.shape[place + 2], reach, strides[place], pads[place::room], first, last)
        if isinstance(left, Declined):
            return left
        pads[place::room] = left
    return once_more(op, product, product.inputs, pads=pads)[0]


def padding_left(
    size: Size, reach: int, stride: int, padding: list[int], first: int, last: Size
) -> list[int] | Declined:
    """The padding of an axis of *size* elements with which a Conv gives its results from *first* to *last* alone.

    A result reads elements that are up to *reach* apart.
    """
    spare = sum(padding) - reach
    if isinstance(size, int):
        count = max((size + spare - 1) // stride + 1, 0)
        if not isinstance(last, int):
            return no("it is unknown how much is cut")
        first, last, _ = slice(first, last).indices(count)
        behind, is_left = count - last, first < last
    else:
        if is_same(last, size) and stride == 1:
            behind = spare
        elif isinstance(last, int) and (last < 0 or last >= ENDLESS):
            behind = -min(last, 0)
        else:
            return no("it is unknown how much is cut")
        is_left = first >= 0 and spare >= (first + behind) * stride
    if not is_left:
        return no("nothing may be left")
    left = [padding[0] - first * stride, padding[1] - behind * stride]
    return no("more than the padding is cut") if behind < 0 or min(left) < 0 else left
