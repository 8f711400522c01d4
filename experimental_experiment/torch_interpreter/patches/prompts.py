"""CPM-Ant: the mask of a prompt and of the text behind it.

Source of semantics: ``transformers.models.cpmant``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

CPM_ANT = "transformers.models.cpmant.modeling_cpmant"


@patch(
    "transformers", replaces=(f"{CPM_ANT}.CpmAntModel._prepare_attention_mask",), since="5.0", default=True
)
def masks_of_prompts() -> Iterator[None]:
    """CPM-Ant counts its tokens in a list of Python numbers, which are those of the example."""
    with wrapped({f"{CPM_ANT}.CpmAntModel._prepare_attention_mask": lambda original: attention_mask}):
        yield


def attention_mask(
    self: torch.nn.Module,
    input_ids: torch.Tensor,
    span: torch.Tensor,
    context: torch.Tensor,
    length: torch.Tensor,
) -> torch.Tensor:
    """What each token attends to: what is in its span and no padding on the left, and what is before it or in the context."""
    masks_of_prompts.used()
    place = torch.arange(input_ids.shape[1], device=input_ids.device)
    seen = context[:, None, :] | (context[:, :, None].logical_not() & (place <= place[:, None]))
    seen = seen & (span[:, None, :] == span[:, :, None])
    text = (place.flip(0) < length[:, None]) | (place < self.prompt_length)
    return text[:, :, None] & text[:, None, :] & seen
