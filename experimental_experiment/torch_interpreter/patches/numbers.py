"""Functions that take Python's numbers only, called with a symbolic size.

They are written with operators that take sizes. Source of semantics: the kernels of ATen, up to the order of their roundings.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch(
    "torch",
    replaces=(
        "torch.linspace",
        "torch.fft.fftfreq",
        "torch.fft.rfftfreq",
        "torch.istft",
        "torch.max_pool1d",
        "torch.nn.functional.one_hot",
        "torch.nn.functional.scaled_dot_product_attention",
        "torch._C._infer_size",
        "math.sqrt",
    ),
    default=True,
)
def numbers_of_sizes() -> Iterator[None]:
    """``torch.linspace(0, 1, x.shape[1])`` fixes the size to the example's: some functions take Python's numbers only.

    So do ``torch.fft.fftfreq``, ``torch.istft(length=)``, ``F.max_pool1d``, ``F.one_hot``, the scale of an attention, ``math.sqrt``
    and the divergences of distributions.
    """
    functions = (
        (torch, "linspace", linspace),
        (torch.fft, "fftfreq", fftfreq),
        (torch.fft, "rfftfreq", rfftfreq),
        (torch, "istft", istft),
        (torch, "max_pool1d", max_pool1d),
        (torch.nn.functional, "one_hot", one_hot),
        (torch.nn.functional, "scaled_dot_product_attention", attention),
        (torch._C, "_infer_size", infer_size),
        (math, "sqrt", sqrt),
    )
    with contextlib.ExitStack() as stack:
        for owner, name, wrap in functions:
            stack.enter_context(replaced(owner, name, wrap(getattr(owner, name))))
        yield


def is_symbolic(size: Any) -> bool:
    """Whether a number is a symbol; says that the patch is used when it is."""
    found = isinstance(size, (torch.SymInt, torch.SymFloat))
    if found:
        numbers_of_sizes.used()
    return found


def linspace(of_numbers: Callable) -> Callable:
    """`torch.linspace` of any number of steps, from both ends to the middle as torch computes it."""

    def linspace(
        start: Any, end: Any, steps: Any = None, *, dtype: torch.dtype | None = None, **options: Any
    ):
        numbers = (int, float, torch.SymInt, torch.SymFloat)
        is_plain = all(isinstance(bound, numbers) for bound in (start, end)) and options.get("out") is None
        floating = dtype or torch.get_default_dtype()
        if not (is_plain and floating.is_floating_point and is_symbolic(steps)):
            return of_numbers(start, end, steps, dtype=dtype, **options)
        dtype = floating
        device = options.get("device")
        index = torch.arange(steps, dtype=dtype, device=device)
        last = torch.full((), steps - 1, dtype=dtype, device=device)
        step = (end - start) / last.clamp(min=1)
        return torch.where(
            index < torch.sym_max(steps // 2, 1), start + step * index, end - step * (last - index)
        )

    return linspace


def fftfreq(of_numbers: Callable) -> Callable:
    """`torch.fft.fftfreq` of any number of samples."""

    def fftfreq(n: Any, d: float = 1.0, **options: Any) -> torch.Tensor:
        if not is_symbolic(n):
            return of_numbers(n, d, **options)
        index = torch.arange(n)
        return frequencies(torch.where(index < (n + 1) // 2, index, index - n), n, d, **options)

    return fftfreq


def rfftfreq(of_numbers: Callable) -> Callable:
    """`torch.fft.rfftfreq` of any number of samples."""

    def rfftfreq(n: Any, d: float = 1.0, **options: Any) -> torch.Tensor:
        if not is_symbolic(n):
            return of_numbers(n, d, **options)
        return frequencies(torch.arange(n // 2 + 1), n, d, **options)

    return rfftfreq


def frequencies(
    index: torch.Tensor,
    n: torch.SymInt,
    d: float,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """The frequencies at these positions, for *n* samples at a distance *d*."""
    dtype = dtype or torch.get_default_dtype()
    scale = 1 / (torch.full((), n, dtype=torch.float64) * d)
    return (index.to(dtype) * scale.to(dtype)).to(device).requires_grad_(requires_grad)


def istft(of_numbers: Callable) -> Callable:
    """`torch.istft` to any length: all that the frames give, cut afterwards."""

    def istft(input: torch.Tensor, n_fft: int, *args: Any, **options: Any) -> torch.Tensor:
        names = "hop_length", "win_length", "window", "center", "normalized", "onesided", "length"
        given = dict(zip(names, args)) | options
        length = given.get("length")
        if not is_symbolic(length):
            return of_numbers(input, n_fft, *args, **options)
        start = n_fft // 2 if given.get("center", True) else 0
        signal = of_numbers(input, n_fft, **given | {"center": False, "length": None})
        return torch.nn.functional.pad(signal, (0, length)).narrow(-1, start, length)

    return istft


def max_pool1d(of_numbers: Callable) -> Callable:
    """`torch.max_pool1d` of any length: what its twin with indices gives beside them."""

    def max_pool1d(input: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if not is_symbolic(input.shape[-1]):
            return of_numbers(input, *args, **options)
        return torch.max_pool1d_with_indices(input, *args, **options)[0]

    return max_pool1d


def one_hot(of_numbers: Callable) -> Callable:
    """`torch.nn.functional.one_hot` of any number of classes."""

    def one_hot(tensor: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
        if not is_symbolic(num_classes):
            return of_numbers(tensor, num_classes)
        return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).long()

    return one_hot


def attention(of_numbers: Callable) -> Callable:
    """`scaled_dot_product_attention` with a scale that is computed from sizes."""

    def scaled_dot_product_attention(query: torch.Tensor, *args: Any, scale: Any = None, **options: Any):
        if is_symbolic(scale):
            query, scale = query * scale, 1.0
        return of_numbers(query, *args, scale=scale, **options)

    return functools.wraps(of_numbers)(scaled_dot_product_attention)


def infer_size(of_numbers: Callable) -> Callable:
    """`torch._C._infer_size` of shapes with symbols."""

    def _infer_size(left: torch.Size, right: torch.Size) -> torch.Size:
        if not any(is_symbolic(size) for size in (*left, *right)):
            return of_numbers(left, right)
        return torch.broadcast_shapes(left, right)

    return _infer_size


def sqrt(of_numbers: Callable) -> Callable:
    """`math.sqrt` of a symbol."""

    def sqrt(x: Any, /) -> Any:
        return torch._sym_sqrt(x) if is_symbolic(x) else of_numbers(x)

    return sqrt
