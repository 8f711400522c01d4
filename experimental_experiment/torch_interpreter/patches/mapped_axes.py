"""Axes that ``torch.vmap`` moves in its results.

Source of semantics: torch/_functorch/predispatch.py.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

REMOVE = "torch._functorch.predispatch._remove_batch_dim_impl"


@patch("torch", replaces=(REMOVE,), default=True)
def mapped_axes() -> Iterator[None]:
    """``torch.vmap`` is refused when the axis of its results is another one than that of its inputs: `in_dims`, `out_dims`.

    What moves the axis inside of functorch is traced too, on a tensor that the program does not have.
    """
    module = importlib.import_module("torch._functorch.predispatch")
    with wrapped({REMOVE: untraced} if hasattr(module, "_remove_batch_dim_impl") else {}):
        yield


def untraced(remove: Callable) -> Callable:
    """What ends a batch, of which torch.export traces the call alone, not what it calls."""

    @functools.wraps(remove)
    def removed(*args: Any) -> Any:
        mode = get_proxy_mode()
        if mode is None or not mode.pre_dispatch:  # make_fx runs through functorch
            return remove(*args)
        mapped_axes.used()
        with disable_proxy_modes_tracing():
            return remove(*args)

    return removed
