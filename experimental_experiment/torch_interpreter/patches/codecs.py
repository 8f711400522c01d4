"""Audio codecs of transformers: paddings that they compute with tensors, from numbers that are known."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced, wrapped

LAYERS = (
    "transformers.models.encodec.modeling_encodec.EncodecConv1d",
    "transformers.models.mimi.modeling_mimi.MimiConv1d",
    "transformers.models.pocket_tts_audio_tokenizer.modeling_pocket_tts_audio_tokenizer.PocketTTSAudioTokenizerConv1d",
    "transformers.models.wavtokenizer.modeling_wavtokenizer.WavTokenizerConv1d",
)
"""Convolutions whose stride, size and padding are buffers."""


@patch(
    "transformers",
    replaces=("the forward and _get_extra_padding_for_conv1d of the convolutions of codecs",),
    since="5.0",
    default=True,
)
def codec_padding() -> Iterator[None]:
    """A convolution of Encodec, Mimi, Pocket-TTS or WavTokenizer pads by a length that is computed with tensors."""
    wrappers: dict[str, Callable] = {f"{layer}.forward": with_numbers for layer in LAYERS}
    wrappers |= {f"{layer}._get_extra_padding_for_conv1d": lambda original: extra_padding for layer in LAYERS}
    with wrapped(wrappers):
        yield


@patch(
    "transformers",
    replaces=("range, in the module of Encodec",),
    since="5.0",
    default=True,
)
def one_chunk() -> Iterator[None]:
    """Encodec without chunks loops over its only one, from 0 to the length in steps of the length, which it makes a constant."""
    module = sys.modules.get("transformers.models.encodec.modeling_encodec")
    with contextlib.ExitStack() as stack:
        if module is not None:
            stack.enter_context(replaced(module, "range", chunks))
        yield


def chunks(*bounds: Any) -> range | list[int]:
    """``range``, whose only value from 0 to a symbol in steps of it is 0."""
    if len(bounds) == 3 and isinstance(bounds[1], torch.SymInt) and bounds[1] is bounds[2]:
        one_chunk.used()
        return [0]
    return range(*bounds)


def with_numbers(forward: Callable) -> Callable:
    """*forward* of a convolution whose stride, size and padding are Python's numbers."""

    @functools.wraps(forward)
    def called(self, *args: Any, **kwargs: Any) -> Any:
        codec_padding.used()
        size = (self.conv.kernel_size[0] - 1) * self.conv.dilation[0] + 1
        total = size - self.conv.stride[0]
        numbers = {"stride": self.conv.stride[0], "kernel_size": size, "padding_total": total}
        numbers |= {"padding_right": total // 2, "padding_left": total - total // 2}
        layer = copy.copy(self)  # its attributes hide the buffers of the same names
        vars(layer).update(numbers)
        return forward(layer, *args, **kwargs)

    return called


def extra_padding(layer: torch.nn.Module, hidden_states: torch.Tensor) -> Any:
    """What is missing at the end for the last window to be whole."""
    length = hidden_states.shape[-1]
    windows = -(-(length - layer.kernel_size + layer.padding_total) // layer.stride)
    return windows * layer.stride + layer.kernel_size - layer.padding_total - length
