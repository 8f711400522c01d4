"""The cache of a decoder: buffers that are allocated once, and bound as the past and the present of each step."""

from __future__ import annotations

import numpy as np
import onnxruntime

from experimental_experiment.decoding.interface import Interface

LINE = 64
"""Bytes of a line of the processor's cache."""


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
        self.bound_to: onnxruntime.IOBinding | None = None
        self.buffers: list[tuple[np.ndarray, np.ndarray]] = []
        self.addresses: list[tuple[int, int]] = []  # of the past and of the present, in turns
        for tensor in self.tensors:
            size = batch * tensor.heads * capacity * tensor.size * tensor.bytes
            past = aligned(size)
            present = past if self.is_shared else aligned(size)
            self.buffers.append((past, present))
            self.addresses.append((past.ctypes.data, present.ctypes.data))

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for pair in self.buffers for buffer in pair[: 1 if self.is_shared else 2])

    def bind(self, binding: onnxruntime.IOBinding, count: int) -> None:
        """The pasts and the presents of a step of *count* tokens; a single buffer stays bound."""
        if self.is_shared and self.bound_to is binding:
            return
        before, after = (self.capacity,) * 2 if self.is_shared else (self.length, self.length + count)
        for tensor, (past, present) in zip(self.tensors, self.addresses):
            shape = [self.batch, tensor.heads, before, tensor.size]
            binding.bind_input(tensor.past, "cpu", 0, tensor.element, shape, past)
            shape = [self.batch, tensor.heads, after, tensor.size]
            binding.bind_output(tensor.present, "cpu", 0, tensor.element, shape, present)
        self.bound_to = binding

    def advance(self, count: int) -> None:
        """What was the present is the past."""
        self.length += count
        if not self.is_shared:
            self.addresses = [(present, past) for past, present in self.addresses]


def aligned(size: int) -> np.ndarray:
    """Bytes that begin where a line of the processor's cache does, as onnxruntime allocates them."""
    memory = np.zeros(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size]
