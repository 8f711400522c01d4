"""``len`` of a tensor and ``int`` of a size, which Python makes numbers of its own."""

from __future__ import annotations

import builtins
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.patches.vision import modeling_modules


@patch("transformers", replaces=("len, in the modules of models",), since="5.0", default=True)
def lengths_of_tensors() -> Iterator[None]:
    """D-FINE, RT-DETR and others ask ``len(x)`` of a tensor: a number of Python, which fixes the batch to the example's."""
    with contextlib.ExitStack() as stack:
        for module in modeling_modules():
            if "len" not in vars(module):
                stack.enter_context(replaced(module, "len", length))
        yield


def length(values: Any) -> Any:
    """``len`` that is a symbol where the first size of a tensor is one."""
    if isinstance(values, torch.Tensor) and values.dim() and isinstance(values.shape[0], torch.SymInt):
        lengths_of_tensors.used()
        return values.shape[0]
    return builtins.len(values)


@patch("transformers", replaces=("torch_int, in the modules of models",), since="5.0", default=True)
def integers_of_sizes() -> Iterator[None]:
    """DINOv2 with registers, TIPS and others ask for ``torch_int(height)``, a number of Python: position embeddings get the example's size."""
    with contextlib.ExitStack() as stack:
        for module in modeling_modules():
            if "torch_int" in vars(module):
                stack.enter_context(replaced(module, "torch_int", symbol(module.torch_int)))
        yield


def symbol(torch_int: Callable) -> Callable:
    """``torch_int`` that leaves symbols as they are."""

    @functools.wraps(torch_int)
    def called(x: Any) -> Any:
        if isinstance(x, torch.SymInt):
            integers_of_sizes.used()
            return x
        return torch_int(x)

    return called
