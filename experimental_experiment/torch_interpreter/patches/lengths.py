"""``torch_int`` of a size and the product of a shape, which Python makes numbers of its own."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.frames import is_library_code
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.patches.vision import modeling_modules


@patch("torch", replaces=("torch._subclasses.fake_tensor.FakeTensor.shape",), default=True)
def elements_of_shapes() -> Iterator[None]:
    """``x.shape[1:].numel()`` is a number of Python, which fixes the sizes to the example's: ``torch.Size`` multiplies no symbols."""
    with replaced(FakeTensor, "shape", property(shape)):
        yield


class Shape(tuple):
    """A shape with symbols, as a function that asks for a product of sizes gets it."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return Shape(found) if isinstance(place, slice) else found

    def __add__(self, other: Any) -> Any:
        return Shape(super().__add__(other))

    def __radd__(self, other: Any) -> Any:
        return Shape((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> Any:
        return Shape(super().__mul__(times))

    __rmul__ = __mul__

    def numel(self) -> Any:
        """The product of the sizes, a symbol where one of them is."""
        elements_of_shapes.used()
        return math.prod(self)


SIZE = pytree.SUPPORTED_NODES[torch.Size]

# a model may return it; registered for good: the program of torch.export says what its results are made of
pytree.register_pytree_node(
    Shape, SIZE.flatten_fn, SIZE.unflatten_fn, flatten_with_keys_fn=SIZE.flatten_with_keys_fn
)


def shape(self: torch.Tensor) -> Any:
    """``Tensor.shape``, which is a `Shape` for functions of a model that call a ``numel``."""
    sizes = torch.Tensor.shape.__get__(self)
    code = sys._getframe(1).f_code
    if "numel" in code.co_names and not is_library_code(code):
        if any(isinstance(size, torch.SymInt) for size in sizes):
            return Shape(sizes)
    return sizes


@patch("transformers", replaces=("torch_int, in the modules of models",), since="5.0", default=True)
def integers_of_sizes() -> Iterator[None]:
    """DINOv2 with registers, TIPS and others ask for ``torch_int(height)``, a number of Python: position embeddings get the example's size."""
    with contextlib.ExitStack() as stack:
        for module in modeling_modules():
            if "torch_int" in vars(module):
                stack.enter_context(replaced(module, "torch_int", symbol(module.torch_int)))
        yield


def symbol(torch_int: Callable) -> Callable:
    """``torch_int`` that leaves symbols as they are."""

    @functools.wraps(torch_int)
    def called(x: Any) -> Any:
        if isinstance(x, torch.SymInt):
            integers_of_sizes.used()
            return x
        return torch_int(x)

    return called
