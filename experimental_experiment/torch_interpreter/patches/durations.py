"""FastSpeech 2: the vectors of a text, each repeated for as many frames as it is spoken.

Source of semantics: ``transformers.models.fastspeech2_conformer``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

FAST_SPEECH = "transformers.models.fastspeech2_conformer.modeling_fastspeech2_conformer"


POSITIONS = f"{FAST_SPEECH}.FastSpeech2ConformerRelPositionalEncoding.forward"


@patch(
    "transformers",
    replaces=(f"{FAST_SPEECH}.length_regulator", POSITIONS),
    since="5.0",
    default=True,
)
def durations_of_speech() -> Iterator[None]:
    """FastSpeech 2 repeats the vectors of each text in a loop over the batch, as often as the data say."""
    wrappers = {f"{FAST_SPEECH}.length_regulator": lambda original: length_regulator, POSITIONS: of_frames}
    with wrapped(wrappers):
        yield


def length_regulator(
    encoded_embeddings: torch.Tensor, duration_labels: torch.Tensor, speaking_speed: float = 1.0
) -> torch.Tensor:
    """The frames of all texts, as many as the longest has, with zeros behind the shorter ones."""
    durations_of_speech.used()
    if speaking_speed <= 0:
        raise ValueError("`speaking_speed` must be greater than 0.")
    if speaking_speed != 1.0:
        duration_labels = torch.round(duration_labels.float() * speaking_speed).long()
    duration_labels.copy_(torch.where(duration_labels.sum() == 0, 1, duration_labels))
    ends = duration_labels.cumsum(1)
    count = ends[:, -1].max().item()
    if isinstance(count, torch.SymInt):
        torch._check(count > 1)  # attention asks, and needs it only where there is no mask
    frame = torch.arange(count, device=ends.device).expand(ends.shape[0], -1).contiguous()
    source = torch.searchsorted(ends, frame, right=True).clamp(max=ends.shape[1] - 1)
    vectors = encoded_embeddings.float().gather(
        1, source[:, :, None].expand(-1, -1, encoded_embeddings.shape[2])
    )
    return vectors.masked_fill((frame >= ends[:, -1:])[:, :, None], 0.0)


def of_frames(original: Callable) -> Callable:
    """The forward of relative positions, computed for as many frames as the data say: a table has those of any other number."""

    @functools.wraps(original)
    def called(
        self: torch.nn.Module, feature_representation: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols  # costs the import of sympy

        length = feature_representation.shape[1]
        if not free_unbacked_symbols(length):
            return original(self, feature_representation)
        durations_of_speech.used()
        distance = (length - 1 - torch.arange(2 * length - 1)).float()
        steps = torch.arange(0, self.embed_dim, 2).float() * -(math.log(10000.0) / self.embed_dim)
        angles = distance[:, None] * torch.exp(steps)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[None]
        table = table.to(device=feature_representation.device, dtype=feature_representation.dtype)
        return self.dropout(feature_representation * self.input_scale), self.dropout(table)

    return called
