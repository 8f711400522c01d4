"""Sequences that are padded at their start.

Source of semantics: ``torch._decomp.decompositions.pad_sequence`` of torch 2.13.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch._C import DispatchKey

from experimental_experiment.torch_interpreter.patches.patch import entry, patch

PAD_SEQUENCE = torch.ops.aten.pad_sequence.default


@patch("torch", replaces=(f"torch.ops.{PAD_SEQUENCE}",), until="2.13", default=True)
def sides_of_paddings() -> Iterator[None]:
    """``pad_sequence(sequences, padding_side="left")`` is refused: what torch captures of it does not know the side."""
    composite = DispatchKey.CompositeImplicitAutograd
    with contextlib.ExitStack() as stack:
        entry(stack, PAD_SEQUENCE.py_kernels, composite, at_either_side(PAD_SEQUENCE.py_kernels[composite]))
        stack.callback(PAD_SEQUENCE._dispatch_cache.clear)
        PAD_SEQUENCE._dispatch_cache.clear()
        yield


def at_either_side(padded: Callable) -> Callable:
    """What pads sequences at their end, or at their start as that is the end of what is turned around."""

    def kernel(
        sequences: Sequence[torch.Tensor],
        batch_first: bool = False,
        padding_value: float = 0.0,
        padding_side: str = "right",
    ) -> torch.Tensor:
        torch._check(
            padding_side in ("left", "right"), lambda: f"padding_side is left or right, not {padding_side}"
        )
        sequences = [sequence.to(sequences[0].dtype) for sequence in sequences]
        if padding_side == "right":
            return padded(sequences, batch_first, padding_value)
        sides_of_paddings.used()
        turned = padded([sequence.flip(0) for sequence in sequences], batch_first, padding_value)
        return turned.flip(1 if batch_first else 0)

    return kernel
