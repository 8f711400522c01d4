"""In which order torch expects the elements of an output in memory: ONNX knows the order of the axes only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

ANY_SIZE = 1009
"""A size where the data decide it, and the next ones: not a product that sizes written in models give by chance."""


def permutation(fake: torch.Tensor) -> list[int] | None:
    """The axes in the order of memory, the slowest first, when it is not theirs; None for a contiguous tensor.

    Also None for a tensor with gaps or repetitions: nobody can tell from its elements that it has none.
    """
    axes = [axis for axis in range(fake.dim()) if not is_guarded_one(fake.shape[axis])]
    found = hints([*fake.shape, *fake.stride()])
    sizes, strides = found[: fake.dim()], found[fake.dim() :]
    order = sorted(axes, key=lambda axis: -strides[axis])
    if order == axes:
        return None
    expected = 1
    for axis in reversed(order):
        if strides[axis] != expected:
            return None
        expected *= sizes[axis]
    ones = [axis for axis in range(fake.dim()) if axis not in axes]
    return ones + order


def is_guarded_one(size: int | torch.SymInt) -> bool:
    """Whether a size is 1: for a symbol, in the example, where TorchDynamo compiles again when it is not."""
    return guard_or_false(size == 1)


def hints(sizes: Sequence[int | torch.SymInt]) -> list[int]:
    """The sizes of the example; where the data decide one, those of another one, in which equal expressions are equal."""
    nodes = [size.node for size in sizes if isinstance(size, torch.SymInt)]
    if all(node.hint is not None for node in nodes):
        return [size if isinstance(size, int) else size.node.hint for size in sizes]
    symbols = sorted({symbol for node in nodes for symbol in node.expr.free_symbols}, key=str)
    example = {symbol: ANY_SIZE + place for place, symbol in enumerate(symbols)}
    return [size if isinstance(size, int) else int(size.node.expr.xreplace(example)) for size in sizes]


def laid_out(order: list[int]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that copies a tensor so that its axes are in memory in this order."""
    back = [order.index(axis) for axis in range(len(order))]
    return lambda tensor: tensor.permute(order).contiguous().permute(back)
