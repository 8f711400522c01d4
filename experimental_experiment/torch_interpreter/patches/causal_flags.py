"""Whether an attention is causal, where that depends on a size.

Source of semantics: ``torch.nn.functional.scaled_dot_product_attention``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.numbers import is_same_number
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced_everywhere

NAME = "scaled_dot_product_attention"


@patch(
    "torch", replaces=(f"torch.nn.functional.{NAME}", f"{NAME}, in the modules that import it"), default=True
)
def causal_flags() -> Iterator[None]:
    """``scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)`` is refused: the flag is a boolean of Python."""
    with replaced_everywhere("torch.nn.functional", NAME, of_symbols):
        yield


def of_symbols(attention: Callable) -> Callable:
    """*attention* whose ``is_causal`` may be a SymBool."""

    @functools.wraps(attention)
    def called(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: Any = 0.0,
        is_causal: Any = False,
        **others: Any,
    ) -> Any:
        if isinstance(is_causal, torch.SymBool):
            causal_flags.used()
            if attn_mask is not None:
                is_causal = False  # torch refuses a mask beside a flag that is true
            else:
                attn_mask, is_causal = mask_and_flag(is_causal, query.shape[-2], key.shape[-2], query.device)
        return attention(query, key, value, attn_mask, dropout_p, is_causal, **others)

    return called


def mask_and_flag(
    is_causal: torch.SymBool, rows: Any, columns: Any, device: torch.device
) -> tuple[Any, bool]:
    """What stands for a flag that is a symbol: True where False would say the same, a mask elsewhere.

    torch takes every size of the program for two or more, and would say that a flag is true which one row makes false.
    """
    if is_same_number(rows, columns) and is_more_than_one(is_causal, rows):
        return None, True
    last = torch.arange(rows, device=device)[:, None] + columns * torch.sym_ite(is_causal, 0, 1)
    return torch.arange(columns, device=device) <= last, False


def is_more_than_one(flag: torch.SymBool, size: Any) -> bool:
    """Whether a flag says that a size is more than one: one query and its only key are the same, causal or not."""
    if not isinstance(size, torch.SymInt):
        return False
    number, said = size.node.expr, flag.node.expr
    return said in (number > 1, number >= 2) or (
        getattr(said, "rel_op", None) == "!=" and set(said.args) == {number, 1}
    )
