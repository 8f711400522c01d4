"""Paddings with a number that the data, or sizes, decide: ``F.pad(x, (1, 1), value=x.min().item())``.

Source of semantics: ``torch.nn.functional.pad``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.memories import TRACED
from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped
from experimental_experiment.torch_interpreter.symbols import SYMBOLS


@patch("torch", replaces=("torch.nn.functional.pad",), default=True)
def padding_values() -> Iterator[None]:
    """``F.pad(x, (1, 1), value=v)`` is refused where the data decide *v*, and holds the example's where a size does: torch takes a number there."""
    with wrapped({"torch.nn.functional.pad": of_any_value}):
        yield


def of_any_value(pad: Callable) -> Callable:
    """`torch.nn.functional.pad` that fills what it adds with a tensor of one element."""
    signature = inspect.signature(pad)

    @functools.wraps(pad)
    def called(*args: Any, **kwargs: Any) -> torch.Tensor:
        if torch.compiler.is_dynamo_compiling():
            return pad(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        value, mode = given.arguments.get("value"), given.arguments.get("mode", "constant")
        if not is_decided_later(value) or mode != "constant":
            return pad(*args, **kwargs)
        padding_values.used()
        x, widths = given.arguments["input"], given.arguments["pad"]
        is_known = pad(torch.ones_like(x, dtype=torch.bool), widths, value=False)
        if isinstance(value, torch.Tensor):
            filled = value.to(x.dtype)
        else:
            filled = torch.full((), value, dtype=x.dtype)
        return torch.where(is_known, pad(x, widths, value=0), filled)

    return called


def is_decided_later(value: Any) -> bool:
    """Whether a value is a symbol, or a tensor of a capture that eager takes for a number and whose value is not known."""
    if isinstance(value, TRACED):
        return not value.dim() and not value.requires_grad and getattr(value, "constant", None) is None
    return isinstance(value, SYMBOLS)
