"""Packed images that a model takes one after the other in a loop over their sizes: all at once.

Source of semantics: ``transformers.models.ernie4_5_vl_moe``, ``video_llama_3``, ``hunyuan_vl``, ``lfm2_vl``, ``lfm3_vl``.
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
from experimental_experiment.torch_interpreter.patches.pieces import Lengths, Pieces
from experimental_experiment.torch_interpreter.patches.vision import get_vision_position_ids, places

ERNIE, VIDEO_LLAMA, HUNYUAN, LFM2, LFM3 = (
    f"transformers.models.{name}.modeling_{name}"
    for name in ("ernie4_5_vl_moe", "video_llama_3", "hunyuan_vl", "lfm2_vl", "lfm3_vl")
)


def replacements() -> Iterator[tuple[str, str, str, str, Callable]]:
    """The module, the class, the method and its argument of sizes, and what takes its place."""
    yield ERNIE, "Ernie4_5_VLMoeVariableResolutionResamplerModel", "_temporal_slicing", "grid_thw", of_frames
    yield VIDEO_LLAMA, "VideoLlama3VisionModel", "pixel_unshuffle", "grid_thw", of_centers
    yield HUNYUAN, "HunYuanVLVisionTransformer", "forward", "grid_thw", of_lines
    yield LFM2, "Lfm2VlModel", "get_image_features", "spatial_shapes", of_squares
    yield LFM3, "Lfm3VlVisionShortConv", "forward", "grid_thw", of_neighbours


def is_needed(sizes: Any, module: str) -> bool:
    """Whether torch.export refuses the loop: always where the sizes are numbers that it wants, else for any number of images."""
    if module in (ERNIE, VIDEO_LLAMA):
        return isinstance(sizes, FakeTensor)
    tensor = sizes.tensor if isinstance(sizes, Lengths) else sizes
    return isinstance(tensor, torch.Tensor) and isinstance(tensor.shape[0], torch.SymInt)


def where_needed(function: Callable, name: str, module: str, original: Callable) -> Callable:
    """*function* for sizes, the argument *name*, for which it is needed, decorated as *original*, which is called for others."""
    signature = inspect.signature(original)
    decorator = {of_lines: "capture_outputs", of_squares: "can_return_tuple"}.get(function)
    function = getattr(sys.modules[module], decorator)(function) if decorator else function

    @functools.wraps(original)
    def called(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not is_needed(signature.bind(self, *args, **kwargs).arguments.get(name), module):
            return original(self, *args, **kwargs)
        loops_over_images.used()
        return function(self, *args, **kwargs)

    return called


# ---- Ernie 4.5


def of_frames(self: torch.nn.Module, hidden_states: torch.Tensor, grid_thw: torch.Tensor) -> torch.Tensor:
    """The merged patches of each even frame beside those of the next one: of an image, which has one frame, beside its own."""
    frames = grid_thw[:, 0]
    size = grid_thw[:, 1:].prod(1) // self.spatial_merge_size**2
    image, place = places(torch.where(frames == 1, 1, frames // 2) * size)
    start = (frames * size).cumsum(0) - frames * size
    first = start[image] + (place // size[image] * 2) * size[image] + place % size[image]
    second = first + torch.where(frames == 1, 0, size)[image]
    return torch.cat([hidden_states[first], hidden_states[second]], -1)


# ---- VideoLlama 3


def of_centers(
    self: torch.nn.Module, hidden_states: torch.Tensor, grid_thw: torch.Tensor, merge_sizes: torch.Tensor
) -> torch.Tensor:
    """Each square of merged patches, which come one after the other, resized to one: the mean of the 1 or 4 in its center."""
    counts = grid_thw.prod(1)
    image, square = places(counts // merge_sizes**2)
    side = merge_sizes[image]
    start = (counts.cumsum(0) - counts)[image] + square * side * side
    before, after = (side - 1) // 2, side // 2
    corners = [
        hidden_states[start + row * side + column] for row in (before, after) for column in (before, after)
    ]
    return torch.stack(corners).mean(0)


# ---- HunYuan


def of_lines(self: torch.nn.Module, pixel_values: torch.Tensor, grid_thw: torch.Tensor, **kwargs: Any) -> Any:
    """HunYuan's tower: patches with their positions, the layers, then the lines of each image between a begin and an end."""
    module = sys.modules[HUNYUAN]
    embeddings = self.embeddings
    side, channels = embeddings.patch_size, embeddings.config.num_channels
    patches = pixel_values.reshape(-1, channels, side, side).to(embeddings.patch_embedding.weight.dtype)
    patches = embeddings.patch_embedding(patches).flatten(1)
    image, place = places(grid_thw.prod(1))
    _, height, width = grid_thw[image].unbind(1)
    edge = embeddings.position_edge
    table = embeddings.position_embedding.weight[1:].reshape(edge, edge, -1).float()
    row, column = place % (height * width) // width, place % width
    states = (patches + interpolated(table, row, column, height, width).to(patches.dtype))[None]
    cu_seqlens, max_seqlen = module.get_vision_attention_seqlens(grid_thw, self.config, kwargs=kwargs)
    for layer in self.layers:
        states = layer(states, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen, attention_mask=None, **kwargs)
    features = merged_lines(self.patch_merger, states[0], grid_thw)
    return module.BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=features[None])


def interpolated(
    table: torch.Tensor, row: torch.Tensor, column: torch.Tensor, height: torch.Tensor, width: torch.Tensor
) -> torch.Tensor:
    """What is at a row and a column of *table*, (rows, columns, channels), resized to these heights and widths (bilinear)."""
    above, below, down = between(row, height, table.shape[0])
    left, right, along = between(column, width, table.shape[1])
    upper = table[above, left] * (1 - along) + table[above, right] * along
    lower = table[below, left] * (1 - along) + table[below, right] * along
    return upper * (1 - down) + lower * down


def between(place: torch.Tensor, size: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """The elements before and after a place among *size*, among *count*, and how far it is from the first, (places, 1)."""
    center = ((place + 0.5) * (count / size.float()) - 0.5).clamp(min=0.0)
    before = center.floor()
    first = before.long().clamp(max=count - 1)
    return first, (first + 1).clamp(max=count - 1), (center - before)[:, None]


def merged_lines(merger: torch.nn.Module, states: torch.Tensor, grid_thw: torch.Tensor) -> torch.Tensor:
    """The merged patches of each image, line by line with a newline after each, between a begin and an end."""
    states = merger.before_rms(states)
    side = merger.spatial_merge_size
    counts = grid_thw.prod(1)
    rows, columns = grid_thw[:, 1] // side, grid_thw[:, 2] // side
    image, place = places(rows * (columns + 1) + 2)
    wide, width = columns[image], grid_thw[image, 2]
    inner = (place - 1).clamp(min=0)
    row, column = inner // (wide + 1), inner % (wide + 1)
    corner = torch.minimum(row, rows[image] - 1) * width + torch.minimum(column, wide - 1)
    start = (counts.cumsum(0) - counts)[image] + corner * side
    step = torch.arange(side, device=start.device)
    squares = states[start[:, None, None] + step[:, None] * width[:, None, None] + step]
    features = merger.proj_conv(squares.permute(0, 3, 1, 2))
    features = merger.proj_out(merger.proj_act(features)).flatten(1)
    is_newline = (column == wide)[:, None]
    features = merger.mlp(torch.where(is_newline, merger.image_newline.to(states.dtype), features))
    is_begin, is_end = (place == 0)[:, None], (row == rows[image])[:, None]
    features = torch.where(is_begin, merger.image_begin.to(states.dtype), features)
    features = torch.where(is_end, merger.image_end.to(states.dtype), features)
    return merger.after_rms(features)


# ---- Lfm2 and Lfm3


def of_squares(
    self: torch.nn.Module,
    pixel_values: torch.Tensor,
    spatial_shapes: torch.Tensor,
    pixel_attention_mask: torch.Tensor,
    **kwargs: Any,
) -> Any:
    """Lfm2's features of its images: those of the patches of each square side by side, projected."""
    outputs = self.vision_tower(
        pixel_values=pixel_values,
        spatial_shapes=spatial_shapes,
        pixel_attention_mask=pixel_attention_mask,
        return_dict=True,
        **kwargs,
    )
    projector = self.multi_modal_projector
    side = projector.factor
    rows, columns = (spatial_shapes // side).unbind(1)
    image, place = places(rows * columns)
    width = spatial_shapes[image, 1]
    corner = (place // columns[image] * width + place % columns[image]) * side
    step = torch.arange(side, device=corner.device)
    squares = corner[:, None, None] + step[:, None] * width[:, None, None] + step
    features = outputs.last_hidden_state[image[:, None, None], squares].flatten(1)
    features = projector.layer_norm(features) if projector.use_layer_norm else features
    features = projector.linear_2(projector.act(projector.linear_1(features)))
    outputs.pooler_output = Pieces(features, lambda: torch.split(features, (rows * columns).tolist()))
    return outputs


def of_neighbours(
    self: torch.nn.Module, hidden_states: torch.Tensor, grid_thw: Any, **kwargs: Any
) -> torch.Tensor:
    """Lfm3's convolution of each frame, whose patches come block after block: of the patches around each one."""
    input_gate, output_gate, conv_input = self.in_proj(hidden_states).chunk(3, dim=-1)
    gated = input_gate * conv_input
    grid, merge, layer = grid_thw.tensor, self.spatial_merge_size, self.spatial_conv
    frame, row, column = get_vision_position_ids(grid, merge, include_temporal=True).unbind(1)
    image, _ = places(grid.prod(1))
    _, height, width = (size[:, None, None] for size in grid[image].unbind(1))
    start = (grid.prod(1).cumsum(0) - grid.prod(1))[image]
    down, along = (
        torch.arange(count, device=row.device) - before
        for count, before in zip(layer.kernel_size, layer.padding)
    )
    row, column = row[:, None, None] + down[:, None], column[:, None, None] + along
    is_inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    row = torch.minimum(row.clamp(min=0), height - 1)
    column = torch.minimum(column.clamp(min=0), width - 1)
    block = (row // merge * (width // merge) + column // merge) * merge**2
    place = block + row % merge * merge + column % merge
    place = place + (start + frame * height[:, 0, 0] * width[:, 0, 0])[:, None, None]
    around = torch.where(is_inside[..., None], gated[place], 0.0)
    convolved = (around * layer.weight[:, 0].permute(1, 2, 0)).sum((1, 2))
    return self.out_proj(output_gate * convolved)


@patch(
    "transformers",
    replaces=tuple(f"{module}.{owner}.{method}" for module, owner, method, *_ in replacements()),
    since="5.23",
    default=True,
)
def loops_over_images() -> Iterator[None]:
    """Ernie 4.5, VideoLlama 3, HunYuan, Lfm2 and Lfm3 loop over their images: their number, or their sizes, are the example's."""
    wrappers = {
        f"{module}.{owner}.{method}": functools.partial(where_needed, function, argument, module)
        for module, owner, method, argument, function in replacements()
    }
    with wrapped(wrappers):
        yield
