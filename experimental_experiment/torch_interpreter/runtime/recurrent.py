"""Recurrent networks of float64, and of what the data select."""

from __future__ import annotations

import onnx_ir as ir

from experimental_experiment.torch_interpreter.aten.recurrent import (
    GRU,
    LSTM,
    RNN_RELU,
    RNN_TANH,
    Block,
    Kind,
    direction,
    stacked,
)
from experimental_experiment.torch_interpreter.runtime.table import repairs
from experimental_experiment.torch_interpreter.sizes import may_be_none

KINDS = {("LSTM", None): LSTM, ("GRU", None): GRU, ("RNN", None): RNN_TANH, ("RNN", "Relu"): RNN_RELU}
"""The networks of torch, by operator and activation."""


@repairs(
    "GRU",
    "LSTM",
    "RNN",
    when="float64",
    because="there is no kernel, or it refuses while the model runs; float32 loses half of the digits",
    nodes="9 a direction, and a Scan",
)
def scanned_steps(
    op, x, w, r, b=None, lengths=None, *initial, operator, outputs, hidden_size, direction="forward",
    activations=None, linear_before_reset=1,
):  # fmt: skip
    """A Scan over the steps for each direction."""
    kind = KINDS.get((operator, activations[0] if activations else None))
    if x.dtype != ir.DataType.DOUBLE or kind is None or not linear_before_reset:
        return None
    count = 2 if operator == "LSTM" else 1
    states = [*initial, *[None] * (count - len(initial))]
    results = [
        one_direction(op, kind, x, (w, r, b), states, position, lengths)
        for position in range(2 if direction == "bidirectional" else 1)
    ]
    every, *last = zip(*results)
    return stacked(op, every, 1), *(stacked(op, states, 0) for states in last)


def one_direction(op, kind: Kind, x, weights, initial, position: int, lengths):
    """The results of torch's network with one of the directions that ONNX's matrices hold."""
    w, r, b = (None if value is None else op.Gather(value, position, axis=0) for value in weights)
    biases = (None, None) if b is None else op.Split(b, num_outputs=2, axis=0, outputs=2)
    gates = tuple(kind.gates.index(gate) for gate in range(len(kind.gates)))
    zero = op.Expand(op.constant(0, x.dtype), op.shape([op.size(x, 1), op.size(r, -1)]))
    states = [zero if state is None else op.Gather(state, position, axis=0) for state in initial]
    return direction(op, kind, x, states, Block(w, r, *biases, gates=gates), position, lengths)


@repairs(
    "GRU",
    "LSTM",
    when="the data decide how many samples there are",
    because="the process ends where there are none",
    nodes="1, and 1 a state and a result",
)
def beside_one_more_sample(op, x, w, r, b=None, lengths=None, *initial, operator, outputs, **attributes):
    """A sample of zeros stands behind them; what is computed of it is cut off."""
    if not x.shape or lengths is not None or not may_be_none(op, x.shape[1]):
        return None
    one_more = [0, 0, 0, 0, 1, 0]
    x, *initial = (None if value is None else op.Pad(value, one_more) for value in (x, *initial))
    result, *last = op.emit(operator, [x, w, r, b, None, *initial], attributes, outputs=outputs)
    return op.Slice(result, [0], [-1], [2]), *(op.Slice(state, [0], [-1], [1]) for state in last)
