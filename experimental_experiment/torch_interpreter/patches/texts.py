"""Sizes in texts: what a model logs or raises names them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch("torch", replaces=("torch.SymInt.__format__", "torch.SymFloat.__format__"), default=True)
def formatted_sizes() -> Iterator[None]:
    """``f"{x.shape[0]:4d} rows"``, as models log it, is a TypeError: a symbol knows no format, where ``f"{x.shape[0]}"`` gives its name."""
    with contextlib.ExitStack() as stack:
        for cls in (torch.SymInt, torch.SymFloat):
            stack.enter_context(replaced(cls, "__format__", named))
        yield


def named(size: Any, spec: str) -> str:
    """The name of a symbol, whatever digits are asked for."""
    if spec:
        formatted_sizes.used()
    return str(size)
