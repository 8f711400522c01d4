"""Tensors of sizes, and of tensors of one element: what a model makes of a list of them.

Source of semantics: torch/csrc/utils/tensor_new.cpp.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced, wrapped

HANDLER = "torch._export.non_strict_utils._NonStrictTorchFunctionHandler._override"
"""What torch.export, and `tracing`, ask what to call in the place of a function."""

CREATIONS = (torch.tensor, torch.as_tensor)
METHODS = ("new_tensor", "new")
"""What makes a tensor of a list; the methods make it in the dtype of their tensor."""

NUMBERS = {
    bool: torch.bool,
    int: torch.int64,
    float: None,
    torch.SymInt: torch.int64,
    torch.SymFloat: None,
}
"""The dtype that a number has in a list, None for the default one."""


@patch("torch", replaces=("torch.as_tensor", "torch.Tensor.new_tensor", "torch.Tensor.new"), default=True)
def tensors_of_sizes() -> Iterator[None]:
    """``torch.as_tensor([x.shape[0], x.shape[1]])`` holds the example's sizes, where ``torch.tensor`` holds the sizes of any input.

    So does ``boxes.new_tensor([width, height])``, and ``x.new(lengths.tolist())`` is refused.
    """
    with (
        replaced(torch, "as_tensor", of_sizes(torch.as_tensor)),
        replaced(torch.Tensor, "new_tensor", like_one(torch.Tensor.new_tensor)),
        replaced(torch.Tensor, "new", like_one_of_a_list(torch.Tensor.new)),
    ):
        yield


def of_sizes(as_tensor: Callable) -> Callable:
    """``torch.as_tensor`` that is ``torch.tensor`` for numbers among which are symbols."""

    @functools.wraps(as_tensor)
    def called(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not has_sizes(data):
            return as_tensor(data, *args, **kwargs)
        named = dict(zip(("dtype", "device"), args))
        return torch.tensor(data, **named, **kwargs)

    return called


def like_one(new_tensor: Callable) -> Callable:
    """``torch.Tensor.new_tensor`` that is ``torch.tensor`` in the dtype of a tensor for numbers among which are symbols."""

    @functools.wraps(new_tensor)
    def called(self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
        if not has_sizes(data):
            return new_tensor(self, data, **kwargs)
        given = {name: value for name, value in kwargs.items() if value is not None}
        return torch.tensor(data, **{"dtype": self.dtype, "device": self.device} | given)

    return called


def like_one_of_a_list(new: Callable) -> Callable:
    """``torch.Tensor.new``, the older name, that is `new_tensor` for a list of numbers among which are symbols."""

    @functools.wraps(new)
    def called(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if len(args) == 1 and isinstance(args[0], list) and has_sizes(args[0]):
            return self.new_tensor(args[0], **kwargs)
        return new(self, *args, **kwargs)

    return called


def has_sizes(data: Any) -> bool:
    """Whether these are numbers among which are symbols; says that the patch is used when they are."""
    numbers = tree_leaves(data) if isinstance(data, (list, tuple, torch.SymInt, torch.SymFloat)) else []
    found = any(isinstance(number, (torch.SymInt, torch.SymFloat)) for number in numbers)
    found = found and not any(isinstance(number, torch.Tensor) for number in numbers)
    if found:
        tensors_of_sizes.used()
    return found


# ---- elements that are tensors


@patch("torch", replaces=(HANDLER,), default=True)
def tensors_of_elements() -> Iterator[None]:
    """``torch.tensor([x.min(), x.max()])`` is refused, as its kernel reads the memory of the elements; so is ``torch.tensor(data=[1, 2])``.

    The elements are stacked, where the list holds tensors of one element and numbers. ``torch.as_tensor``, ``x.new_tensor`` and ``x.new``
    are the same.
    """
    importlib.import_module("torch._export.non_strict_utils")  # it brings TorchDynamo
    with wrapped({HANDLER: with_elements}):
        yield


def with_elements(override: Callable) -> Callable:
    """The handler that stacks the tensors of a list."""

    @functools.wraps(override)
    def _override(self: Any, func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple:
        if func is torch.tensor and not args and "data" in kwargs:
            tensors_of_elements.used()
            args, kwargs = (kwargs["data"],), {name: kwargs[name] for name in kwargs if name != "data"}
        is_method = getattr(func, "__name__", "") in METHODS and isinstance(args[0], torch.Tensor)
        data = args[is_method:]
        if not (is_method or func in CREATIONS) or len(data) != 1 or not has_elements(data[0]):
            return override(self, func, args, kwargs)
        like = {"dtype": args[0].dtype, "device": args[0].device} if is_method else {"dtype": promoted(data)}
        options = like | {name: value for name, value in kwargs.items() if value is not None}
        tensors = (leaf for leaf in tree_leaves(data) if isinstance(leaf, torch.Tensor))
        if not all(torch.can_cast(tensor.dtype, options["dtype"]) for tensor in tensors):
            return override(self, func, args, kwargs)
        tensors_of_elements.used()
        return stacked, data, options

    return _override


def has_elements(data: Any) -> bool:
    """Whether this is a list of tensors of one element, and of numbers or none."""
    leaves = tree_leaves(data) if isinstance(data, (list, tuple)) else []
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    sizes = [size for tensor in tensors for size in tensor.shape]
    is_known = all(isinstance(leaf, torch.Tensor) or type(leaf) in NUMBERS for leaf in leaves)
    return is_known and bool(tensors) and all(isinstance(size, int) and size == 1 for size in sizes)


def dtype_of(leaf: Any) -> torch.dtype:
    """The dtype of a tensor, or of a number in a list."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype
    return NUMBERS[type(leaf)] or torch.get_default_dtype()


def promoted(data: Any) -> torch.dtype:
    """The dtype of a list: no element gives way to another one, be it a number."""
    return functools.reduce(torch.promote_types, map(dtype_of, tree_leaves(data)))


def stacked(
    data: Any, dtype: torch.dtype, device: Any = None, requires_grad: bool = False, **harmless: Any
) -> torch.Tensor:
    """The tensor of a list, of lists or of elements, which shares no memory with them."""

    def built(part: Any) -> torch.Tensor:
        if isinstance(part, torch.Tensor):
            return part.detach().to(device=place, dtype=dtype).reshape(())
        if isinstance(part, (list, tuple)):
            return torch.stack([built(item) for item in part])
        return torch.scalar_tensor(part, dtype=dtype, device=place)

    place = torch.get_default_device() if device is None else device
    found = built(data)
    return found.requires_grad_() if requires_grad else found
