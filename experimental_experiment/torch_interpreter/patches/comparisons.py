"""Comparisons of two tensors whose result is a boolean of Python: ``torch.equal`` and ``torch.allclose``."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch(
    "torch",
    replaces=tuple(
        f"{owner}.{name}" for owner in ("torch", "torch.Tensor") for name in ("equal", "allclose")
    ),
    default=True,
)
def comparisons_of_tensors() -> Iterator[None]:
    """``torch.equal(x, y)`` and ``torch.allclose(x, y)`` are refused: their results are booleans of Python, which the data decide.

    They are conditions as ``(x == y).all()`` is: a check is left out, a branch is refused where it is, and tensors of other shapes are
    not equal. So are kernels of GPyTorch, which ask whether both of their inputs are the same.
    """
    with contextlib.ExitStack() as stack:
        for owner in (torch, torch.Tensor):
            stack.enter_context(replaced(owner, "equal", of_data(owner.equal, same)))
            stack.enter_context(replaced(owner, "allclose", of_data(owner.allclose, close)))
        yield


def of_data(compare: Callable, condition: Callable) -> Callable:
    """One of these functions that gives a condition while the model is recorded."""

    @functools.wraps(compare)
    def called(input: torch.Tensor, other: torch.Tensor, *args: Any, **options: Any) -> Any:
        is_of_data = isinstance(input, FakeTensor) or isinstance(other, FakeTensor)
        if not is_of_data or get_proxy_mode() is None:
            return compare(input, other, *args, **options)
        comparisons_of_tensors.used()
        return condition(input, other, *args, **options)

    return called


def same(input: torch.Tensor, other: torch.Tensor) -> Any:
    """``torch.equal``: of one shape, of equal elements."""
    return input.shape == other.shape and (input == other).all()


def close(input: torch.Tensor, other: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """``torch.allclose``."""
    return torch.isclose(input, other, *args, **options).all()
