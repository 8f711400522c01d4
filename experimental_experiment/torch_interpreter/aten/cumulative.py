"""Cumulative operators: cumsum, cumprod, cummax, cummin, logcumsumexp; differences and integrals along an axis.

Source of semantics: torch.cumsum, torch.cummax and ONNX CumSum-14, CumProd-26, Scan. What ONNX does not accumulate is a
Scan along the axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter import dtypes
from experimental_experiment.torch_interpreter.aten.reduction import accumulated
from experimental_experiment.torch_interpreter.aten.shaping import reshaped
from experimental_experiment.torch_interpreter.aten.transposing import inverse
from experimental_experiment.torch_interpreter.composite import composite
from experimental_experiment.torch_interpreter.dtypes import highest, lowest
from experimental_experiment.torch_interpreter.emitter import INT64_MAX, rank
from experimental_experiment.torch_interpreter.promotion import promote
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Size, sizes_of

aten = torch.ops.aten
BOOL, INT64, UINT8 = ir.DataType.BOOL, ir.DataType.INT64, ir.DataType.UINT8

LONG = 64
"""An axis of as many elements runs in parts."""

composite(
    aten.cumulative_trapezoid.dx,
    aten.cumulative_trapezoid.x,
    aten.gradient.array,
    aten.gradient.scalararray,
    aten.gradient.scalarint,
    aten.gradient.scalarrayarray,
    aten.gradient.scalarrayint,
    aten.gradient.tensorarray,
    aten.gradient.tensorarrayint,
    aten.trapezoid.dx,
    aten.trapezoid.x,
    aten.trapz.dx,
    aten.trapz.x,
)


@translates(aten.cummax.default)
def cummax(op, self, dim):
    """The largest element up to each one, NaN as soon as there is one, and the index of the last such element."""
    return running_extremum(op, self, dim, "GreaterOrEqual", lowest)


@translates(aten.cummin.default)
def cummin(op, self, dim):
    """The smallest element up to each one, NaN as soon as there is one, and the index of the last such element."""
    return running_extremum(op, self, dim, "LessOrEqual", highest)


@translates(aten.cumprod.default)
def cumprod(op, self, dim, dtype):
    """The product of all elements up to each one; integers and booleans multiply to int64."""
    self = accumulated(op, self, dtype)
    return op.CumProd(self, dim) if rank(self) else self


@translates(aten.cumsum.default)
def cumsum(op, self, dim, dtype):
    """The sum of all elements up to each one along an axis; integers and booleans sum to int64."""
    self = accumulated(op, self, dtype)
    return op.CumSum(self, dim) if rank(self) else self


@translates(aten.diff.default)
def diff(op, self, n, dim, prepend, append):
    """The differences of neighbours, *n* times; of booleans, whether they differ. None, of *self* alone, when *n* is 0."""
    if n == 0:
        return self
    parts = promote(op, *(part for part in (prepend, self, append) if part is not None))
    self = op.Concat(*parts, axis=dim) if len(parts) > 1 else self
    for _ in range(n):
        after = op.Slice(self, [1], [INT64_MAX], [dim])
        before = op.Slice(self, [0], [-1], [dim])
        self = op.emit("Xor" if self.dtype == BOOL else "Sub", (after, before))
    return self


@translates(aten.logcumsumexp.default)
def logcumsumexp(op, self, dim):
    """``log(cumsum(exp(self)))``, stable; as in ATen what is carried is float64: float32 would lose what is small beside the sum."""
    if rank(self) == 0:
        return self
    wide = op.Cast(self, to=ir.DataType.DOUBLE)
    return op.CastLike(running(op, [wide], [-math.inf], dim, add_logarithms)[0], self)


# ---- helpers


def multiply(op, state, x) -> list[ir.Value]:
    """The product of both."""
    return [op.Mul(state, x)]


def add_logarithms(op, state, x) -> list[ir.Value]:
    """``log(exp(state) + exp(x))``; equal infinities are themselves."""
    low, high = op.Min(state, x), op.Max(state, x)
    added = op.Add(high, op.Log(op.Add(op.Exp(op.Sub(low, high)), 1.0)))
    return [op.Where(op.And(op.Equal(low, high), op.IsInf(low)), x, added)]


def running(
    op, inputs: Sequence[ir.Value], starts: Sequence, dim: int, step: Callable
) -> tuple[ir.Value, ...]:
    """The states of a recurrence along an axis: ``state = step(op, *state, *x)``, one state for each input.

    The axis is moved to the front, where Scan stacks the states. *step* is associative: equal parts of a long axis run side by side,
    then what comes before each of them, 128 steps one after the other instead of 4096 in any runtime.
    """
    axis, sizes = dim % rank(inputs[0]), sizes_of(op, inputs[0])
    parts = count_of_parts(sizes[axis])
    split = [sizes[axis]] if parts == 1 else [parts, sizes[axis] // parts]
    first = [axis] if parts == 1 else [axis + 1, axis]
    order = [*first, *(place for place in range(len(sizes) - 1 + len(split)) if place not in first)]
    blocks = [reshaped(op, x, [*sizes[:axis], *split, *sizes[axis + 1 :]]) for x in inputs]
    ends, states = scanned(op, [op.Transpose(x, perm=order) for x in blocks], starts, step)
    if parts > 1:
        _, before = scanned(op, ends, starts, step, exclusive=True)
        states = step(op, *before, *states)
    return tuple(reshaped(op, op.Transpose(state, perm=inverse(order)), sizes) for state in states)


def count_of_parts(size: Size) -> int:
    """How many equal parts of an axis run side by side: about as many as each has elements, 1 for a short or unknown axis."""
    if not isinstance(size, int) or size < LONG:
        return 1
    best = min(
        (part for part in range(1, size + 1) if size % part == 0), key=lambda part: part + size // part
    )
    return best if 4 * best * best >= size else 1


def scanned(
    op, inputs: Sequence[ir.Value], starts: Sequence, step: Callable, exclusive: bool = False
) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
    """The last states of a recurrence along the first axis, and all of them; *exclusive*: those before each step."""
    sizes = op.shape(sizes_of(op, inputs[0])[1:])
    states = [op.Expand(op.constant(start, x.dtype), sizes) for start, x in zip(starts, inputs)]
    count = len(inputs)

    def body(inner, *values):
        new = step(inner, *values)
        return [*new, *(values[:count] if exclusive else new)]

    outputs = op.Scan(
        *states,
        *inputs,
        body=op.subgraph(body, [*states, *states]),
        num_scan_inputs=count,
        outputs=2 * count,
    )
    for result, x in zip(outputs, [*states, *inputs]):
        result.type, result.shape = x.type, x.shape
    return outputs[:count], outputs[count:]


def running_extremum(op, self, dim, comparison: str, start: Callable) -> tuple[ir.Value, ir.Value]:
    """The extremum up to each element and its index, the last one among equals."""
    if rank(self) == 0:
        return self, op.constant(0, INT64)
    axis = dim % rank(self)
    numbers = op.Cast(self, to=UINT8) if self.dtype == BOOL else self
    along = [-1 if other == axis else 1 for other in range(rank(self))]
    places = op.Reshape(op.Range(0, op.constant(op.size(self, axis), INT64), 1), along)
    places = op.Expand(places, op.shape_of(self))

    def step(inner, best, index, x, place):
        taken = inner.emit(comparison, (x, best))
        if x.dtype in dtypes.FLOATS:
            taken = inner.Or(inner.IsNaN(x), taken)  # nothing is compared with a NaN before it
        return [inner.Where(taken, x, best), inner.Where(taken, place, index)]

    values, indices = running(op, [numbers, places], [start(numbers.dtype), 0], dim, step)
    return op.CastLike(values, self), indices
