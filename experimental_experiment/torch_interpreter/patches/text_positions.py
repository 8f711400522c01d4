"""Positions in texts of any length, or in any number of texts: those of Reformer and of Funnel.

Source of semantics: ``transformers.models.reformer``, ``transformers.models.funnel``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

FUNNEL = "transformers.models.funnel.modeling_funnel"
REFORMER = "transformers.models.reformer.modeling_reformer"


@patch("transformers", replaces=(f"{REFORMER}.AxialPositionEmbeddings.forward",), since="5.0", default=True)
def axial_positions() -> Iterator[None]:
    """Reformer picks its axial position embeddings in a loop over the texts, whose number is the example's."""
    with wrapped({f"{REFORMER}.AxialPositionEmbeddings.forward": of_any_number}):
        yield


@patch(
    "transformers",
    replaces=(f"{FUNNEL}.FunnelAttentionStructure.get_position_embeds",),
    since="5.0",
    default=True,
)
def pooled_positions() -> Iterator[None]:
    """Funnel lists the positions of its tokens, as Python's numbers, to pool them: the length is the example's."""
    with wrapped({f"{FUNNEL}.FunnelAttentionStructure.get_position_embeds": of_any_length}):
        yield


# ---- Reformer


def of_any_number(forward: Callable) -> Callable:
    """Reformer's axial embeddings, gathered at once for a number of texts that is a symbol."""

    @functools.wraps(forward)
    def called(self: torch.nn.Module, position_ids: torch.Tensor) -> torch.Tensor:
        if self.training or not isinstance(position_ids.shape[0], torch.SymInt):
            return forward(self, position_ids)
        axial_positions.used()
        rows, columns = self.axial_pos_shape
        if position_ids.shape[1] > rows * columns:
            raise ValueError(f"{position_ids.shape[1]} tokens, and axial_pos_shape is {self.axial_pos_shape}")
        of_rows, of_columns = self.weights
        row, column = position_ids // columns, position_ids % columns
        return torch.cat([of_rows[:, 0][row], of_columns[0][column]], dim=-1)

    return called


# ---- Funnel


@dataclasses.dataclass(frozen=True)
class Positions:
    """The positions of the tokens of a block: that of <cls> where it stands apart, then equal steps.

    Attributes:
        cls: the position of <cls>, None when it is pooled as all others.
        start: the first of the others.
        step: from one to the next.
        count: how many others there are.
    """

    cls: int | None
    start: int
    step: int
    count: Any

    @property
    def first(self) -> int:
        """The position of the first token."""
        return self.start if self.cls is None else self.cls

    @property
    def last(self) -> Any:
        """The position of the last token."""
        return self.start + self.step * (self.count - 1)

    @property
    def length(self) -> Any:
        """How many tokens there are."""
        return self.count if self.cls is None else self.count + 1

    def pooled(self, block: int, is_truncated: bool) -> Positions:
        """Every second of them; <cls> is where the block before the first one has it."""
        if self.cls is None:
            return dataclasses.replace(self, step=2 * self.step, count=(self.count + 1) // 2)
        kept = (self.count - 1 if is_truncated else self.count) + 1
        return Positions(1 - 2**block, self.start, 2 * self.step, kept // 2)


def of_any_length(get_position_embeds: Callable) -> Callable:
    """Funnel's embeddings of the distances between tokens, from their numbers, for a length that is a symbol."""

    @functools.wraps(get_position_embeds)
    def called(self: Any, seq_len: Any, dtype: torch.dtype, device: torch.device) -> Any:
        is_known = not isinstance(seq_len, torch.SymInt)
        if is_known or self.config.attention_type == "factorized" or self.sin_dropout.training:
            return get_position_embeds(self, seq_len, dtype, device)
        pooled_positions.used()
        half = self.config.d_model // 2
        frequency = 1 / (10000 ** (torch.arange(half, device=device).to(dtype) / half))

        def embedded(query: Positions, key: Positions, stride: int, shift: int) -> torch.Tensor:
            """A row for each distance that `relative_pos` counts down from the largest."""
            largest = query.first - key.first + shift * query.length * stride
            count = (largest - (query.first - key.last)) // stride + 1
            distance = largest - stride * torch.arange(count, device=device)
            angle = distance.to(dtype)[:, None] * frequency
            return torch.cat([torch.sin(angle), torch.cos(angle)], dim=-1)

        positions = (
            Positions(0, 1, 1, seq_len - 1) if self.config.separate_cls else Positions(None, 0, 1, seq_len)
        )
        embeds = [[embedded(positions, positions, 1, 1), None]]
        for block in range(1, self.config.num_blocks):
            pooled = positions.pooled(block, self.config.truncate_seq)
            pooling = embedded(pooled, positions, 2 ** (block - 1), 2)
            positions = pooled
            embeds.append([embedded(positions, positions, 2**block, 1), pooling])
        return embeds

    return called
