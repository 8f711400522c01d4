"""EoMT: the probabilities of its masks, which are numbers of the model and no data.

Source of semantics: ``transformers.models.eomt``, ``transformers.models.eomt_dinov3``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.patches.patch import entry, patch, replaced

CLASSES = {
    f"transformers.models.{name}.modeling_{name}": owner
    for name, owner in (
        ("eomt", "EomtForUniversalSegmentation"),
        ("eomt_dinov3", "EomtDinov3ForUniversalSegmentation"),
    )
}
"""The classes that ask a buffer whether a layer masks, by their modules."""

BUFFER = "attn_mask_probs"


@patch(
    "transformers",
    replaces=(
        "torch.export._trace._fakify_params_buffers",
        *(f"{module}.{owner}.forward" for module, owner in CLASSES.items()),
    ),
    since="5.0",
    default=True,
)
def mask_probabilities() -> Iterator[None]:
    """EoMT asks a buffer how likely each layer masks its queries, and is refused as a branch on the data."""
    known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    owners = [getattr(sys.modules[name], owner) for name, owner in CLASSES.items() if name in sys.modules]
    with contextlib.ExitStack() as stack:
        if owners:
            trace = importlib.import_module("torch.export._trace")
            read = reads_numbers(trace._fakify_params_buffers, tuple(owners), known)
            stack.enter_context(replaced(trace, "_fakify_params_buffers", read))
        for owner in owners:
            stack.enter_context(replaced(owner, "forward", knows_numbers(owner.forward, known)))
        yield


def reads_numbers(fakify: Callable, owners: tuple[type, ...], known: Any) -> Callable:
    """torch.export's first step, that makes the buffers fake: they are read before."""

    def _fakify_params_buffers(mode: Any, mod: torch.nn.Module) -> Any:
        for module in mod.modules():
            if isinstance(module, owners):
                known[module] = getattr(module, BUFFER).tolist()
        return fakify(mode, mod)

    return _fakify_params_buffers


def knows_numbers(forward: Callable, known: Any) -> Callable:
    """The forward of a model whose buffer is a list of numbers: an attribute stands before the buffer of its name."""

    @functools.wraps(forward)
    def called(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self not in known or not isinstance(getattr(self, BUFFER), FakeTensor):
            return forward(self, *args, **kwargs)
        mask_probabilities.used()
        with contextlib.ExitStack() as stack:
            entry(stack, vars(self), BUFFER, known[self])
            return forward(self, *args, **kwargs)

    return called
