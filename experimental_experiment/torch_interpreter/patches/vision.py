"""Vision towers of transformers that pack images of several sizes: what they compute from ``grid_thw`` in Python, with tensors.

Source of semantics: ``transformers.vision_utils``. The attention that ``transformers.exporters`` prepares takes images of one size,
and leaves out what some models do to queries and keys: here the forward is the model's, and a mask keeps the images apart.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from experimental_experiment.torch_interpreter.errors import CaptureError
from experimental_experiment.torch_interpreter.frames import words
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

SHUFFLING = tuple(f"transformers.models.{name}.modeling_{name}" for name in ("muse_glimmer", "muse_spark"))
"""Models that merge patches after all layers, not before."""


@patch("transformers", replaces=("the forward of attentions over packed images",), since="5.23", default=True)
def packed_attention() -> Iterator[None]:
    """An attention over packed images splits them by a list of lengths that torch.export does not know."""
    with contextlib.ExitStack() as stack:
        for module in modeling_modules():
            for owner in packed_attentions(module):
                stack.enter_context(replaced(owner, "forward", masked(owner.forward)))
        yield


@functools.cache
def packed_attentions(module: types.ModuleType) -> tuple[type, ...]:
    """The classes of attention over packed images in a module: those whose forward splits by a list of lengths."""
    own = [cls for cls in vars(module).values() if getattr(cls, "__module__", None) == module.__name__]
    return tuple(cls for cls in own if isinstance(cls, type) and splits_by_lengths(vars(cls).get("forward")))


def splits_by_lengths(forward: Any) -> bool:
    """Whether a function splits by a list of lengths."""
    code = getattr(inspect.unwrap(forward), "__code__", None) if callable(forward) else None
    return code is not None and {"lengths", "tolist", "split"} <= words(code)


def modeling_modules() -> list[types.ModuleType]:
    """The modules of models of transformers that are imported, but those that another thread is importing now."""
    names = [name for name in list(sys.modules) if ".modeling_" in name]  # of thousands
    modules = [sys.modules.get(name) for name in names if is_modeling(name)]
    return [
        module
        for module in modules
        if module is not None and not getattr(module.__spec__, "_initializing", False)
    ]


class Whole:
    """What stands for the boundaries of the segments, and for their lengths: one segment of all."""

    def __init__(self, length: int):
        self.length = length

    def __getitem__(self, places: slice) -> Whole:
        return self

    def __sub__(self, other: Whole) -> Whole:
        return self

    def tolist(self) -> list[int]:
        """The length of the only segment."""
        return [self.length]


def masked(forward: Callable) -> Callable:
    """*forward*, which takes all as one segment, while attention sees what is in the same segment only."""

    @functools.wraps(forward)
    def called(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(forward).bind(self, hidden_states, *args, **kwargs)
        boundaries = bound.arguments.get("cu_seqlens")
        if boundaries is None:
            return forward(self, hidden_states, *args, **kwargs)
        packed_attention.used()
        length = hidden_states.shape[-2]
        if isinstance(length, torch.SymInt):
            torch._check(length > 1)  # attention asks, and needs it only where there is no mask
        place = torch.arange(length, device=boundaries.device)
        segment = torch.searchsorted(boundaries[1:].to(place.dtype), place, right=True)
        attention = Attention(segment[:, None] == segment[None, :])
        bound.arguments["cu_seqlens"] = Whole(length)
        with replaced(torch.nn.functional, "scaled_dot_product_attention", attention):
            result = forward(*bound.args, **bound.kwargs)
        if attention.calls != 1:
            raise CaptureError(
                f"{type(self).__name__} does not call scaled_dot_product_attention: its images cannot be kept apart",
                hint='model.set_attn_implementation("sdpa")',
            )
        return result

    return called


class Attention:
    """scaled_dot_product_attention with a mask of its own; it counts its calls."""

    def __init__(self, mask: torch.Tensor):
        self.mask, self.calls = mask, 0
        self.original = F.scaled_dot_product_attention

    def __call__(
        self, query: Any, key: Any, value: Any, attn_mask: None = None, **others: Any
    ) -> torch.Tensor:
        if attn_mask is not None or others.get("is_causal"):
            raise CaptureError("an attention over packed images has a mask of its own, which is not handled")
        self.calls += 1
        return self.original(query, key, value, attn_mask=self.mask, **others)


@patch(
    "transformers",
    replaces=(
        "transformers.vision_utils.get_vision_position_ids",
        "transformers.vision_utils.get_vision_window_index",
        *(f"{module}.get_vision_pixel_shuffle_index" for module in SHUFFLING),
    ),
    since="5.23",
    default=True,
)
def vision_grids() -> Iterator[None]:
    """The positions and the windows of packed images are computed in a loop over ``grid_thw.tolist()``."""
    utilities = sys.modules.get("transformers.vision_utils")
    with contextlib.ExitStack() as stack:
        for function in (get_vision_position_ids, get_vision_window_index) if utilities is not None else ():
            original = getattr(utilities, function.__name__)
            for module in (utilities, *modeling_modules()):
                if vars(module).get(function.__name__) is original:
                    stack.enter_context(replaced(module, function.__name__, function))
        for module in (sys.modules[name] for name in SHUFFLING if name in sys.modules):
            stack.enter_context(
                replaced(module, "get_vision_pixel_shuffle_index", get_vision_pixel_shuffle_index)
            )
        yield


def is_modeling(name: str) -> bool:
    """Whether a module holds models of transformers."""
    return name.startswith("transformers.models.") and ".modeling_" in name


def get_vision_position_ids(
    grid_thw: torch.Tensor,
    spatial_merge_size: int | torch.Tensor,
    include_temporal: bool = False,
    kwargs: dict[str, Any] | None = None,
) -> torch.Tensor:
    """Frame, row and column of every patch, block after block of merged patches."""
    given = (kwargs or {}).pop("position_ids", None)
    if given is not None:
        return given
    vision_grids.used()
    merge = spatial_merge_size
    if isinstance(merge, torch.Tensor):
        merge = merge.to(grid_thw.dtype)
    image, place = places(grid_thw.prod(1))
    if isinstance(merge, torch.Tensor):
        merge = merge[image]
    height, width = grid_thw[image, 1], grid_thw[image, 2]
    frame, within = place // (height * width), place % (height * width)
    block, inside = within // (merge * merge), within % (merge * merge)
    row = block // (width // merge) * merge + inside // merge
    column = block % (width // merge) * merge + inside % merge
    return torch.stack([frame, row, column] if include_temporal else [row, column], dim=-1)


def get_vision_pixel_shuffle_index(
    grid_thw: torch.Tensor, merge_size: int, kwargs: dict[str, Any] | None = None
) -> torch.Tensor:
    """The patches, block after block of merged ones."""
    given = (kwargs or {}).pop("pixel_shuffle_index", None)
    if given is not None:
        return given
    frame, row, column = get_vision_position_ids(grid_thw, merge_size, include_temporal=True).unbind(1)
    counts = grid_thw.prod(1)
    image = torch.searchsorted(
        counts.cumsum(0), torch.arange(frame.shape[0], device=frame.device), right=True
    )
    _, height, width = grid_thw[image].unbind(1)
    return (counts.cumsum(0) - counts)[image] + (frame * height + row) * width + column


def get_vision_window_index(
    grid_thw: torch.Tensor,
    spatial_merge_size: int,
    window_size: int,
    patch_size: int,
    kwargs: dict[str, Any] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The merged patches, window after window, and where the windows begin."""
    given = [(kwargs or {}).pop(name, None) for name in ("window_index", "cu_window_seqlens")]
    if None not in given:
        return given[0], given[1]
    vision_grids.used()
    side = window_size // spatial_merge_size // patch_size
    frames, heights, widths = (
        grid_thw[:, 0],
        grid_thw[:, 1] // spatial_merge_size,
        grid_thw[:, 2] // spatial_merge_size,
    )
    image, place = places(frames * heights * widths)
    height, width = heights[image], widths[image]
    frame, row, column = place // (height * width), place // width % height, place % width
    rows, columns = heights // side + 1, widths // side + 1
    windows = frames * rows * columns
    first = windows.cumsum(0) - windows
    window = first[image] + (frame * rows[image] + row // side) * columns[image] + column // side
    index = torch.argsort(window, stable=True)
    _, counts = torch.unique_consecutive(window[index], return_counts=True)
    ends = (counts * spatial_merge_size**2).cumsum(0)
    return index, F.pad(ends, (1, 0)).to(torch.int32)


def places(counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each of the elements of all images, of so many each: its image, its place there."""
    image = torch.repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    return image, torch.arange(image.shape[0], device=counts.device) - starts[image]
