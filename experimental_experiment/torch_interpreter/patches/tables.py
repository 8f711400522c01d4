"""Tensors of sizes: what a model makes of a list of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch("torch", replaces=("torch.as_tensor", "torch.Tensor.new_tensor", "torch.Tensor.new"), default=True)
def tensors_of_sizes() -> Iterator[None]:
    """``torch.as_tensor([x.shape[0], x.shape[1]])`` holds the example's sizes, where ``torch.tensor`` holds the sizes of any input.

    So does ``boxes.new_tensor([width, height])``, and ``x.new(lengths.tolist())`` is refused.
    """
    with (
        replaced(torch, "as_tensor", of_sizes(torch.as_tensor)),
        replaced(torch.Tensor, "new_tensor", like_one(torch.Tensor.new_tensor)),
        replaced(torch.Tensor, "new", like_one_of_a_list(torch.Tensor.new)),
    ):
        yield


def of_sizes(as_tensor: Callable) -> Callable:
    """``torch.as_tensor`` that is ``torch.tensor`` for numbers among which are symbols."""

    @functools.wraps(as_tensor)
    def called(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not has_sizes(data):
            return as_tensor(data, *args, **kwargs)
        named = dict(zip(("dtype", "device"), args))
        return torch.tensor(data, **named, **kwargs)

    return called


def like_one(new_tensor: Callable) -> Callable:
    """``torch.Tensor.new_tensor`` that is ``torch.tensor`` in the dtype of a tensor for numbers among which are symbols."""

    @functools.wraps(new_tensor)
    def called(self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
        if not has_sizes(data):
            return new_tensor(self, data, **kwargs)
        given = {name: value for name, value in kwargs.items() if value is not None}
        return torch.tensor(data, **{"dtype": self.dtype, "device": self.device} | given)

    return called


def like_one_of_a_list(new: Callable) -> Callable:
    """``torch.Tensor.new``, the older name, that is `new_tensor` for a list of numbers among which are symbols."""

    @functools.wraps(new)
    def called(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if len(args) == 1 and isinstance(args[0], list) and has_sizes(args[0]):
            return self.new_tensor(args[0], **kwargs)
        return new(self, *args, **kwargs)

    return called


def has_sizes(data: Any) -> bool:
    """Whether these are numbers among which are symbols; says that the patch is used when they are."""
    numbers = tree_leaves(data) if isinstance(data, (list, tuple, torch.SymInt, torch.SymFloat)) else []
    found = any(isinstance(number, (torch.SymInt, torch.SymFloat)) for number in numbers)
    found = found and not any(isinstance(number, torch.Tensor) for number in numbers)
    if found:
        tensors_of_sizes.used()
    return found
