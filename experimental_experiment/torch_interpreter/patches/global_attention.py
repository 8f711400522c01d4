"""Longformer and LED: attention in windows, and over all tokens for those that a mask marks.

Source of semantics: ``transformers.models.longformer``, ``led``.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

ATTENTIONS = (
    "transformers.models.led.modeling_led.LEDEncoderSelfAttention.forward",
    "transformers.models.longformer.modeling_longformer.LongformerSelfAttention.forward",
)
PADDINGS = (
    "transformers.models.led.modeling_led.LEDEncoder._pad_to_window_size",
    "transformers.models.longformer.modeling_longformer.LongformerModel._pad_to_window_size",
)


@patch("transformers", replaces=(*ATTENTIONS, *PADDINGS), since="5.0", default=True)
def global_attention() -> Iterator[None]:
    """Longformer and LED ask whether a token attends to all others, and gather as many as there are: the data decide both."""
    with wrapped(dict.fromkeys(ATTENTIONS, unless_known) | dict.fromkeys(PADDINGS, to_any_length)):
        yield


def unless_known(original: Callable) -> Callable:
    """`attention` where it is not known whether a token attends to all others."""

    @functools.wraps(original)
    def called(
        self: torch.nn.Module,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        is_index_masked: torch.Tensor | None = None,
        is_index_global_attn: torch.Tensor | None = None,
        is_global_attn: Any = None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, ...]:
        if output_attentions or not isinstance(is_global_attn, torch.SymBool):
            return original(
                self,
                hidden_states,
                attention_mask=attention_mask,
                is_index_masked=is_index_masked,
                is_index_global_attn=is_index_global_attn,
                is_global_attn=is_global_attn,
                output_attentions=output_attentions,
            )
        global_attention.used()
        return (attention(self, hidden_states, attention_mask, is_index_masked, is_index_global_attn),)

    return called


def attention(
    self: torch.nn.Module,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor,
    is_index_masked: torch.Tensor,
    is_index_global_attn: torch.Tensor,
) -> torch.Tensor:
    """Attention within windows and to the global tokens; that of the global tokens to all.

    The global tokens of each row are gathered into slots, as many as the row with most of them needs, one at least:
    an empty slot has no weight, and a row without global tokens has empty slots only.
    """
    batch, length = hidden_states.shape[:2]
    heads, window = self.num_heads, self.one_sided_attn_window_size

    def in_heads(vectors: torch.Tensor) -> torch.Tensor:
        return vectors.view(batch, -1, heads, self.head_dim)

    counts = is_index_global_attn.long().sum(1)
    slots = counts.max().clamp(min=1).item()
    torch._check(slots >= 1)
    torch._check(slots <= length)
    place = torch.argsort((~is_index_global_attn).long(), dim=1, stable=True)[:, :slots, None]
    is_empty = torch.arange(slots, device=counts.device) >= counts[:, None]
    smallest = torch.finfo(hidden_states.dtype).min

    def in_slots(vectors: torch.Tensor) -> torch.Tensor:
        return torch.gather(vectors, 1, place.expand(-1, -1, vectors.shape[-1]))

    # what each token takes from its window and from the global tokens
    query = in_heads(self.query(hidden_states) / math.sqrt(self.head_dim))
    key, value = self.key(hidden_states), self.value(hidden_states)
    marked = (attention_mask != 0)[:, :, None, None]
    hidden = marked.to(query.dtype).masked_fill(marked, smallest)
    local = self._sliding_chunks_query_key_matmul(query, in_heads(key), window)
    local = local + self._sliding_chunks_query_key_matmul(torch.ones_like(hidden), hidden, window)
    to_slots = torch.einsum("blhd,bshd->blhs", query, in_heads(in_slots(key)))
    to_slots = to_slots.masked_fill(is_empty[:, None, None, :], smallest)
    weights = F.softmax(torch.cat([to_slots, local], dim=-1), dim=-1, dtype=torch.float32)
    weights = weights.masked_fill(is_index_masked[:, :, None, None], 0.0).type_as(local)
    weights = F.dropout(weights, p=self.dropout, training=self.training)
    from_slots = torch.einsum("blhs,bshd->blhd", weights[..., :slots], in_heads(in_slots(value)))
    from_window = self._sliding_chunks_matmul_attn_probs_value(
        weights[..., slots:].contiguous(), in_heads(value), window
    )
    result = (from_slots + from_window).reshape(batch, length, heads * self.head_dim)

    # what the global tokens take from all
    query = in_heads(self.query_global(in_slots(hidden_states)) / math.sqrt(self.head_dim))
    key, value = self.key_global(hidden_states), self.value_global(hidden_states)
    scores = torch.einsum("bshd,blhd->bhsl", query, in_heads(key))
    scores = scores.masked_fill(is_index_masked[:, None, None, :], smallest)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).type_as(scores)
    weights = F.dropout(weights, p=self.dropout, training=self.training)
    of_slots = torch.einsum("bhsl,blhd->bshd", weights, in_heads(value)).flatten(2)
    slot = (is_index_global_attn.long().cumsum(1) - 1).clamp(min=0)[:, :, None]
    of_tokens = torch.gather(of_slots, 1, slot.expand(-1, -1, of_slots.shape[-1]))
    return torch.where(is_index_global_attn[:, :, None], of_tokens, result)


# ---- windows


class Padding:
    """How many tokens are added: a model asks whether there are some, and for the end of what it cuts them off from."""

    def __init__(self, length: Any):
        self.length = length

    def __gt__(self, other: int) -> bool:
        return True

    def __neg__(self) -> Any:
        return self.length

    def __rsub__(self, whole: Any) -> Any:
        return self.length


def to_any_length(original: Callable) -> Callable:
    """A model's `_pad_to_window_size`, which does not ask whether the windows are full for a length that is a symbol.

    What is added is hidden by the mask: a value given in the place of an id may be 0.
    """
    signature = inspect.signature(original)

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> tuple:
        given = signature.bind(*args, **kwargs).arguments
        self, token = given.pop("self"), given.pop("pad_token_id")
        length = next(
            given[name] for name in ("input_ids", "inputs_embeds") if given[name] is not None
        ).shape[1]
        if not isinstance(length, torch.SymInt):
            return original(*args, **kwargs)
        windows = self.config.attention_window
        window = windows if isinstance(windows, int) else max(windows)
        added = -length % window
        fillings = {"input_ids": token, "position_ids": token}
        return Padding(length), *(
            value
            if value is None
            else F.pad(value, (*[0, 0] * (value.dim() - 2), 0, added), value=fillings.get(name, 0))
            for name, value in given.items()
        )

    return called
