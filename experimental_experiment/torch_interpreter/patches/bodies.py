"""Branches and loops of torch, which TorchDynamo compiles while a model is captured.

Source of semantics: torch/_higher_order_ops/utils.py.
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

COMPILE = "torch._higher_order_ops.utils._hop_compile_and_call"


@patch("torch", replaces=(COMPILE,), default=True)
def bodies_of_earlier_captures() -> Iterator[None]:
    """A scan or a map that was captured with fixed sizes keeps them in the captures that follow in the same process.

    TorchDynamo keeps what it compiled with the code of torch's own scan, whatever the model, and asks whether it fits: the answer is
    yes for the example, and fixes its sizes. It also takes a size that was another one in an earlier capture for dynamic, as which a
    scan has no gradient.
    """
    loops = importlib.import_module("torch._higher_order_ops.utils")
    # torch 2.9 has no such function
    with wrapped({COMPILE: with_new_code} if hasattr(loops, "_hop_compile_and_call") else {}):
        yield


def with_new_code(compile_and_call: Callable) -> Callable:
    """What compiles and calls a function: a copy of it, with code that was never compiled."""

    @functools.wraps(compile_and_call)
    def called(fn: Callable, args: tuple, kwargs: dict[str, Any] | None = None) -> Any:
        if isinstance(fn, types.FunctionType):
            bodies_of_earlier_captures.used()
            copied = types.FunctionType(
                fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
            )
            copied.__kwdefaults__ = fn.__kwdefaults__
            fn = copied
        with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
            return compile_and_call(fn, args, kwargs)

    return called
