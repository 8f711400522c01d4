"""SLANet: the structure of a table, token after token until each table has ended.

Source of semantics: ``transformers.models.slanet``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._higher_order_ops import while_loop
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

SLANET = "transformers.models.slanet.modeling_slanet"


@patch("transformers", replaces=(f"{SLANET}.SLANetSLAHead.forward",), since="5.23", default=True)
def tables_until_their_end() -> Iterator[None]:
    """SLANet writes tokens in a loop until all tables have ended, which the data decide."""
    with wrapped({f"{SLANET}.SLANetSLAHead.forward": until_the_end}):
        yield


def until_the_end(forward: Callable) -> Callable:
    """The head as one while_loop, unless the states or the attention of each step are wanted, as many as there are steps."""

    @functools.wraps(forward)
    def called(
        self: torch.nn.Module, hidden_states: torch.Tensor, targets: torch.Tensor | None = None, **kwargs: Any
    ) -> Any:
        wanted = (
            kwargs.get(name) or getattr(self.config, name, False)
            for name in ("output_hidden_states", "output_attentions")
        )
        if not isinstance(hidden_states, FakeTensor) or any(wanted):
            return forward(self, hidden_states, targets, **kwargs)
        tables_until_their_end.used()
        states, classes = hidden_states.float(), self.config.out_channels
        batch, steps = states.shape[0], self.config.max_text_length + 1
        start = (
            torch.zeros((), dtype=torch.int64, device=states.device),
            states.new_zeros(batch, self.config.hidden_size),
            torch.zeros(batch, dtype=torch.int64, device=states.device),
            torch.zeros(batch, dtype=torch.bool, device=states.device),
            states.new_zeros(batch, steps, classes),
        )

        def is_to_go_on(step: torch.Tensor, features: Any, token: Any, ended: torch.Tensor, written: Any):
            return (step < steps) & ended.all().logical_not()

        def write(step: torch.Tensor, features: Any, token: Any, ended: Any, written: torch.Tensor) -> tuple:
            one_hot = (token[:, None] == torch.arange(classes, device=token.device)).float()
            features, _ = self.structure_attention_cell(features, states, one_hot)
            scores = self.structure_generator(features)
            token = scores.argmax(dim=1)
            place = torch.arange(steps, device=step.device) == step
            written = torch.where(place[:, None], scores[:, None], written)
            return step + 1, features, token, ended | (token == classes - 1), written

        count, *_, written = while_loop(is_to_go_on, write, start)
        count = count.item()
        torch._check(count >= 1)
        torch._check(count <= steps)
        scores = torch.softmax(written[:, :count], dim=-1, dtype=torch.float32).to(hidden_states.dtype)
        return sys.modules[SLANET].BaseModelOutput(last_hidden_state=scores)

    return called
