"""``x[i]`` and ``x[i] = y`` where *i* is a size or a tensor of one number.

Source of semantics: torch/csrc/autograd/python_variable_indexing.cpp.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, wrapped

MASKS = (torch.bool, torch.uint8)
"""The dtypes whose tensors select as masks do, those of one number too."""


HANDLER = "torch._export.non_strict_utils._NonStrictTorchFunctionHandler._override"
"""What torch.export, and `tracing`, ask what to call in the place of a function. A method of torch.Tensor in Python would make tensors
sequences, which torch.tensor takes apart."""


@patch("torch", replaces=(HANDLER,), default=True)
def indices_of_one_axis() -> Iterator[None]:
    """``x[rows, x.shape[1] - 1]`` and ``cache[:, n] = y`` hold the example's index; where it is a 0-d tensor, torch.export refuses them.

    Such an index is a view, as it is alone: ``x[:, n]``, of which the others are taken, or which is written.
    """
    importlib.import_module("torch._export.non_strict_utils")  # it brings TorchDynamo
    with wrapped({HANDLER: with_views}):
        yield


def with_views(override: Callable) -> Callable:
    """The handler that reads and writes a view of the axes that symbols select."""

    @functools.wraps(override)
    def _override(self: Any, func: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple:
        name = getattr(func, "__name__", "")
        if name not in ("__getitem__", "__setitem__") or not isinstance(args[0], torch.Tensor):
            return override(self, func, args, kwargs)
        tensor, index, *values = args
        items = index if isinstance(index, tuple) else (index,)
        if any(map(is_small_mask, items)):
            indices_of_one_axis.used()
            index = tuple(item.bool() if is_small_mask(item) else item for item in items)
        parts = in_turn(tensor, index)
        if parts is None or not (values or any(map(is_advanced, parts[1]))):
            return override(self, func, (tensor, index, *values), kwargs)  # it follows what is read alone
        indices_of_one_axis.used()
        view, its_args, options = override(self, torch.Tensor.__getitem__, (tensor, parts[0]), {})

        def called() -> torch.Tensor | None:
            return func(view(*its_args, **options), parts[1], *values)

        return called, (), {}

    return _override


def in_turn(tensor: torch.Tensor, index: Any) -> tuple[tuple, tuple] | None:
    """What symbols and slices select in *index*, and what the rest selects of that; None where no symbol selects.

    Torch applies numbers and slices first, whatever stands between them.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    if not any(is_symbol(item) or (isinstance(item, slice) and has_tensor(item)) for item in items):
        return None
    missing = tensor.dim() - sum(map(axes_of, items))
    if missing < 0:
        return None  # torch says so
    at = next((at for at, item in enumerate(items) if item is Ellipsis), None)
    if at is not None:
        items[at : at + 1] = [slice(None)] * missing
    first: list[Any] = []
    rest: list[Any] = []
    for item in items:
        if is_symbol(item):
            first.append(item)
        elif isinstance(item, slice):
            first.append(item)
            rest.append(slice(None))
        else:
            first += [slice(None)] * axes_of(item)
            rest.append(item)
    return tuple(first), tuple(rest)


def is_symbol(item: Any) -> bool:
    """Whether a part of an index selects one element of an axis, which is not known yet."""
    return isinstance(item, torch.SymInt) or is_number(item)


def is_number(item: Any) -> bool:
    """Whether a part of an index is a tensor of one whole number."""
    is_one = isinstance(item, torch.Tensor) and not item.dim() and item.dtype not in MASKS
    return is_one and not (item.is_floating_point() or item.is_complex())


def is_small_mask(item: Any) -> bool:
    """Whether a part of an index is a mask of one number, which torch.export takes for a position."""
    return isinstance(item, torch.Tensor) and not item.dim() and item.dtype == torch.uint8


def has_tensor(item: slice) -> bool:
    """Whether a bound of a slice is a tensor."""
    return any(isinstance(bound, torch.Tensor) for bound in (item.start, item.stop, item.step))


def is_advanced(item: Any) -> bool:
    """Whether a part of an index is no number, slice or new axis."""
    return isinstance(item, bool) or not (item is None or isinstance(item, (int, slice)))


def axes_of(item: Any) -> int:
    """How many axes of a tensor a part of an index selects in."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, torch.Tensor):
        return item.dim() if item.dtype in MASKS else 1
    depth = 0
    while isinstance(item, (list, tuple)):
        depth, item = depth + 1, item[0] if item else 0
    return depth if isinstance(item, bool) else 1
