"""``torch_int`` of a size and the product of a shape, which Python makes numbers of its own."""

from __future__ import annotations

import contextlib
import functools
import linecache
import math
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from experimental_experiment.torch_interpreter.frames import is_library_code
from experimental_experiment.torch_interpreter.patches.patch import patch, replaced
from experimental_experiment.torch_interpreter.patches.vision import modeling_modules


@patch(
    "torch",
    replaces=tuple(f"torch._subclasses.fake_tensor.FakeTensor.{name}" for name in ("shape", "size")),
    default=True,
)
def elements_of_shapes() -> Iterator[None]:
    """``x.shape[1:].numel()`` is a number of Python, which fixes the sizes to the example's: ``torch.Size`` multiplies no symbols.

    So is that of ``x.size()[1:]``, and of shapes that are kept before.
    """
    with replaced(FakeTensor, "shape", property(shape)), replaced(FakeTensor, "size", size):
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
    """``Tensor.shape``, which is a `Shape` for a model in whose file a ``numel`` is called."""
    return as_asked(torch.Tensor.shape.__get__(self), sys._getframe(1).f_code)


def size(self: torch.Tensor, *args: Any, **options: Any) -> Any:
    """``Tensor.size``, whose shape is a `Shape` for a model in whose file a ``numel`` is called."""
    found = torch.Tensor.size(self, *args, **options)
    return as_asked(found, sys._getframe(1).f_code) if isinstance(found, torch.Size) else found


def as_asked(sizes: torch.Size, code: CodeType) -> Any:
    """A shape as a function of this code takes it."""
    if not any(isinstance(n, torch.SymInt) for n in sizes) or is_library_code(code):
        return sizes
    return Shape(sizes) if "numel" in code.co_names or has_products(code.co_filename) else sizes


@functools.lru_cache(maxsize=1024)
def has_products(file: str) -> bool:
    """Whether a ``numel`` is called in a file: one function may keep the shapes that another one multiplies, as torchdiffeq has them."""
    return any("numel" in line for line in linecache.getlines(file))


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
