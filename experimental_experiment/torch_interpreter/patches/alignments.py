"""``torch.ctc_loss``, of which torch.export knows no shape: a scan over the time.

Source of semantics: ATen's ``LossCTC.cpp``, up to the order of its roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._higher_order_ops import scan
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.torch_versions import scans_forget_gradients_of_rows

NEVER = float("-inf")
"""The logarithm of the probability of what cannot be."""


@patch("torch", replaces=("torch.ctc_loss",), default=True)
def alignments() -> Iterator[None]:
    """``F.ctc_loss`` and ``nn.CTCLoss`` are refused: the shape of what their kernel keeps for gradients depends on the data."""
    with replaced(torch, "ctc_loss", of_any_length(torch.ctc_loss)):
        yield


def of_any_length(of_numbers: Callable) -> Callable:
    """`torch.ctc_loss` with operators that torch.export follows, while it captures."""

    def ctc_loss(
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: int = 1,
        zero_infinity: bool = False,
    ) -> torch.Tensor:
        lengths = input_lengths, target_lengths
        if not isinstance(log_probs, FakeTensor):
            return of_numbers(log_probs, targets, *lengths, blank, reduction, zero_infinity)
        alignments.used()
        is_batched = log_probs.dim() == 3
        if not is_batched:
            log_probs, targets = log_probs[:, None], targets[None]
        times, counts = (length_of_each(length).to(log_probs.device) for length in lengths)
        if log_probs.requires_grad and torch.is_grad_enabled():
            log_probs = Normalized.apply(log_probs)
        found = losses(log_probs, labels(targets.long(), counts), times, counts, blank, zero_infinity)
        if reduction == 1:
            return (found / counts.clamp(min=1)).mean()
        if reduction == 2:
            return found.sum()
        return found if is_batched else found[0]

    return ctc_loss


class Normalized(torch.autograd.Function):
    """Its argument; the gradient is that of a log_softmax before it, which ATen's kernel assumes."""

    @staticmethod
    def forward(ctx, log_probs):
        """The argument."""
        ctx.save_for_backward(log_probs)
        return log_probs.clone()

    @staticmethod
    def backward(ctx, gradient):
        """What leaves the sum of the probabilities as it is."""
        (log_probs,) = ctx.saved_tensors
        return gradient - log_probs.exp() * gradient.sum(-1, keepdim=True)


def length_of_each(lengths: Any) -> torch.Tensor:
    """Lengths in a tensor, a list, also of symbols, or one number."""
    if not isinstance(lengths, torch.Tensor):
        numbers = lengths if isinstance(lengths, (tuple, list)) else [lengths]
        # inside of F.ctc_loss, torch.tensor takes no symbols
        lengths = torch.stack([torch.full((), number) for number in numbers])
    return lengths.reshape(-1).long().clone()  # the guards of scan on a view's base fail for another rank


def labels(targets: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The targets of each sample in a line, (samples, labels): those that stand one after the other are taken apart.

    What is behind the *counts* labels of a sample changes nothing.
    """
    if targets.dim() == 2:
        return targets
    places = torch.arange(targets.shape[0], device=targets.device)
    starts = counts.cumsum(0) - counts
    return targets[(starts[:, None] + places).clamp(max=targets.shape[0] - 1)]


def losses(
    log_probs: torch.Tensor,
    labels: torch.Tensor,
    times: torch.Tensor,
    counts: torch.Tensor,
    blank: int,
    zero_infinity: bool,
) -> torch.Tensor:
    """The negated logarithms of the probabilities of the labels, (samples,).

    Args:
        log_probs: (time, samples, classes).
        labels: (samples, labels), of which each sample has *counts*.
        times: how long each sample is.
        counts: how many labels each sample has.
        blank: the class between labels.
        zero_infinity: whether the loss of a sample too short for its labels is 0, and its gradient.
    """
    labels = labels.clamp(0, log_probs.shape[2] - 1)  # padding may be no class
    last = at_the_end(log_probs, between_blanks(labels, counts, blank), times)
    ends = last.gather(1, 2 * counts[:, None])[:, 0]
    before_ends = last.gather(1, (2 * counts[:, None] - 1).clamp(min=0))[:, 0]
    before_ends = torch.where(counts > 0, before_ends, NEVER)
    if not zero_infinity:
        return -torch.logaddexp(ends, before_ends)
    is_never = (ends == NEVER) & (before_ends == NEVER)
    return torch.where(is_never, 0.0, -torch.logaddexp(torch.where(is_never, 0.0, ends), before_ends))


def between_blanks(labels: torch.Tensor, counts: torch.Tensor, blank: int) -> torch.Tensor:
    """The class of each state of an alignment, (samples, states): a blank before each label and one after the last."""
    blanks = torch.full_like(labels, blank)
    last = torch.full_like(counts, blank)[:, None]
    return torch.cat([torch.stack([blanks, labels], -1).flatten(1), last], 1)


def at_the_end(log_probs: torch.Tensor, classes: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
    """The logarithms of the probabilities of being in a state at the end of each sample, (samples, states)."""
    emissions = log_probs.gather(2, classes[None].expand(log_probs.shape[0], -1, -1))
    place = torch.arange(classes.shape[1], device=classes.device)
    step = step_along(classes, place, times)
    start = torch.where(place == 0, 0.0, NEVER).to(log_probs.dtype).expand(classes.shape[0], -1).clone()
    if scans_forget_gradients_of_rows() and emissions.requires_grad and torch.is_grad_enabled():
        start.requires_grad_()
    last, _ = scan(step, start, (emissions, torch.arange(log_probs.shape[0], device=classes.device)))
    return last


def step_along(classes: torch.Tensor, place: torch.Tensor, times: torch.Tensor) -> Callable:
    """One time: who is in a state was there, or in the one before, or in the label before when that is another one."""
    is_other = (classes[:, 2:] != classes[:, :-2]).long()
    is_skipped = torch.cat([torch.zeros_like(classes[:, :2]), is_other], 1)

    def step(before: torch.Tensor, now: tuple) -> tuple[torch.Tensor, torch.Tensor]:
        emission, time = now
        never = torch.full_like(before[:, :1], NEVER)
        one = torch.cat([never, before[:, :-1]], 1)
        two = torch.where(is_skipped == 1, torch.cat([never, one[:, :-1]], 1), NEVER)
        top = torch.maximum(torch.maximum(before, one), two)
        is_never = top == NEVER
        top = torch.where(is_never, 0.0, top)
        total = torch.exp(before - top) + torch.exp(one - top) + torch.exp(two - top)
        total = torch.where(is_never, 1.0, total)  # the gradient of the logarithm of 0 would be no number
        after = (
            torch.where(
                time == 0,
                torch.where(place < 2, 0.0, NEVER),
                torch.where(is_never, NEVER, torch.log(total) + top),
            )
            + emission
        )
        after = torch.where((time < times)[:, None], after, before)
        return after, after[:, :1] + 0  # which nothing reads; torch wants it to have a gradient

    return step
