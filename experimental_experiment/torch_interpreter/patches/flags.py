"""Flags: branches on buffers and parameters, whose values the model holds."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

STEPS = 50
"""A condition that more operators compute is not computed."""


@patch(
    "torch",
    replaces=("torch.export._trace._fakify_params_buffers", "torch.Tensor.__bool__"),
    default=True,
)
def flags_of_modules() -> Iterator[None]:
    """``if self.initialized:`` of a buffer is refused as a branch on the data: layers of flows and of vector quantization do so.

    The model holds the buffer, and the ONNX model will: the branch is that of its value, unless the model has written to it before.
    """
    known = WeakTensorKeyDictionary()
    # it brings TorchDynamo, which imports of this package do not need
    trace = importlib.import_module("torch.export._trace")
    with contextlib.ExitStack() as stack:
        fakify = remembers(trace._fakify_params_buffers, known)
        stack.enter_context(replaced(trace, "_fakify_params_buffers", fakify))
        stack.enter_context(replaced(torch.Tensor, "__bool__", of_weights(torch.Tensor.__bool__, known)))
        yield


def remembers(fakify: Callable, known: Any) -> Callable:
    """torch.export's first step, that makes parameters and buffers fake: what they stand for is remembered."""

    def _fakify_params_buffers(mode: Any, mod: torch.nn.Module) -> Any:
        fakes = fakify(mode, mod)
        for tensors in (mod.named_parameters, mod.named_buffers):
            for name, tensor in tensors(remove_duplicate=False):
                if tensor.device.type != "meta" and type(tensor) in (torch.Tensor, torch.nn.Parameter):
                    known[fakes[name]] = tensor
        return fakes

    return _fakify_params_buffers


def of_weights(bool_: Callable, known: Any) -> Callable:
    """``Tensor.__bool__`` that answers for what is computed of parameters and buffers alone."""

    def __bool__(self: torch.Tensor) -> bool:
        mode = get_proxy_mode() if isinstance(self, FakeTensor) and self.constant is None else None
        recorded = mode and get_proxy_slot(self, mode.tracer, None)
        if recorded is None:
            return bool_(self)
        slots = [(get_proxy_slot(fake, mode.tracer, None), real) for fake, real in known.items()]
        weights = {slot.proxy.node: real for slot, real in slots if slot is not None}
        steps = steps_to(recorded.proxy.node, weights)
        if steps is None:
            return bool_(self)
        flags_of_modules.used()
        with _disable_current_modes(), torch.no_grad():
            for node in steps:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), weights.__getitem__)
                weights[node] = node.target(*args, **kwargs)
            return bool(weights[recorded.proxy.node])

    return __bool__


def steps_to(result: torch.fx.Node, weights: dict[torch.fx.Node, torch.Tensor]) -> list[torch.fx.Node] | None:
    """The operators that compute a node of weights alone, in their order; None when something else, or a write, takes part."""
    found: dict[torch.fx.Node, None] = {}
    open_nodes = [result]
    while open_nodes:
        node = open_nodes.pop()
        is_step = node not in weights or node.op == "call_function"  # which has written to the weight
        if is_written(node) or (is_step and not is_pure(node)) or len(found) > STEPS:
            return None
        if is_step:
            found.pop(node, None)  # what it needs comes before it
            found[node] = None
            open_nodes += node.all_input_nodes
    return list(reversed(found))


def is_pure(node: torch.fx.Node) -> bool:
    """Whether a node is an operator that gives the same for the same inputs, and writes nowhere."""
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def is_written(node: torch.fx.Node) -> bool:
    """Whether an operator writes to a node, or to a view of it."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if schema is None:
            continue
        if schema.is_mutable or (any(r.alias_info for r in schema.returns) and is_written(user)):
            return True
    return False
