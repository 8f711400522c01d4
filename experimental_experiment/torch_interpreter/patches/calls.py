"""Calls of modules that raise an exception, which the model catches.

Source of semantics: ``torch.fx.Tracer.call_module``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

CALL = "torch.fx.Tracer.call_module"


@patch("torch", replaces=(CALL,), default=True)
def calls_that_raise() -> Iterator[None]:
    """``try: layer(x, lengths=n)`` with ``except TypeError: layer(x)`` is refused: torch.export forgets to leave a layer that raises."""
    with wrapped({CALL: leaving}):
        yield


def leaving(call_module: Callable) -> Callable:
    """*call_module* that takes what it entered from the stack of modules when the module raises, too."""

    @functools.wraps(call_module)
    def called(self: torch.fx.Tracer, *args: Any, **kwargs: Any) -> Any:
        depth = len(self.module_stack)
        try:
            return call_module(self, *args, **kwargs)
        finally:
            while len(self.module_stack) > depth:
                calls_that_raise.used()
                self.module_stack.popitem()

    return called
