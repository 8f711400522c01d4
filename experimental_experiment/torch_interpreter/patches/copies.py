"""Copies of tensors, and of layers and containers that hold some, by Python's own functions.

Source of semantics: ``torch.Tensor.__deepcopy__`` and ``copy.copy`` of a tensor, which shares its memory.
"""

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
    replaces=("torch.Tensor.__deepcopy__", "torch.nn.Parameter.__deepcopy__", "__copy__ of tensors"),
    default=True,
)
def copies_of_tensors() -> Iterator[None]:
    """``copy.deepcopy(x)``, or of a layer or a cache that holds tensors, is refused in ``forward``, as ``copy.copy(x)`` is.

    A deep copy is a clone, the other one is the tensor itself under another name: what is written to it is written to both.
    """
    with contextlib.ExitStack() as stack:
        for cls in (torch.Tensor, torch.nn.Parameter):
            stack.enter_context(replaced(cls, "__deepcopy__", clones(cls.__deepcopy__)))
        for cls in TRACED:
            stack.enter_context(replaced(cls, "__copy__", alias))
        yield


def clones(deepcopy: Callable) -> Callable:
    """``__deepcopy__`` that clones what is traced.

    Refused as before is what a deep copy keeps as it is and a clone does not: two tensors of one memory, elements that are one, of `expand`.
    """

    @functools.wraps(deepcopy)
    def __deepcopy__(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        if not isinstance(self, TRACED) or id(self) in memo:
            return deepcopy(self, memo)
        memory = "memory", self.untyped_storage()._cdata
        if memory in memo or 0 in self.stride():
            return deepcopy(self, memo)
        copies_of_tensors.used()
        memo[memory] = memo[id(self)] = copied = self.detach().clone()
        return copied.requires_grad_(self.requires_grad)

    return __deepcopy__


def alias(self: torch.Tensor) -> torch.Tensor:
    """The same memory."""
    copies_of_tensors.used()
    return torch.ops.aten.alias.default(self)
