"""Sizes and numbers of the data in texts: what a model logs or raises names them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.memories import TRACED
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch(
    "torch",
    replaces=("torch.SymInt.__format__", "torch.SymFloat.__format__", "torch.Tensor.__format__"),
    default=True,
)
def formatted_sizes() -> Iterator[None]:
    """``f"{x.shape[0]:4d} rows"``, as models log it, is a TypeError: a symbol knows no format, where ``f"{x.shape[0]}"`` gives its name.

    So is ``f"{x.mean():.3f}"`` of a tensor of one number.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch.Tensor, "__format__", of_tensors(torch.Tensor.__format__)))
        for cls in (torch.SymInt, torch.SymFloat):
            stack.enter_context(replaced(cls, "__format__", named))
        yield


def named(size: Any, spec: str) -> str:
    """The name of a symbol, or what stands for a tensor, whatever digits are asked for."""
    if spec:
        formatted_sizes.used()
    return str(size)


def of_tensors(format_: Callable) -> Callable:
    """``Tensor.__format__`` that gives what ``str`` does of a number that is not known, whatever digits are asked for."""

    @functools.wraps(format_)
    def __format__(self: torch.Tensor, spec: str) -> str:
        is_number = isinstance(self, TRACED) and not self.dim()
        return named(self, spec) if is_number else format_(self, spec)

    return __format__
