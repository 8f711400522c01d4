"""Padding: constant, reflect, replicate and circular; a negative amount crops. Sequences of several lengths.

Source of semantics: torch.nn.functional.pad, torch.nn.utils.rnn.pad_sequence. Amounts come in pairs, last axis first.
"""

from __future__ import annotations

import functools

import onnx_ir as ir
import torch

from experimental_experiment.torch_interpreter.aten.spatial import padded_along
from experimental_experiment.torch_interpreter.emitter import rank
from experimental_experiment.torch_interpreter.errors import Untranslatable
from experimental_experiment.torch_interpreter.registry import translates
from experimental_experiment.torch_interpreter.sizes import Size, is_int, larger, minus

aten = torch.ops.aten

MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""torch's names of the modes, and ONNX's."""

ENUMERATION = ("reflect", "replicate", "circular", "constant")
"""The modes as ATen numbers them."""


@translates(aten.pad.default)
def pad(op, self, pad, mode, value):
    """Pad in any mode."""
    return padded_as(op, self, pad, mode, value)


@translates(aten._pad_enum.default)
def _pad_enum(op, self, pad, mode, value):
    """Pad in a mode that is a number of ATen's enumeration."""
    return padded_as(op, self, pad, ENUMERATION[mode], value)


@translates(aten.constant_pad_nd.default)
def constant_pad_nd(op, self, pad, value):
    """Pad with one value, in the dtype of the tensor."""
    axes, begin, end = amounts(self, pad)
    if isinstance(value, ir.Value):
        value = op.CastLike(value, self)
    elif not self.dtype.is_floating_point():
        value = int(value)
    return padded_along(op, self, axes, begin, end, value)


@translates(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(op, self, padding):
    """Mirror the tensor at its edges, which are not repeated."""
    return padded_as(op, self, padding, "reflect")


@translates(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(op, self, padding):
    """Repeat the edges."""
    return padded_as(op, self, padding, "replicate")


@translates(aten._pad_circular.default)
def _pad_circular(op, self, pad):
    """Continue with the other end of the tensor."""
    return padded_as(op, self, pad, "circular")


@translates(aten.pad_sequence.default)
def pad_sequence(op, sequences, batch_first, padding_value, padding_side):
    """A batch of sequences, each as long as the longest, in the dtype of the first one."""
    lengths = [op.size(sequence, 0) for sequence in sequences]
    longest = functools.reduce(functools.partial(larger, op), lengths)
    rows = []
    for sequence, length in zip(sequences, lengths):
        missing = minus(op, longest, length)
        amounts = [missing, 0] if padding_side == "left" else [0, missing]
        row = constant_pad_nd(op, sequence, [0, 0] * (rank(sequence) - 1) + amounts, padding_value)
        rows.append(op.Unsqueeze(op.CastLike(row, sequences[0]), [0 if batch_first else 1]))
    return op.Concat(*rows, axis=0 if batch_first else 1)


def padded_as(op, self, pad, mode, value=None):
    """Pad in the mode of this name."""
    if mode == "constant":
        return constant_pad_nd(op, self, pad, 0 if value is None else value)
    axes, begin, end = amounts(self, pad)
    return padded_along(op, self, axes, begin, end, mode=MODES[mode])


def amounts(self: ir.Value, pad: list[Size]) -> tuple[list[int], list[Size], list[Size]]:
    """The axes that are padded, and how much before and after each."""
    if len(pad) % 2:
        raise Untranslatable(f"an odd number of amounts: {pad}")
    pairs = list(zip(pad[0::2], pad[1::2]))
    found = [
        (rank(self) - 1 - position, *pair)
        for position, pair in enumerate(pairs)
        if not all(is_int(amount, 0) for amount in pair)
    ]
    axes, begin, end = (list(items) for items in zip(*reversed(found))) if found else ([], [], [])
    return axes, begin, end
