"""Pools of large windows."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.xoptim.pattern import P, attribute_of, var
from experimental_experiment.xoptim.rules import again, no, once_more, rule


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
    return again(op, pool, [x], count_include_pad=1)


@rule(P.one_of("AveragePool", "MaxPool")(var("x"), name="pool"), set="default", special_values=False)
def pool_of_rows_and_columns(op, x, pool):
    """The largest of a window, or its mean, is that of its rows' ones: in float32 where a window moves by one.

    Measured with onnxruntime 1.31: means of 5 x 5 0.5 of the time, of 11 x 11 0.13, of 31 x 31 0.04. In blocks of 16 channels, in which
    it pools a multiple of them, 7 x 7 0.3 to 0.7 and 13 x 13 0.2 to 0.4; it has a fast kernel for maxima of other numbers of channels.
    """
    kernel, strides, dilations = (
        attribute_of(pool, name, [1, 1]) for name in ("kernel_shape", "strides", "dilations")
    )
    pads = attribute_of(pool, "pads", [0] * 4)
    if len(pool.outputs) > 1 or len(kernel) != 2 or strides != [1, 1]:
        return no("it gives positions, or windows are not of two axes, or move by more than one")
    if x.dtype != ir.DataType.FLOAT or x.shape is None or attribute_of(pool, "ceil_mode", 0):
        return no("not in float32, or windows are cut")
    if attribute_of(pool, "auto_pad", "NOTSET") != "NOTSET":
        return no("padded automatically")
    channels = x.shape[1]
    in_blocks = isinstance(channels, int) and channels % 16 == 0
    if not in_blocks and (pool.op_type == "MaxPool" or not isinstance(channels, int)):
        return no("not pooled in blocks")
    if min(kernel) < (7 if in_blocks else 5):
        return no("the windows are small")
    for axis in (1, 0):
        changed = {"kernel_shape": along(axis, kernel, 1)}
        if any(pads):
            changed["pads"] = along(axis, pads[:2], 0) + along(axis, pads[2:], 0)
        if set(dilations) != {1}:
            changed["dilations"] = along(axis, dilations, 1)
        (x,) = once_more(op, pool, [x], **changed)
    return x


def along(axis: int, sizes: list[int], nothing: int) -> list[int]:
    """The size of one axis of two, *nothing* for the other."""
    return [size if place == axis else nothing for place, size in enumerate(sizes)]
