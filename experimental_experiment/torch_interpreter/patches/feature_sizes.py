"""Sam 3: the sizes of feature maps, which the encoder puts into a tensor and the decoder reads from it.

Source of semantics: ``transformers.models.sam3``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

MODELS = (
    "transformers.models.sam3.modeling_sam3.Sam3",
    "transformers.models.sam3_lite_text.modeling_sam3_lite_text.Sam3LiteText",
)
"""Modules, and what the names of their classes begin with."""

ENCODERS = tuple(f"{model}DetrEncoder._prepare_multilevel_features" for model in MODELS)
DECODERS = tuple(f"{model}DetrDecoder.forward" for model in MODELS)


@patch("transformers", replaces=(*ENCODERS, *DECODERS), since="5.23", default=True)
def sizes_of_features() -> Iterator[None]:
    """Sam 3 reads the sizes of its features from a tensor that it put them into: torch.export takes them for data."""
    with wrapped(dict.fromkeys(ENCODERS, with_sizes) | dict.fromkeys(DECODERS, by_sizes)):
        yield


class Sizes:
    """A table of heights and widths, a row each, in the place of the tensor that has them."""

    def __init__(self, rows: list[tuple[Any, Any]]):
        self.rows, self.shape = rows, (len(rows), 2)

    def __getitem__(self, place: tuple[int, int]) -> Any:
        return self.rows[place[0]][place[1]]


def with_sizes(original: Callable) -> Callable:
    """`_prepare_multilevel_features` whose tensor of sizes knows them as numbers."""

    @functools.wraps(original)
    def called(
        self: torch.nn.Module, vision_features: list[torch.Tensor], *args: Any, **kwargs: Any
    ) -> tuple:
        *features, spatial_shapes = original(self, vision_features, *args, **kwargs)
        spatial_shapes.sizes = [tuple(level.shape[-2:]) for level in vision_features]
        return *features, spatial_shapes

    return called


def by_sizes(original: Callable) -> Callable:
    """The decoder's forward on sizes that are known as numbers."""

    @functools.wraps(original)
    def called(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        sizes = getattr(kwargs.get("spatial_shapes"), "sizes", None)
        if sizes is not None:
            sizes_of_features.used()
            kwargs["spatial_shapes"] = Sizes(sizes)
        return original(self, *args, **kwargs)

    return called
