"""Recurrent layers whose number of steps is not known when they are captured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._subclasses.fake_tensor import FakeTensor

from experimental_experiment.torch_interpreter.patches.patch import patch

aten = torch.ops.aten

LAYERS = (aten.gru.input, aten.lstm.input, aten.rnn_relu.input, aten.rnn_tanh.input)
"""The operators that run all layers over all steps of a padded batch."""


@patch("torch", replaces=tuple(f"torch.ops.{layer}" for layer in LAYERS), default=True)
def recurrent_layers() -> Iterator[None]:
    """nn.LSTM, nn.GRU and nn.RNN keep the length of the example: torch finds the shape of their result by running every step."""
    with contextlib.ExitStack() as stack:
        for layer in LAYERS:
            for key in (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd):
                stack.enter_context(replaced_kernel(layer, key, by_shape(layer.py_kernels[key])))
        yield


@contextlib.contextmanager
def replaced_kernel(overload: torch._ops.OpOverload, key: DispatchKey, kernel: Callable) -> Iterator[None]:
    """Let *kernel* run for a dispatch key of an operator for a while."""
    before = overload.py_kernels[key]
    overload.py_kernels[key] = kernel
    overload._dispatch_cache.clear()
    try:
        yield
    finally:
        overload.py_kernels[key] = before
        overload._dispatch_cache.clear()


def by_shape(kernel: Callable) -> Callable:
    """*kernel*, unless a program is captured and the length is a symbol: then only the shapes are computed."""

    def shapes(
        input: torch.Tensor,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[torch.Tensor, ...]:
        if not is_symbolic(input, 1 if batch_first else 0) or is_decomposed():
            return kernel(
                input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
            )
        recurrent_layers.used()
        states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        steps, batch = (1, 0) if batch_first else (0, 1)
        width = states[0].shape[-1] * (2 if bidirectional else 1)
        # in memory as the loop leaves it: step after step
        result = input.new_empty(input.shape[steps], input.shape[batch], width)
        finals = [state.new_empty(state.shape) for state in states]
        return (result.transpose(0, 1) if batch_first else result), *finals

    return shapes


def is_symbolic(input: torch.Tensor, axis: int) -> bool:
    """Whether a size is a symbol, on a fake tensor: a functional tensor is that of a decomposition."""
    return isinstance(input, FakeTensor) and isinstance(input.shape[axis], torch.SymInt)


def is_decomposed() -> bool:
    """Whether the operators of the kernel itself are recorded: what computes shapes only would stand in the program."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
