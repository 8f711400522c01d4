"""Sounds that the towers of Qwen's models cut into chunks and windows, in loops over their lengths: all at once.

Source of semantics: ``transformers.models.qwen2_5_omni``, ``qwen3_omni_moe``, ``qwen3_asr``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.functional import pad

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced, wrapped
from experimental_experiment.torch_interpreter.patches.vision import places

OMNI_2_5, OMNI_3, ASR = (
    f"transformers.models.{name}.modeling_{name}" for name in ("qwen2_5_omni", "qwen3_omni_moe", "qwen3_asr")
)
CHUNKS, WINDOWS = "chunk_and_pad_features", "get_audio_cu_seqlens"
TOWER = f"{OMNI_3}.Qwen3OmniMoeAudioEncoder.forward"

MOST_CHUNKS = 2**31
"""Of all sounds of a call: the convolutions take so many at once."""


@patch(
    "transformers",
    replaces=(f"{OMNI_2_5}.{CHUNKS}", f"{OMNI_3}.{CHUNKS}", f"{OMNI_3}.{WINDOWS}", f"{ASR}.{WINDOWS}", TOWER),
    since="5.23",
    default=True,
)
def windows_of_sounds() -> Iterator[None]:
    """Qwen2.5-Omni, Qwen3-Omni and Qwen3-ASR make lists of the chunks of their sounds: torch.export refuses a list as long as the data say."""
    wrappers: dict[str, Callable] = {f"{module}.{CHUNKS}": chunks_of for module in (OMNI_2_5, OMNI_3)}
    wrappers |= {f"{module}.{WINDOWS}": functools.partial(windows_of, module) for module in (OMNI_3, ASR)}
    with wrapped(wrappers | {TOWER: at_once}):
        yield


def chunks_of(original: Callable) -> Callable:
    """``chunk_and_pad_features`` that gathers the frames of all chunks: each sound begins a new one."""

    @functools.wraps(original)
    def called(input_features: Any, feature_lens: Any, n_window: int, kwargs: dict | None = None) -> Any:
        if not isinstance(feature_lens, FakeTensor) or (kwargs or {}).get("padded_feature") is not None:
            return original(input_features, feature_lens, n_window, kwargs=kwargs)
        windows_of_sounds.used()
        size = 2 * n_window
        sound, place = places((feature_lens + size - 1) // size)
        torch._check(sound.shape[0] >= 1)
        torch._check(sound.shape[0] <= MOST_CHUNKS)
        lengths = (feature_lens[sound] - place * size).clamp(max=size)
        longest = lengths.max().item()
        torch._check(longest >= 1)
        torch._check(longest <= size)
        frame = torch.arange(longest, device=lengths.device)
        is_inside = frame < lengths[:, None]
        index = torch.where(is_inside, (lengths.cumsum(0) - lengths)[:, None] + frame, 0)
        padded = torch.where(is_inside[:, None], input_features[:, index].transpose(0, 1), 0)
        return padded, lengths

    return called


def windows_of(module: str, original: Callable) -> Callable:
    """``get_audio_cu_seqlens`` without its loop: windows of one size, the last of each sound as long as what is left."""

    @functools.wraps(original)
    def called(
        chunk_lengths: Any,
        feature_lens: Any,
        n_window_infer: int,
        n_window: int,
        kwargs: dict | None = None,
    ) -> Any:
        if not isinstance(feature_lens, FakeTensor) or (kwargs or {}).get("cu_seqlens") is not None:
            return original(chunk_lengths, feature_lens, n_window_infer, n_window, kwargs=kwargs)
        windows_of_sounds.used()
        left = functools.partial(sys.modules[module]._get_feat_extract_output_lengths, n_window=n_window)
        lengths = left(feature_lens)
        size = left(chunk_lengths).max() * (n_window_infer // (2 * n_window))
        sound, place = places((lengths + size - 1) // size)
        sizes = torch.minimum(size, lengths[sound] - place * size)
        return pad(sizes.cumsum(0, dtype=torch.int32), (1, 0))

    return called


def at_once(forward: Callable) -> Callable:
    """The tower's forward that gives its convolutions all chunks at once, not some after the other."""

    @functools.wraps(forward)
    def called(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(given, FakeTensor) for given in (*args, *kwargs.values())):
            return forward(self, *args, **kwargs)
        with replaced(self, "conv_chunksize", MOST_CHUNKS):
            return forward(self, *args, **kwargs)

    return called
