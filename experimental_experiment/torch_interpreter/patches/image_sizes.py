"""Pixtral and the models around it: images of several sizes in one padded tensor, with their sizes in another one.

Source of semantics: ``transformers.models.pixtral``, ``mistral3``, ``mistral_large4``, ``lighton_ocr``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped
from experimental_experiment.torch_interpreter.patches.vision import places

PIXTRAL = "transformers.models.pixtral.modeling_pixtral"
MERGERS = (
    "transformers.models.mistral3.modeling_mistral3.Mistral3PatchMerger.forward",
    "transformers.models.lighton_ocr.modeling_lighton_ocr.LightOnOcrPatchMerger.forward",
    "transformers.models.mistral_large4.modeling_mistral_large4.MistralLarge4PatchMerger.forward",
)
LIGHT_ON_OCR = "transformers.models.lighton_ocr.modeling_lighton_ocr"


@patch(
    "transformers",
    replaces=(
        f"{PIXTRAL}.PixtralVisionModel.forward",
        *MERGERS,
        f"{LIGHT_ON_OCR}.LightOnOcrModel.get_image_features",
    ),
    since="5.23",
    default=True,
)
def images_of_sizes() -> Iterator[None]:
    """Pixtral, Mistral 3, Mistral Large 4 and LightOnOCR cut each image to its size in a loop: how many patches remain is known to the data only."""
    wrappers = dict.fromkeys(MERGERS, functools.partial(for_tensors, of_merger)) | {
        f"{PIXTRAL}.PixtralVisionModel.forward": tower_for_tensors,
        f"{LIGHT_ON_OCR}.LightOnOcrModel.get_image_features": features_for_tensors,
    }
    with wrapped(wrappers):
        yield


def tower_for_tensors(original: Callable) -> Callable:
    """`of_tower`, decorated as Pixtral's own."""
    module = sys.modules[PIXTRAL]
    return for_tensors(module.merge_with_config_defaults(module.capture_outputs(of_tower)), original)


def features_for_tensors(original: Callable) -> Callable:
    """`of_model`, decorated as LightOnOCR's own."""
    return for_tensors(sys.modules[LIGHT_ON_OCR].can_return_tuple(of_model), original)


def for_tensors(forward: Callable, original: Callable) -> Callable:
    """*forward* for sizes that are a tensor, or not given; *original* for a list of numbers."""

    signature = inspect.signature(original)

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        sizes = signature.bind(*args, **kwargs).arguments.get("image_sizes")
        if sizes is not None and not isinstance(sizes, torch.Tensor):
            return original(*args, **kwargs)
        images_of_sizes.used()
        return forward(*args, **kwargs)

    return called


def of_tower(
    self: torch.nn.Module, pixel_values: torch.Tensor, image_sizes: torch.Tensor | None = None, **kwargs: Any
) -> Any:
    """Pixtral's tower: the patches within each image, one after the other, which attend to those of their image."""
    embedded = self.patch_conv(pixel_values.to(self.patch_conv.weight.dtype)).permute(0, 2, 3, 1)
    count, height, width, _ = embedded.shape
    if image_sizes is None:
        patches = embedded.flatten(0, 2)
        place = torch.arange(count * height * width, device=embedded.device)
        image, row, column = place // (height * width), place // width % height, place % width
    else:
        sizes = (image_sizes // self.patch_size)[:, :, None, None]
        rows = torch.arange(height, device=embedded.device)[:, None]
        columns = torch.arange(width, device=embedded.device)
        image, row, column = torch.where((rows < sizes[:, 0]) & (columns < sizes[:, 1]))
        if isinstance(image.shape[0], torch.SymInt):
            torch._check(image.shape[0] > 1)  # attention asks, and needs it only where there is no mask
        patches = embedded[image, row, column]
    states = self.ln_pre(patches[None])
    others = image[:, None] != image[None, :]
    mask = torch.zeros_like(others, dtype=states.dtype).masked_fill(others, torch.finfo(states.dtype).min)
    return self.transformer(
        states,
        attention_mask=mask[None, None],
        position_embeddings=self.patch_positional_embedding(states, torch.stack([row, column], dim=-1)),
        **kwargs,
    )


def of_merger(self: torch.nn.Module, image_features: torch.Tensor, image_sizes: torch.Tensor) -> torch.Tensor:
    """The patches of every square of each image, side by side, through one linear layer."""
    side = self.spatial_merge_size
    heights, widths = (image_sizes // self.patch_size).unbind(1)
    counts = heights * widths
    image, block = places((heights // side) * (widths // side))
    width = widths[image]
    across = width // side
    corner = (counts.cumsum(0) - counts)[image] + block // across * side * width + block % across * side
    step = torch.arange(side, device=corner.device)
    squares = corner[:, None, None] + step[:, None] * width[:, None, None] + step
    return self.merging_layer(image_features[squares.flatten(1)].mT.flatten(1))


def of_model(
    self: torch.nn.Module, pixel_values: torch.Tensor, image_sizes: torch.Tensor, **kwargs: Any
) -> Any:
    """LightOnOCR's features of its images, an image each, which are as long as its merged patches are many."""
    result = self.vision_encoder(pixel_values, image_sizes=image_sizes, return_dict=True, **kwargs)
    features = self.vision_projection(result.last_hidden_state.squeeze(0), image_sizes)
    side = self.config.vision_config.patch_size * self.config.spatial_merge_size
    result.pooler_output = torch.split(features, (image_sizes // side).prod(1).tolist())
    return result
