"""The cache of a decoder: buffers that are allocated once, and bound as the past and the present of each step."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime

from experimental_experiment.decoding.interface import CacheTensor, Interface

LINE = 64
"""Bytes of a line of the processor's cache."""


class Cache:
    """Keys and values of *batch* rows of up to *capacity* tokens, and their states.

    Where past and present may share a buffer, keys and values have one, [batch, heads, capacity, size], and a step writes the new tokens
    only. Otherwise each tensor has two: a step reads the past in one, writes the present, past and new tokens, to the other, and they
    change places; nothing is allocated or copied by the caller. A state always has two: an operator may read it after another wrote.
    """

    def __init__(self, interface: Interface, batch: int, capacity: int):
        self.tensors = (*interface.cache, *interface.states)
        self.is_shared = interface.is_shared
        self.stays = interface.is_shared and not interface.states
        self.batch = batch
        self.capacity = capacity
        self.length = 0
        self.bound_to: onnxruntime.IOBinding | None = None
        self.buffers: list[tuple[np.ndarray, np.ndarray]] = []
        self.addresses: list[tuple[int, int]] = []  # of the past and of the present, in turns
        for tensor in self.tensors:
            size = math.prod(tensor.shape(batch, capacity)) * tensor.bytes
            past = aligned(size)
            present = past if self.is_shared and isinstance(tensor, CacheTensor) else aligned(size)
            self.buffers.append((past, present))
            self.addresses.append((past.ctypes.data, present.ctypes.data))
        self.states = [buffer for pair in self.buffers[len(interface.cache) :] for buffer in pair]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(past.nbytes + (0 if present is past else present.nbytes) for past, present in self.buffers)

    def bind(self, binding: onnxruntime.IOBinding, count: int) -> None:
        """The pasts and the presents of a step of *count* tokens; single buffers alone stay bound."""
        if self.stays and self.bound_to is binding:
            return
        before, after = (self.capacity,) * 2 if self.is_shared else (self.length, self.length + count)
        for tensor, (past, present) in zip(self.tensors, self.addresses):
            shape = tensor.shape(self.batch, before)
            binding.bind_input(tensor.past, "cpu", 0, tensor.element, shape, past)
            shape = tensor.shape(self.batch, after)
            binding.bind_output(tensor.present, "cpu", 0, tensor.element, shape, present)
        self.bound_to = binding

    def advance(self, count: int) -> None:
        """What was the present is the past."""
        self.length += count
        if not self.stays:
            self.addresses = [(present, past) for past, present in self.addresses]

    def forget(self, rows: np.ndarray) -> None:
        """The states of these rows, bool[batch], are zeros, as before the first token."""
        for buffer in self.states:  # the present is written before it is read
            buffer.reshape(self.batch, -1)[rows] = 0


def aligned(size: int) -> np.ndarray:
    """Bytes that begin where a line of the processor's cache does, as onnxruntime allocates them."""
    memory = np.zeros(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size]
