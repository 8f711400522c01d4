"""Slices whose bounds the example does not reach: ``ids[:, :512]`` of 100 tokens, ``keys[:, :, -4095:]`` of a short cache; ``x[:, : y.shape[1]]``.

Source of semantics: ``Tensor.__getitem__``: what lies beyond the first or the last element is cut off.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from experimental_experiment.torch_interpreter.memory import is_known
from experimental_experiment.torch_interpreter.patches.patch import entry, patch
from experimental_experiment.torch_interpreter.patches.reshapes import in_the_example

SLICE = torch.ops.aten.slice.Tensor

Size = int | torch.SymInt

WITHIN = contextvars.ContextVar("WITHIN", default=False)
"""Whether a size that cuts another one is taken for within it, as it is in the example."""


@patch("torch", replaces=("torch._subclasses.fake_impls.FAST_OP_IMPLEMENTATIONS",), default=True)
def bounds_of_slices() -> Iterator[None]:
    """``ids[:, :512]`` is all of an example of 100 tokens, and of 600 in the model, too; an example of 512 is refused; ``x[:, : y.shape[1]]`` has the length that the example decides."""
    with contextlib.ExitStack() as stack:
        entry(stack, fake_impls.FAST_OP_IMPLEMENTATIONS, SLICE, sliced)
        yield


def sliced(
    mode: FakeTensorMode,
    x: FakeTensor,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> FakeTensor:
    """The fake result of a slice: torch's own, unless the sizes of the example would decide what a bound cuts off."""
    size = x.shape[dim] if x.dim() else 0
    end = None if isinstance(end, int) and end == sys.maxsize else end
    if not any(is_cut_off(bound, size) for bound in (start, end)):
        return as_torch_slices(mode, x, dim, start, end, step)
    bounds_of_slices.used()
    first, length = extent(start, end, size)
    sizes, strides = list(x.shape), list(x.stride())
    offset = x.storage_offset() + first * strides[dim]
    sizes[dim], strides[dim] = (length + step - 1) // step, strides[dim] * step
    return x.as_strided(sizes, strides, offset)


def as_torch_slices(mode: FakeTensorMode, x: FakeTensor, *arguments: Any) -> FakeTensor:
    """What torch makes of a slice: by a kernel of its own in newer versions, by a decomposition before."""
    kernel = fake_impls.op_implementations_dict.get(SLICE)
    if kernel is not None:
        return kernel(mode, SLICE, x, *arguments)
    with mode:
        return torch._decomp.decomposition_table[SLICE](x, *arguments)


def is_cut_off(bound: Size | None, size: Size) -> bool:
    """Whether what a bound cuts off is to be asked for other sizes than those of the example: torch.export keeps what the example decides.

    A number may be reached, as in ``x[:, :2]``: then it stays the number of elements. A size that another one cuts may be the smaller one.
    """
    if bound is None or (isinstance(bound, int) and isinstance(size, int)) or is_known(bound >= size):
        return False
    in_example, size_in_example = in_the_example(bound), in_the_example(size)
    if in_example is None or size_in_example is None:
        return False
    if isinstance(bound, torch.SymInt) and isinstance(size, torch.SymInt) and not WITHIN.get():
        if is_known(bound >= 0):
            return not is_certain(bound <= size)
        if is_known(bound < 0):
            return not is_certain(bound >= -size)
    reached = size_in_example + (0 if isinstance(bound, int) else 1)
    return in_example >= reached or in_example <= -reached


def is_certain(condition: bool | torch.SymBool) -> bool:
    """Whether a condition holds for all sizes: torch knows it, or it is proven, as that an even size reaches the odd one before it."""
    from experimental_experiment.torch_interpreter.certainty import Known  # brings sympy

    if is_known(condition):
        return True
    if not isinstance(condition, torch.SymBool):
        return False
    environment, expression = condition.node.shape_env, condition.node.expr
    ranges = {symbol: environment.var_to_range.get(symbol) for symbol in expression.free_symbols}
    return None not in ranges.values() and Known(ranges).makes_certain(environment, expression)


@contextlib.contextmanager
def taken_within() -> Iterator[None]:
    """While this lasts, a size that cuts another one is taken for within it, if it is in the example.

    As torch.export takes it, which then asks its constraints whether that holds for all sizes.
    """
    token = WITHIN.set(True)
    try:
        yield
    finally:
        WITHIN.reset(token)


def extent(start: Size | None, end: Size | None, size: Size) -> tuple[Size, Size]:
    """The first element of a slice along an axis of *size* elements, and their number before a step."""
    first = 0 if start is None else place(start, size)
    if end is None or is_known(end >= size):
        is_last = start is not None and start < 0
        return first, torch.sym_min(-start, size) if is_last else torch.sym_max(size - first, 0)
    length = place(end, size) - first
    return first, length if is_known(length >= 0) else torch.sym_max(length, 0)


def place(bound: Size, size: Size) -> Size:
    """The element that a bound means, between the first one and the one behind the last."""
    if bound >= 0:
        return torch.sym_min(bound, size)
    return torch.sym_max(bound + size, 0)
