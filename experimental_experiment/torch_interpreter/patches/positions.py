"""Position embeddings that are resized for each image of a batch, which have different sizes.

Source of semantics: ``torch.nn.functional.interpolate`` (bilinear, antialias), ``transformers.models.siglip2``, ``cosmos3_edge``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped
from experimental_experiment.torch_interpreter.patches.vision import get_vision_position_ids, places

SIGLIP = "transformers.models.siglip2.modeling_siglip2.Siglip2VisionEmbeddings.resize_positional_embeddings"
COSMOS = "transformers.models.cosmos3_edge.modeling_cosmos3_edge.Cosmos3EdgeVisionEmbeddings.resize_positional_embeddings"


@patch("transformers", replaces=(SIGLIP, COSMOS), since="5.23", default=True)
def resized_positions() -> Iterator[None]:
    """Siglip 2 and Cosmos 3 resize position embeddings in a loop over images, whose number is the example's."""
    padded = functools.partial(where, is_of_any_number, of_padded_images)
    packed = functools.partial(where, is_captured, of_packed_images)
    with wrapped({SIGLIP: padded, COSMOS: packed}):
        yield


def where(is_needed: Callable, function: Callable, original: Callable) -> staticmethod:
    """A static method: *function* for sizes that need it, *original* for all others."""

    @functools.wraps(original)
    def called(positional_embeddings: torch.Tensor, sizes: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not is_needed(sizes):
            return original(positional_embeddings, sizes, *args, **kwargs)
        resized_positions.used()
        return function(positional_embeddings, sizes, *args, **kwargs)

    return staticmethod(called)


def is_of_any_number(sizes: torch.Tensor) -> bool:
    """Whether these are the sizes of any number of images: torch.export takes the loop over a known one."""
    return isinstance(sizes.shape[0], torch.SymInt)


def is_captured(sizes: torch.Tensor) -> bool:
    """Whether the sizes are data that are not known."""
    return isinstance(sizes, FakeTensor)


def of_padded_images(
    positional_embeddings: torch.Tensor, spatial_shapes: torch.Tensor, max_length: int
) -> torch.Tensor:
    """(images, max_length, width): a vector for each patch, the first one for what is behind them."""
    height, width = spatial_shapes[:, :1], spatial_shapes[:, 1:]
    place = torch.arange(max_length, device=spatial_shapes.device)
    place = torch.where(place < height * width, place, 0)
    return resized(positional_embeddings, place // width, place % width, height, width)


def of_packed_images(
    positional_embeddings: torch.Tensor, grid_thw: torch.Tensor, spatial_merge_size: int
) -> torch.Tensor:
    """(patches, width): a vector for each patch of all images, block after block of merged ones."""
    row, column = get_vision_position_ids(grid_thw, spatial_merge_size).unbind(1)
    image, _ = places(grid_thw.prod(1))
    return resized(positional_embeddings, row, column, grid_thw[image, 1], grid_thw[image, 2])


def resized(
    table: torch.Tensor, row: torch.Tensor, column: torch.Tensor, height: torch.Tensor, width: torch.Tensor
) -> torch.Tensor:
    """What is at a row and a column of *table*, (rows, columns, width), resized to these heights and widths."""
    of_rows, of_columns = weights(row, height, table.shape[0]), weights(column, width, table.shape[1])
    both = (of_rows[..., :, None] * of_columns[..., None, :]).flatten(-2)
    return (both @ table.flatten(0, 1).float()).to(table.dtype)


def weights(place: torch.Tensor, size: torch.Tensor, count: int) -> torch.Tensor:
    """How much each of *count* elements adds to a place among *size*: triangles around the center, as wide as one of these, or one of those."""
    scale = count / size.float()
    center = (place + 0.5) * scale
    element = torch.arange(count, device=place.device) + 0.5
    added = (1 - (element - center[..., None]).abs() / scale.clamp(min=1.0)[..., None]).clamp(min=0.0)
    return added / added.sum(-1, keepdim=True)
