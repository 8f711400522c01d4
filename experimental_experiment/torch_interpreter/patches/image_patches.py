"""ViLT: the patches of images of any number and sizes, with their positions.

Source of semantics: ``transformers.models.vilt``, ``torch.nn.functional.interpolate`` (bilinear, align_corners).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

VILT = "transformers.models.vilt.modeling_vilt"


@patch("transformers", replaces=(f"{VILT}.ViltEmbeddings.visual_embed",), since="5.0", default=True)
def patches_of_images() -> Iterator[None]:
    """ViLT draws the patches of each image in a random order, in a loop over images, as many as the data say.

    They come in their own order, which is one of those that it draws: what it makes of a text and of a picture does not depend on it.
    """
    with wrapped({f"{VILT}.ViltEmbeddings.visual_embed": in_order}):
        yield


def in_order(visual_embed: Callable) -> Callable:
    """`ViltEmbeddings.visual_embed` without a choice among patches: a configured number of them is left to it."""

    @functools.wraps(visual_embed)
    def called(
        self: torch.nn.Module,
        pixel_values: torch.Tensor,
        pixel_mask: torch.Tensor,
        max_image_length: Any = 200,
    ) -> Any:
        if not isinstance(pixel_values, FakeTensor) or max_image_length >= 0:
            return visual_embed(self, pixel_values, pixel_mask, max_image_length)
        patches_of_images.used()
        patches = self.patch_embeddings(pixel_values)
        batch, channels, rows, columns = patches.shape
        mask = pixel_mask[:, None].float()
        mask = torch.nn.functional.interpolate(mask, size=(rows, columns)).long()[:, 0]
        height, width = mask[:, :, 0].sum(1), mask[:, 0].sum(1)
        side = self.config.image_size // self.config.patch_size
        table = self.position_embeddings[0, 1:].reshape(side, side, channels)
        of_rows, of_columns = weights(rows, height, side), weights(columns, width, side)
        positions = torch.einsum("byi,bxj,ijc->byxc", of_rows, of_columns, table).flatten(1, 2)
        mask = mask.flatten(1)
        count = (height * width).max().item()
        torch._check(count >= 1)
        torch._check(count <= rows * columns)
        # those of the image, then as many of the others as the largest image needs
        chosen = torch.argsort(1 - mask, dim=1, stable=True)[:, :count]
        embedded = patches.flatten(2).transpose(1, 2) + positions
        embedded = embedded.gather(1, chosen[..., None].expand(-1, -1, channels))
        first = (self.cls_token + self.position_embeddings[:, :1]).expand(batch, -1, -1)
        mask = torch.cat([mask.new_ones(batch, 1), mask.gather(1, chosen)], dim=1)
        grid = torch.stack([chosen // columns, chosen % columns], dim=-1)
        return self.dropout(torch.cat([first, embedded], dim=1)), mask, (grid, (rows, columns))

    return called


def weights(places: Any, size: torch.Tensor, count: int) -> torch.Tensor:
    """(images, places, count): how much each of *count* positions adds to a place in an image of *size*, nothing beyond it."""
    place = torch.arange(places, device=size.device)
    # as torch computes it: an image of one place has the first position
    step = torch.where(size > 1, (count - 1) / (size - 1).clamp(min=1), 0.0)
    center = place * step[:, None]
    element = torch.arange(count, device=size.device)
    near = (1 - (element - center[..., None]).abs()).clamp(min=0.0)
    return near * (place < size[:, None])[..., None]
