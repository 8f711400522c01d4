"""Sam 3: the sizes of feature maps, which the encoder puts into a tensor and the decoder reads from it.

Source of semantics: ``transformers.models.sam3``.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

MODELS = {
    f"transformers.models.{name}.modeling_{name}": prefix
    for name, prefix in (("sam3", "Sam3"), ("sam3_lite_text", "Sam3LiteText"))
}
"""Modules, and what the names of their classes begin with."""


@patch(
    "transformers",
    replaces=tuple(
        f"{module}.{prefix}Detr{function}"
        for module, prefix in MODELS.items()
        for function in ("Encoder._prepare_multilevel_features", "Decoder.forward")
    ),
    since="5.23",
    default=True,
)
def sizes_of_features() -> Iterator[None]:
    """Sam 3 reads the sizes of its features from a tensor that it put them into: torch.export takes them for data."""
    with contextlib.ExitStack() as stack:
        for name, prefix in MODELS.items():
            module = sys.modules.get(name)
            if module is None:
                continue
            encoder, decoder = (
                getattr(module, f"{prefix}DetrEncoder"),
                getattr(module, f"{prefix}DetrDecoder"),
            )
            remembered = with_sizes(encoder._prepare_multilevel_features)
            stack.enter_context(replaced(encoder, "_prepare_multilevel_features", remembered))
            stack.enter_context(replaced(decoder, "forward", by_sizes(decoder.forward)))
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
