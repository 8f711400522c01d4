"""Detection: the boxes that no better one of their class overlaps, by an operator of its own; masks of any number of boxes.

Source of semantics: ``torchvision.ops.batched_nms``, ``paste_masks_in_image`` of ``torchvision.models.detection.roi_heads``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced_everywhere

NAME = "batched_nms"
MODULE = "torchvision.ops.boxes"
PASTE = "paste_masks_in_image"
HEADS = "torchvision.models.detection.roi_heads"

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
    with replaced_everywhere(MODULE, NAME, of_any_number):
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


@patch("torchvision", replaces=(f"{HEADS}.{PASTE}", f"{PASTE}, in the modules that import it"), default=True)
def masks_in_images() -> Iterator[None]:
    """Mask R-CNN resizes the mask of each box by itself, and is refused for a loop over boxes of which the data decide the number."""
    with replaced_everywhere(HEADS, PASTE, of_all_boxes):
        yield


def of_all_boxes(original: Callable) -> Callable:
    """*original* whose masks are resized together where their number is a symbol."""

    @functools.wraps(original)
    def called(
        masks: torch.Tensor, boxes: torch.Tensor, img_shape: Sequence[int], padding: int = 1
    ) -> torch.Tensor:
        if not masks_in_images.is_used_for(masks.shape[0]):
            return original(masks, boxes, img_shape, padding)
        heads = sys.modules[HEADS]
        masks, scale = heads.expand_masks(masks, padding=padding)
        left, top, right, bottom = heads.expand_boxes(boxes, scale).to(torch.int64).unsqueeze(2).unbind(1)
        rows = resizing(top, bottom, img_shape[0], masks)
        columns = resizing(left, right, img_shape[1], masks)
        return rows.unsqueeze(1) @ masks @ columns.unsqueeze(1).mT

    return called


def resizing(first: torch.Tensor, last: torch.Tensor, length: int, masks: torch.Tensor) -> torch.Tensor:
    """What each pixel of an axis of the image takes from each element of a mask that is resized from a first to a last pixel.

    *first*, *last*: (boxes, 1), int64. Returns (boxes, length, elements of the axis of *masks*): those of linear interpolation between
    the centers of elements, nothing outside of the box.
    """
    count = masks.shape[-1]
    pixels = torch.arange(length, device=masks.device)
    size = (last - first + 1).clamp(min=1)
    centers = ((pixels - first + 0.5) * (count / size) - 0.5).clamp(0, count - 1)
    weights = (1 - (centers.unsqueeze(2) - torch.arange(count, device=masks.device)).abs()).clamp(min=0)
    is_inside = (pixels >= first) & (pixels <= last)
    return weights.to(masks.dtype) * is_inside.unsqueeze(2)
