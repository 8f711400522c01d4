"""Weights of losses that torch forgets while it is captured.

Source of semantics: ``torch.nn.functional.l1_loss``.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced_everywhere

NAME, ASKS = "l1_loss", "has_torch_function_variadic"


@patch(
    "torch", replaces=(f"torch.nn.functional.{NAME}", f"{NAME}, in the modules that import it"), default=True
)
def weighted_losses() -> Iterator[None]:
    """``F.l1_loss(x, y, weight=w)`` is captured without its weights: torch does not hand them on to what records the call."""
    with replaced_everywhere("torch.nn.functional", NAME, as_in_eager):
        yield


def as_in_eager(loss: Callable) -> Callable:
    """*loss* that asks nobody who records it where it has weights, its sixth argument: what it calls is recorded."""
    alone = types.FunctionType(
        loss.__code__, {**loss.__globals__, ASKS: nobody}, loss.__name__, loss.__defaults__
    )

    @functools.wraps(loss)
    def called(*args: Any, **kwargs: Any) -> torch.Tensor:
        if len(args) < 6 and kwargs.get("weight") is None:
            return loss(*args, **kwargs)
        if not torch.compiler.is_dynamo_compiling():
            weighted_losses.used()
        return alone(*args, **kwargs)

    return called


def nobody(*tensors: Any) -> bool:
    """No tensor, and no mode, has a function of its own to call."""
    return False
