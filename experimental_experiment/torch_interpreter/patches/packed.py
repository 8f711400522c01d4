"""Packed sequences: what torch.nn.utils.rnn makes of a padded batch and the lengths of its rows.

How many steps and elements are left is known when the lengths are: these sizes are symbols of the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.utils.rnn import PackedSequence

from experimental_experiment.torch_interpreter.patches import recurrent
from experimental_experiment.torch_interpreter.patches.patch import entry, patch, replaced
from experimental_experiment.torch_interpreter.patches.recurrent import kernels

aten = torch.ops.aten

LAYERS = (aten.gru.data, aten.lstm.data, aten.rnn_relu.data, aten.rnn_tanh.data)
"""The operators that run all layers over a packed batch."""

MODULES = (torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN)

VF = torch._VF
"""The functions of C++ that torch.nn calls."""


@patch(
    "torch",
    replaces=(
        "torch._VF._pack_padded_sequence",
        "torch._VF._pad_packed_sequence",
        "torch._subclasses.fake_impls.op_implementations_dict",
        *(f"torch.nn.{module.__name__}.forward" for module in MODULES),
        "torch.nn.RNNBase.get_expected_hidden_size",
        *(f"torch.ops.{layer}" for layer in LAYERS),
        "torch.ops.aten._pad_packed_sequence.default",
    ),
    default=True,
)
def packed_sequences() -> Iterator[None]:
    """A packed sequence is refused: torch reads its sizes from the data, and runs every step to find the shape of a layer's result."""
    with contextlib.ExitStack() as stack:
        entry(stack, fake_impls.op_implementations_dict, aten._pack_padded_sequence.default, packed)
        kernels(stack, aten._pad_packed_sequence.default, padded, lambda *args: True)
        stack.enter_context(replaced(VF, "_pack_padded_sequence", remembers_batch(VF._pack_padded_sequence)))
        stack.enter_context(replaced(VF, "_pad_packed_sequence", pads_afterwards(VF._pad_packed_sequence)))
        base = torch.nn.RNNBase
        expected = base.get_expected_hidden_size
        stack.enter_context(replaced(base, "get_expected_hidden_size", knows_batch(expected)))
        for module in MODULES:
            stack.enter_context(replaced(module, "forward", gives_states(module.forward)))
        for layer in LAYERS:
            kernels(stack, layer, results, lambda *args: True)
        yield


# ---- the operators on fake tensors


def packed(
    mode: FakeTensorMode, func: Any, input: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements that are left, step after step, and how many rows have each step."""
    batch, steps = input.shape[:2] if batch_first else input.shape[1::-1]
    elements, longest = new_size(mode), new_size(mode)
    torch._check(longest <= steps)
    torch._check(elements <= steps * batch)
    with mode:
        return (
            input.new_empty(elements, *input.shape[2:]),
            torch.empty(longest, dtype=torch.int64, device="cpu"),
        )


def padded(
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The padded batch, and the lengths of its rows; *total_length* 0 stands for the longest."""
    batch = batch_of(batch_sizes)
    batch = new_size(data.fake_mode) if batch is None else batch
    steps = total_length if total_length > 0 else batch_sizes.shape[0]
    result = data.new_empty(steps, batch, *data.shape[1:])
    return result.transpose(0, 1) if batch_first else result, batch_sizes.new_empty(batch)


def results(
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    hx: Any,
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[torch.Tensor, ...]:
    """Tensors of the shapes of a layer's results."""
    states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return data.new_empty(data.shape[0], width), *(state.new_empty(state.shape) for state in states)


def new_size(mode: FakeTensorMode) -> torch.SymInt:
    """A size that the data decide, at least 1: torch takes no empty row."""
    size = mode.shape_env.create_unbacked_symint()
    torch._check(size >= 1)
    return size


# ---- the functions and modules of torch.nn


def batch_of(batch_sizes: torch.Tensor) -> Any:
    """The number of rows that were packed, None when it is not known."""
    return getattr(batch_sizes, "packed_rows", None)


def remembers_batch(pack: Callable) -> Callable:
    """`_pack_padded_sequence` that keeps the number of rows: it is ``batch_sizes[0]``, which is data."""

    def _pack_padded_sequence(input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
        data, batch_sizes = pack(input, lengths, batch_first)
        if isinstance(data, FakeTensor):
            packed_sequences.used()
            batch_sizes.packed_rows = input.shape[0 if batch_first else 1]
        return data, batch_sizes

    return _pack_padded_sequence


def pads_afterwards(pad: Callable) -> Callable:
    """`_pad_packed_sequence` for a length that is a symbol: ATen's wants a number."""

    def _pad_packed_sequence(
        data: torch.Tensor,
        batch_sizes: torch.Tensor,
        batch_first: bool,
        padding_value: float,
        total_length: Any,
    ) -> Any:
        if not isinstance(data, FakeTensor):
            return pad(data, batch_sizes, batch_first, padding_value, total_length)
        longest = batch_sizes.shape[0]
        result, lengths = pad(data, batch_sizes, batch_first, padding_value, 0)
        if total_length is not longest:
            after_steps = [0, 0] * (result.dim() - (2 if batch_first else 1))
            more = [*after_steps, 0, total_length - longest]
            result = torch.nn.functional.pad(result, more, value=padding_value)
        return result, lengths

    return _pad_packed_sequence


def gives_states(forward: Callable) -> Callable:
    """A layer's forward that makes its initial states for the number of rows that were packed."""

    def zeros(self: torch.nn.RNNBase, input: PackedSequence, size: int) -> torch.Tensor:
        count = self.num_layers * (2 if self.bidirectional else 1)
        return input.data.new_zeros(count, batch_of(input.batch_sizes), size)

    def with_states(self: torch.nn.RNNBase, input: Any, hx: Any = None) -> Any:
        if hx is None and isinstance(input, PackedSequence) and batch_of(input.batch_sizes) is not None:
            hx = zeros(self, input, self.proj_size or self.hidden_size)
            hx = (hx, zeros(self, input, self.hidden_size)) if self.mode == "LSTM" else hx
        return forward(self, input, hx)

    return with_states


def knows_batch(expected: Callable) -> Callable:
    """`get_expected_hidden_size` with the number of rows that were packed."""

    def get_expected_hidden_size(
        self: torch.nn.RNNBase, input: torch.Tensor, batch_sizes: torch.Tensor | None
    ) -> tuple:
        batch = None if batch_sizes is None else batch_of(batch_sizes)
        if batch is None:
            return expected(self, input, batch_sizes)
        count = self.num_layers * (2 if self.bidirectional else 1)
        return count, batch, self.proj_size or self.hidden_size

    return get_expected_hidden_size


# ---- decompositions


def layers_over_symbols(program: torch.export.ExportedProgram) -> set[torch._ops.OpOverload]:
    """The recurrent operators of a program that only decompose for one number of steps: it is a symbol."""
    modules = [
        module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)
    ]
    nodes = [node for module in modules for node in module.graph.nodes if node.op == "call_function"]
    return {
        node.target
        for node in nodes
        if node.target in (*LAYERS, aten._pad_packed_sequence.default)
        or (
            node.target in recurrent.LAYERS
            and recurrent.has_symbolic_length(node.args[0].meta["val"], node.args[-1])
        )
    }
