"""Canine: characters that attend to those of their own window of a text, which has any number of windows.

Source of semantics: ``transformers.models.canine``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

CANINE = "transformers.models.canine.modeling_canine"


@patch(
    "transformers",
    replaces=(f"{CANINE}.CanineAttention.forward", f"{CANINE}.CanineModel._repeat_molecules"),
    since="5.0",
    default=True,
)
def windows_of_characters() -> Iterator[None]:
    """Canine loops over windows of its text, and repeats vectors as often as a number of Python's says: the length is the example's."""
    layer, model = f"{CANINE}.CanineAttention.forward", f"{CANINE}.CanineModel._repeat_molecules"
    with wrapped({layer: of_any_windows, model: of_any_length}):
        yield


def of_any_windows(forward: Callable) -> Callable:
    """The attention of windows that do not overlap, as one that sees nothing beyond its window, for a length that is a symbol.

    It computes the scores of all pairs, as the last layer of the model does. Windows of their own would make torch.export
    remark how many there are: one, or more than one.
    """

    @functools.wraps(forward)
    def called(
        self: torch.nn.Module,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool | None = False,
    ) -> Any:
        length, window = hidden_states.shape[1], self.attend_from_chunk_width
        sizes = self.attend_from_chunk_stride, self.attend_to_chunk_width, self.attend_to_chunk_stride
        is_plain = set(sizes) == {window} and not (
            self.always_attend_to_first_position or self.first_position_attends_to_all or output_attentions
        )
        if not (self.local and is_plain and isinstance(length, torch.SymInt)):
            return forward(self, hidden_states, attention_mask, output_attentions)
        windows_of_characters.used()
        place = torch.arange(length, device=hidden_states.device) // window
        # padding has the layer's number, which averages a window of nothing but padding; other windows add to no sum
        mask = (1.0 - attention_mask.float()) * torch.finfo(hidden_states.dtype).min
        mask = torch.where(place == place[:, None], mask, -torch.inf)[:, None]
        return (self.output(self.self(hidden_states, hidden_states, mask)[0], hidden_states),)

    return called


def of_any_length(repeat_molecules: Callable) -> Callable:
    """`_repeat_molecules` that looks up which molecule stands at each character, for a length that is a symbol."""

    @functools.wraps(repeat_molecules)
    def called(self: torch.nn.Module, molecules: torch.Tensor, char_seq_length: Any) -> torch.Tensor:
        if not isinstance(char_seq_length, torch.SymInt):
            return repeat_molecules(self, molecules, char_seq_length)
        windows_of_characters.used()
        place = torch.arange(char_seq_length, device=molecules.device) // self.config.downsampling_rate
        last = molecules.shape[1] - 1
        return molecules[:, (place + 1).clamp(max=last)]

    return called
