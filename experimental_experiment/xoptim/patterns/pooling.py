"""Pools of windows larger than the image, and of what a Pad surrounds."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.producers import producer_of
from experimental_experiment.torch_interpreter.runtime.pools import is_padded_with_zeros, with_own_padding
from experimental_experiment.xoptim.pattern import P, attribute_of, ints_of, optional, var
from experimental_experiment.xoptim.patterns.arithmetic import never_negative
from experimental_experiment.xoptim.rules import no, once_more, rule
from experimental_experiment.xoptim.shapes import same_sizes

IN_ROWS = ("Expand", "Gather", "MatMul", "Reshape", "Slice")
"""Operators whose results onnxruntime never holds in blocks of channels."""

PADDED = P.Pad(var("images"), var("sides"), ..., name="pad", shared=True)
SEEN = P.Transpose(PADDED, shared=True) | PADDED


@rule(P.AveragePool(var("x"), name="pool"), set="default", since=19)
def average_of_large_windows(op, x, pool):
    """A window of 512 and more, which ceil_mode cuts to the image, counts its padding, where there is none: the kernel then follows the image.

    Measured with onnxruntime 1.31: 0.24 of the time for 640 x 640 over 4 x 4, 0.20 for 1 280 x 1 280 over 7 x 7.
    """
    if not attribute_of(pool, "ceil_mode", 0) or any(attribute_of(pool, "pads", ())):
        return no("the windows are not cut, or something is padded")
    if attribute_of(pool, "count_include_pad", 0) or min(attribute_of(pool, "kernel_shape")) < 512:
        return no("it counts it, or the windows may fit")
    if x.dtype != ir.DataType.FLOAT or attribute_of(pool, "auto_pad", "NOTSET") != "NOTSET":
        return no("not in float32, or padded automatically")
    if set(attribute_of(pool, "dilations", ())) - {1}:
        return no("the windows have gaps")
    return once_more(op, pool, [x], count_include_pad=1)[0]


@rule(P.MaxPool(SEEN | P.Cast(SEEN, shared=True), name="pool"), set="default", looks_further=True)
def maximum_of_padded(op, images, sides, pad, pool):
    """A MaxPool of what a Pad surrounds with 0 has ``auto_pad="VALID"``, with which onnxruntime leaves the Pad as it is.

    Otherwise the pool takes it over, with the lowest number in the place of 0, or refuses it. A row of the runtime table writes it so where the
    Pad is right before the pool; here are those that other rules bring there, and those that onnxruntime does when it moves a Transpose. Beside
    elements that are not negative both are the same.
    """
    if op.context.runtime != "onnxruntime" or attribute_of(pool, "auto_pad", "NOTSET") != "NOTSET":
        return no("the runtime leaves the Pad as it is")
    amounts, x = ints_of(sides), pool.inputs[0]
    if not is_padded_with_zeros(pad.outputs[0]) or (amounts is not None and not any(amounts)):
        return no("it is padded with another number, or not at all")
    if len(pool.outputs) > 1:
        return no("it gives positions")
    kernel, own = attribute_of(pool, "kernel_shape"), attribute_of(pool, "pads")
    strides, dilations = (attribute_of(pool, name, [1] * len(kernel)) for name in ("strides", "dilations"))
    is_cut = attribute_of(pool, "ceil_mode", 0) or set(dilations) != {1}
    has_image = not is_cut and amounts is not None and max(amounts) + max(own or [0]) < min(kernel)
    if has_image and never_negative(images):
        return no("each window has an element, and none is less than 0")
    x = with_own_padding(op, x, kernel, strides, own, dilations, attribute_of(pool, "ceil_mode", 0))
    unused = dict.fromkeys(("ceil_mode", "pads", "storage_order"))
    return once_more(op, pool, [x], auto_pad="VALID", **unused)[0]


@rule(
    P.one_of("Flatten", "Reshape", "Squeeze")(P.GlobalAveragePool(var("x")), optional("axes")),
    set="default",
    since=18,
)
def flattened_average(op, x, root):
    """The means of channels that are flattened are a ReduceMean, unless a convolution may be before: its blocks of channels are pooled as they are.

    Measured with onnxruntime 1.31: 0.84 to 0.99 of the time; 0.92 to 0.98 behind a convolution of one or three axes, 0.97 to 1.15 behind
    one of two axes.
    """
    if x.dtype != ir.DataType.FLOAT or x.shape is None:
        return no("not in float32, or of unknown rank")
    if not same_sizes(root.outputs[0].shape, x.shape[:2]):
        return no("other axes are removed")
    rank = len(x.shape)
    if rank == 4 and producer_of(x) is not None and producer_of(x, *IN_ROWS) is None:
        return no("a convolution may be before")
    return op.ReduceMean(x, list(range(2, rank)), keepdims=0)
