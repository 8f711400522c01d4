"""Modules of quantization-aware training."""

from __future__ import annotations

import contextlib
import importlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.ao.quantization import fake_quantize

from experimental_experiment.torch_interpreter.patches.patch import entry, patch, replaced

aten = torch.ops.aten

OPERATORS = (
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    aten.fake_quantize_per_channel_affine_cachemask.default,
)
"""What the quantizers call, unknown to torch for dynamic sizes."""

CLASSES = (fake_quantize.FakeQuantize, fake_quantize.FusedMovingAvgObsFakeQuantize)


@patch(
    "torch",
    replaces=(
        "torch.export._trace._fakify_params_buffers",
        "torch._subclasses.fake_impls.op_implementations_dict",
        *(f"torch.ao.quantization.{cls.__name__}.forward" for cls in CLASSES),
    ),
    default=True,
)
def fake_quantizers() -> Iterator[None]:
    """A FakeQuantize asks buffers whether it observes and whether it quantizes, and is refused as a branch on the data."""
    known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    # it brings TorchDynamo, which imports of this package do not need
    trace = importlib.import_module("torch.export._trace")
    with contextlib.ExitStack() as stack:
        for operator in OPERATORS:
            entry(stack, fake_impls.op_implementations_dict, operator, with_mask)
        fakify = reads_flags(trace._fakify_params_buffers, known)
        stack.enter_context(replaced(trace, "_fakify_params_buffers", fakify))
        for cls in CLASSES:
            stack.enter_context(replaced(cls, "forward", knows_flags(cls.forward, known)))
        yield


def with_mask(mode: FakeTensorMode, func: Any, self: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
    """Tensors like those of the operators: the quantized one, and where it was in range."""
    with mode:
        return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


def reads_flags(fakify: Callable, known: Any) -> Callable:
    """torch.export's first step, that makes the buffers fake: they are read before."""

    def _fakify_params_buffers(mode: Any, mod: torch.nn.Module) -> Any:
        for module in mod.modules():
            if isinstance(module, fake_quantize.FakeQuantizeBase):
                known[module] = bool(module.observer_enabled[0] == 1), bool(module.fake_quant_enabled[0] == 1)
        return fakify(mode, mod)

    return _fakify_params_buffers


def knows_flags(forward: Callable, known: Any) -> Callable:
    """A quantizer's forward as far as its flags say."""

    def quantized(self: torch.nn.Module, X: torch.Tensor) -> torch.Tensor:
        if self not in known or not isinstance(X, FakeTensor):
            return forward(self, X)
        fake_quantizers.used()
        observes, quantizes = known[self]
        if observes:
            raise RuntimeError(
                f"a {type(self).__name__} still observes, its scale changes with every call: "
                "model.apply(torch.ao.quantization.disable_observer) first"
            )
        if not quantizes:
            return X
        limits = self.activation_post_process.quant_min, self.activation_post_process.quant_max
        if self.is_per_channel:
            return torch.fake_quantize_per_channel_affine(
                X, self.scale, self.zero_point, self.ch_axis, *limits
            )
        return torch.fake_quantize_per_tensor_affine(X, self.scale, self.zero_point, *limits)

    return quantized
