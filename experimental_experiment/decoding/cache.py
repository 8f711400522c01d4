"""The cache of a decoder: buffers that are allocated once, and bound as the past and the present of each step."""

from __future__ import annotations

import numpy as np
import onnxruntime

from experimental_experiment.decoding.interface import Interface


class Cache:
    """Keys and values of *batch* rows of up to *capacity* tokens.

    Where past and present may share a buffer, each tensor has one, [batch, heads, capacity, size], and a step writes the new tokens
    only. Otherwise each has two: a step reads the past in one, writes the present, past and new tokens, to the other, and they
    change places; nothing is allocated or copied by the caller.
    """

    def __init__(self, interface: Interface, batch: int, capacity: int):
        self.tensors = interface.cache
        self.is_shared = interface.is_shared
        self.batch = batch
        self.capacity = capacity
        self.length = 0
        self.buffers = []
        for tensor in self.tensors:
            size = batch * tensor.heads * capacity * tensor.size * tensor.bytes
            past = np.zeros(size, np.uint8)
            self.buffers.append((past, past if self.is_shared else np.zeros(size, np.uint8)))

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for pair in self.buffers for buffer in pair[: 1 if self.is_shared else 2])

    def bind(self, binding: onnxruntime.IOBinding, count: int) -> None:
        """The pasts and the presents of a step of *count* tokens."""
        before, after = (self.capacity,) * 2 if self.is_shared else (self.length, self.length + count)
        for tensor, (past, present) in zip(self.tensors, self.buffers):
            for bind, name, buffer, length in (
                (binding.bind_input, tensor.past, past, before),
                (binding.bind_output, tensor.present, present, after),
            ):
                shape = [self.batch, tensor.heads, length, tensor.size]
                bind(name, "cpu", 0, tensor.element, shape, buffer.ctypes.data)

    def advance(self, count: int) -> None:
        """What was the present is the past."""
        self.length += count
        self.buffers = [(present, past) for past, present in self.buffers]
