"""Sizes, factors and positions of resizing, as ATen computes them; read by the nearest, linear and cubic ones and by their gradients.

Source of semantics: torch.nn.functional.interpolate and ATen's UpSample.h.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
from sympy import expand
from torch.utils._sympy.functions import ToFloat, TruncToInt

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.dimensions import with_whole_products
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.sizes import (
    Number,
    Size,
    counted,
    is_static,
    label,
    larger,
    minus,
)

FLOAT, DOUBLE, INT64, UINT8 = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64, ir.DataType.UINT8

LARGEST = 2**17
"""Sizes below are verified to be stretched as torch does, when they are symbolic."""

LARGEST_FACTOR = 64
"""Whole factors up to this one give sizes below `LARGEST` exactly, in float32 too."""


def check_float(x: ir.Value) -> None:
    """Raise Untranslatable when an interpolation is not computed in floats."""
    if x.dtype not in dtypes.FLOATS:
        raise Untranslatable(f"interpolation of {x.dtype.name}")


def target(op, x, output_size, scale_factors) -> tuple[list[Size], list[float | None]]:
    """The sizes of the spatial axes, and their factors when the program gives these instead."""
    if output_size is not None:
        return list(output_size), [None] * len(output_size)
    sizes: list[Size] = []
    for axis, scale in enumerate(scale_factors, start=2):
        size = op.size(x, axis)
        if is_static(size):
            sizes.append(int(size * scale))
        else:
            sizes.append(op.Cast(op.Mul(op.Cast(size, to=DOUBLE), float(scale)), to=INT64))
    return sizes, list(scale_factors)


def whole_factor(op, size: Size, out: Size) -> float | None:
    """The number of times that an axis of any size is as long as before, as in ``x.shape[2] * 3``; None when it is not known to be whole.

    The step is that of the factor: the quotient of the sizes and one by the factor are one number of float32.
    """
    if is_static(size) or is_static(out):
        return None
    before, after = (op.context.dimensions.expressions.get(label(item)) for item in (size, out))
    if before is None or after is None:
        return None
    terms, others = (expand(expression).as_coefficients_dict() for expression in (before, after))
    factors = {others.get(term, 0) / count for term, count in terms.items()}
    factor = factors.pop()
    is_whole = not factors and terms.keys() == others.keys() and factor.is_Integer
    return float(factor) if is_whole and 0 < factor <= LARGEST_FACTOR else None


def computing_dtype(x: ir.Value) -> ir.DataType:
    """The dtype in which torch computes positions and weights."""
    return DOUBLE if x.dtype in (DOUBLE, UINT8) else FLOAT


def step_of(
    op,
    dtype: ir.DataType,
    size: Size,
    out: Size,
    scale: float | None,
    align_corners: bool = False,
    copied: bool = False,
) -> ir.Value:
    """Distance between the places of two neighbouring outputs, in elements of the input, as a float of *dtype*.

    *copied*: an axis that keeps its size is copied, whatever its factor.
    """
    if align_corners:
        size, out = minus(op, size, 1), larger(op, minus(op, out, 1), 1)
    elif scale:
        step = op.constant(1 / scale, dtype)
        return op.Where(op.Equal(op.constant(size), out), op.constant(1, dtype), step) if copied else step
    return op.Div(op.Cast(op.constant(size), to=dtype), op.Cast(op.constant(out), to=dtype))


def positions(op, step: ir.Value, out: Size, align_corners: bool) -> ir.Value:
    """The place of every output along an axis of the input: ``step * (i + 0.5) - 0.5``, or ``step * i``."""
    number = op.Cast(counted(op, out), to=step.dtype)
    if align_corners:
        return op.Mul(number, step)
    return op.Sub(op.Mul(step, op.Add(number, 0.5)), 0.5)


@dataclasses.dataclass
class Stretch:
    """How Resize stretches one axis.

    Attributes:
        factor: a float32.
        kept: the largest size of several elements that it must not change, 0 without.
        is_exact: whether the size that it gives is that of torch; otherwise it may be larger by one.
    """

    factor: np.float32
    kept: int = 0
    is_exact: bool = True


def is_told(op, size: Size, out: Size, scale: float | None) -> bool:
    """Whether the factor of an axis tells the size that torch gives it.

    A program may hold both: torch's own is the product, cut off; who calls ATen may ask for another one.
    """
    if is_static(size, out) or not scale:
        return True
    if not isinstance(out, Number):
        return not is_static(out)  # it is that of `target`
    before, after = (op.context.dimensions.expressions.get(label(item)) for item in (size, out))
    if before is None or after is None:
        return False
    product = with_whole_products(TruncToInt(float(scale) * ToFloat(before)))
    return after == product or (after == int(scale) * before and scale == int(scale))


def stretch(size: Size, out: Size, scale: float | None, copied: bool) -> Stretch | None:
    """The stretch of one axis, None when neither its sizes nor its factor are known now.

    Runtimes multiply sizes by factors in float32 or in float64, torch by the factor in float64: 90 * 0.7 is 62.
    *copied*: an axis that keeps its size is copied, whatever its factor.
    """
    if is_static(size, out):
        before, after = np.array([size]), np.array([out])
        exact = np.float32(out) / np.float32(size)
        wish = exact if scale is None or (copied and size == out) else np.float32(scale)
        kept = 0
    elif scale:
        before = np.arange(1, LARGEST)
        after = (before * float(scale)).astype(np.int64)
        wish = np.float32(scale)
        kept = int(before[after == before].max(initial=0)) if copied and scale != 1 else 0
    else:
        return None
    below, above = (np.nextafter(wish, np.float32(end)) for end in (-np.inf, np.inf))
    for factor in (wish, above, below):
        found = [np.floor(before.astype(dtype) * dtype(factor)) for dtype in (np.float32, np.float64)]
        if all(np.array_equal(item, after) for item in found):
            return Stretch(factor, kept if kept > 1 else 0)
    return Stretch(above, kept if kept > 1 else 0, is_exact=False)
