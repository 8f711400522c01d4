"""``Tensor.data`` in forward.

Source of semantics: ``VariableHooks::set_data`` of torch/csrc/autograd/variable.cpp.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, set_proxy_slot

from experimental_experiment.torch_interpreter.frames import is_library_code
from experimental_experiment.torch_interpreter.patches.numbers import is_same_number
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch("torch", replaces=("torch.Tensor.data",), default=True)
def data_of_tensors() -> Iterator[None]:
    """``self.weight.data`` in forward is a tensor that torch.export did not record: it refuses the program that holds it.

    It is what ``detach`` gives. ``x.data = y``, which torch.export forgets without a word, gives *x* the memory of *y*. A weight or an
    input keeps its own memory, where *y* is written: refused when another tensor has the memory of either, which is not one in eager.
    """
    data = torch.Tensor.data

    def get(self: torch.Tensor) -> torch.Tensor:
        if not is_recorded(self, sys._getframe(1)):
            return data.__get__(self)
        data_of_tensors.used()
        return self.detach()

    def set(self: torch.Tensor, value: torch.Tensor) -> None:
        mode = get_proxy_mode()
        if mode is None or not is_recorded(self, sys._getframe(1)):
            data.__set__(self, value)
            return
        if is_one_memory(self, value) and is_laid_out_alike(self, value):
            return  # self.data *= 2 has written it
        tracer, is_held = mode.tracer, is_given(self, mode.tracer)
        if not isinstance(value, FakeTensor) or (is_held and not may_be_written(self, value, tracer)):
            raise RuntimeError("forward writes x.data = y, which no program can hold: write x.copy_(y)")
        data_of_tensors.used()
        kept, moved = value, self
        if is_held:
            self.detach().copy_(value.detach())
            kept, moved = self, value
        memory = kept.detach()
        data.__set__(moved, memory)
        set_proxy_slot(moved, tracer, get_proxy_slot(memory, tracer))

    with replaced(torch.Tensor, "data", property(get, set)):
        yield


def is_recorded(tensor: torch.Tensor, frame: FrameType) -> bool:
    """Whether a frame is the model's, and what it does with a tensor is recorded."""
    is_asked = isinstance(tensor, FakeTensor) and get_proxy_mode() is not None
    return is_asked and not is_library_code(frame.f_code)


def is_given(tensor: torch.Tensor, tracer: Any) -> bool:
    """Whether a tensor has the memory of a weight or of an input: what is written there outlives forward."""
    values = [node.meta.get("val") for node in tracer.graph.find_nodes(op="placeholder")]
    return any(isinstance(value, FakeTensor) and is_one_memory(tensor, value) for value in values)


def may_be_written(tensor: torch.Tensor, value: torch.Tensor, tracer: Any) -> bool:
    """Whether ``tensor.data = value`` is a write: of tensors that are alike, each the only one that the model has of its memory."""
    sharing = [
        other
        for other in tracer.tensor_tracker
        if other is not tensor
        and other is not value
        and (is_one_memory(other, tensor) or is_one_memory(other, value))
    ]
    return is_laid_out_alike(tensor, value) and not sharing


def is_one_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors share their memory."""
    is_known = left.layout == right.layout == torch.strided
    return is_known and left.untyped_storage()._cdata == right.untyped_storage()._cdata


def is_laid_out_alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have one dtype, one shape and their elements at the same places of their memories."""
    layouts = [[*each.shape, *each.stride(), each.storage_offset()] for each in (left, right)]
    return left.dtype == right.dtype and left.dim() == right.dim() and all(map(is_same_number, *layouts))
