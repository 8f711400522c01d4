"""How two tensors differ: largest differences, quantiles, NaN and infinities, against the tolerance of their dtype."""

from __future__ import annotations

import dataclasses
import math

import torch

from experimental_experiment.comparison import described, elements

QUANTILES = (0.5, 0.9, 0.99)
"""Of the absolute differences."""

SAMPLE = 2**20
"""Elements: quantiles of more are those of as many, evenly spaced."""


@dataclasses.dataclass(frozen=True)
class Gap:
    """How a result differs from what was expected.

    Attributes:
        expected: dtype and shape.
        got: the same of the other one.
        absolute: the largest absolute difference, inf when dtypes, shapes, NaN or infinities differ.
        relative: the largest difference relative to what was expected.
        excess: the largest difference in tolerances of the dtype: above 1 it is beyond.
        quantiles: 50, 90 and 99 % of the elements differ by no more than this, absolutely.
        wrong: how many elements are beyond the tolerance.
        nan: NaNs that were expected, and those that came.
        inf: the same for infinities.
    """

    expected: str
    got: str
    absolute: float
    relative: float
    excess: float
    quantiles: tuple[float, float, float] = (0.0, 0.0, 0.0)
    wrong: int = 0
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)

    @property
    def within(self) -> bool:
        """Whether all elements are within the tolerance."""
        return self.excess <= 1

    def __str__(self) -> str:
        if self.expected != self.got:
            return f"{self.got} instead of {self.expected}"
        text = f"{self.expected}, absolute {self.absolute:.1e}, relative {self.relative:.1e}, {self.wrong} elements"
        for name, (there, here) in (("NaN", self.nan), ("inf", self.inf)):
            if there != here:
                text += f", {here} {name} instead of {there}"
        return text


def gap(expected: torch.Tensor, got: torch.Tensor, scale: float = 1.0) -> Gap:
    """Compare two tensors: dtype and shape exactly, `elements` against *scale* times the tolerance."""
    kinds = described(expected), described(got)
    if kinds[0] != kinds[1]:
        return Gap(*kinds, math.inf, math.inf, math.inf, wrong=got.numel())
    if expected.numel() == 0 or torch.equal(expected, got):
        return Gap(*kinds, 0.0, 0.0, 0.0)
    found = elements(expected, got, scale)
    flat = found.absolute.flatten()
    flat = flat[:: max(1, flat.numel() // SAMPLE)]
    ordered = flat.sort().values
    quantiles = tuple(float(ordered[min(len(ordered) - 1, int(q * len(ordered)))]) for q in QUANTILES)
    a, b = expected.double(), got.double()
    return Gap(
        *kinds,
        *(float(item.max()) for item in found),
        quantiles,
        int((found.excess > 1).sum()),
        (int(a.isnan().sum()), int(b.isnan().sum())),
        (int(a.isinf().sum()), int(b.isinf().sum())),
    )
