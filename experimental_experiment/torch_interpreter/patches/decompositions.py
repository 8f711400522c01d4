"""Decompositions of torch's that do not compute what their operator does.

Source of semantics: ATen's LossMultiLabelMargin.cpp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch._C import DispatchKey
from torch._decomp import decomposition_table

from experimental_experiment.torch_interpreter.patches.patch import entry, patch

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
