"""Functions that create tensors for Python's numbers only, called with a symbolic size, and tensors of sizes.

They are written with operators that take sizes. Source of semantics: the kernels of ATen, up to the order of their roundings.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

RANDOM = ("rand", "randint", "randn", "randperm")
"""Functions of sizes whose form with a generator takes Python's numbers only."""

WINDOWS = ("bartlett", "blackman", "hamming", "hann", "kaiser")


@patch(
    "torch",
    replaces=(
        "torch.logspace",
        "torch.tril_indices",
        "torch.triu_indices",
        "torch.combinations",
        "torch.vander",
        *(f"torch.{name}_window" for name in WINDOWS),
    ),
    default=True,
)
def creations_of_sizes() -> Iterator[None]:
    """``torch.hann_window(x.shape[1])`` fixes the size to the example's: some functions create tensors for Python's numbers only.

    So do the other windows, ``torch.logspace``, ``torch.tril_indices``, ``torch.triu_indices`` and ``torch.vander``;
    ``torch.combinations`` is refused for any size.
    """
    wraps = {
        "logspace": logspace,
        "tril_indices": tril_indices,
        "triu_indices": triu_indices,
        "combinations": combinations,
        "vander": vander,
        **{f"{name}_window": functools.partial(window, formula=globals()[name]) for name in WINDOWS},
    }
    with contextlib.ExitStack() as stack:
        for name, wrap in wraps.items():
            stack.enter_context(replaced(torch, name, wrap(getattr(torch, name))))
        yield


@patch("torch", replaces=tuple(f"torch.{name}" for name in RANDOM), default=True)
def no_generators() -> Iterator[None]:
    """``torch.randn(x.shape, generator=None)`` is refused, or fixes the size to the example's: diffusers samples latents so.

    It is the same function without the argument. Another generator stays refused.
    """
    with contextlib.ExitStack() as stack:
        for name in RANDOM:
            stack.enter_context(replaced(torch, name, without_none(getattr(torch, name))))
        yield


def without_none(create: Callable) -> Callable:
    """A function that creates random numbers, which is not told that there is no generator."""

    @functools.wraps(create)
    def called(*args: Any, **options: Any) -> torch.Tensor:
        if options.get("generator", create) is None:
            del options["generator"]
            no_generators.used()
        return create(*args, **options)

    return called


@patch(
    "torch",
    replaces=("torch._shape_as_tensor", "torch.onnx.operators.shape_as_tensor", "torch._dim_arange"),
    default=True,
)
def shapes_as_tensors() -> Iterator[None]:
    """``torch.onnx.operators.shape_as_tensor(x)`` is refused: its kernel reads the tensor's memory.

    ``torch._shape_as_tensor`` is the same function, by the name that models written for tracing use; ``torch._dim_arange(x, dim)`` fixes
    the size to the example's.
    """

    def shape_as_tensor(self: torch.Tensor) -> torch.Tensor:
        """The sizes of a tensor, as a tensor: INT64 ``[rank]`` in the memory of the host, as the kernel has it."""
        shapes_as_tensors.used()
        return torch.tensor(list(self.shape), dtype=torch.int64, device="cpu")

    def dim_arange(like: torch.Tensor, dim: int) -> torch.Tensor:
        """The positions along a dimension: INT64 ``[like.shape[dim]]``."""
        shapes_as_tensors.used()
        return torch.arange(like.shape[dim], device=like.device)

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch, "_shape_as_tensor", shape_as_tensor))
        stack.enter_context(replaced(torch, "_dim_arange", dim_arange))
        operators = sys.modules.get("torch.onnx.operators")
        if operators is not None:
            stack.enter_context(replaced(operators, "shape_as_tensor", shape_as_tensor))
        yield


def logspace(of_numbers: Callable) -> Callable:
    """`torch.logspace` of any number of steps: the powers of `torch.linspace`."""

    def logspace(
        start: Any,
        end: Any,
        steps: Any = None,
        base: float = 10.0,
        *,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> torch.Tensor:
        is_plain = all(
            isinstance(value, (int, float, torch.SymInt, torch.SymFloat)) for value in (start, end, base)
        )
        floating = dtype or torch.get_default_dtype()
        if not (
            is_plain
            and floating.is_floating_point
            and options.get("out") is None
            and creations_of_sizes.is_used_for(steps)
        ):
            return of_numbers(start, end, steps, base, dtype=dtype, **options)
        return base ** torch.linspace(start, end, steps, dtype=dtype, **options)

    return logspace


# ---- windows


def window(of_numbers: Callable, formula: Callable) -> Callable:
    """A window of any length: 1 where it is 1."""

    def called(
        window_length: Any,
        periodic: bool = True,
        *args: Any,
        dtype: torch.dtype | None = None,
        device: Any = None,
        requires_grad: bool = False,
        **options: Any,
    ) -> torch.Tensor:
        floating = dtype or torch.get_default_dtype()
        if not (
            floating.is_floating_point
            and options.get("out") is None
            and creations_of_sizes.is_used_for(window_length)
        ):
            options.update(dtype=dtype, device=device, requires_grad=requires_grad)
            return of_numbers(window_length, periodic, *args, **options)
        for harmless in ("layout", "pin_memory", "out"):
            options.pop(harmless, None)
        place = torch.arange(window_length, dtype=floating, device=device)
        last = torch.full(
            (), window_length if periodic else window_length - 1, dtype=torch.float64, device=device
        )
        found = formula(place, last.clamp(min=1), *args, **options)
        is_one = torch.full((), window_length, device=device) == 1
        return torch.where(is_one, 1.0, found).to(floating).requires_grad_(requires_grad)

    return functools.wraps(of_numbers)(called)


def bartlett(place: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Up to the middle and down again."""
    found = place * (2 / last)
    return torch.where(place <= torch.floor(last / 2), found, 2 - found)


def blackman(place: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """The sum of two cosines."""
    angle = place * (math.pi / last)
    return torch.cos(angle * 4) * 0.08 - torch.cos(angle * 2) * 0.5 + 0.42


def hamming(place: torch.Tensor, last: torch.Tensor, alpha: float = 0.54, beta: float = 0.46) -> torch.Tensor:
    """A cosine."""
    return torch.cos(place * (2 * math.pi / last)) * -beta + alpha


def hann(place: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """A cosine from 0 to 1."""
    return hamming(place, last, 0.5, 0.5)


def kaiser(place: torch.Tensor, last: torch.Tensor, beta: float = 12.0) -> torch.Tensor:
    """The Bessel function of a half circle."""
    middle = last / 2
    height = torch.sqrt((1 - ((place - middle) / middle) ** 2).clamp(min=0))
    return torch.special.i0(beta * height) / torch.special.i0(torch.full((), beta, dtype=torch.float64))


# ---- elements of a triangle


def tril_indices(of_numbers: Callable) -> Callable:
    """`torch.tril_indices` of any number of rows and columns."""

    def tril_indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> torch.Tensor:
        if not creations_of_sizes.is_used_for(row, col, offset):
            return of_numbers(row, col, offset, **options)
        rows, columns = torch.arange(row), torch.arange(col)
        return positions(columns <= rows[:, None] + offset, below(row, col, offset), **options)

    return tril_indices


def triu_indices(of_numbers: Callable) -> Callable:
    """`torch.triu_indices` of any number of rows and columns."""

    def triu_indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> torch.Tensor:
        if not creations_of_sizes.is_used_for(row, col, offset):
            return of_numbers(row, col, offset, **options)
        rows, columns = torch.arange(row), torch.arange(col)
        return positions(
            columns >= rows[:, None] + offset, row * col - below(row, col, offset - 1), **options
        )

    return triu_indices


def below(row: Any, col: Any, offset: Any) -> Any:
    """The number of elements on a diagonal of a matrix and below."""

    def until(last: Any) -> Any:
        """The sum of the numbers to *last*, those above *col* for *col*."""
        last = torch.sym_max(last, 0)
        rising = torch.sym_min(last, col)
        return rising * (rising + 1) // 2 + (last - rising) * col

    return until(row + offset) - until(offset)


def positions(
    mask: torch.Tensor, count: Any, *, dtype: torch.dtype | None = None, device: Any = None, **harmless: Any
) -> torch.Tensor:
    """The positions where a mask is true, (axes, count), line after line."""
    found = mask.nonzero()
    torch._check(found.shape[0] == count)
    return found.t().to(device=device, dtype=dtype or torch.int64)


def combinations(of_numbers: Callable) -> Callable:
    """`torch.combinations`: the positions that rise, strictly unless an element may come twice."""

    def combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
        if r == 0 or input.dim() != 1:
            return of_numbers(input, r, with_replacement)
        creations_of_sizes.used()
        size = input.shape[0]
        place = torch.arange(size, device=input.device)
        axes = torch.meshgrid(*[place] * r, indexing="ij")
        mask = torch.ones((), dtype=torch.bool, device=input.device).expand_as(axes[0])
        for left, right in itertools.pairwise(axes):
            mask = mask & (left <= right if with_replacement else left < right)
        factors = [size + step if with_replacement else size - step for step in range(r)]
        found = positions(mask, math.prod(factors) // math.factorial(r))
        return input[found.t()]

    return combinations


# ---- powers


def vander(of_numbers: Callable) -> Callable:
    """`torch.vander` of any number of columns."""

    def vander(x: torch.Tensor, N: Any = None, increasing: bool = False) -> torch.Tensor:
        count = x.shape[0] if N is None else N
        if x.dim() != 1 or not creations_of_sizes.is_used_for(count, x.shape[0]):
            return of_numbers(x, N, increasing)
        place = torch.arange(count, device=x.device)
        powers = torch.where(place == 0, 1, x[:, None]).cumprod(1)
        return powers if increasing else powers.flip(1)

    return vander
