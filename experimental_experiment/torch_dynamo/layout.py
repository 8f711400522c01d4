"""In which order torch expects the elements of an output in memory: ONNX knows the order of the axes only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false


def permutation(fake: torch.Tensor) -> list[int] | None:
    """The axes in the order of memory, the slowest first, when it is not theirs; None for a contiguous tensor.

    Also None for a tensor with gaps or repetitions: nobody can tell from its elements that it has none.
    """
    sizes, strides = fake.shape, fake.stride()
    axes = [axis for axis in range(fake.dim()) if not is_guarded_one(sizes[axis])]
    order = sorted(axes, key=lambda axis: -hint(strides[axis]))
    if order == axes:
        return None
    expected = 1
    for axis in reversed(order):
        if hint(strides[axis]) != expected:
            return None
        expected *= hint(sizes[axis])
    ones = [axis for axis in range(fake.dim()) if axis not in axes]
    return ones + order


def is_guarded_one(size: int | torch.SymInt) -> bool:
    """Whether a size is 1: for a symbol, in the example, where TorchDynamo compiles again when it is not."""
    return guard_or_false(size == 1)


def hint(size: int | torch.SymInt) -> int:
    """The size of the example."""
    return size if isinstance(size, int) else size.node.hint


def laid_out(order: list[int]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that copies a tensor so that its axes are in memory in this order."""
    back = [order.index(axis) for axis in range(len(order))]
    return lambda tensor: tensor.permute(order).contiguous().permute(back)
