"""Detection: the boxes that no better one of their class overlaps, by an operator of its own.

Source of semantics: ``torchvision.ops.batched_nms``.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator

import torch

from experimental_experiment.torch_interpreter.patches.patch import importers, patch, replaced

NAME = "batched_nms"
MODULE = "torchvision.ops.boxes"

LIBRARY = torch.library.Library("experimental_experiment", "FRAGMENT")
LIBRARY.define("batched_nms(Tensor boxes, Tensor scores, Tensor idxs, float iou_threshold) -> Tensor")


@torch.library.impl(LIBRARY, NAME, "CompositeExplicitAutograd")
def of_tensors(
    boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float
) -> torch.Tensor:
    """The places of the boxes that are kept, the best ones first, int64 of one axis: what torchvision gives."""
    return getattr(sys.modules[MODULE], NAME)(boxes, scores, idxs, iou_threshold)


@torch.library.register_fake(f"experimental_experiment::{NAME}", lib=LIBRARY)
def of_fake_tensors(
    boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float
) -> torch.Tensor:
    """As many places as the data decide: one or more, where torchvision says two or more of `nms`."""
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(min=1), dtype=torch.int64)


@patch("torchvision", replaces=(f"{MODULE}.{NAME}", f"{NAME}, in the modules that import it"), default=True)
def boxes_of_classes() -> Iterator[None]:
    """``torchvision.ops.batched_nms`` asks how many boxes there are, and is refused where the data decide it, as in every detector."""
    original = getattr(sys.modules.get(MODULE), NAME, None)
    with contextlib.ExitStack() as stack:
        for module in importers(NAME, original) if original is not None else ():
            stack.enter_context(replaced(module, NAME, of_any_number(original)))
        yield


def of_any_number(original: Callable) -> Callable:
    """*original* whose number of boxes may be a symbol."""

    @functools.wraps(original)
    def called(
        boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float
    ) -> torch.Tensor:
        if torch.compiler.is_dynamo_compiling() or not boxes_of_classes.is_used_for(boxes.numel()):
            return original(boxes, scores, idxs, iou_threshold)
        return torch.ops.experimental_experiment.batched_nms(boxes, scores, idxs, iou_threshold)

    return called
