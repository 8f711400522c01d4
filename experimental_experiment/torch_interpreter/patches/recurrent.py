"""Recurrent layers whose number of steps is not known when they are captured."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch._C import DispatchKey
from torch._decomp import decompositions
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from experimental_experiment.torch_interpreter.patches.patch import entry, patch, wrapped
from experimental_experiment.torch_interpreter.torch_versions import states_of_lstm_have_an_axis_too_many

aten = torch.ops.aten

LAYERS = (aten.gru.input, aten.lstm.input, aten.rnn_relu.input, aten.rnn_tanh.input)
"""The operators that run all layers over all steps of a padded batch."""

UNROLLED = "torch._decomp.decompositions.one_layer_lstm"

REPLACED = "torch.nn.utils.stateless._reparametrize_module"

ASSIGNMENTS = "torch.export._trace._detect_attribute_assignment"


@patch(
    "torch",
    replaces=(
        *(f"torch.ops.{layer}" for layer in LAYERS),
        "torch._subclasses.fake_impls.FAST_OP_IMPLEMENTATIONS",
    ),
    default=True,
)
def recurrent_layers() -> Iterator[None]:
    """nn.LSTM, nn.GRU and nn.RNN keep the length of the example: torch finds the shape of their result by running every step.

    Before torch 2.13, the last states of an LSTM of any length are of rank 4 there.
    """
    with contextlib.ExitStack() as stack:
        for layer in LAYERS:
            is_wrong = layer is aten.lstm.input and states_of_lstm_have_an_axis_too_many()
            kernels(stack, layer, results, everywhere if is_wrong else where_the_length_is_a_symbol)
        yield


@patch("torch", replaces=(UNROLLED,), until="2.13", default=True)
def last_states_of_lstm() -> Iterator[None]:
    """The last states of an LSTM that torch decomposes have an axis too many: it removes the axis of the batch for that of the steps."""
    with wrapped({UNROLLED: lambda wrong: unrolled_lstm}):
        yield


def unrolled_lstm(
    inp: torch.Tensor,
    hidden: tuple[torch.Tensor, torch.Tensor],
    params: Any,
    has_biases: bool,
    reverse: bool = False,
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """One direction of one layer, step after step, and its last states of shape (batch, width)."""
    last_states_of_lstm.used()
    w_ih, w_hh, *others = params
    b_ih, b_hh = others[:2] if has_biases else (None, None)
    w_hr = others[-1] if len(others) % 2 else None  # what projects comes last
    states = [state.unsqueeze(0) for state in hidden]
    steps = F.linear(inp, w_ih, b_ih)
    results = []
    for step in steps.flip(0) if reverse else steps:
        states = decompositions.lstm_cell(step, *states, w_hh, b_hh, w_hr, chunk_dim=2)
        results.append(states[0])
    return torch.cat(results[::-1] if reverse else results), tuple(state.squeeze(0) for state in states)


@patch("torch", replaces=(ASSIGNMENTS,), until="2.13", default=True)
def recurrent_layer_alone() -> Iterator[None]:
    """An nn.LSTM, nn.GRU or nn.RNN that is the whole model is refused: its list of weights counts as assigned in forward."""
    with wrapped({ASSIGNMENTS: but_for_weights}):
        yield


def but_for_weights(detect: Callable) -> Callable:
    """What refuses tensors that the root of a model assigns, without the list of weights of a recurrent layer, which is put back."""

    @contextlib.contextmanager
    def detected(module: torch.nn.Module) -> Iterator[None]:
        if not isinstance(module, torch.nn.RNNBase):
            with detect(module):
                yield
            return
        recurrent_layer_alone.used()
        weights = list(module._flat_weights)
        with detect(module):
            try:
                yield
            finally:
                module._flat_weights[:] = weights

    return detected


@patch("torch", replaces=(REPLACED,), default=True)
def recurrent_layers_in_bodies() -> Iterator[None]:
    """A branch or a body that calls an nn.LSTM, nn.GRU or nn.RNN is refused: the layer finds its weights replaced, and lists them again.

    Elsewhere torch warns of it, after every capture that is not strict.
    """
    with wrapped({REPLACED: that_lists_weights}):
        yield


def that_lists_weights(replaced: Callable) -> Callable:
    """What replaces the weights of a model for a while: the lists of its recurrent layers are those of the new weights, then as before."""

    @contextlib.contextmanager
    def with_lists(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Iterator[None]:
        with replaced(module, *args, **kwargs):
            layers = [layer for layer in module.modules() if isinstance(layer, torch.nn.RNNBase)]
            before = [(layer._flat_weights, layer._flat_weight_refs) for layer in layers]
            for layer in layers:  # whether one is called in a body is not known here: no use is told
                layer._update_flat_weights()
            try:
                yield
            finally:
                for layer, lists in zip(layers, before):
                    layer._flat_weights, layer._flat_weight_refs = lists

    return with_lists


def kernels(stack: contextlib.ExitStack, layer: Any, shapes: Callable, applies: Callable) -> None:
    """Until *stack* is closed, a layer's result on fake tensors is that of *shapes*, for the arguments that it *applies* to."""
    composite = DispatchKey.CompositeImplicitAutograd
    unrolled = layer.py_kernels.get(composite) or functools.partial(layer._op_dk, composite)
    entry(stack, fake_impls.FAST_OP_IMPLEMENTATIONS, layer, on_fake_tensors(unrolled, shapes, applies))
    for key in {composite, *({DispatchKey.Autograd} & layer.py_kernels.keys())}:
        entry(stack, layer.py_kernels, key, when_recorded(unrolled, shapes, applies))
    stack.callback(layer._dispatch_cache.clear)
    layer._dispatch_cache.clear()


def when_recorded(unrolled: Callable, shapes: Callable, applies: Callable) -> Callable:
    """The kernel of a layer, which torch runs after it recorded the layer, or to record what it decomposes into."""

    def kernel(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        is_decomposed = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
        if is_decomposed or not isinstance(input, FakeTensor) or not applies(input, *args):
            return unrolled(input, *args, **kwargs)
        return shapes(input, *args, **kwargs)

    return kernel


def on_fake_tensors(unrolled: Callable, shapes: Callable, applies: Callable) -> Callable:
    """What a mode of fake tensors computes for a layer that nothing decomposed before."""

    def kernel(mode: FakeTensorMode, input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return (shapes if applies(input, *args) else unrolled)(input, *args, **kwargs)

    return kernel


def results(
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
    """Tensors of the shapes of a layer's results, in memory as the loop leaves them: step after step."""
    recurrent_layers.used()
    states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    steps = steps_axis(batch_first)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    result = input.new_empty(input.shape[steps], input.shape[1 - steps], width)
    finals = [state.new_empty(state.shape) for state in states]
    return (result.transpose(0, 1) if batch_first else result), *finals


def steps_axis(batch_first: bool) -> int:
    """The axis of time of a padded batch."""
    return 1 if batch_first else 0


def everywhere(input: torch.Tensor, *args: Any) -> bool:
    """Whether a layer is replaced: always."""
    return True


def where_the_length_is_a_symbol(input: torch.Tensor, *args: Any) -> bool:
    """Whether a layer is replaced: where its loop would fix the number of steps."""
    return has_symbolic_length(input, args[-1])


def has_symbolic_length(input: torch.Tensor, batch_first: bool) -> bool:
    """Whether the number of steps is a symbol."""
    return isinstance(input.shape[steps_axis(batch_first)], torch.SymInt)
