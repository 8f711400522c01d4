"""Windows of ``torch.signal`` of any length.

Source of semantics: torch/signal/windows/windows.py, up to the order of its roundings.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches import creations
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced, replaced_everywhere

PACKAGE, MODULE = "torch.signal.windows", "torch.signal.windows.windows"
"""Where models find the windows, and where these find each other."""


NAMES = ("bartlett", "cosine", "exponential", "gaussian", "general_cosine", "kaiser")
"""Those that the other windows call."""


@patch("torch", replaces=tuple(f"{PACKAGE}.{name}" for name in NAMES), default=True)
def windows_of_signals() -> Iterator[None]:
    """``torch.signal.windows.hann(x.shape[1])`` is another formula where the size is 1: the model holds the example's, without a word.

    So are the other windows; that of Kaiser fixes the size to the example's.
    """
    with contextlib.ExitStack() as stack:
        for name in NAMES:
            wrap = functools.partial(of_any_length, formula=globals()[name])
            stack.enter_context(replaced_everywhere(PACKAGE, name, wrap))
            stack.enter_context(replaced(sys.modules[MODULE], name, getattr(sys.modules[PACKAGE], name)))
        yield


def of_any_length(of_numbers: Callable, formula: Callable) -> Callable:
    """A window of any length."""

    @functools.wraps(of_numbers)
    def called(
        M: Any,
        *,
        sym: bool = True,
        dtype: torch.dtype | None = None,
        device: Any = None,
        requires_grad: bool = False,
        **options: Any,
    ) -> torch.Tensor:
        given = {"sym": sym, "dtype": dtype, "device": device, "requires_grad": requires_grad}
        if not windows_of_signals.is_used_for(M):
            return of_numbers(M, **given, **options)
        of_numbers(2, **given, **options)  # it raises where an argument is none
        options.pop("layout", None)
        place = torch.arange(M, dtype=torch.float64, device=device)
        length = torch.full((), M, dtype=torch.float64, device=device)
        last = length - 1 if sym else torch.where(length == 1, 0.0, length)
        found = formula(place, last, **options)
        return found.to(dtype or torch.get_default_dtype()).requires_grad_(requires_grad)

    return called


def unless_one(last: torch.Tensor, formula: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A window of a formula that divides by its length: 1 where it is 1."""
    return torch.where(last == 0, 1.0, formula(last.clamp(min=1)))


def bartlett(place: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Up to the middle and down again."""
    return unless_one(last, lambda last: 1 - (place * (2 / last) - 1).abs())


def cosine(place: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Half a period of a sine."""
    return torch.sin((place + 0.5) * (math.pi / (last + 1)))


def exponential(
    place: torch.Tensor, last: torch.Tensor, center: float | None = None, tau: float = 1.0
) -> torch.Tensor:
    """It falls on both sides of the center."""
    return torch.exp(-(place - (last / 2 if center is None else center)).abs() / tau)


def gaussian(place: torch.Tensor, last: torch.Tensor, std: float = 1.0) -> torch.Tensor:
    """The density of a normal distribution, 1 in the middle."""
    return torch.exp(-(((place - last / 2) / std) ** 2) / 2)


def general_cosine(place: torch.Tensor, last: torch.Tensor, a: Iterable[float]) -> torch.Tensor:
    """The sum of cosines, also of the windows of Hamming, Hann, Blackman and Nuttall."""

    def sum_of_cosines(last: torch.Tensor) -> torch.Tensor:
        angle = place * (2 * math.pi / last)
        return sum(((-1) ** i * weight * torch.cos(angle * i) for i, weight in enumerate(a)), 0 * place)

    return unless_one(last, sum_of_cosines)


def kaiser(place: torch.Tensor, last: torch.Tensor, beta: float = 12.0) -> torch.Tensor:
    """The Bessel function of a half circle."""
    return unless_one(last, lambda last: creations.kaiser(place, last, beta))
