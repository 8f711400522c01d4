"""Decompositions of torch's that do not compute what their operator does, or what it does for the sizes of the example only.

Source of semantics: ATen's LossMultiLabelMargin.cpp, TensorShape.cpp and SpectralOps.cpp.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import decomposition_table

from experimental_experiment.torch_interpreter.memory import is_known
from experimental_experiment.torch_interpreter.patches.patch import entry, patch, wrapped

aten = torch.ops.aten

Size = int | torch.SymInt

FORWARD = torch.ops.aten.multilabel_margin_loss_forward.default

MEAN, SUM = 1, 2
"""Reductions, as ATen numbers them."""


def multilabel_margin_loss_forward(
    input: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of all pairs of a target before the first -1 and a class that is none, and which classes are targets.

    *input*, *target*: classes, (classes,) or (batch, classes).
    """
    margin_of_ended_classes.used()
    classes = input.shape[-1] if input.dim() else 1
    scores, targets = input.reshape(-1, classes), target.reshape(-1, classes)
    places = torch.arange(classes, device=target.device)
    is_given = places < torch.where(targets == -1, places, classes).amin(1, keepdim=True)
    given = torch.where(is_given, targets, -1)
    is_target = (places == given.unsqueeze(2)).any(1)
    lack = torch.relu(1 - scores.gather(1, given.clamp_min(0)).unsqueeze(2) + scores.unsqueeze(1))
    is_counted = is_given.unsqueeze(2) & ~is_target.unsqueeze(1)
    loss = torch.where(is_counted, lack, 0).sum((1, 2)) / classes
    if reduction in (MEAN, SUM):
        loss = loss.mean() if reduction == MEAN else loss.sum()
    elif input.dim() < 2:
        loss = loss.squeeze(0)
    return loss, is_target.to(input.dtype).reshape(target.shape)


@patch("torch", replaces=(f"torch.ops.{FORWARD}",), default=True)
def margin_of_ended_classes() -> Iterator[None]:
    """The decomposition of multilabel_margin_loss counts the places after the first -1 as targets of class 0.

    make_fx, `run_decompositions` and torch.compile follow it, whatever table of decompositions they are given.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(FORWARD._dispatch_cache.clear)
        entry(stack, FORWARD.py_kernels, DispatchKey.Autograd, multilabel_margin_loss_forward)
        entry(stack, decomposition_table, FORWARD, multilabel_margin_loss_forward)
        FORWARD._dispatch_cache.clear()
        yield


# ---- what the size of the example decides


def tensor_split(self: torch.Tensor, sections: Size, dim: int = 0) -> list[torch.Tensor]:
    """Pieces of an axis, the first ones longer by one element where they cannot be equal."""
    size = self.shape[dim] if self.dim() else 0
    if isinstance(size, int) or not isinstance(sections, int) or sections < 1:
        return composite(aten.tensor_split.sections, self, sections, dim)
    sizes_of_composites.used()
    each, longer = size // sections, size % sections
    cuts = [piece * each + torch.sym_min(longer, piece) for piece in range(sections + 1)]
    return [aten.slice.Tensor(self, dim, *bounds) for bounds in itertools.pairwise(cuts)]


def transformed(
    transform: torch._ops.OpOverload,
    self: torch.Tensor,
    n: Size | None = None,
    dim: int = -1,
    norm: str | None = None,
) -> torch.Tensor:
    """A Fourier transform of *n* elements: of half of them when the result is real, zeros in the place of those that lack."""
    if isinstance(n, torch.SymInt) or (
        n is not None and self.dim() and isinstance(self.shape[dim], torch.SymInt)
    ):
        is_half = transform in HALVES
        self = resized(self, n // 2 + 1 if is_half else n, dim)
        n = n if is_half else None
    return composite(transform, self, n, dim, norm)


def resized(self: torch.Tensor, size: Size, dim: int) -> torch.Tensor:
    """The first *size* elements of an axis, zeros behind it where it has less."""
    held = self.shape[dim]
    if not is_known(size <= held):
        behind = self.dim() - 1 - dim % self.dim()
        self = torch.nn.functional.pad(self, [0, 0] * behind + [0, size])  # enough, whatever lacks
    if self.shape[dim] is not held or not is_known(size >= held):
        sizes_of_composites.used()
        self = aten.slice.Tensor(self, dim, 0, size)
    return self


def composite(operator: torch._ops.OpOverload, *args: Any) -> Any:
    """What torch makes of an operator in C++."""
    return operator._op_dk(DispatchKey.CompositeImplicitAutograd, *args)


HALVES = aten.fft_irfft.default, aten.fft_hfft.default
"""Transforms of half a signal."""

TRANSFORMS = (
    aten.fft_fft.default,
    aten.fft_ifft.default,
    aten.fft_rfft.default,
    aten.fft_ihfft.default,
    *HALVES,
)

COMPOSITES: dict[torch._ops.OpOverload, Callable] = {
    aten.tensor_split.sections: tensor_split,
    **{transform: functools.partial(transformed, transform) for transform in TRANSFORMS},
}
"""What is followed in Python."""


@patch("torch", replaces=tuple(f"torch.ops.{operator}" for operator in COMPOSITES), default=True)
def sizes_of_composites() -> Iterator[None]:
    """make_fx follows `tensor_split` and `torch.fft.rfft(x, n)` as the size of the example asks: the model is wrong for others."""
    with contextlib.ExitStack() as stack:
        for operator, function in COMPOSITES.items():
            stack.callback(operator._dispatch_cache.clear)
            entry(stack, operator.py_kernels, DispatchKey.CompositeImplicitAutograd, function)
            operator._dispatch_cache.clear()
        yield


TYPES = "torch._prims_common.dtype_to_type_ctor"


@patch("torch", replaces=(TYPES,), default=True)
def sizes_among_complex_numbers() -> Iterator[None]:
    """The mean of complex numbers over an axis of a dynamic size is refused: its decomposition divides by ``complex(size)``."""

    def with_sizes(type_of: Callable[[torch.dtype], Callable]) -> Callable[[torch.dtype], Callable]:
        def type_or_size(dtype: torch.dtype) -> Callable:
            return number if dtype.is_complex else type_of(dtype)

        return type_or_size

    def number(value: Any) -> Any:
        if not isinstance(value, (torch.SymInt, torch.SymFloat)):
            return complex(value)
        sizes_among_complex_numbers.used()
        return torch.sym_float(value)

    with wrapped({TYPES: with_sizes}):
        yield
