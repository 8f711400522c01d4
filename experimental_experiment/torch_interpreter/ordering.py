"""The order of floats with NaN: what ONNX compares, torch's NaN being larger than infinity.

Source of semantics: torch.sort, torch.median.
"""

from __future__ import annotations

import sys

import onnx_ir as ir

DOUBLE, FLOAT = ir.DataType.DOUBLE, ir.DataType.FLOAT


def with_ordered_nan(op, x: ir.Value, nan: float) -> ir.Value:
    """Floats as numbers that are ordered as torch orders them, NaN beyond all others: *nan* is inf or -inf.

    They go to a wider dtype, where infinities are large finite numbers; float64 is halved instead.
    """
    if x.dtype == DOUBLE:
        wide, bound = op.Mul(x, 0.5), sys.float_info.max
    else:
        is_half = x.dtype == ir.DataType.FLOAT16
        wide, bound = op.Cast(x, to=FLOAT if is_half else DOUBLE), 1e30 if is_half else 1e300
    return op.Where(op.IsNaN(x), op.CastLike(nan, wide), op.Clip(wide, -bound, bound))
