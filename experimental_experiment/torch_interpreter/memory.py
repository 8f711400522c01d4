"""Where the elements of tensors are in memory: which of them are one place, within one tensor and between two.

Everything is read from the sizes, strides and offsets of fake tensors. Sizes that are symbolic are compared without a guard:
what cannot be told counts as shared.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

aten = torch.ops.aten

EXPANDS = frozenset(
    {
        aten.broadcast_tensors.default,
        aten.broadcast_to.default,
        aten.expand.default,
        aten.expand_as.default,
        aten.meshgrid.default,
        aten.meshgrid.indexing,
    }
)
"""View operators that show their argument several times along new axes, or along those of size 1."""


@functools.cache
def symbolic_comparison() -> Callable[[Any], bool]:
    """torch's ``statically_known_true``, whose module an export loads and the import of the package does not."""
    return importlib.import_module("torch.fx.experimental.symbolic_shapes").statically_known_true


def is_known(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds without a guard."""
    return condition if isinstance(condition, bool) else symbolic_comparison()(condition)


def view_repeats(target: Any, arguments: Mapping[str, Any], view: torch.Tensor, is_repeated: bool) -> bool:
    """Whether a view may show an element of the memory twice. *is_repeated*: what it views may do so already.

    *target* is the view operator and *arguments* its arguments; the operators not named here show each element once.
    """
    if is_static(view) or is_repeated or target is aten.as_strided.default:
        return has_repeats(view)
    if target is aten.unfold.default:
        return not is_known(arguments["step"] >= arguments["size"])
    steps = zip(view.shape, view.stride())
    return target in EXPANDS and any(
        isinstance(step, int) and step == 0 and not is_one(n) for n, step in steps
    )


def has_repeats(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor may be one place in memory: exactly, when its sizes and strides are static."""
    axes = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride()) if not is_one(size)]
    if is_nested(axes):
        return False
    if not is_static(tensor):
        return True
    extent = 1 + sum((size - 1) * stride for size, stride in axes)
    return tensor.numel() > extent or np.unique(places_of(*layout(tensor))).size < tensor.numel()


def is_nested(
    axes: list[tuple[int | torch.SymInt, int | torch.SymInt]], extent: int | torch.SymInt = 0
) -> bool:
    """Whether some order of the axes has every stride pass over all that the axes before it reach."""
    return not axes or any(
        is_known(stride > extent) and is_nested([*axes[:k], *axes[k + 1 :]], extent + (size - 1) * stride)
        for k, (size, stride) in reversed(list(enumerate(axes)))
    )


def are_disjoint(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors of one storage are known to have no place in memory in common."""
    for one, other in ((first, second), (second, first)):
        if is_known(end_of(one) <= other.storage_offset()):
            return True
    return (
        is_static(first, second)
        and not np.intersect1d(places_of(*layout(first)), places_of(*layout(second))).size
    )


def end_of(tensor: torch.Tensor) -> int | torch.SymInt:
    """The place in memory behind the last element of a tensor."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.storage_offset() + reach + 1


def places_of(size: Sequence[int], stride: Sequence[int], offset: int) -> np.ndarray:
    """The places in memory of the elements of a tensor in order, all numbers being static."""
    total = np.full(tuple(size), offset, dtype=np.int64)
    for axis, (count, step) in enumerate(zip(size, stride)):
        total += (np.arange(count) * step).reshape([-1] + [1] * (len(size) - axis - 1))
    return total.reshape(-1)


def layout(tensor: torch.Tensor) -> tuple[Sequence[int], Sequence[int], int]:
    """The sizes, the strides and the offset of a tensor."""
    return tensor.shape, tensor.stride(), tensor.storage_offset()


def is_static(*tensors: torch.Tensor) -> bool:
    """Whether sizes, strides and offsets are ints."""
    layouts = [layout(tensor) for tensor in tensors]
    return all(isinstance(n, int) for sizes, strides, offset in layouts for n in (*sizes, *strides, offset))


def is_one(size: int | torch.SymInt) -> bool:
    """Whether a size is the number 1; a symbol, which may be 1 elsewhere, is not asked."""
    return isinstance(size, int) and size == 1
