"""Images that are cut into windows: padded to whole ones in Swin and its relatives, resized to them in MobileViT.

Source of semantics: ``transformers.models.swin``, ``swinv2``, ``swin2sr``, ``donut``, ``maskformer``, ``clap``,
``focalnet``, ``mobilevit``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from experimental_experiment.torch_interpreter.patches.paddings import to_multiple
from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

ALL = ("Layer", "PatchMerging", "PatchEmbeddings")
MODELS = {
    "swin.modeling_swin": ("Swin", ALL),
    "swinv2.modeling_swinv2": ("Swinv2", ALL),
    "swin2sr.modeling_swin2sr": ("Swin2SR", ALL[:2]),
    "donut.modeling_donut_swin": ("DonutSwin", ALL),
    "maskformer.modeling_maskformer_swin": ("MaskFormerSwin", ALL),
    "clap.modeling_clap": ("ClapAudio", ALL[:2]),
    "focalnet.modeling_focalnet": ("FocalNet", ALL[2:]),
}
"""Modules, what the names of their classes begin with, and the classes that pad images."""

MOBILE_VIT_LAYER = "transformers.models.mobilevit.modeling_mobilevit.MobileViTLayer"


def replacements() -> Iterator[tuple[str, Callable]]:
    """The path of each function and what takes its place."""
    padded = {"Layer": to_windows, "PatchMerging": to_pairs, "PatchEmbeddings": to_patches}
    for model, (prefix, classes) in MODELS.items():
        module = f"transformers.models.{model}"
        for name in classes:
            yield f"{module}.{prefix}{name}.maybe_pad", padded[name]
        if "Layer" in classes:
            yield f"{module}.window_partition", window_partition
            yield f"{module}.window_reverse", window_reverse


def window_partition(input_feature: torch.Tensor, window_size: int) -> torch.Tensor:
    """The windows of (batch, height, width, channels), those of an image row by row."""
    batch, height, width, channels = input_feature.shape
    rows, columns = height // window_size, width // window_size
    apart = input_feature.view(batch, rows, window_size, columns, window_size, channels)
    return apart.transpose(2, 3).reshape(batch * rows * columns, window_size, window_size, channels)


def window_reverse(windows: torch.Tensor, window_size: int, height: int, width: int) -> torch.Tensor:
    """The images of *height* and *width* that `window_partition` cut."""
    channels = windows.shape[-1]
    rows, columns = height // window_size, width // window_size
    batch = windows.shape[0] // (rows * columns)
    apart = windows.view(batch, rows, columns, window_size, window_size, channels)
    return apart.transpose(2, 3).reshape(batch, height, width, channels)


def to_windows(self: torch.nn.Module, hidden_states: torch.Tensor, height: int, width: int) -> tuple:
    """(batch, height, width, channels) padded to whole windows, and paddings that say: cut to the size it had."""
    below, right = (to_multiple(size, self.window_size) for size in (height, width))
    return torch.nn.functional.pad(hidden_states, (0, 0, 0, right, 0, below)), (0, 0, 0, 1, 0, 1)


def to_pairs(self: torch.nn.Module, input_feature: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """(batch, height, width, channels) padded to even sizes."""
    return torch.nn.functional.pad(input_feature, (0, 0, 0, to_multiple(width, 2), 0, to_multiple(height, 2)))


def to_patches(self: torch.nn.Module, pixel_values: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """(batch, channels, height, width) padded to whole patches."""
    below, right = (to_multiple(size, side) for size, side in zip((height, width), self.patch_size))
    return torch.nn.functional.pad(pixel_values, (0, right, 0, below))


@patch(
    "transformers",
    replaces=tuple(path for path, _ in replacements()),
    since="5.23",
    default=True,
)
def windows_of_images() -> Iterator[None]:
    """torch.export needs many minutes for the sizes of Swin's windows, and takes its paddings for those of the example."""
    with wrapped({path: functools.partial(for_symbols, function) for path, function in replacements()}):
        yield


def for_symbols(function: Callable, original: Callable) -> Callable:
    """*function* for images whose sizes are symbols, *original* for others."""

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = tree_leaves((args, kwargs))
        sizes = next(item for item in given if isinstance(item, torch.Tensor)).shape[1:]
        if not any(isinstance(size, torch.SymInt) for size in (*given, *sizes)):
            return original(*args, **kwargs)
        windows_of_images.used()
        return function(*args, **kwargs)

    return called


@patch(
    "transformers",
    replaces=tuple(f"{MOBILE_VIT_LAYER}.{name}" for name in ("unfolding", "folding")),
    since="5.0",
    default=True,
)
def windows_of_mobile_vit() -> Iterator[None]:
    """MobileViT asks whether an image has whole windows, and resizes it when it has not: the program would hold the answer.

    All are resized: to their own size, that changes nothing.
    """
    with wrapped({f"{MOBILE_VIT_LAYER}.unfolding": unfolding, f"{MOBILE_VIT_LAYER}.folding": folding}):
        yield


def unfolding(original: Callable) -> Callable:
    """`unfolding` of images of symbolic sizes: places in a window before windows, then channels."""

    @functools.wraps(original)
    def called(self: torch.nn.Module, features: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
        batch, channels, *size = features.shape
        if not any(isinstance(side, torch.SymInt) for side in size):
            return original(self, features)
        windows_of_mobile_vit.used()
        sides = self.patch_height, self.patch_width
        rows, columns = ((whole + side - 1) // side for whole, side in zip(size, sides))
        resized = resize(features, (rows * sides[0], columns * sides[1]))
        apart = resized.reshape(batch, channels, rows, sides[0], columns, sides[1])
        windows = apart.permute(0, 3, 5, 2, 4, 1).reshape(
            batch * sides[0] * sides[1], rows * columns, channels
        )
        return windows, {"sizes": (batch, *sides, rows, columns, channels), "orig_size": tuple(size)}

    return called


def folding(original: Callable) -> Callable:
    """`folding` of what `unfolding` gave."""

    @functools.wraps(original)
    def called(self: torch.nn.Module, patches: torch.Tensor, info_dict: dict[str, Any]) -> torch.Tensor:
        if "sizes" not in info_dict:
            return original(self, patches, info_dict)
        batch, high, wide, rows, columns, channels = info_dict["sizes"]
        apart = patches.reshape(batch, high, wide, rows, columns, channels)
        image = apart.permute(0, 5, 3, 1, 4, 2).reshape(batch, channels, rows * high, columns * wide)
        return resize(image, info_dict["orig_size"])

    return called


def resize(image: torch.Tensor, size: tuple[Any, Any]) -> torch.Tensor:
    """The image in this height and width."""
    return torch.nn.functional.interpolate(image, size=size, mode="bilinear", align_corners=False)
