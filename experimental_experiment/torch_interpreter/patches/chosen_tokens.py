"""Qwen 4: each token chooses the blocks of tokens that it attends to.

Source of semantics: ``transformers.models.qwen4_exp``.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch._higher_order_ops.map import map as mapped
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

QWEN = "transformers.models.qwen4_exp.modeling_qwen4_exp"


@patch("transformers", replaces=(f"{QWEN}.Qwen4ExpTextQSAIndexer.forward",), since="5.23", default=True)
def chosen_blocks() -> Iterator[None]:
    """Qwen 4 chooses blocks of tokens in two loops, over texts and tokens, as many as the data say: a refusal."""
    with wrapped({f"{QWEN}.Qwen4ExpTextQSAIndexer.forward": of_any_tokens}):
        yield


def of_any_tokens(forward: Callable) -> Callable:
    """`Qwen4ExpTextQSAIndexer.forward` that maps a function of one token of all texts."""

    @functools.wraps(forward)
    def called(
        self: torch.nn.Module,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor,
        cache: Any,
    ) -> torch.Tensor:
        if not isinstance(hidden_states, FakeTensor):
            return forward(self, hidden_states, position_embeddings, attention_mask, cache)
        chosen_blocks.used()
        rotated = sys.modules[QWEN].apply_rotary_pos_emb
        batch, length, _ = hidden_states.shape
        shape = (batch, length, -1, self.index_head_dim)
        cos, sin = position_embeddings
        query, keys = self.index_qk_proj(hidden_states).split(
            [self.index_n_heads * self.index_head_dim, self.index_kv_heads * self.index_head_dim], dim=-1
        )
        query, keys = self.q_layernorm(query.reshape(shape)), keys.reshape(shape).squeeze(2)
        query = rotated(query, cos=cos[:, -length:], sin=sin[:, -length:], unsqueeze_dim=2)
        if cache is not None:
            keys = cache.update_indexer(keys, self.layer_idx)
        visible = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0

        def of_token(token: tuple, keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
            """(batch, keys): what the token at one place of each text attends to."""
            query, visible = token
            ratio, total = self.compress_ratio, keys.shape[1]
            rank = visible.long().cumsum(-1) - 1
            whole = (
                rank[:, -1:] + 1
            ) // ratio  # how many blocks are full: the tokens behind them are always chosen
            blocks = (total + ratio - 1) // ratio
            place = torch.arange(total, device=keys.device).expand_as(rank)
            order = torch.zeros_like(F.pad(rank, (0, blocks * ratio - total + 1)))
            order = order.scatter(1, rank.where(visible, blocks * ratio), place)[:, :-1]
            groups = picked(keys, order).reshape(batch, blocks, ratio, self.index_head_dim)
            pooled = self.k_layernorm(groups.float().mean(2).to(keys.dtype))
            starts = order[:, ::ratio]
            states = rotated(pooled[:, None], cos=picked(cos, starts), sin=picked(sin, starts))[:, 0]
            score = torch.relu(query.float() @ states.float().mT).sum(1) / math.sqrt(self.index_head_dim)
            is_whole = torch.arange(blocks, device=keys.device) < whole
            score = score.where(is_whole, -torch.inf)
            best = score.topk(torch.sym_min(self.block_topk, blocks), dim=-1).indices
            is_best = torch.zeros_like(is_whole).scatter(1, best, True) & is_whole
            block = (rank // ratio).clamp(min=0)
            return visible & ((block >= whole) | is_best.gather(1, block))

        tokens = query.transpose(0, 1), visible[:, 0].transpose(0, 1)
        return mapped(of_token, tokens, keys, cos, sin).transpose(0, 1)[:, None]

    return called


def picked(vectors: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """(batch, places, width): the vectors that stand at some places of each text."""
    return vectors.gather(1, places[..., None].expand(-1, -1, vectors.shape[-1]))
