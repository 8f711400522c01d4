"""Results of other dtypes than torch.export says.

Source of semantics: ``torch._subclasses.fake_impls`` of torch 2.13, and what eager returns.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from experimental_experiment.torch_interpreter.patches.patch import entry, patch

aten = torch.ops.aten

UNIQUE = (aten._unique2.default, aten.unique_consecutive.default, aten.unique_dim.default)


@patch(
    "torch", replaces=("torch._subclasses.fake_impls.op_implementations_dict",), until="2.13", default=True
)
def dtypes_of_counts() -> Iterator[None]:
    """``torch.unique`` and ``torch.bincount`` are said to return places, counts and sums in the dtype of the elements that they count."""
    kernels = fake_impls.op_implementations_dict
    corrected = {aten.bincount.default: of_sums, **dict.fromkeys(UNIQUE, of_places_and_counts)}
    with contextlib.ExitStack() as stack:
        for operator, correct in corrected.items():
            entry(stack, kernels, operator, correct(kernels[operator]))
        yield


def of_places_and_counts(kernel: Callable) -> Callable:
    """What gives the fake results of `torch.unique`: all but the elements are int64, those that are not asked for too."""

    @functools.wraps(kernel)
    def called(mode: FakeTensorMode, operator: Any, *args: Any, **kwargs: Any) -> tuple[FakeTensor, ...]:
        values, *others = kernel(mode, operator, *args, **kwargs)
        return values, *(of_dtype(other, torch.int64) for other in others)

    return called


def of_sums(kernel: Callable) -> Callable:
    """What gives the fake result of `torch.bincount`: int64, for weights float32 or float64."""

    @functools.wraps(kernel)
    def called(
        mode: FakeTensorMode,
        operator: Any,
        inputs: FakeTensor,
        weights: FakeTensor | None = None,
        minlength: int | torch.SymInt = 0,
    ) -> FakeTensor:
        result = kernel(mode, operator, inputs, weights, minlength)
        if weights is None:
            return of_dtype(result, torch.int64)
        return of_dtype(result, torch.float32 if weights.dtype == torch.float32 else torch.float64)

    return called


def of_dtype(result: FakeTensor, dtype: torch.dtype) -> FakeTensor:
    """A tensor of this dtype like a fake result."""
    if result.dtype == dtype:
        return result
    dtypes_of_counts.used()
    return result.new_empty(result.shape, dtype=dtype)
