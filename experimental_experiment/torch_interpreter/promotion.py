"""Type promotion: what dtype torch computes in.

Source of semantics: https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc, asked of torch.result_type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.dtypes import HALVES
from experimental_experiment.torch_interpreter.runtime import kernels
from experimental_experiment.torch_interpreter.sizes import Number

SAMPLES = {ir.DataType.BOOL: True, ir.DataType.INT64: 1, ir.DataType.DOUBLE: 1.0}

WEIGHTS = ("number", "zero_dim", "tensor")
"""Of operands, the least first."""


def result_dtype(*operands: Any) -> ir.DataType:
    """The dtype that torch gives to an operation on these operands: values, Python numbers, None ignored.

    A 0-d tensor weighs less than a tensor with dimensions, a Python number (symbolic or not) less than both.
    """
    kinds = tuple(kind(operand) for operand in operands if operand is not None)
    return dtypes.onnx_dtype(promoted(kinds, torch.get_default_dtype()))


def float_dtype(*operands: Any) -> ir.DataType:
    """Like `result_dtype`, for operators that give a float for integers: torch's default dtype."""
    dtype = result_dtype(*operands)
    return dtype if dtype in dtypes.FLOATS else dtypes.onnx_dtype(torch.get_default_dtype())


def kind(operand: Any) -> tuple[Any, str]:
    """The torch dtype of an operand and its weight: ``tensor``, ``zero_dim`` or ``number``."""
    if not isinstance(operand, ir.Value):
        return type(operand), "number"
    if isinstance(operand, Number):
        return type(SAMPLES[operand.dtype]), "number"
    weight = "zero_dim" if operand.shape is not None and len(operand.shape) == 0 else "tensor"
    return dtypes.torch_dtype(operand.dtype), weight


@functools.cache
def promoted(kinds: tuple[tuple[Any, str], ...], default: torch.dtype) -> torch.dtype:
    """torch.result_type over any number of operands, whose answer depends on the *default* dtype.

    Operands of one weight count together: a 0-d float64 makes an integer tensor float64, but not beside a tensor of float32.
    """
    groups = ([sample(dtype, weight) for dtype, weight in kinds if weight == wish] for wish in WEIGHTS)
    result = functools.reduce(
        sample_of_both, (functools.reduce(sample_of_both, group) for group in groups if group)
    )
    return torch.result_type(result, result)


def sample(dtype: Any, weight: str) -> Any:
    """An operand of this dtype and weight."""
    if weight == "number":
        return dtype(1)
    return torch.empty((1,) if weight == "tensor" else (), dtype=dtype, device="meta")


def sample_of_both(one: Any, other: Any) -> Any:
    """The dtype of an operation on two operands, with the greater weight of both."""
    dtype = torch.result_type(one, other)
    dims = [x.dim() for x in (one, other) if isinstance(x, torch.Tensor)]
    if not dims:
        return torch.zeros((), dtype=dtype).item()
    return torch.empty((1,) * max(dims), dtype=dtype, device="meta")


def cast(op, operand: Any, dtype: ir.DataType) -> Any:
    """A value of *dtype*, from a value or a Python number."""
    return op.Cast(operand, to=dtype) if isinstance(operand, ir.Value) else op.constant(operand, dtype)


def rounded_operands(op, dtype: ir.DataType, *operands: Any) -> list[Any]:
    """The operands of an operation of *dtype*; in float32 when one is a wider 0-d tensor, which is rounded to *dtype* before.

    onnxruntime leaves the rounding out in front of an operator that it computes in float32 itself.
    """
    inside = ir.DataType.FLOAT if any(is_rounded(x, dtype) for x in operands) else dtype
    return [cast(op, cast(op, x, dtype), inside) for x in operands]


def is_rounded(operand: Any, dtype: ir.DataType) -> bool:
    """Whether an operand is a 0-d float32 or float64 tensor beside tensors of float16 or bfloat16."""
    is_wide = isinstance(operand, ir.Value) and operand.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    return is_wide and dtype in HALVES


def promote(op, *operands: Any) -> list[Any]:
    """The operands in the dtype torch computes in; None stays None."""
    dtype = result_dtype(*operands)
    return [None if operand is None else cast(op, operand, dtype) for operand in operands]


def promote_to_float(op, *operands: Any) -> list[Any]:
    """The operands in the float dtype torch computes in; None stays None."""
    dtype = float_dtype(*operands)
    return [None if operand is None else cast(op, operand, dtype) for operand in operands]


ROUNDING = 2.0**-11
"""Relative error of a float16: a number that a dtype rounds more coarsely needs a wider one."""


def wide(dtype: ir.DataType) -> ir.DataType:
    """The dtype in which torch computes one operation: float32 for float16 and bfloat16."""
    return ir.DataType.FLOAT if dtype in HALVES else dtype


def rounded_once(function: Callable) -> Callable:
    """Decorate what writes several operators: float16 and bfloat16 are computed in float32 and rounded at the end."""

    @functools.wraps(function)
    def computed(op, *args, **kwargs):
        values = [value for value in (*args, *kwargs.values()) if isinstance(value, ir.Value)]
        dtype = values[0].dtype
        kwargs = {name: raised(op, value) for name, value in kwargs.items()}
        return rounded(op, function(op, *(raised(op, value) for value in args), **kwargs), dtype)

    return computed


def raised(op, x: Any) -> Any:
    """A float16 or bfloat16 in float32; a bfloat16 that the runtime computed there as it was before it was rounded."""
    if not isinstance(x, ir.Value) or x.dtype not in HALVES:
        return x
    known = kernels.unrounded(op, x, ir.DataType.FLOAT)
    return op.Cast(x, to=ir.DataType.FLOAT) if known is None else known


def rounded(op, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """The result of `raised` operands in their dtype."""
    return kernels.narrowed(op, x, dtype)


def factors(op, dtype: ir.DataType, self: Any, other: Any) -> list[Any]:
    """The operands of a product or a quotient of *dtype*, in float32 when *dtype* does not hold one of them.

    torch keeps a Python number or a 0-d tensor in float32 beside float16 and bfloat16 tensors when it is the second operand:
    ``half * 1e5`` is finite. The first operand is rounded.
    """
    if dtype in HALVES and not holds_as_torch(dtype, other):
        return [cast(op, x, ir.DataType.FLOAT) for x in (raised(op, cast(op, self, dtype)), other)]
    return rounded_operands(op, dtype, self, other)


def holds_as_torch(dtype: ir.DataType, operand: Any) -> bool:
    """Whether float16 or bfloat16 holds an operand as well as torch does."""
    if isinstance(operand, ir.Value):
        return operand.dtype == dtype or kind(operand)[1] == "tensor"
    if operand is None or not np.isfinite(operand):
        return True
    with np.errstate(over="ignore"):
        stored = float(np.asarray(operand).astype(dtype.numpy()))
    return abs(stored - operand) <= ROUNDING * abs(operand)
