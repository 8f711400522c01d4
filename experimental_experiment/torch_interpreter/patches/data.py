"""``Tensor.data`` in forward."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from experimental_experiment.torch_interpreter.frames import is_library
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced


@patch("torch", replaces=("torch.Tensor.data",), default=True)
def data_of_tensors() -> Iterator[None]:
    """``self.weight.data`` in forward is a tensor that torch.export did not record: it refuses the program that holds it.

    It is what ``detach`` gives. ``x.data = y``, which torch.export forgets without a word, is refused.
    """
    data = torch.Tensor.data

    def get(self: torch.Tensor) -> torch.Tensor:
        if not is_recorded(self, sys._getframe(1)):
            return data.__get__(self)
        data_of_tensors.used()
        return self.detach()

    def set(self: torch.Tensor, value: torch.Tensor) -> None:
        if is_recorded(self, sys._getframe(1)):
            raise RuntimeError("forward writes x.data = y, which no program can hold: write x.copy_(y)")
        data.__set__(self, value)

    with replaced(torch.Tensor, "data", property(get, set)):
        yield


def is_recorded(tensor: torch.Tensor, frame: FrameType) -> bool:
    """Whether a frame is the model's, and what it does with a tensor is recorded."""
    is_asked = isinstance(tensor, FakeTensor) and get_proxy_mode() is not None
    return is_asked and not is_library(frame.f_code.co_filename)
