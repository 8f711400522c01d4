"""Quotients of integers with dynamic sizes: torch 2.9 takes them for integers.

Source of semantics: ``torch._subclasses.fake_impls``, whose short cut for operands of one dtype forgets that a quotient is a float.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_impls import get_fast_op_impls

from experimental_experiment.torch_interpreter.patches.patch import entry, patch

QUOTIENT = torch.ops.aten.div.Tensor


@patch(
    "torch", replaces=("torch._subclasses.fake_impls.FAST_OP_IMPLEMENTATIONS",), until="2.13", default=True
)
def quotients_of_integers() -> Iterator[None]:
    """The quotient of two tensors of integers with dynamic sizes is one of integers."""
    shortcuts = get_fast_op_impls()
    original = shortcuts[QUOTIENT]

    def quotient(mode: Any, *operands: Any, **options: Any) -> Any:
        """The short cut for floats alone."""
        if any(isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) for x in operands):
            return original(mode, *operands, **options)
        quotients_of_integers.used()
        with mode:
            return torch._refs.div(*operands, **options)

    with contextlib.ExitStack() as stack:
        entry(stack, shortcuts, QUOTIENT, quotient)
        yield
