"""Indices of equal elements: nobody says which one comes first, so they are judged by what they pick."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from experimental_experiment.comparison import TOLERANCES

POSITION_OF_DIM = {
    "argmax": 1,
    "argmin": 1,
    "argsort": 1,
    "kthvalue": 2,
    "max": 1,
    "median": 1,
    "min": 1,
    "mode": 1,
    "nanmedian": 1,
    "sort": 1,
    "topk": 2,
}
"""Operators that give indices along one axis, and where ``dim`` stands among their arguments."""

LAST = frozenset(("argsort", "kthvalue", "median", "mode", "nanmedian", "sort", "topk"))
"""Operators whose ``dim`` is the last one when it is not given; the others then look at all elements."""


@dataclasses.dataclass(frozen=True)
class Tie:
    """Elements between which the order is nobody's.

    Attributes:
        count: how many indices differ.
        apart: the largest difference of two elements that changed places: 0 when they are equal.
    """

    count: int
    apart: float

    def __str__(self) -> str:
        equal = "equal" if self.apart == 0 else f"nearly equal ({self.apart:.1e} apart)"
        return f"{self.count} indices name other elements, which are {equal}"


def tie(node: torch.fx.Node, given: Sequence, expected: torch.Tensor, got: torch.Tensor) -> Tie | None:
    """The tie that two results of *node*, called with *given*, differ by, None when it is another difference.

    Every index of *got* picks an element that is equal to the one of *expected*, within the tolerance of the dtype.
    """
    name = getattr(node.target, "_opname", "")
    if name not in POSITION_OF_DIM or expected.dtype != torch.int64 or expected.shape != got.shape:
        return None
    scores = given[0]
    place = POSITION_OF_DIM[name]
    dim = node.kwargs.get("dim", given[place] if len(given) > place else None)
    if name == "sort" and isinstance(dim, bool):  # sort.stable(self, stable, dim)
        dim = given[place + 1] if len(given) > place + 1 else None
    if dim is None and name in LAST:
        dim = -1
    if dim is None:
        scores, dim = scores.flatten(), 0
    if scores.dim() == 0 or not bool(((got >= 0) & (got < scores.shape[dim])).all()):
        return None
    indices = [index.unsqueeze(dim) if index.dim() < scores.dim() else index for index in (expected, got)]
    if not bool((indices[1].sort(dim).values.diff(dim=dim) > 0).all()):
        return None  # an element is picked twice
    there, here = (scores.gather(dim, index).double() for index in indices)
    relative, absolute = TOLERANCES.get(scores.dtype, (0.0, 0.0))
    equal = (there == here) | (there.isnan() & here.isnan())
    apart = torch.where(equal, 0.0, (there - here).abs())
    if not bool((apart <= absolute + relative * there.abs()).all()):
        return None
    return Tie(int((expected != got).sum()), float(apart.max()))
