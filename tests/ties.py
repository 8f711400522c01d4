"""Indices of equal elements: torch does not say which one comes first, so they are judged by what they pick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

POSITION_OF_DIM = {"argsort": 0, "sort": 0, "mode": 0, "kthvalue": 1, "topk": 1}
"""Operators whose last result is indices along one axis, and where ``dim`` stands after the input."""


def pick_the_same(
    operator: str,
    args: Sequence,
    kwargs: Mapping[str, Any],
    expected: Sequence[torch.Tensor],
    got: Sequence[torch.Tensor],
) -> bool:
    """Whether two results of this call differ only by which of several equal elements the indices name.

    Every index of *got* picks an element equal to eager's (NaN being equal to NaN), and no element is picked twice
    along the axis. False for other operators and where the caller asked for the stable order.
    """
    if operator not in POSITION_OF_DIM or kwargs.get("stable"):
        return False
    self, *others = args
    position = POSITION_OF_DIM[operator]
    dim = kwargs.get("dim", others[position] if len(others) > position else -1)
    *values, theirs = expected
    *ours, indices = got
    if theirs.shape != indices.shape or theirs.dtype != indices.dtype or self.dim() == 0:
        return False
    if indices.dim() < self.dim():
        theirs, indices = theirs.unsqueeze(dim), indices.unsqueeze(dim)
    if not bool(((indices >= 0) & (indices < self.shape[dim])).all()):
        return False
    picked = [self.gather(dim, index) for index in (theirs, indices)]
    once = bool((indices.sort(dim).values.diff(dim=dim) > 0).all())
    return once and all(torch.allclose(a, b, 0, 0, equal_nan=True) for a, b in [picked, *zip(values, ours)])
