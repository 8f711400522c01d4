"""Tensors of sizes: what a model makes of a list of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch("torch", replaces=("torch.as_tensor",), default=True)
def tensors_of_sizes() -> Iterator[None]:
    """``torch.as_tensor([x.shape[0], x.shape[1]])`` holds the example's sizes, where ``torch.tensor`` holds the sizes of any input."""
    with replaced(torch, "as_tensor", of_sizes(torch.as_tensor)):
        yield


def of_sizes(as_tensor: Callable) -> Callable:
    """``torch.as_tensor`` that is ``torch.tensor`` for numbers among which are symbols."""

    @functools.wraps(as_tensor)
    def called(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        numbers = tree_leaves(data) if isinstance(data, (list, tuple, torch.SymInt)) else []
        is_of_sizes = any(isinstance(number, torch.SymInt) for number in numbers)
        if not is_of_sizes or any(isinstance(number, torch.Tensor) for number in numbers):
            return as_tensor(data, *args, **kwargs)
        tensors_of_sizes.used()
        named = dict(zip(("dtype", "device"), args))
        return torch.tensor(data, **named, **kwargs)

    return called
