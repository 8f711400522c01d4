"""The causal biases of torch, which are a subclass of Tensor.

Source of semantics: ``torch.nn.attention.bias``.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.numbers import is_same_number
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


class Bias:
    """What stands for a `CausalBias` that is made in forward: its fields, and no tensor."""

    def __init__(self, variant: enum.Enum, seq_len_q: Any, seq_len_kv: Any):
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Attention with this bias, which is nothing to any other function."""
        return biased(func, args, kwargs or {}) if is_attention(func) else NotImplemented


@patch(
    "torch",
    replaces=tuple(
        f"torch.nn.attention.bias.CausalBias.{name}" for name in ("__new__", "__torch_function__")
    ),
    default=True,
)
def causal_biases() -> Iterator[None]:
    """``torch.nn.attention.bias.causal_lower_right`` makes a tensor of a class of its own, which torch.export refuses in forward.

    The bias becomes the argument ``is_causal`` or a mask.
    """
    # imported here: it imports TorchDynamo
    class_of_biases = importlib.import_module("torch.nn.attention.bias").CausalBias
    of_torch = class_of_biases.__torch_function__

    def new(cls: type, variant: enum.Enum, seq_len_q: Any, seq_len_kv: Any) -> Bias:
        return Bias(variant, seq_len_q, seq_len_kv)

    def torch_function(cls: type, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_attention(func):
            return biased(func, args, kwargs or {})
        return of_torch(func, types, args, kwargs)

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(class_of_biases, "__new__", new))
        stack.enter_context(replaced(class_of_biases, "__torch_function__", classmethod(torch_function)))
        yield


def is_attention(func: Callable) -> bool:
    """Whether *func* is `scaled_dot_product_attention`, which another patch wraps."""
    return getattr(func, "__name__", "") == "scaled_dot_product_attention"


def biased(attention: Callable, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    """*attention* with ``is_causal`` in the place of a causal bias where that says the same, with a mask elsewhere."""
    causal_biases.used()
    names = "query", "key", "value", "attn_mask", "dropout_p", "is_causal"
    kwargs = dict(zip(names, args)) | kwargs
    bias = kwargs["attn_mask"]
    if kwargs.get("is_causal"):
        raise ValueError("is_causal=True stands beside a CausalBias: one of both is enough")
    if bias.variant.name == "UPPER_LEFT" or is_same_number(bias.seq_len_q, bias.seq_len_kv):
        return attention(**kwargs | {"attn_mask": None, "is_causal": True})
    return attention(**kwargs | {"attn_mask": mask(bias, kwargs["query"].device)})


def mask(bias: Any, device: torch.device) -> torch.Tensor:
    """Which keys each query of a `Bias` or a `CausalBias` sees: those up to its own position, both counted from the end."""
    rows = torch.arange(bias.seq_len_q, device=device)[:, None]
    columns = torch.arange(bias.seq_len_kv, device=device)
    return columns <= rows + (bias.seq_len_kv - bias.seq_len_q)
