"""``x[i]`` and ``x[i] = y`` where *i* is a size or a tensor of one number.

Source of semantics: torch/csrc/autograd/python_variable_indexing.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from experimental_experiment.torch_interpreter.patches.patch import patch, replaced

MASKS = (torch.bool, torch.uint8)
"""The dtypes whose tensors select as masks do, those of one number too."""


@patch("torch", replaces=("torch.Tensor.__getitem__", "torch.Tensor.__setitem__"), default=True)
def indices_of_one_axis() -> Iterator[None]:
    """``x[rows, x.shape[1] - 1]`` and ``cache[:, n] = y`` hold the example's index; where it is a 0-d tensor, torch.export refuses them.

    Such an index is a view, as it is alone: ``x[:, n]``, of which the others are taken, or which is written.
    """
    before = torch.Tensor.__getitem__, torch.Tensor.__setitem__
    with (
        replaced(torch.Tensor, "__getitem__", reading(before[0])),
        replaced(torch.Tensor, "__setitem__", writing(before[1])),
    ):
        yield


def reading(of_numbers: Callable) -> Callable:
    """`torch.Tensor.__getitem__` of a view of the axes that symbols select."""

    def __getitem__(self: torch.Tensor, index: Any) -> torch.Tensor:
        items = index if isinstance(index, tuple) else (index,)
        if any(map(is_small_mask, items)):
            indices_of_one_axis.used()
            index = tuple(item.bool() if is_small_mask(item) else item for item in items)
        parts = in_turn(self, index)
        if parts is None or not any(is_advanced(item) for item in parts[1]):
            return of_numbers(self, index)  # which torch.export follows
        return of_numbers(of_numbers(self, parts[0]), parts[1])

    return __getitem__


def writing(of_numbers: Callable) -> Callable:
    """`torch.Tensor.__setitem__` of a view of the axes that symbols select."""

    def __setitem__(self: torch.Tensor, index: Any, value: Any) -> None:
        parts = in_turn(self, index)
        if parts is None:
            of_numbers(self, index, value)
        else:
            of_numbers(self[parts[0]], parts[1], value)

    return __setitem__


def in_turn(self: torch.Tensor, index: Any) -> tuple[tuple, tuple] | None:
    """What symbols and slices select in *index*, and what the rest selects of that; None where no symbol selects.

    Torch applies numbers and slices first, whatever stands between them.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    if not any(is_symbol(item) or (isinstance(item, slice) and has_tensor(item)) for item in items):
        return None
    missing = self.dim() - sum(map(axes_of, items))
    if missing < 0:
        return None  # torch says so
    at = next((at for at, item in enumerate(items) if item is Ellipsis), None)
    if at is not None:
        items[at : at + 1] = [slice(None)] * missing
    indices_of_one_axis.used()
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
