"""The symbolic numbers of a capture: their classes, what they are computed from."""

from __future__ import annotations

from typing import Any

import torch

SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""Their classes."""


def expression_of(size: Any) -> Any:
    """The expression of a symbolic size, which compares without a guard; a number as it is."""
    return size.node.expr if isinstance(size, torch.SymInt) else size
