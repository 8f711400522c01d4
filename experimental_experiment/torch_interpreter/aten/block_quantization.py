"""torchao: weights that hold other tensors, and quantization with one scale for every block of elements.

Source of semantics: ``torchao/quantization/quant_primitives.py``.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Size, is_static, quotient, sizes_of

FLOAT = ir.DataType.FLOAT

MAPPINGS = ("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR")
"""How torchao spreads elements over a range."""


@translates("export::access_subclass_inner_tensor")
def access_subclass_inner_tensor(op, src_subclass_tensor, attr):
    """A tensor that a weight holds, see `Wrapper`."""
    if isinstance(src_subclass_tensor, ir.Value):
        raise Untranslatable("an input that holds other tensors", "give the model the tensors that it holds")
    return src_subclass_tensor.part(attr, op.context.node)


@translates("torchao::choose_qparams_affine")
def choose_qparams_affine(
    op, input, mapping_type, block_size, target_dtype, quant_min=None, quant_max=None, eps=None,
    scale_dtype=None, zero_point_dtype=None, keepdim=False,
):  # fmt: skip
    """Scale and zero point of every block of *block_size* elements: they spread its elements and 0 over the range.

    *mapping_type*: ASYMMETRIC; SYMMETRIC, the largest magnitude over half of the range; SYMMETRIC_NO_CLIPPING_ERR, the larger one of both sides.
    """
    if mapping_type not in MAPPINGS:
        raise Untranslatable(f"mapping_type={mapping_type} is not handled")
    low, high = limits(dtypes.onnx_dtype(target_dtype), quant_min, quant_max)
    sizes, counts, axes = blocks_of(op, input, block_size)
    blocks = reshaped(op, input, sizes)
    smallest, largest = (
        reduce(blocks, axes, keepdims=0) if axes else blocks for reduce in (op.ReduceMin, op.ReduceMax)
    )
    smallest, largest = op.Min(smallest, 0.0), op.Max(largest, 0.0)
    least = torch.finfo(dtypes.torch_dtype(input.dtype)).smallest_normal if eps is None else eps
    if mapping_type == "ASYMMETRIC":
        scale = op.Max(op.Div(op.Sub(largest, smallest), float(high - low)), least)
        zero_point = op.Clip(op.Sub(float(low), op.Round(op.Div(smallest, scale))), float(low), float(high))
        zero_point_dtype = torch.int32 if zero_point_dtype is None else zero_point_dtype
    else:
        if mapping_type == "SYMMETRIC":
            scale = op.Div(op.Max(op.Neg(smallest), largest), float(high - low) / 2)
        else:
            scale = op.Max(op.Div(smallest, float(low)), op.Div(largest, float(high)))
        scale = op.Max(scale, least)
        zero_point = op.Add(op.Mul(scale, 0.0), float(int((high + low + 1) / 2)))
    if keepdim:
        scale, zero_point = (reshaped(op, value, counts) for value in (scale, zero_point))
    results = zip((scale, zero_point), (scale_dtype, zero_point_dtype))
    return tuple(
        value if dtype is None else op.Cast(value, to=dtypes.onnx_dtype(dtype)) for value, dtype in results
    )


@translates("torchao::quantize_affine", "quant::quantize_affine")
def quantize_affine(
    op, input, block_size, scale, zero_point, output_dtype, quant_min, quant_max, zero_point_domain="INT"
):  # fmt: skip
    """Steps with one scale for every block of *block_size* elements."""
    kind = dtypes.onnx_dtype(output_dtype)
    low, high = limits(kind, quant_min, quant_max)
    refuse_domain(zero_point_domain)
    blocks, scale, zero_point = in_blocks(op, op.Cast(input, to=FLOAT), block_size, scale, zero_point)
    # a symmetric scale puts the largest element on a tie
    steps = op.Round(op.Mul(blocks, op.Div(1.0, scale)))
    steps = op.Clip(op.Add(steps, zero_point), float(low), float(high))
    return op.Cast(reshaped(op, steps, sizes_of(op, input)), to=kind)


@translates("torchao::dequantize_affine", "quant::dequantize_affine")
def dequantize_affine(
    op, input, block_size, scale, zero_point, input_dtype, quant_min, quant_max,
    zero_point_domain="INT", output_dtype=torch.float32,
):  # fmt: skip
    """The value of steps with one scale for every block of *block_size* elements."""
    refuse_domain(zero_point_domain)
    blocks, scale, zero_point = in_blocks(op, op.Cast(input, to=FLOAT), block_size, scale, zero_point)
    value = op.Mul(op.Sub(blocks, zero_point), scale)
    return op.Cast(reshaped(op, value, sizes_of(op, input)), to=dtypes.onnx_dtype(output_dtype))


# ---- helpers


def refuse_domain(zero_point_domain: str) -> None:
    """Raise Untranslatable for a zero point that is not counted in steps."""
    if zero_point_domain not in ("INT", "NONE"):
        raise Untranslatable(f"zero_point_domain={zero_point_domain} is not handled")


def limits(kind: ir.DataType, quant_min, quant_max) -> tuple[int, int]:
    """The range of the steps: that of the dtype where the program gives none."""
    if kind.is_floating_point():
        raise Untranslatable(f"steps that are {kind.name}")
    bits = kind.itemsize * 8
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind.is_signed() else (0, 2**bits - 1)
    return int(low if quant_min is None else quant_min), int(high if quant_max is None else quant_max)


def blocks_of(op, x: ir.Value, block_size: list[Size]) -> tuple[list[Size], list[Size], list[int]]:
    """The shape of *x* with each axis that holds several blocks split in (blocks, block), how many blocks each axis holds, and the axes,
    of the first, along which the elements of a block lie.
    """
    sizes: list[Size] = []
    counts: list[Size] = []
    axes = []
    for axis, block in enumerate(block_size):
        size = op.size(x, axis)
        if block == 1:
            sizes.append(size)
            counts.append(size)
            continue
        if not is_static(block) or not (is_static(size) or block == -1):
            raise Untranslatable("blocks of a symbolic size")
        if block not in (-1, size):
            sizes.append(quotient(op, size, block))
        counts.append(1 if block == -1 else quotient(op, size, block))
        axes.append(len(sizes))
        sizes.append(size if block == -1 else block)
    return sizes, counts, axes


def in_blocks(op, x, block_size, scale, zero_point):
    """*x* as `blocks_of` splits it, scale and zero point in a shape that spreads over it, in FLOAT."""
    sizes, _, axes = blocks_of(op, x, block_size)
    spread = [1 if axis in axes else size for axis, size in enumerate(sizes)]
    scale = reshaped(op, op.Cast(scale, to=FLOAT), spread)
    zero_point = (
        op.constant(0.0) if zero_point is None else reshaped(op, op.Cast(zero_point, to=FLOAT), spread)
    )
    return reshaped(op, x, sizes), scale, zero_point
