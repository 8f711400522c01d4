"""Udop: the patches of an image that no token of the text lies on, which it picks row by row.

Source of semantics: ``transformers.models.udop``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

UDOP = "transformers.models.udop.modeling_udop"


@patch("transformers", replaces=(f"{UDOP}.combine_image_text_embeddings",), since="5.0", default=True)
def text_on_images() -> Iterator[None]:
    """Udop picks the patches without text by lists of Python numbers, as many in each row as the data say."""
    with wrapped({f"{UDOP}.combine_image_text_embeddings": while_captured}):
        yield


def while_captured(original: Callable) -> Callable:
    """`combine_image_text_embeddings` for tensors without data, and rows as long as they become."""

    signature = inspect.signature(original)

    @functools.wraps(original)
    def called(image_embeddings: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(image_embeddings, *args, **kwargs).arguments
        if given.pop("max_len", 0) or not isinstance(image_embeddings, FakeTensor):
            return original(image_embeddings, *args, **kwargs)
        text_on_images.used()
        return combine_image_text_embeddings(**given)

    return called


def combine_image_text_embeddings(
    image_embeddings: torch.Tensor,
    inputs_embeds: torch.Tensor,
    bbox: torch.Tensor,
    visual_bbox: torch.Tensor | None,
    attention_mask: torch.Tensor | None = None,
    num_patches: int = 14,
    image_size: int = 224,
    patch_size: int = 16,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Text with what the image shows under it, then the other patches: to the front of a row that ends with zeros."""
    count = image_embeddings.shape[1]
    columns, rows = (
        torch.floor((bbox[:, :, axis] + bbox[:, :, axis + 2]) / 2.0 * num_patches)
        .long()
        .clip(0, num_patches - 1)
        for axis in (0, 1)
    )
    under = columns + rows * num_patches
    bbox = bbox.double()
    center = bbox.mean(-1)
    shown = torch.gather(image_embeddings, 1, under[:, :, None].expand(-1, -1, image_embeddings.shape[-1]))
    shown = shown.masked_fill(((center == 0.0) | (center == 1.0))[:, :, None], 0.0)
    inputs_embeds = inputs_embeds + shown

    if visual_bbox is None:
        boxes = sys.modules[UDOP].get_visual_bbox(image_size=image_size, patch_size=patch_size)
        visual_bbox = boxes[None].expand(image_embeddings.shape[0], -1, -1).to(image_embeddings.device)
    hidden = torch.zeros_like(image_embeddings[:, :, 0]).scatter(1, under, 1.0)
    order = torch.argsort(hidden, dim=1, stable=True)
    is_seen = torch.arange(count, device=hidden.device) < count - hidden.sum(1, keepdim=True)

    def in_order(values: torch.Tensor) -> torch.Tensor:
        moved = torch.gather(values, 1, order[:, :, None].expand(-1, -1, values.shape[-1]))
        return moved.masked_fill(~is_seen[:, :, None], 0)

    if attention_mask is not None:
        attention_mask = torch.cat([attention_mask, is_seen.to(attention_mask.dtype)], 1)
    return (
        torch.cat([inputs_embeds, in_order(image_embeddings)], 1),
        torch.cat([bbox, in_order(visual_bbox)], 1),
        attention_mask,
    )
