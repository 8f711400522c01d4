"""Creation: zeros, ones, full and their ``_like`` and ``new_`` forms; arange, linspace, eye, the indices of triangles.

Source of semantics: https://pytorch.org/docs/stable/torch.html#creation-ops. What torch leaves uninitialized is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.conversion import converted, scalar
from experimental_experiment.torch_interpreter.aten.shaping import expanded
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.inference import LIMIT
from experimental_experiment.torch_interpreter.registry import translates, translates_complex
from experimental_experiment.torch_interpreter.sizes import Size, is_static, know_sizes, minus, sizes_of

aten = torch.ops.aten

INT64, DOUBLE = ir.DataType.INT64, ir.DataType.DOUBLE

Scalar = ir.Value | int | float | bool


@translates(aten.arange.default)
def arange(op, end, dtype):
    """0, 1, ... below *end*."""
    return ranged(op, 0, end, 1, dtype)


@translates(aten.arange.start)
def arange_start(op, start, end, dtype):
    """*start*, *start* + 1, ... below *end*."""
    return ranged(op, start, end, 1, dtype)


@translates(aten.arange.start_step)
def arange_start_step(op, start, end, step, dtype):
    """*start*, *start* + *step*, ... before *end*."""
    return ranged(op, start, end, step, dtype)


@translates(aten.empty_permuted.default)
def empty_permuted(op, size, physical_layout, dtype):
    """Zeros; the order of the memory changes no value."""
    return zeros(op, size, dtype)


@translates(aten.empty_strided.default)
def empty_strided(op, size, stride, dtype):
    """Zeros; strides change no value."""
    return zeros(op, size, dtype)


@translates(aten._efficientzerotensor.default, aten.empty.memory_format, aten.zeros.default)
def zeros(op, size, dtype):
    """Zero everywhere."""
    return filled(op, size, 0, dtype or torch.get_default_dtype())


@translates(aten.empty_like.default, aten.zeros_like.default)
def zeros_like(op, self, dtype):
    """Zero everywhere, in the shape of another tensor."""
    return filled_like(op, self, 0, dtype)


@translates(aten.eye.default)
def eye(op, n, dtype):
    """Ones on the diagonal of a square matrix."""
    return eye_m(op, n, n, dtype)


@translates(aten.eye.m)
def eye_m(op, n, m, dtype):
    """Ones on the diagonal."""
    rows = op.Unsqueeze(op.Range(0, n, 1), [1])
    return converted(op, op.Equal(rows, op.Range(0, m, 1)), dtype or torch.get_default_dtype())


@translates(aten.full.default)
def full(op, size, fill_value, dtype):
    """One value everywhere; its type gives the dtype."""
    return filled(op, size, fill_value, dtype or dtype_of(fill_value))


@translates(aten.full_like.default)
def full_like(op, self, fill_value, dtype):
    """One value everywhere, in the shape of another tensor."""
    return filled_like(op, self, fill_value, dtype)


@translates_complex(aten.linspace.default)
@translates(
    aten.linspace.default,
    aten.linspace.Scalar_Tensor,
    aten.linspace.Tensor_Scalar,
    aten.linspace.Tensor_Tensor,
)
def linspace(op, start, end, steps, dtype):
    """*steps* values from *start* to *end*, both included."""
    return spaced(op, start, end, steps, dtype)


@translates(aten.range.default)
def range_(op, start, end, dtype):
    """Values from *start* to *end*, which is included."""
    return range_step(op, start, end, 1, dtype)


@translates(aten.range.step)
def range_step(op, start, end, step, dtype):
    """Values from *start* to *end*, which is included when a number of steps leads there."""
    places = torch.arange(int((end - start) / step) + 1, dtype=torch.float64)
    return op.constant((start + places * step).to(dtype or torch.get_default_dtype()))


@translates_complex(aten.logspace.default)
@translates(
    aten.logspace.default,
    aten.logspace.Scalar_Tensor,
    aten.logspace.Tensor_Scalar,
    aten.logspace.Tensor_Tensor,
)
def logspace(op, start, end, steps, base, dtype):
    """Powers of *base*, whose exponents are evenly spaced."""
    known = all(not isinstance(number, ir.Value) for number in (start, end, steps, base))
    if known and steps <= LIMIT:
        return constant_of(op, torch.logspace(start, end, steps, base, dtype=dtype))
    exponents = spaced(op, start, end, steps, torch.float64)
    return converted(op, op.Pow(as_double(op, base), exponents), dtype or torch.get_default_dtype())


@translates(aten.new_empty_strided.default)
def new_empty_strided(op, self, size, stride, dtype):
    """Zeros, in the dtype of another tensor; strides change no value."""
    return new_zeros(op, self, size, dtype)


@translates(aten.new_empty.default, aten.new_zeros.default)
def new_zeros(op, self, size, dtype):
    """Zero everywhere, in the dtype of another tensor."""
    return filled(op, size, 0, dtype or dtypes.torch_dtype(self.dtype))


@translates(aten.new_full.default)
def new_full(op, self, size, fill_value, dtype):
    """One value everywhere, in the dtype of another tensor."""
    return filled(op, size, fill_value, dtype or dtypes.torch_dtype(self.dtype))


@translates(aten.new_ones.default)
def new_ones(op, self, size, dtype):
    """One everywhere, in the dtype of another tensor."""
    return filled(op, size, 1, dtype or dtypes.torch_dtype(self.dtype))


@translates(aten.ones.default)
def ones(op, size, dtype):
    """One everywhere."""
    return filled(op, size, 1, dtype or torch.get_default_dtype())


@translates(aten.ones_like.default)
def ones_like(op, self, dtype):
    """One everywhere, in the shape of another tensor."""
    return filled_like(op, self, 1, dtype)


@translates(aten.scalar_tensor.default)
def scalar_tensor(op, s, dtype):
    """A number as a 0-d tensor."""
    return filled(op, [], s, dtype or torch.get_default_dtype())


@translates(aten.tril_indices.default)
def tril_indices(op, row, col, offset, dtype):
    """The positions of a lower triangle, a column each."""
    return op.constant(torch.tril_indices(row, col, offset, dtype=integer_dtype(dtype)))


@translates(aten.triu_indices.default)
def triu_indices(op, row, col, offset, dtype):
    """The positions of an upper triangle, a column each."""
    return op.constant(torch.triu_indices(row, col, offset, dtype=integer_dtype(dtype)))


# ---- helpers that other families share


def integer_dtype(dtype: torch.dtype | int | None) -> torch.dtype:
    """A dtype, int64 unless the program gives one: ATen writes that default as a code, 4."""
    return dtype if isinstance(dtype, torch.dtype) else torch.int64


def dtype_of(value: Scalar) -> torch.dtype:
    """The dtype torch gives to a number."""
    if isinstance(value, ir.Value):
        dtype = dtypes.torch_dtype(value.dtype)
        return torch.get_default_dtype() if dtype == torch.float64 else dtype
    return torch.full((), value).dtype


def filled(op, sizes: Sequence[Size], value: Scalar, dtype: torch.dtype) -> ir.Value:
    """A tensor of these sizes with one value everywhere."""
    if dtype.is_complex:
        return filled_with_complex(op, sizes, value, dtype)
    return expanded(op, scalar(op, value, dtypes.onnx_dtype(dtype)), sizes)


def constant_of(op, values: torch.Tensor) -> ir.Value:
    """A constant; a complex one as pairs."""
    return op.constant(torch.view_as_real(values) if values.is_complex() else values)


def filled_with_complex(op, sizes: Sequence[Size], value: Scalar, dtype: torch.dtype) -> ir.Value:
    """A complex tensor of these sizes: a pair in the last dimension."""
    if isinstance(value, ir.Value):
        return expanded(op, converted(op, value, dtype), [*sizes, 2])
    pair = [complex(value).real, complex(value).imag]
    return expanded(op, op.constant(pair, dtypes.onnx_dtype(dtype)), [*sizes, 2])


def filled_like(op, x: ir.Value, value: Scalar, dtype: torch.dtype | None) -> ir.Value:
    """A tensor of the sizes of another one with one value everywhere: where they are computed, one Shape has all of them."""
    sizes, dtype = sizes_of(op, x), dtype or dtypes.torch_dtype(x.dtype)
    if dtype.is_complex or is_static(*sizes):
        return filled(op, sizes, value, dtype)
    result = op.Expand(scalar(op, value, dtypes.onnx_dtype(dtype)), op.shape_of(x))
    know_sizes(op, result, sizes)
    return result


def ranged(op, start: Scalar, end: Scalar, step: Scalar, dtype: torch.dtype | None) -> ir.Value:
    """``torch.arange``; floats are computed in float64 from their position, as torch does, not accumulated."""
    numbers = [start, end, step]
    are_ints = all(is_int(number) for number in numbers)
    dtype = dtype or (torch.int64 if are_ints else torch.get_default_dtype())
    start, end, step = numbers = [int(number) if is_whole(number) else number for number in numbers]
    are_ints = all(is_int(number) for number in numbers)
    known = all(not isinstance(number, ir.Value) for number in numbers)
    if known:
        count = torch.arange(start, end, step, dtype=dtype, device="meta").numel()
        if count <= LIMIT:
            return op.constant(torch.arange(start, end, step, dtype=dtype))
    if are_ints:
        return converted(op, op.Range(*[as_int(op, number) for number in numbers]), dtype)
    if dtype == torch.int64:
        return op.Range(*[as_int(op, number) for number in numbers])
    if is_int(end) and not isinstance(step, ir.Value) and step == 1 and is_short_fraction(start):
        count, known = minus(op, end, math.floor(start)), True
    start, end, step = [as_double(op, number) for number in numbers]
    if not known:
        count = op.Cast(op.Ceil(op.Div(op.Sub(end, start), step)), to=INT64)
    if not dtype.is_floating_point:
        start, step = [op.Cast(op.Cast(number, to=INT64), to=DOUBLE) for number in (start, step)]
    position = op.Cast(op.Range(0, count, 1), to=DOUBLE)
    return converted(op, op.Add(op.Mul(position, step), start), dtype)


def is_short_fraction(number: Scalar) -> bool:
    """Whether a number is a float in Python of few binary digits, as 0.5 is: what is left of a size is not rounded."""
    return isinstance(number, float) and (number * 1024).is_integer()


def is_int(number: Scalar) -> bool:
    """Whether a number is an int in Python."""
    return number.dtype == INT64 if isinstance(number, ir.Value) else isinstance(number, int)


def is_whole(number: Scalar) -> bool:
    """Whether a number is a float in Python that an integer equals, as the integers around it do."""
    return isinstance(number, float) and number.is_integer() and abs(number) < 2**53


def as_int(op, number: Scalar) -> ir.Value:
    """A number as an INT64 value, truncated."""
    return op.Cast(number, to=INT64) if isinstance(number, ir.Value) else op.constant(int(number))


def as_double(op, number: Scalar) -> ir.Value:
    """A number as a DOUBLE value."""
    return op.Cast(number, to=DOUBLE) if isinstance(number, ir.Value) else op.constant(float(number), DOUBLE)


def spaced(op, start: Scalar, end: Scalar, steps: int | ir.Value, dtype: torch.dtype | None) -> ir.Value:
    """``torch.linspace``, computed in double: from both ends towards the middle where *end* would not be exact else."""
    known = all(not isinstance(number, ir.Value) for number in (start, end, steps))
    if known and steps <= LIMIT:
        return constant_of(op, torch.linspace(start, end, steps, dtype=dtype))
    dtype = dtype or torch.get_default_dtype()
    if dtype.is_complex:
        raise Untranslatable(f"linspace of {dtype} with bounds that are data")
    start, end = [as_double(op, number) for number in (start, end)]
    if not dtype.is_floating_point:
        start, end = [op.Cast(op.Cast(bound, to=INT64), to=DOUBLE) for bound in (start, end)]
    count = op.Cast(op.constant(steps), to=DOUBLE)
    position = op.Range(op.constant(0.0, DOUBLE), count, op.constant(1.0, DOUBLE))
    last = op.Sub(count, 1.0)
    step = op.Div(op.Sub(end, start), op.Max(last, 1.0))
    up = op.Add(start, op.Mul(position, step))
    if dtype in (torch.float32, torch.float16, torch.bfloat16):  # rounded, the last one is *end* too
        return converted(op, up, dtype)
    down = op.Sub(end, op.Mul(op.Sub(last, position), step))
    half = op.Max(op.Floor(op.Mul(count, 0.5)), 1.0)
    return converted(op, op.Where(op.Less(position, half), up, down), dtype)
