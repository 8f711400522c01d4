"""Recurrent networks: one ONNX LSTM, GRU or RNN a layer; cells.

Source of semantics: https://pytorch.org/docs/stable/nn.html#recurrent-layers and ONNX LSTM-22, GRU-22, RNN-22. torch stores the
gates of an LSTM as input, forget, cell, output and ONNX as input, output, forget, cell; those of a GRU are reset, update, new
and update, reset, new.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor

from experimental_experiment.torch_interpreter.aten.dropout import dropout as dropped
from experimental_experiment.torch_interpreter.aten.linear_algebra import linear
from experimental_experiment.torch_interpreter.aten.packing import Padded, elements, present, unpacked
from experimental_experiment.torch_interpreter.control_flow.bodies import slice_type, typed
from experimental_experiment.torch_interpreter.inference import is_small
from experimental_experiment.torch_interpreter.registry import translates

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Block:
    """The weights of one direction of one layer, as torch stores them.

    ``gates`` says where the matrices hold torch's gates, for another order than torch's.
    """

    w_ih: ir.Value
    w_hh: ir.Value
    b_ih: ir.Value | None = None
    b_hh: ir.Value | None = None
    w_hr: ir.Value | None = None
    gates: tuple[int, ...] | None = None

    def parts(self, op, x: ir.Value, count: int) -> list[ir.Value]:
        """What *x* holds for each of torch's gates."""
        found = op.Split(x, num_outputs=count, axis=-1, outputs=count)
        return [found[gate] for gate in self.gates or range(count)]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A family of networks.

    Attributes:
        op_type: the ONNX operator.
        gates: where torch stores the gates that ONNX wants, in ONNX's order.
        step: the new states from what the input gives, the old states and the weights.
        activation: name of the activation that is not ONNX's default.
        attributes: those of the ONNX operator that never change.
    """

    op_type: str
    gates: tuple[int, ...]
    step: Callable
    activation: str | None = None
    attributes: dict[str, int] = dataclasses.field(default_factory=dict)


# ---- one step


def lstm_step(op, from_input, states, block):
    """The new hidden state, projected if the network projects, and the new cell."""
    hidden, cell = states
    gates = op.Add(from_input, linear(op, hidden, block.w_hh, block.b_hh))
    entry, forget, new, exit = block.parts(op, gates, 4)
    kept = op.Mul(op.Sigmoid(forget), cell)
    cell = op.Add(kept, op.Mul(op.Sigmoid(entry), op.Tanh(new)))
    hidden = op.Mul(op.Sigmoid(exit), op.Tanh(cell))
    return [hidden if block.w_hr is None else linear(op, hidden, block.w_hr, None), cell]


def fused_lstm_cell(op, input_gates, hidden_gates, cx, input_bias, hidden_bias):
    """One step of an LSTM from its products: the hidden state, the cell, and the activated gates, which the gradient reads."""
    gates = op.Add(input_gates, hidden_gates)
    for bias in (input_bias, hidden_bias):
        gates = gates if bias is None else op.Add(gates, bias)
    entry, forget, new, exit = op.Split(gates, num_outputs=4, axis=-1, outputs=4)
    entry, forget, exit = (op.Sigmoid(gate) for gate in (entry, forget, exit))
    new = op.Tanh(new)
    cell = op.Add(op.Mul(forget, cx), op.Mul(entry, new))
    return op.Mul(exit, op.Tanh(cell)), cell, op.Concat(entry, forget, new, exit, axis=-1)


def gru_step(op, from_input, states, block):
    """The new hidden state; the reset gate applies after the product."""
    (hidden,) = states
    from_hidden = linear(op, hidden, block.w_hh, block.b_hh)
    a_reset, a_update, a_new = block.parts(op, from_input, 3)
    b_reset, b_update, b_new = block.parts(op, from_hidden, 3)
    reset = op.Sigmoid(op.Add(a_reset, b_reset))
    update = op.Sigmoid(op.Add(a_update, b_update))
    new = op.Tanh(op.Add(a_new, op.Mul(reset, b_new)))
    return [op.Add(op.Mul(op.Sub(hidden, new), update), new)]


def tanh_step(op, from_input, states, block):
    """The new hidden state, through tanh."""
    return [op.Tanh(op.Add(from_input, linear(op, states[0], block.w_hh, block.b_hh)))]


def relu_step(op, from_input, states, block):
    """The new hidden state, through relu."""
    return [op.Relu(op.Add(from_input, linear(op, states[0], block.w_hh, block.b_hh)))]


LSTM = Kind("LSTM", (0, 3, 1, 2), lstm_step)
GRU = Kind("GRU", (1, 0, 2), gru_step, attributes={"linear_before_reset": 1})
RNN_TANH = Kind("RNN", (0,), tanh_step)
RNN_RELU = Kind("RNN", (0,), relu_step, "Relu")


# ---- networks and cells


def cell(kind: Kind) -> Callable:
    """The translation of one step on its own."""

    def translation(op, input, hx, w_ih, w_hh, b_ih, b_hh):
        """The next states."""
        states = hx if isinstance(hx, list) else [hx]
        new = kind.step(op, linear(op, input, w_ih, b_ih), states, Block(w_ih, w_hh, b_ih, b_hh))
        return new if isinstance(hx, list) else new[0]

    return translation


def network(kind: Kind) -> Callable:
    """The translation of all layers over all steps."""

    def translation(
        op, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
    ):
        """Outputs of the last layer for each step, then the last states of every layer and direction."""
        x = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
        blocks = split_weights(params, has_biases, num_layers * (2 if bidirectional else 1))
        result, *states = layers(op, kind, x, hx, blocks, num_layers, dropout, train)
        return op.Transpose(result, perm=[1, 0, 2]) if batch_first else result, *states

    return translation


def packed_network(kind: Kind) -> Callable:
    """The translation of all layers over a packed batch."""

    def translation(op, data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional):
        """The same over the padded batch, told how long its rows are."""
        batch = unpacked(op, data, batch_sizes)
        blocks = split_weights(params, has_biases, num_layers * (2 if bidirectional else 1))
        lengths = op.Cast(batch.lengths, to=ir.DataType.INT32)
        result, *states = layers(op, kind, batch.x, hx, blocks, num_layers, dropout, train, lengths)
        return elements(op, Padded(result, batch.lengths, is_zero=True)), *states

    return translation


def layers(op, kind: Kind, x, hx, blocks, num_layers: int, dropout: float, train: bool, lengths=None):
    """Outputs of the last layer for each step, zero after the *lengths*, then the last states of every layer and direction."""
    states = hx if isinstance(hx, list) else [hx]
    count = len(blocks) // num_layers
    finals = []
    for first in range(0, len(blocks), count):
        if first:
            x = dropped(op, x, dropout, train)
        initial = states
        if num_layers > 1:
            initial = [op.Slice(state, [first], [first + count], [0]) for state in states]
        if blocks[0].w_hr is None:
            layer, initial = whole, [None if is_initial(op, state) else state for state in initial]
        else:
            layer = scanned
        x, *last = layer(op, kind, x, initial, blocks[first : first + count], lengths)
        finals.append(last)
    return x, *(op.Concat(*parts, axis=0) for parts in zip(*finals))


def is_initial(op, state: ir.Value) -> bool:
    """Whether a state is zero whatever its sizes are: what ONNX starts from when there is none."""
    node = op.producer(state)
    while node is not None and node.op_type in ("Expand", "Slice"):
        state = node.inputs[0]
        node = op.producer(state)
    return is_small(state) and not state.const_value.numpy().any()


translates(aten.gru.data)(packed_network(GRU))
translates(aten.gru.input)(network(GRU))
translates(aten.gru_cell.default)(cell(GRU))
translates(aten._thnn_fused_lstm_cell.default)(fused_lstm_cell)
translates(aten.lstm.data)(packed_network(LSTM))
translates(aten.lstm.input)(network(LSTM))
translates(aten.lstm_cell.default)(cell(LSTM))
translates(aten.rnn_relu.data)(packed_network(RNN_RELU))
translates(aten.rnn_relu.input)(network(RNN_RELU))
translates(aten.rnn_relu_cell.default)(cell(RNN_RELU))
translates(aten.rnn_tanh.data)(packed_network(RNN_TANH))
translates(aten.rnn_tanh.input)(network(RNN_TANH))
translates(aten.rnn_tanh_cell.default)(cell(RNN_TANH))


def split_weights(params, has_biases: bool, count: int) -> list[Block]:
    """The weights of each direction of each layer; a projection comes last."""
    size = len(params) // count
    parts = [params[start : start + size] for start in range(0, len(params), size)]
    return [Block(*part) if has_biases else Block(*part[:2], None, None, *part[2:]) for part in parts]


# ---- one layer


def whole(op, kind, x, initial, blocks, lengths):
    """One ONNX operator for a layer and its directions."""
    sizes = op.size(blocks[0].w_hh, -1)
    result, *last = op.emit(
        kind.op_type,
        [
            x,
            arranged(op, kind, [[block.w_ih] for block in blocks]),
            arranged(op, kind, [[block.w_hh] for block in blocks]),
            arranged(op, kind, [[block.b_ih, block.b_hh] for block in blocks]),
            lengths,
            *initial,
        ],
        {
            "hidden_size": sizes,
            "direction": "forward" if len(blocks) == 1 else "bidirectional",
            "activations": kind.activation and [kind.activation] * len(blocks),
            **kind.attributes,
        },
        outputs=1 + len(initial),
    )
    if len(blocks) == 1:
        return op.Squeeze(result, [1]), *last
    return op.Reshape(op.Transpose(result, perm=[0, 2, 1, 3]), [0, 0, 2 * sizes]), *last


def arranged(op, kind: Kind, matrices: list[list[ir.Value | None]]) -> ir.Value | None:
    """The matrices of each direction, one under the other, gates in ONNX's order; None without biases.

    Weights that are constants become one initializer, computed when it is written; the operators do it for others.
    """
    if matrices[0][0] is None:
        return None
    if all(isinstance(matrix.const_value, TorchTensor) for row in matrices for matrix in row):
        return initializer(op, kind, matrices)

    def gates(matrix):
        return op.Split(matrix, num_outputs=len(kind.gates), axis=0, outputs=len(kind.gates))

    rows = [op.Concat(*(gates(m)[gate] for m in row for gate in kind.gates), axis=0) for row in matrices]
    return op.Concat(*(op.Unsqueeze(row, [0]) for row in rows), axis=0)


def initializer(op, kind: Kind, matrices: list[list[ir.Value]]) -> ir.Value:
    """Like `arranged`, for constants: a weight of the model named after the first of them."""
    tensors = [[matrix.const_value for matrix in row] for row in matrices]
    name = op.context.names.unique(f"{matrices[0][0].name}_{kind.op_type.lower()}")

    def compute():
        rows = [
            torch.cat([m.raw.chunk(len(kind.gates))[gate] for m in row for gate in kind.gates])
            for row in tensors
        ]
        return TorchTensor(torch.stack(rows).detach(), name=name)

    rows = sum(tensor.shape[0] for tensor in tensors[0])
    shape = ir.Shape([len(tensors), rows, *tensors[0][0].shape[1:]])
    return op.initializer(name, ir.LazyTensor(compute, matrices[0][0].dtype, shape, name=name))


def scanned(op, kind, x, initial, blocks, lengths):
    """A Scan over the steps for each direction: ONNX has no projection."""
    states = [[op.Gather(state, position, axis=0) for state in initial] for position in range(len(blocks))]
    results = [
        direction(op, kind, x, states[position], block, position, lengths)
        for position, block in enumerate(blocks)
    ]
    result = op.Concat(*(outputs for outputs, *_ in results), axis=-1)
    return result, *(stacked(op, states, 0) for states in list(zip(*results))[1:])


def stacked(op, values, axis: int) -> ir.Value:
    """Values along a new axis."""
    return op.Concat(*(op.Unsqueeze(value, [axis]) for value in values), axis=axis)


def direction(op, kind, x, states, block, backwards: int, lengths=None):
    """Outputs and last states of one direction: a Scan over the steps. A row stands still after its length."""
    rows = [linear(op, x, block.w_ih, block.b_ih)]
    if lengths is not None:
        rows.append(op.Unsqueeze(present(op, x, op.Cast(lengths, to=ir.DataType.INT64)), [-1]))
    count = len(states)

    def step(inner, *given):
        before, (row, *mask) = given[:count], given[count:]
        new = kind.step(inner, row, before, block)
        if not mask:
            return [*new, new[0]]
        kept = [inner.Where(mask[0], after, old) for after, old in zip(new, before)]
        return [*kept, inner.Where(mask[0], new[0], inner.constant(0, new[0].dtype))]

    slices = [slice_type(name, value) for name, value in zip(("row", "is_present"), rows)]
    *last, result = op.Scan(
        *states,
        *rows,
        body=op.subgraph(step, [*states, *slices]),
        num_scan_inputs=len(rows),
        scan_input_directions=[backwards] * len(rows),
        scan_output_directions=[backwards],
        outputs=len(states) + 1,
    )
    typed([*last, result], [*states, states[0]], stacked=1)
    return result, *last
