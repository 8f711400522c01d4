"""Modules that ``forward`` moves to where they are: ``self.layer.to(x.device)``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import _disable_current_modes

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch("torch", replaces=("torch.nn.Module._apply",), default=True)
def moves_of_modules() -> Iterator[None]:
    """``self.layer.to(x.device)`` in ``forward`` is refused, also where the layer stays as it is: torch swaps all its parameters.

    Tensors that have the device and the dtype stay what they are, as in eager; a conversion that changes one is refused as before.
    """
    with replaced(torch.nn.Module, "_apply", moving_what_changes(torch.nn.Module._apply)):
        yield


def moving_what_changes(apply: Callable) -> Callable:
    """``Module._apply`` that leaves a module alone, while it is traced, whose own parameters and buffers would stay the same."""

    @functools.wraps(apply)
    def _apply(self: torch.nn.Module, fn: Callable, recurse: bool = True) -> torch.nn.Module:
        if torch.compiler.is_dynamo_compiling() or get_proxy_mode() is None:  # TorchDynamo looks into it
            return apply(self, fn, recurse)
        own = itertools.chain(self.parameters(recurse=False), self.buffers(recurse=False))
        if not all(stays(fn, dtype, device) for dtype, device in {(item.dtype, item.device) for item in own}):
            return apply(self, fn, recurse)
        moves_of_modules.used()
        for child in self.children() if recurse else ():
            child._apply(fn)
        return self

    return _apply


def stays(fn: Callable, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a function of a tensor of this dtype and device gives the tensor itself, unchanged."""
    with _disable_current_modes(), torch.no_grad():
        sample = torch.empty(0, dtype=dtype, device=device)
        return fn(sample) is sample and sample._version == 0
