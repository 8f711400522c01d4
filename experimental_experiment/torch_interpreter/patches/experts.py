"""Mixtures of experts of transformers that loop over the experts that were chosen, which only the data know.

The loop here is over all experts, in the same order: one that nobody chose adds nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

LONGCAT = "transformers.models.longcat_flash.modeling_longcat_flash.LongcatFlashExperts"
PRIVACY_FILTER = (
    "transformers.models.openai_privacy_filter.modeling_openai_privacy_filter.OpenAIPrivacyFilterExperts"
)


@patch(
    "transformers",
    replaces=(f"{LONGCAT}.forward", f"{PRIVACY_FILTER}.forward"),
    since="5.0",
    default=True,
)
def every_expert() -> Iterator[None]:
    """The experts of LongCat and of OpenAI's privacy filter are a loop over those that were chosen, which the data decide."""
    forwards = {LONGCAT: longcat_experts, PRIVACY_FILTER: privacy_filter_experts}
    wrappers = {
        f"{path}.forward": functools.partial(unless_chosen, forward) for path, forward in forwards.items()
    }
    with wrapped(wrappers):
        yield


def unless_chosen(forward: Callable, original: Callable) -> Callable:
    """*forward*, unless the configuration names another implementation of the experts."""

    @functools.wraps(original)
    def called(self: torch.nn.Module, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
        config = getattr(self, "config", None)
        if getattr(config, "_experts_implementation", None) not in (None, "eager"):
            return original(self, *args, **kwargs)
        every_expert.used()
        return forward(self, *args, **kwargs)

    return called


def longcat_experts(
    self: torch.nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """The sum of the experts' results by their weights; those behind the last one with parameters give what they get."""
    result = torch.zeros_like(hidden_states)
    computing = 0 if self.gate_up_proj is None else self.num_routed_experts
    for expert in range(computing):
        token, choice = torch.where(top_k_index == expert)
        gate, up = F.linear(hidden_states[token], self.gate_up_proj[expert]).chunk(2, dim=-1)
        computed = (
            F.linear(self.act_fn(gate) * up, self.down_proj[expert]) * top_k_weights[token, choice, None]
        )
        result = result.index_add(0, token, computed.to(result.dtype))
    unchanged = torch.where(top_k_index >= computing, top_k_weights, 0).sum(-1, keepdim=True)
    return result + (hidden_states * unchanged).to(result.dtype)


def privacy_filter_experts(
    self: torch.nn.Module,
    hidden_states: torch.Tensor,
    router_indices: torch.Tensor,
    routing_weights: torch.Tensor,
) -> torch.Tensor:
    """The sum of the experts' results by their weights, in float32."""
    result = torch.zeros_like(hidden_states, dtype=torch.float32)
    for expert in range(self.num_experts):
        token, choice = torch.where(router_indices == expert)
        gate_up = hidden_states[token].float() @ self.gate_up_proj[expert].float()
        gated = self._apply_gate(gate_up + self.gate_up_proj_bias[expert].float()).float()
        computed = gated @ self.down_proj[expert].float() + self.down_proj_bias[expert].float()
        result = result.index_add(0, token, computed * routing_weights[token, choice, None].float())
    return result.to(hidden_states.dtype)
